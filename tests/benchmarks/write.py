"""Batch write of cached 100-byte rows, to a directory and to a broker.

Against a writer that only counts, and against Spark's ``kafka``: no keys, lz4, and keys.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

from tests.benchmarks.measure import (
    PARTITIONS,
    arguments,
    print_rate,
    rows,
    seconds_by_turns,
    warm_ups,
    write_log,
)
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.benchmarks.trivial import Trivial
from tests.kafka import Broker

SIZE = 100
BAR = 3.0
# What the cached rows have, and how they are compressed.
CASES = [("no keys", "none"), ("no keys", "lz4"), ("keys", "none")]


def main() -> None:
    asked = arguments(__doc__)
    count = int(1_000_000 * asked.scale)
    with scratch_folder(asked.folder) as folder, benchmark_session(folder) as spark:
        spark.dataSource.register(Trivial)
        values = rows(spark, count, SIZE)
        data = {
            "no keys": values.cache(),
            "keys": values.selectExpr("binary(left(md5(value), 16)) AS key", "value").cache(),
        }
        for kind, cached in data.items():
            assert cached.count() == count, kind
        broker = Broker(folder / "broker")
        broker.start()
        try:
            for kind, compression in CASES:
                what = f"{SIZE} B {kind} {compression}"
                _contest(what, data[kind], compression, folder / "kafka-logs", broker, asked.rounds)
        finally:
            broker.stop()


def _contest(
    what: str, data: DataFrame, compression: str, log_directory: Path, broker: Broker, rounds: int
) -> None:
    """Each run appends to what its contestant's last one wrote."""
    count = data.count()
    topic = what.replace(" ", "-")
    topics = {kind: f"{kind}-{topic}" for kind in FORMATS.values()}
    for its in topics.values():
        broker.create_topic(its, PARTITIONS)

    def to_broker(kind: str) -> Callable[[], None]:
        return (
            data.write.format(kind)
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("kafka.compression.type", compression)
            .option("topic", topics[kind])
            .mode("append")
            .save
        )

    contestants = {
        "a directory": lambda: write_log(data, log_directory, topic, compression),
        "a broker": to_broker("kafkalog"),
        "ceiling": data.write.format("trivial").mode("append").save,
        "Spark's kafka": to_broker("kafka"),
    }
    seconds = seconds_by_turns(contestants, rounds)
    places = {topic: ("path", str(log_directory))}
    places |= dict.fromkeys(topics.values(), ("kafka.bootstrap.servers", broker.bootstrap))
    for its, place in places.items():
        reader = data.sparkSession.read.format("kafkalog").option(*place).option("subscribe", its)
        written = reader.load().count()
        assert written == count * (rounds + warm_ups(rounds)), (its, written)
    for name in ("a directory", "a broker"):
        of_ours = {**seconds, "ours": seconds[name]}
        print_rate(f"write {what} to {name}", count, of_ours, "ceiling")
        print_rate(f"write {what} to {name}", count, of_ours, "Spark's kafka", BAR)


if __name__ == "__main__":
    main()
