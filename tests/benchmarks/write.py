"""Batch write of cached 100-byte rows, to a directory and to a broker.

Against a writer that only counts, and against Spark's ``kafka``: compressed or not, with keys and headers, to
few partitions and to many, each in a session of its own. Its first runs count, as a job writes once; the
later ones, which meet a JVM that has compiled what it runs, are printed beside them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import connect
from pyspark_kafkalog.client.partitions import topics
from pyspark_kafkalog.options.settings import Selection
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

SIZE = 100
BAR = 3.0
LATER_BAR, CEILING_BAR = 1.6, 0.45
"""For later runs to a broker: against Spark's ``kafka``, and against a writer that only counts."""


class Case(NamedTuple):
    """What the rows have, how they are compressed, and where the bar is for them."""

    columns: str
    compression: str
    barred: tuple[str, ...] = ()
    partitions: int = PARTITIONS

    def __str__(self) -> str:
        return f"{SIZE} B {self.columns} {self.compression} {self.partitions} partitions"


CASES = [
    Case("no keys", "none", barred=("a directory", "a broker")),
    Case("no keys", "lz4", barred=("a directory",)),
    Case("no keys", "zstd"),
    Case("keys", "none"),
    Case("headers", "none"),
    Case("no keys", "none", partitions=8),
    Case("no keys", "none", partitions=200),
]
KEY = "binary(left(md5(value), 16)) AS key"
COLUMNS = {
    "no keys": ("value",),
    "keys": (KEY, "value"),
    "headers": (
        KEY,
        "value",
        "array(struct('trace' AS key, left(value, 8) AS value)) AS headers",
    ),
}


def main() -> None:
    args = arguments(__doc__)
    # Spark keeps its JVM, and what that has compiled, for as long as the process lives.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        for case in CASES:
            processes.apply(_contest, (case, args))


def _contest(case: Case, args: argparse.Namespace) -> None:
    count = int(1_000_000 * args.scale)
    with scratch_folder(args.folder) as folder, benchmark_session(folder) as spark:
        spark.dataSource.register(Trivial)
        data = _cached_rows(spark, count, COLUMNS[case.columns])
        # Its topics are deleted at once.
        broker = Broker(folder / "broker", {"log.segment.delete.delay.ms": 0})
        broker.start()
        try:
            topic = _Topic(folder / "kafka-logs", broker, count, case.partitions)
            contestants = {
                "a directory": lambda: write_log(
                    data, topic.log_directory, topic.name, case.compression, case.partitions
                ),
                "a broker": _to_broker(data, "kafkalog", topic, case.compression),
                "ceiling": data.write.format("trivial").mode("append").save,
                "Spark's kafka": _to_broker(data, "kafka", topic, case.compression),
            }
            first = seconds_by_turns(contestants, args.rounds, cold=True, after=topic.renew)
            later = seconds_by_turns(contestants, args.rounds, after=topic.renew)
        finally:
            broker.stop()
    for name in ("a directory", "a broker"):
        bars = {"Spark's kafka": BAR if name in case.barred else None}
        later_bars = {"Spark's kafka": LATER_BAR, "ceiling": CEILING_BAR} if name == "a broker" else {}
        for seconds, when, its_bars in ((first, "", bars), (later, ", later runs", later_bars)):
            of_ours = {**seconds, "ours": seconds[name]}
            for peer in ("ceiling", "Spark's kafka"):
                print_rate(f"write {case} to {name}{when}", count, of_ours, peer, its_bars.get(peer))


def _cached_rows(spark: SparkSession, count: int, columns: tuple[str, ...]) -> DataFrame:
    data = rows(spark, count, SIZE).selectExpr(*columns).cache()
    assert data.count() == count
    return data


def _to_broker(data: DataFrame, kind: str, topic: _Topic, compression: str) -> Callable[[], None]:
    writer = data.write.format(kind).option("kafka.bootstrap.servers", topic.broker.bootstrap)
    writer = writer.option("kafka.compression.type", compression).mode("append")
    return lambda: writer.option("topic", topic.name).save()


class _Topic:
    """What a run writes to, in a directory or at a broker: a topic of its own, which is gone after it.

    Were the logs kept, each run would touch memory for their pages that the machine
    has not used yet: on a virtual one that takes longer than the writing.
    """

    def __init__(self, log_directory: Path, broker: Broker, count: int, partitions: int) -> None:
        self.log_directory = log_directory
        self.broker = broker
        self._count = count
        self._partitions = partitions
        self._number = 0
        self._make()

    @property
    def name(self) -> str:
        return f"rows-{self._number}"

    def renew(self, contestant: str) -> None:
        """See that all rows are there, remove them, and make the next topic."""
        written = self._records({"kafka.bootstrap.servers": self.broker.bootstrap})
        if self.log_directory.exists():
            written += self._records({"path": str(self.log_directory)})
            shutil.rmtree(self.log_directory)
        assert written == (0 if contestant == "ceiling" else self._count), (contestant, written)
        self.broker.delete_topic(self.name)
        self.broker.wait_until(
            lambda: not any(self.broker.log_dir.glob(f"{self.name}-*")), f"{self.name} still has folders"
        )
        self._number += 1
        self._make()

    def _make(self) -> None:
        self.broker.create_topic(self.name, self._partitions)

    def _records(self, place: dict[str, str]) -> int:
        # Of all topics those before, which are deleted, would be asked for until that is certain.
        found = topics(connect(place).place, Selection(topics=(self.name,)))
        return sum(watermarks.high_watermark for watermarks in found)


if __name__ == "__main__":
    main()
