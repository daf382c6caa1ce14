"""Batch write of cached 100-byte rows to a broker, against Spark's ``kafka``: no keys, keys, and lz4."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from tests.benchmarks.measure import PARTITIONS, arguments, print_rate, rows, seconds_by_turns, warm_ups
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.kafka import Broker

SIZE = 100
BAR = 3.0
# What the cached rows have, and how they are compressed.
CASES = [("no keys", "none"), ("keys", "none"), ("no keys", "lz4")]


def main() -> None:
    asked = arguments(__doc__)
    count = int(1_000_000 * asked.scale)
    with scratch_folder(asked.folder) as folder, benchmark_session(folder) as spark:
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
                _contest(data[kind], kind, compression, broker, asked.rounds)
        finally:
            broker.stop()


def _contest(data: DataFrame, kind: str, compression: str, broker: Broker, rounds: int) -> None:
    count = data.count()
    topics = {name: f"{name.split()[-1]}-{kind.replace(' ', '-')}-{compression}" for name in FORMATS}
    topics = {name: topic.replace("'", "") for name, topic in topics.items()}
    for topic in topics.values():
        broker.create_topic(topic, PARTITIONS)

    def writer(name: str) -> Callable[[], None]:
        return (
            data.write.format(FORMATS[name])
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("kafka.compression.type", compression)
            .option("topic", topics[name])
            .mode("append")
            .save
        )

    seconds = seconds_by_turns({name: writer(name) for name in FORMATS}, rounds)
    for name, topic in topics.items():
        reader = data.sparkSession.read.format("kafkalog").option("subscribe", topic)
        written = reader.option("kafka.bootstrap.servers", broker.bootstrap).load().count()
        assert written == count * (rounds + warm_ups(rounds)), (name, written)
    print_rate(f"write broker {SIZE} B {kind} {compression}", count, seconds, "Spark's kafka", BAR)


if __name__ == "__main__":
    main()
