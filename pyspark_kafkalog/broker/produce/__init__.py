"""Record batches to the leaders of partitions."""
