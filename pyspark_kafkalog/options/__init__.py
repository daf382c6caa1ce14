"""User options: their names, values and JSON forms; the only reader of what users write."""
