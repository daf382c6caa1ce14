"""Kafka for the notebooks: your own brokers, or one that is started here.

``KAFKA_BOOTSTRAP_SERVERS`` (``host:9092``, separated by commas) names your own, as in Databricks. Without it
a real Apache Kafka runs on loopback until Python ends. It needs Java 17, and jars from Maven Central, 45 MB,
which are fetched once. The tests of this repository start it in the same way.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Where the tests are, which know how to start Kafka. Last, so that the installed package counts.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.kafka import KAFKA_VERSION, Broker, run_kafka_class, spark_kafka_connector_jars
from tests.kafka_service import KafkaService


class _YourBrokers(KafkaService):
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def output_tail(self, lines: int = 100) -> str:
        return "(see the logs of your brokers)"


def connect() -> KafkaService:
    """The brokers: ``bootstrap`` is their address, and ``make_topic(name, partitions)`` makes a topic.

    A topic that exists already is an error, so no notebook writes into one of yours.
    """
    named = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if named:
        return _YourBrokers(named)
    folder = Path(tempfile.mkdtemp(prefix="kafkalog-notebook-"))
    broker = Broker(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(broker.discard)
    broker.start()
    print(f"Apache Kafka {KAFKA_VERSION} runs on loopback")
    return broker


def connector_jars() -> str:
    """The jars of Spark's own ``kafka`` source for ``spark.jars``; empty if they can't be had."""
    try:
        return ",".join(map(str, spark_kafka_connector_jars()))
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError):
        print("Maven Central can't be reached: Spark's own connector is left out")
        return ""


def describe_group(bootstrap: str, group: str) -> str:
    """What ``kafka-consumer-groups --describe`` prints: the class of Kafka's own that the script runs."""
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    return run_kafka_class(tool, "--bootstrap-server", bootstrap, "--describe", "--group", group).stdout
