"""Counts messages per task, and stores the counts in files."""
