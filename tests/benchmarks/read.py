"""Batch read to ``noop``, against a source that only hands Arrow batches over and against Spark's ``kafka``.

The broker that serves Spark's connector has adopted the very log directory that we read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.measure import (
    PARTITIONS,
    TOPIC,
    arguments,
    print_rate,
    rows,
    seconds_by_turns,
    write_log,
)
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.benchmarks.trivial import Trivial
from tests.kafka import Broker

# Size of a value, number of records, bar against Spark's connector.
CASES = [(100, 2_000_000, 3.0), (1000, 500_000, 2.5)]
CEILING_BAR = 0.8


def main() -> None:
    asked = arguments(__doc__)
    with scratch_folder(asked.folder) as folder, benchmark_session(folder) as spark:
        spark.dataSource.register(Trivial)
        for size, full_count, bar in CASES:
            count = int(full_count * asked.scale) // PARTITIONS * PARTITIONS
            for compression in ("none", "lz4"):
                _contest(spark, folder / f"{size}-{compression}", count, size, compression, bar, asked.rounds)


def _contest(
    spark: SparkSession, folder: Path, count: int, size: int, compression: str, bar: float, rounds: int
) -> None:
    log_directory = folder / "kafka-logs"
    write_log(rows(spark, count, size), log_directory, compression=compression)
    broker = Broker(folder / "broker")
    broker.start()
    try:
        broker.create_topic(TOPIC, PARTITIONS)
        broker.stop()
        broker.plant(log_directory)
        broker.start()
        ours = spark.read.format("kafkalog").load(str(log_directory))
        ceiling = spark.read.format("trivial").options(rows=count, size=size, partitions=PARTITIONS).load()
        peer = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", TOPIC)
            .load()
        )
        contestants = {"ours": ours, "ceiling": ceiling, "Spark's kafka": peer}
        for name, frame in contestants.items():
            assert frame.count() == count, name
        seconds = seconds_by_turns({name: _read(frame) for name, frame in contestants.items()}, rounds)
    finally:
        broker.stop()
    print_rate(f"read {size} B {compression}", count, seconds, "ceiling", CEILING_BAR)
    print_rate(f"read {size} B {compression}", count, seconds, "Spark's kafka", bar)


def _read(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
