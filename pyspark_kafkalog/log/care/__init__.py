"""Keeps the logs of a directory in order, as a broker does in the background."""
