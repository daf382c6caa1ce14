"""Deletes what is due in log directories, after commits and when asked for."""
