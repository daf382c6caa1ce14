"""Fixtures of pytest for the tests of users: a real broker, a log directory, topics with records."""
