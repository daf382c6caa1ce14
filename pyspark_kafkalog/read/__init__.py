"""From a place to arrow batches: which offsets to read, in which splits, and how."""
