"""Streams through ``reassemble``, beside the same ones without it: small records, 1 kB ones, 5 MB messages.

The floor is what PySpark's APIs for state do with a row of pandas for each record: some 20,000
records of 1 kB a second in micro-batches of 10,000, by the median of what ``addBatch`` took.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_kafkalog import reassemble
from tests.benchmarks.large_write import MESSAGE_BYTES, SEGMENT_BYTES, TOTAL_BYTES, large_messages
from tests.benchmarks.measure import PARTITIONS, arguments, print_ratio, rows, seconds_by_turns, write_log
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.benchmarks.streams import available_now

FLOOR = 20_000


@dataclass(frozen=True)
class Stream:
    """A topic, how many records and bytes of values it has, and how many records make a micro-batch."""

    topic: str
    records: int
    size: int
    limit: int
    floor: int | None = None


def main() -> None:
    args = arguments(__doc__)

    def scaled(number: float, least: int = PARTITIONS) -> int:
        return max(int(number * args.scale), least)

    messages = scaled(TOTAL_BYTES / 4 / MESSAGE_BYTES)
    small, medium = scaled(2_000_000), scaled(50_000)
    segments = messages * -(-MESSAGE_BYTES // SEGMENT_BYTES)
    streams = (
        Stream("small", small, small * 100, scaled(500_000)),
        Stream("1kB", medium, medium * 1000, scaled(10_000), FLOOR),
        # Micro-batches that no message fills evenly.
        Stream("5MB", segments, messages * MESSAGE_BYTES, scaled(103)),
    )
    with scratch_folder(args.folder) as folder:
        log_directory = folder / "kafka-logs"
        with benchmark_session(folder) as spark:
            write_log(rows(spark, small, 100), log_directory, "small")
            write_log(rows(spark, medium, 1000), log_directory, "1kB")
            writer = large_messages(spark, messages).write.format("kafkalog").mode("append")
            writer = writer.options(topic="5MB", numPartitions=PARTITIONS)
            writer.options(
                **{"large.message.enabled": "true", "max.message.segment.bytes": SEGMENT_BYTES}
            ).save(str(log_directory))
        with benchmark_session(folder) as spark:
            for stream in streams:
                _contest(spark, stream, log_directory, folder, args.rounds)


def _contest(spark: SparkSession, stream: Stream, log_directory: Path, folder: Path, rounds: int) -> None:
    batches: dict[str, list[float]] = {"plain": [], "reassemble": []}
    options = {
        "path": str(log_directory),
        "subscribe": stream.topic,
        "maxOffsetsPerTrigger": str(stream.limit),
    }
    plain = available_now(spark, "kafkalog", options, folder / f"plain-{stream.topic}")
    whole = available_now(spark, "kafkalog", options, folder / f"whole-{stream.topic}", step=reassemble)
    runs = {
        "plain": _noting(plain, batches["plain"]),
        "reassemble": _noting(whole, batches["reassemble"]),
    }
    seconds = seconds_by_turns(runs, rounds)
    rate, megabytes = stream.records / seconds["reassemble"], stream.size / seconds["reassemble"] / 1e6
    ms, plain_ms = (statistics.median(batches[name]) for name in ("reassemble", "plain"))
    what = f"{stream.topic}, {stream.limit:,} records a micro-batch, reassemble: {rate:,.0f} records/s, "
    what += f"{megabytes:,.1f} MB/s, {ms:,.0f} ms a micro-batch; without it "
    what += f"{stream.records / seconds['plain']:,.0f} records/s, {plain_ms:,.0f} ms"
    print_ratio(what, seconds["plain"] / seconds["reassemble"])
    if stream.floor is not None:
        within = stream.limit / ms * 1e3
        what = f"{stream.topic}, within micro-batches: {within:,.0f} records/s; against the floor"
        print_ratio(what, within / stream.floor, at_least=1)


def _noting(run: Callable[[], list[dict]], batches: list[float]) -> Callable[[], None]:
    """``run``, which adds what each of its micro-batches took to ``batches``."""

    def noting() -> None:
        batches.extend(progress["durationMs"]["addBatch"] for progress in run())

    return noting


if __name__ == "__main__":
    main()
