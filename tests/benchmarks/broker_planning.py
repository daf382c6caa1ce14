"""Planning a batch read of a topic of many partitions, against Spark's ``kafka``."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from tests.benchmarks.measure import arguments, print_ratio, seconds_by_turns
from tests.benchmarks.session import FORMATS, benchmark_session, scratch_folder
from tests.kafka import Broker

PARTITIONS = 2000
BAR = 1.0


def main() -> None:
    args = arguments(__doc__)
    partitions = max(int(PARTITIONS * args.scale), 2)
    with scratch_folder(args.folder) as folder, benchmark_session(folder) as spark:
        broker = Broker(folder / "broker", {"log.segment.index.size.max.bytes": 4096})
        broker.start()
        try:
            broker.create_topic("wide", partitions)
            plans = {name: _planner(spark, kind, broker, partitions) for name, kind in FORMATS.items()}
            seconds = seconds_by_turns(plans, args.rounds)
        finally:
            broker.stop()
    ours, theirs = seconds["ours"], seconds["Spark's kafka"]
    print_ratio(
        f"planning {partitions:,} partitions: {ours:.2f} s, Spark's kafka {theirs:.2f}",
        ours / theirs,
        at_most=BAR,
    )


def _planner(spark: SparkSession, kind: str, broker: Broker, partitions: int) -> Callable[[], None]:
    def plan() -> None:
        reader = spark.read.format(kind).option("subscribe", "wide")
        # Small partitions would share a task with ours.
        reader = reader.option("minPartitions", partitions)
        frame = reader.option("kafka.bootstrap.servers", broker.bootstrap).load()
        assert frame.rdd.getNumPartitions() == partitions

    return plan


if __name__ == "__main__":
    main()
