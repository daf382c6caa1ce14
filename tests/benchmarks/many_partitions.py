"""Batch reads of a topic of many small partitions to ``noop``, of a directory and a broker.

Both hold the same logs, and Spark's ``kafka`` reads those of the broker.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from tests.benchmarks.measure import arguments, print_ratio, rows, seconds_by_turns, write_log
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.kafka import Broker

PARTITIONS = 2_000
RECORDS = 100
"""Of each partition."""
SIZE = 100
BARS = {"directory": 1.0, "broker": 1.0}
"""Against Spark's connector."""


def main() -> None:
    args = arguments(__doc__)
    partitions = max(int(PARTITIONS * args.scale), 2)
    with scratch_folder(args.folder) as folder, benchmark_session(folder) as spark:
        logs = folder / "kafka-logs"
        write_log(rows(spark, partitions * RECORDS, SIZE), logs, "wide", partitions=partitions)
        broker = Broker(folder / "broker", {"log.segment.index.size.max.bytes": 4096})
        broker.start()
        try:
            broker.create_topic("wide", partitions)
            broker.stop()
            broker.plant(logs)
            broker.start()
            brokers = {"subscribe": "wide", "kafka.bootstrap.servers": broker.bootstrap}
            frames: dict[str, DataFrame] = {
                "directory": spark.read.format("kafkalog").load(str(logs)),
                "broker": spark.read.format("kafkalog").options(**brokers).load(),
                "Spark's kafka": spark.read.format("kafka").options(**brokers).load(),
            }
            for name, frame in frames.items():
                assert frame.count() == partitions * RECORDS, name
            seconds = seconds_by_turns(
                {name: frame.write.format("noop").mode("overwrite").save for name, frame in frames.items()},
                args.rounds,
            )
        finally:
            broker.stop()
    theirs = seconds["Spark's kafka"]
    for name, bar in BARS.items():
        ours = seconds[name]
        print_ratio(
            f"read {partitions:,} partitions of a {name}: {ours:.2f} s, Spark's kafka {theirs:.2f}",
            ours / theirs,
            at_most=bar,
        )


if __name__ == "__main__":
    main()
