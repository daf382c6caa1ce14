"""A plug-in of pytest: a real broker, a log directory, topics with records. No fixture needs Spark.

Its fixtures are there for your tests with this line in the topmost ``conftest.py``::

    pytest_plugins = ["pyspark_kafkalog.testing"]
"""

from pyspark_kafkalog.tools.testing.fixtures import (
    fill_topic,
    kafka_broker,
    kafka_broker_settings,
    kafka_log_directory,
    kafka_session_broker,
    pytest_runtest_makereport,
)

__all__ = [
    "fill_topic",
    "kafka_broker",
    "kafka_broker_settings",
    "kafka_log_directory",
    "kafka_session_broker",
    "pytest_runtest_makereport",
]
