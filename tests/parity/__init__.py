"""Spark's own ``kafka`` and ``kafkalog`` side by side: the cases of the connector's test suites, for both."""
