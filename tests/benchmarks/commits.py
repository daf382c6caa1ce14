"""What commits to a consumer group add to a micro-batch of 100,000 rows, and what membership adds to that."""

from __future__ import annotations

import statistics
import uuid
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
                options = {**place, "maxOffsetsPerTrigger": str(limit)}
                committing = _times(spark, folder / name, {**options, "kafka.group.id": "benchmark"})
                plain = _times(spark, folder / f"{name}, plain", options)
                ours, base = _by_turns(committing, plain, args.rounds)
                text = f"micro-batch from {name} with commits to a group: {ours:.0f} ms, {base:.0f} without"
                print_ratio(text, ours / base, at_most=BAR)
                if "path" not in place:
                    ours, base = _by_turns(_as_member(spark, folder, options), committing, args.rounds)
                    text = f"micro-batch of a member of a group: {ours:.0f} ms, {base:.0f} without membership"
                    print_ratio(text, ours / base, at_most=BAR)
        finally:
            broker.stop()


def _by_turns(
    one: Callable[[], list[float]], other: Callable[[], list[float]], rounds: int
) -> tuple[float, float]:
    """The medians of both, after warm-ups."""
    for run in (other, one) * warm_ups(rounds):
        run()
    times: tuple[list[float], list[float]] = [], []
    for _ in range(rounds):
        times[1].extend(other())
        times[0].extend(one())
    return statistics.median(times[0]), statistics.median(times[1])


def _as_member(spark: SparkSession, folder: Path, options: dict[str, str]) -> Callable[[], list[float]]:
    """The only member of a new group each time, as it goes on where the group is."""

    def run() -> list[float]:
        group = f"benchmark-{uuid.uuid4().hex}"
        shared = {**options, "kafka.group.id": group, "groupMembership": "true"}
        return _times(spark, folder / group, shared)()

    return run


def _times(spark: SparkSession, checkpoints: Path, options: dict[str, str]) -> Callable[[], list[float]]:
    """Reads all; gives the milliseconds of each micro-batch but the first."""
    read_all = available_now(
        spark, "kafkalog", {**options, "subscribe": "rows"}, checkpoints, with_checkpoint=True
    )
    return lambda: [progress["durationMs"]["triggerExecution"] for progress in read_all()[1:]]


if __name__ == "__main__":
    main()
