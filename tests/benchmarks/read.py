"""Batch read to ``noop``, against a source that only hands Arrow batches over and against Spark's ``kafka``.

The broker that serves Spark's connector has adopted the very log directory that we read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.measure import (
    PARTITIONS,
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
    args = arguments(__doc__)
    with scratch_folder(args.folder) as folder, benchmark_session(folder) as spark:
        spark.dataSource.register(Trivial)
        contests = [
            _Contest(
                f"{size}-{compression}", int(full_count * args.scale) // PARTITIONS * PARTITIONS, size, bar
            )
            for size, full_count, bar in CASES
            for compression in ("none", "lz4")
        ]
        log_directory = folder / "kafka-logs"
        for contest in contests:
            compression = contest.topic.split("-")[1]
            write_log(rows(spark, contest.count, contest.size), log_directory, contest.topic, compression)
        broker = Broker(folder / "broker")
        broker.start()
        try:
            for contest in contests:
                broker.create_topic(contest.topic, PARTITIONS)
            broker.stop()
            broker.plant(log_directory)
            broker.start()
            for contest in contests:
                contest.run(spark, log_directory, broker, args.rounds)
        finally:
            broker.stop()


@dataclass(frozen=True)
class _Contest:
    topic: str
    count: int
    size: int
    bar: float

    def run(self, spark: SparkSession, log_directory: Path, broker: Broker, rounds: int) -> None:
        trivial = spark.read.format("trivial").options(rows=self.count, size=self.size, partitions=PARTITIONS)
        ours = spark.read.format("kafkalog").option("subscribe", self.topic)
        peer = spark.read.format("kafka").option("subscribe", self.topic)
        frames = {
            "ours": ours.load(str(log_directory)),
            "ceiling": trivial.load(),
            "Spark's kafka": peer.option("kafka.bootstrap.servers", broker.bootstrap).load(),
        }
        for name, frame in frames.items():
            assert frame.count() == self.count, name
        seconds = seconds_by_turns({name: _read(frame) for name, frame in frames.items()}, rounds)
        print_rate(f"read {self.topic}", self.count, seconds, "ceiling", CEILING_BAR)
        print_rate(f"read {self.topic}", self.count, seconds, "Spark's kafka", self.bar)


def _read(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
