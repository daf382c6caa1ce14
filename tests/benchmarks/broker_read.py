"""Batch read of a broker to ``noop``, against Spark's ``kafka`` on the same topics.

Topics that we wrote are a log directory that the broker adopted; the others are from Java's producer.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.java_producer import produce_with_java
from tests.benchmarks.measure import PARTITIONS, arguments, print_rate, rows, seconds_by_turns, write_log
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.kafka import Broker

US, JAVA = "us", "Java's producer"
# Size of a value, number of records, compression, who wrote them, bar against Spark's connector.
CASES = [
    (100, 2_000_000, "none", US, 3.0),
    (100, 2_000_000, "lz4", US, 2.5),
    (100, 2_000_000, "lz4", JAVA, 2.5),
    (100, 2_000_000, "zstd", US, 2.5),
    (100, 2_000_000, "zstd", JAVA, 2.5),
    (1000, 500_000, "none", US, 2.5),
    (1000, 500_000, "lz4", JAVA, 2.5),
    (1000, 500_000, "zstd", JAVA, 2.5),
]


def main() -> None:
    args = arguments(__doc__)
    with scratch_folder(args.folder) as folder, benchmark_session(folder) as spark:
        counts = {}
        for size, full_count, compression, writer, _ in CASES:
            topic = _topic(size, compression, writer)
            counts[topic] = int(full_count * args.scale)
            if writer == US:
                write_log(rows(spark, counts[topic], size), folder / "kafka-logs", topic, compression)
        broker = Broker(folder / "broker")
        broker.start()
        try:
            for topic in counts:
                broker.create_topic(topic, PARTITIONS)
            broker.stop()
            broker.plant(folder / "kafka-logs")
            broker.start()
            for size, _, compression, writer, _ in CASES:
                topic = _topic(size, compression, writer)
                if writer == JAVA:
                    produce_with_java(broker, topic, counts[topic], size, compression, folder)
            for size, _, compression, writer, bar in CASES:
                topic = _topic(size, compression, writer)
                frames = {name: _frame(spark, kind, topic, broker) for name, kind in FORMATS.items()}
                for name, frame in frames.items():
                    assert frame.count() == counts[topic], name
                seconds = seconds_by_turns(
                    {
                        name: frame.write.format("noop").mode("overwrite").save
                        for name, frame in frames.items()
                    },
                    args.rounds,
                )
                what = f"read broker {size}-{compression}, written by {writer}"
                print_rate(what, counts[topic], seconds, "Spark's kafka", bar)
        finally:
            broker.stop()


def _topic(size: int, compression: str, writer: str) -> str:
    return f"{size}-{compression}-{'us' if writer == US else 'java'}"


def _frame(spark: SparkSession, kind: str, topic: str, broker: Broker) -> DataFrame:
    reader = spark.read.format(kind).option("subscribe", topic)
    return reader.option("kafka.bootstrap.servers", broker.bootstrap).load()


if __name__ == "__main__":
    main()
