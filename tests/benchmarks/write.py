"""Batch write of cached 100-byte rows, against a writer that only counts and against Spark's ``kafka``."""

from __future__ import annotations

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
                _contest(data, folder / "kafka-logs", broker, compression, asked.rounds)
        finally:
            broker.stop()


def _contest(data: DataFrame, log_directory: Path, broker: Broker, compression: str, rounds: int) -> None:
    """Each run appends to what the last one wrote, in one log directory and in one topic of the broker."""
    topic = f"{SIZE}-{compression}"
    broker.create_topic(topic, PARTITIONS)

    def write_to_broker() -> None:
        (
            data.write.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("kafka.compression.type", compression)
            .option("topic", topic)
            .save()
        )

    count = data.count()
    contestants = {
        "ours": lambda: write_log(data, log_directory, topic, compression),
        "ceiling": lambda: data.write.format("trivial").mode("append").save(),
        "Spark's kafka": write_to_broker,
    }
    seconds = seconds_by_turns(contestants, rounds)
    written = (
        data.sparkSession.read.format("kafkalog").option("subscribe", topic).load(str(log_directory)).count()
    )
    assert written == count * (rounds + warm_ups(rounds)), written
    print_rate(f"write {SIZE} B {compression}", count, seconds, "ceiling")
    print_rate(f"write {SIZE} B {compression}", count, seconds, "Spark's kafka", BAR)


if __name__ == "__main__":
    main()
