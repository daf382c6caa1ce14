"""A stream as a member of a consumer group."""
