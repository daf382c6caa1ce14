"""Restores, against real brokers."""
