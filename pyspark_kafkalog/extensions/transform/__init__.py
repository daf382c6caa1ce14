"""Functions of the user's that take rows."""
