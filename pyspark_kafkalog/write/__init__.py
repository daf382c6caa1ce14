"""Writes of arrow batches as record batches, routed to topics and partitions."""
