"""Looks for what keeps a place from being read or written, on this machine and on Spark's executors."""
