"""Events as Kafka's own producer writes them: Java's, with its default settings except for what is said."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.measure import event
from tests.kafka import Broker, run_kafka_class

BATCH_SIZE = 16 << 10
"""Java's default, in bytes; of compressed records, as the producer estimates them."""
_DISTINCT = 50_000
_DELIMITER = "#"


def produce_with_java(
    broker: Broker,
    topic: str,
    count: int,
    size: int,
    compression: str,
    folder: Path,
    *,
    batch_size: int = BATCH_SIZE,
) -> None:
    """Write ``count`` records with values of ``size`` bytes, each one of 50,000 that :func:`event` gives."""
    payload = folder / f"{topic}.payload"
    values = (event(number, size).decode() for number in range(min(count, _DISTINCT)))
    payload.write_text(_DELIMITER.join(values))
    try:
        options = ["--topic", topic, "--num-records", count, "--throughput", -1]
        options += ["--payload-file", payload, "--payload-delimiter", _DELIMITER, "--producer-props"]
        properties = {
            "bootstrap.servers": broker.bootstrap,
            "batch.size": batch_size,
            "compression.type": compression,
        }
        options += [f"{name}={value}" for name, value in properties.items()]
        run_kafka_class("org.apache.kafka.tools.ProducerPerformance", *options, timeout=600)
    finally:
        payload.unlink()
