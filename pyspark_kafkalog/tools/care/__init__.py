"""The care of a log directory: what brokers do to their logs by themselves."""
