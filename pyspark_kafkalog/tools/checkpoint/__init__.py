"""Checkpoints of streaming queries: looked into, set back, and moved to another cluster."""
