"""Offsets and record batches from the leaders of partitions."""
