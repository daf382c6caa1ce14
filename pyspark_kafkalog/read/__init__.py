"""Reads of a place as arrow batches: which offsets to read, in which splits, and how."""
