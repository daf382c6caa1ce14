"""The command line ``kafkalog``."""
