"""What commits to a consumer group add to a micro-batch of 100,000 rows, of a broker and of a directory."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.benchmarks.measure import PARTITIONS, arguments, print_ratio, rows, warm_ups, write_log
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.benchmarks.streams import available_now
from tests.kafka import Broker

COUNT, SIZE, LIMIT = 2_000_000, 100, 100_000
BAR = 1.05


def main() -> None:
    args = arguments(__doc__)
    count, limit = int(COUNT * args.scale), max(int(LIMIT * args.scale), 1)
    with scratch_folder(args.folder) as folder, benchmark_session(folder) as spark:
        broker = Broker(folder / "broker")
        broker.start()
        try:
            data = rows(spark, count, SIZE)
            write_log(data, folder / "log", "rows")
            broker.create_topic("rows", PARTITIONS)
            writer = data.write.format("kafkalog").mode("append").option("topic", "rows")
            writer.option("kafka.bootstrap.servers", broker.bootstrap).save()
            places = {
                "a broker": {"kafka.bootstrap.servers": broker.bootstrap},
                "a directory": {"path": str(folder / "log")},
            }
            for name, place in places.items():
                _contest(spark, folder, name, {**place, "maxOffsetsPerTrigger": str(limit)}, args.rounds)
        finally:
            broker.stop()


def _contest(spark: SparkSession, folder: Path, name: str, options: dict[str, str], rounds: int) -> None:
    plain = _times(spark, folder / f"{name}, plain", options)
    committing = _times(spark, folder / f"{name}, committing", {**options, "kafka.group.id": "benchmark"})
    for run in (plain, committing) * warm_ups(rounds):
        run()
    without: list[float] = []
    with_commits: list[float] = []
    for _ in range(rounds):
        without += plain()
        with_commits += committing()
    ours, base = statistics.median(with_commits), statistics.median(without)
    print_ratio(
        f"micro-batch from {name} with commits to a group: {ours:.0f} ms, {base:.0f} without",
        ours / base,
        at_most=BAR,
    )


def _times(spark: SparkSession, checkpoints: Path, options: dict[str, str]) -> Callable[[], list[float]]:
    """Reads all; gives the milliseconds of each micro-batch but the first."""
    read_all = available_now(
        spark, "kafkalog", {**options, "subscribe": "rows"}, checkpoints, with_checkpoint=True
    )
    return lambda: [progress["durationMs"]["triggerExecution"] for progress in read_all()[1:]]


if __name__ == "__main__":
    main()
