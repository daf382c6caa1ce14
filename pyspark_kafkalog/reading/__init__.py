"""From a place to arrow batches: where to read, in which splits, and how each is read."""
