"""Batch read of a broker to ``noop``, against Spark's ``kafka`` on the same topics.

The topics are a log directory that we wrote and the broker adopted.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.measure import PARTITIONS, arguments, print_rate, rows, seconds_by_turns, write_log
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.kafka import Broker

# Size of a value, number of records, compression, bar against Spark's connector.
CASES = [
    (100, 2_000_000, "none", 3.0),
    (100, 2_000_000, "lz4", 2.5),
    (100, 2_000_000, "zstd", 2.5),
    (1000, 500_000, "none", 2.5),
    (1000, 500_000, "lz4", 2.5),
    (1000, 500_000, "zstd", 2.5),
]


def main() -> None:
    asked = arguments(__doc__)
    with scratch_folder(asked.folder) as folder, benchmark_session(folder) as spark:
        counts = {}
        for size, full_count, compression, _ in CASES:
            topic = f"{size}-{compression}"
            counts[topic] = int(full_count * asked.scale)
            write_log(rows(spark, counts[topic], size), folder / "kafka-logs", topic, compression)
        broker = Broker(folder / "broker")
        broker.start()
        try:
            for topic in counts:
                broker.create_topic(topic, PARTITIONS)
            broker.stop()
            broker.plant(folder / "kafka-logs")
            broker.start()
            for size, _, compression, bar in CASES:
                topic = f"{size}-{compression}"
                frames = {name: _frame(spark, kind, topic, broker) for name, kind in FORMATS.items()}
                for name, frame in frames.items():
                    assert frame.count() == counts[topic], name
                seconds = seconds_by_turns(
                    {
                        name: frame.write.format("noop").mode("overwrite").save
                        for name, frame in frames.items()
                    },
                    asked.rounds,
                )
                print_rate(f"read broker {topic}", counts[topic], seconds, "Spark's kafka", bar)
        finally:
            broker.stop()


def _frame(spark: SparkSession, kind: str, topic: str, broker: Broker) -> DataFrame:
    reader = spark.read.format(kind).option("subscribe", topic)
    return reader.option("kafka.bootstrap.servers", broker.bootstrap).load()


if __name__ == "__main__":
    main()
