"""The upkeep of a log directory: what brokers do to their logs on their own."""
