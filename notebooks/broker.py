"""Kafka for the notebooks on a machine of your own."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys


def address() -> str:
    """``KAFKA_BOOTSTRAP_SERVERS``, or else that of a broker which runs here until Python ends."""
    named = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if named:
        return named
    command = [sys.executable, "-m", "pyspark_kafkalog", "run-broker", "--port", "0"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(broker.wait)
    atexit.register(broker.terminate)
    assert broker.stdout
    ready = broker.stdout.readline()  # "127.0.0.1:9092 is ready; ..."
    if not ready:
        raise RuntimeError("kafkalog run-broker has ended; what it printed says why")
    return ready.split()[0]
