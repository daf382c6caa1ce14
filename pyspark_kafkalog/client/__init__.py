"""Kafka without Spark: the object that connect() gives, and its reads and writes as Arrow."""
