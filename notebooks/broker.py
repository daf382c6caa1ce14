"""Kafka for the notebooks on a machine of your own."""

from __future__ import annotations

import functools
import os

from pyspark_kafkalog import LocalBroker


def address() -> str:
    """``KAFKA_BOOTSTRAP_SERVERS``, or else that of a broker which runs here until Python ends."""
    return os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or _broker().address


@functools.cache
def _broker() -> LocalBroker:
    broker = LocalBroker()
    broker.start()
    return broker
