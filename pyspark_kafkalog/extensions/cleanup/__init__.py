"""Deletes and compacts old records of log directories, after commits and when asked for."""
