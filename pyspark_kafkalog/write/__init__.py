"""From arrow batches to record batches, routed to topics and partitions."""
