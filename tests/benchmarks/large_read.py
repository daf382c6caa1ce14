"""Reads with large messages reassembled in the source: small records with and without, and 5 MB messages."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from tests.benchmarks.large_write import MESSAGE_BYTES, SEGMENT_BYTES, TOTAL_BYTES, large_messages
from tests.benchmarks.measure import (
    PARTITIONS,
    arguments,
    print_rate,
    print_ratio,
    rows,
    seconds_by_turns,
    write_log,
)
from tests.benchmarks.session import benchmark_session, scratch_folder
from tests.benchmarks.streams import available_now

SMALL_SIZE, SMALL_ROWS, LIMIT = 100, 4_000_000, 1_000_000
SMALL_BAR = 0.95
LARGE_BAR = 250
"""MB/s."""
ON = {"large.message.enabled": "true"}
SAMPLES = 10


def main() -> None:
    args = arguments(__doc__)
    with scratch_folder(args.folder) as folder:
        log_directory = folder / "kafka-logs"
        small = max(PARTITIONS, int(SMALL_ROWS * args.scale))
        large = max(PARTITIONS, int(TOTAL_BYTES * args.scale) // MESSAGE_BYTES)
        with benchmark_session(folder) as spark:
            write_log(rows(spark, small, SMALL_SIZE), log_directory, "small")
            writer = large_messages(spark, large).write.format("kafkalog").mode("append").options(**ON)
            writer = writer.options(topic="large", numPartitions=PARTITIONS)
            writer.option("max.message.segment.bytes", SEGMENT_BYTES).save(str(log_directory))
        # A new session has new workers, which have not written anything.
        with benchmark_session(folder) as spark:
            _large(spark, log_directory, large, args.rounds)
            _small(spark, folder, log_directory, small, args.rounds, max(int(LIMIT * args.scale), 1))


def _small(
    spark: SparkSession, folder: Path, log_directory: Path, count: int, rounds: int, limit: int
) -> None:
    place = {"path": str(log_directory), "subscribe": "small"}
    streaming = {**place, "maxOffsetsPerTrigger": str(limit)}
    contests = {
        "batch": (_batch(spark, {**place, **ON}), _batch(spark, place)),
        "stream": (
            available_now(spark, "kafkalog", {**streaming, **ON}, folder / "on"),
            available_now(spark, "kafkalog", streaming, folder / "off"),
        ),
    }
    for kind, (on, off) in contests.items():
        seconds = seconds_by_turns({"ours": on, "off": off}, rounds)
        print_rate(f"{kind} of {SMALL_SIZE} B, large messages on", count, seconds, "off", SMALL_BAR)


def _large(spark: SparkSession, log_directory: Path, count: int, rounds: int) -> None:
    place = {"path": str(log_directory), "subscribe": "large"}
    size = count * (MESSAGE_BYTES // 128 * 128)
    read = _batch(spark, {**place, **ON})
    read()
    with _sampled_memory() as samples:
        seconds = seconds_by_turns({"ours": read, "message segments": _batch(spark, place)}, rounds)
    rate, plain = (size / seconds[name] / 1e6 for name in ("ours", "message segments"))
    what = f"read {size / 1e6:.0f} MB of {MESSAGE_BYTES / 1e6:.0f} MB messages: {rate:.0f} MB/s"
    print_ratio(f"{what}, of {LARGE_BAR} asked for", rate / LARGE_BAR, at_least=1)
    print_ratio(f"{what}, their message segments as they are {plain:.0f}", rate / plain)
    if samples:
        shown = samples[:: max(len(samples) // SAMPLES, 1)]
        print("memory of the workers over time, MB: " + " ".join(f"{size / 1e6:.0f}" for size in shown))
        half = len(samples) // 2
        print_ratio(
            "the second half's highest over the first's", max(samples[half:]) / max(samples[: half + 1])
        )


def _batch(spark: SparkSession, options: dict[str, str]) -> Callable[[], None]:
    frame = spark.read.format("kafkalog").options(**options).load()
    return lambda: frame.write.format("noop").mode("overwrite").save()


@contextlib.contextmanager
def _sampled_memory() -> Iterator[list[int]]:
    """What all Python workers of this session hold together, every tenth of a second."""
    samples: list[int] = []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.1):
            total = 0
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if "pyspark.daemon" in process.cmdline():
                        total += process.memory_info().rss
            samples.append(total)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


if __name__ == "__main__":
    main()
