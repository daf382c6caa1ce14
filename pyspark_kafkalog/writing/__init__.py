"""From arrow batches to a place: topic, partition and record batches."""
