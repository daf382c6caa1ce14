"""Raw record batches from place to place, and what belongs to them."""
