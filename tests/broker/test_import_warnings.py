"""Users who turn warnings into errors can use brokers: kafka-python's own warnings don't reach them."""

from __future__ import annotations

import subprocess
import sys

EVERYTHING = """
import importlib, pkgutil
import pyspark_kafkalog.broker as broker
for module in pkgutil.walk_packages(broker.__path__, broker.__name__ + "."):
    importlib.import_module(module.name)
import kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.producer
"""


def test_no_warning_of_kafka_python() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", EVERYTHING], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
