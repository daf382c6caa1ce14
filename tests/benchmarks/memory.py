"""A worker's peak memory and the time of a read, for one partition and for one ten times as large (Linux)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from tests.benchmarks.measure import arguments, print_ratio, rows, seconds_by_turns, write_log
from tests.benchmarks.session import benchmark_session, scratch_folder

SIZE = 1000
COUNTS = {"small": 200_000, "large": 2_000_000}
MEMORY_BAR = 1.10
TIME_BAR = 10.5


def main() -> None:
    args = arguments(__doc__)
    counts = {name: int(count * args.scale) for name, count in COUNTS.items()}
    with scratch_folder(args.folder) as folder:
        with benchmark_session(folder) as spark:
            for name, count in counts.items():
                write_log(rows(spark, count, SIZE), folder / "kafka-logs", name, partitions=1)
        # A new session has new workers, which have not written anything.
        with benchmark_session(folder) as spark:
            reads = {name: _reader(spark, folder / "kafka-logs", name) for name in counts}
            peaks = {}
            for name, read in reads.items():
                read()
                peaks[name] = max(_peak_bytes())
            seconds = seconds_by_turns(reads, args.rounds)
    large, small = (f"{counts[name] * SIZE / 1e6:.0f} MB" for name in ("large", "small"))
    print_ratio(
        f"peak worker memory, {large}: {peaks['large'] / 1e6:.1f} MB, {small}: {peaks['small'] / 1e6:.1f}",
        peaks["large"] / peaks["small"],
        at_most=MEMORY_BAR,
    )
    print_ratio(
        f"time to read {large}: {seconds['large']:.2f} s, {small}: {seconds['small']:.2f}",
        seconds["large"] / seconds["small"],
        at_most=TIME_BAR,
    )


def _reader(spark: SparkSession, log_directory: Path, topic: str) -> Callable[[], None]:
    frame = spark.read.format("kafkalog").option("subscribe", topic).load(str(log_directory))
    return lambda: frame.write.format("noop").mode("overwrite").save()


def _peak_bytes() -> list[int]:
    """The highest resident set so far of every Python worker of this session."""
    peaks = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            if "pyspark.daemon" in process.cmdline():
                status = Path(f"/proc/{process.pid}/status").read_text()
                (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
                peaks.append(int(kib) * 1024)
    return peaks


if __name__ == "__main__":
    main()
