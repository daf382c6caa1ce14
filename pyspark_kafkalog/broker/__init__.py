"""A live cluster: connections to its brokers, and records to and from them as whole batches."""
