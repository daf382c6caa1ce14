"""Streams from a broker to ``noop``, against Spark's ``kafka``: large and small micro-batches."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.benchmarks.measure import (
    PARTITIONS,
    arguments,
    print_rate,
    print_ratio,
    rows,
    seconds_by_turns,
    warm_ups,
)
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.benchmarks.streams import available_now
from tests.kafka import Broker

COUNT, SIZE = 2_000_000, 100
TRIGGERS = {100_000: 1.0, 1_000_000: 2.0}
"""Rows of a micro-batch, and the bar against Spark's connector."""
SMALL, SMALL_BATCHES, SMALL_BAR = 1000, 30, 1.6
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
                _small_batches(spark, broker, folder, args.rounds)
        finally:
            broker.stop()


def _fill(spark: SparkSession, broker: Broker, count: int) -> None:
    """``count`` rows in the topic ``large``, and just enough for the small micro-batches in ``small``."""
    for topic, number in (("large", count), ("small", SMALL * SMALL_BATCHES)):
        broker.create_topic(topic, PARTITIONS)
        writer = rows(spark, number, SIZE).write.format("kafka").option("topic", topic)
        writer.option("kafka.bootstrap.servers", broker.bootstrap).save()


def _available_now(
    spark: SparkSession, kind: str, broker: Broker, folder: Path, limit: int, topic: str = "large"
) -> Callable[[], list[dict]]:
    """Reads all of a topic; see :func:`tests.benchmarks.streams.available_now`."""
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "maxOffsetsPerTrigger": str(limit),
    }
    return available_now(spark, kind, options, folder / f"checkpoints-{kind}-{topic}-{limit}")


def _small_batches(spark: SparkSession, broker: Broker, folder: Path, rounds: int) -> None:
    medians = {}
    runs = {
        name: _available_now(spark, kind, broker, folder, SMALL, "small") for name, kind in FORMATS.items()
    }
    for name, run in [*runs.items()] * (warm_ups(rounds) + 1):
        times = [progress["durationMs"]["triggerExecution"] for progress in run()[1:]]
        medians[name] = statistics.median(times)
    ours, theirs = medians["ours"], medians[_PEER]
    print_ratio(
        f"micro-batch of {SMALL:,} rows: {ours:.0f} ms, {_PEER} {theirs:.0f}",
        ours / theirs,
        at_most=SMALL_BAR,
    )


if __name__ == "__main__":
    main()
