"""Batch write of cached 100-byte rows, against a writer that only counts and against Spark's ``kafka``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

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

SIZE = 100
BAR = 3.0


def main() -> None:
    asked = arguments(__doc__)
    count = int(1_000_000 * asked.scale)
    with scratch_folder(asked.folder) as folder, benchmark_session(folder) as spark:
        spark.dataSource.register(Trivial)
        data = rows(spark, count, SIZE).cache()
        assert data.count() == count
        broker = Broker(folder / "broker")
        broker.start()
        try:
            for compression in ("none", "lz4"):
                ours = _Ours(data, folder, compression)
                peer = _SparkKafka(data, broker, compression)
                contestants = {"ours": ours, "ceiling": _write_nothing(data), "Spark's kafka": peer}
                seconds = seconds_by_turns(contestants, asked.rounds)
                assert spark.read.format("kafkalog").load(str(ours.last)).count() == count
                print_rate(f"write {SIZE} B {compression}", count, seconds, "ceiling")
                print_rate(f"write {SIZE} B {compression}", count, seconds, "Spark's kafka", BAR)
        finally:
            broker.stop()


def _write_nothing(data: DataFrame) -> Callable[[], None]:
    return lambda: data.write.format("trivial").mode("append").save()


class _Ours:
    """Writes to a new directory each time."""

    def __init__(self, data: DataFrame, folder: Path, compression: str) -> None:
        self._data, self._compression = data, compression
        self._directories = (folder / f"{compression}-{number}" for number in itertools.count())

    def __call__(self) -> None:
        self.last = next(self._directories)
        write_log(self._data, self.last, compression=self._compression)


class _SparkKafka:
    """Writes to a new topic each time."""

    def __init__(self, data: DataFrame, broker: Broker, compression: str) -> None:
        self._data, self._broker, self._compression = data, broker, compression
        self._topics = (f"{TOPIC}-{compression}-{number}" for number in itertools.count())

    def __call__(self) -> None:
        topic = next(self._topics)
        self._broker.create_topic(topic, PARTITIONS)
        (
            self._data.write.format("kafka")
            .option("kafka.bootstrap.servers", self._broker.bootstrap)
            .option("kafka.compression.type", self._compression)
            .option("topic", topic)
            .save()
        )


if __name__ == "__main__":
    main()
