"""Moves raw record batches from place to place."""
