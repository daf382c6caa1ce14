"""Makes, changes and deletes the topics of a cluster."""
