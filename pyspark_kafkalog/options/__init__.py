"""User options: their names, values and JSON forms. Nothing else reads what users write."""
