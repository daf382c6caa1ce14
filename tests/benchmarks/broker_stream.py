"""Streams from a broker to ``noop``, against Spark's ``kafka``: large micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.benchmarks.measure import (
    PARTITIONS,
    arguments,
    print_rate,
    rows,
    seconds_by_turns,
)
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.benchmarks.streams import available_now
from tests.kafka import Broker

COUNT, SIZE = 2_000_000, 100
TRIGGERS = {100_000: 1.0, 1_000_000: 2.0}
"""Rows of a micro-batch, and the bar against Spark's connector."""
_PEER = "Spark's kafka"


def main() -> None:
    args = arguments(__doc__)
    count = int(COUNT * args.scale)
    with scratch_folder(args.folder) as folder:
        broker = Broker(folder / "broker")
        broker.start()
        try:
            with benchmark_session(folder) as spark:
                _fill(spark, broker, count)
                for limit, bar in TRIGGERS.items():
                    limit = max(int(limit * args.scale), 1)
                    runs = {
                        name: _available_now(spark, kind, broker, folder, limit)
                        for name, kind in FORMATS.items()
                    }
                    seconds = seconds_by_turns(runs, args.rounds)
                    print_rate(f"stream, {limit:,} rows a trigger", count, seconds, _PEER, bar)
        finally:
            broker.stop()


def _fill(spark: SparkSession, broker: Broker, count: int) -> None:
    broker.create_topic("large", PARTITIONS)
    writer = rows(spark, count, SIZE).write.format("kafka").option("topic", "large")
    writer.option("kafka.bootstrap.servers", broker.bootstrap).save()


def _available_now(
    spark: SparkSession, kind: str, broker: Broker, folder: Path, limit: int
) -> Callable[[], list[dict]]:
    """Reads it all; see :func:`tests.benchmarks.streams.available_now`."""
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": "large",
        "maxOffsetsPerTrigger": str(limit),
    }
    return available_now(spark, kind, options, folder / f"checkpoints-{kind}-{limit}")


if __name__ == "__main__":
    main()
