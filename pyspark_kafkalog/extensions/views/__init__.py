"""Rows about places."""
