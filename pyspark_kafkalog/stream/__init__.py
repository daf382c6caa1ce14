"""A streaming query: its plans, its commits to a group, and its state beside the checkpoint."""
