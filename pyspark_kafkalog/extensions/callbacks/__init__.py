"""Tells a user's object what becomes of a write's record batches, and counts them."""
