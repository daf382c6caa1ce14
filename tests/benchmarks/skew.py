"""Batch reads of a topic of which one partition has nearly all records, against Spark's ``kafka``.

Both get the same ``minPartitions``, which is below the number of partitions.
"""

from __future__ import annotations

from tests.benchmarks.measure import arguments, print_ratio, rows, seconds_by_turns
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.kafka import Broker

HOT, SMALL, PARTITIONS = 20_000_000, 1_000, 50
"""Records of the hot partition and of each small one, and how many of these there are."""
MIN_PARTITIONS = 8
BAR = 0.35


def main() -> None:
    args = arguments(__doc__)
    hot, small = max(int(HOT * args.scale), 1), PARTITIONS * SMALL
    with scratch_folder(args.folder) as folder, benchmark_session(folder) as spark:
        of_each = {"0": hot, f"CAST(1 + pmod(hash(value), {PARTITIONS}) AS int)": small}
        for partition, count in of_each.items():
            (
                rows(spark, count, 100)
                .selectExpr("value", f"{partition} AS partition")
                .write.format("kafkalog")
                .options(topic="hot", numPartitions=PARTITIONS + 1)
                .mode("append")
                .save(str(folder / "kafka-logs"))
            )
        broker = Broker(folder / "broker")
        broker.start()
        try:
            broker.create_topic("hot", PARTITIONS + 1)
            broker.stop()
            broker.plant(folder / "kafka-logs")
            broker.start()
            options = {
                "kafka.bootstrap.servers": broker.bootstrap,
                "subscribe": "hot",
                "minPartitions": str(MIN_PARTITIONS),
            }
            frames = {
                name: spark.read.format(kind).options(**options).load() for name, kind in FORMATS.items()
            }
            for name, frame in frames.items():
                assert frame.count() == hot + small, name
            tasks = ", ".join(f"{name} {frame.rdd.getNumPartitions()}" for name, frame in frames.items())
            seconds = seconds_by_turns(
                {name: frame.write.format("noop").mode("overwrite").save for name, frame in frames.items()},
                args.rounds,
            )
        finally:
            broker.stop()
    ours, theirs = seconds["ours"], next(took for name, took in seconds.items() if name != "ours")
    print_ratio(
        f"read {hot:,} records of one partition and {small:,} of {PARTITIONS} others, tasks: {tasks};"
        f" {ours:.2f} s, Spark's kafka {theirs:.2f}",
        ours / theirs,
        at_most=BAR,
    )


if __name__ == "__main__":
    main()
