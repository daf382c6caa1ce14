"""Bytes that read_committed reads of a directory with a long transaction, or thousands of them (Linux).

Tasks and planners run without Spark, each with a place of its own, as on a cluster.
"""

from __future__ import annotations

import pickle
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.snapshot import format_snapshot
from pyspark_kafkalog.model import OffsetRange
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.read.offsets import plan_batch
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.reader import columns_of
from pyspark_kafkalog.read.splits import Split, with_decided
from pyspark_kafkalog.spark.reader import LogInputPartition
from tests.benchmarks.measure import arguments, print_ratio
from tests.benchmarks.session import scratch_folder
from tests.codec.raw import batch, marker, record
from tests.log.partitions import T0, control_batch, data_batch, write_index, write_segment

TOTAL, SEGMENT, RECORD = 200 << 20, 64 << 20, 1 << 10
BATCHES = {"16 KiB": 16 << 10, "1 MiB": 1 << 20}
TASKS, MICRO_BATCHES = (1, 8, 32), (1, 10, 40, 1000)
PARTITIONS, ABORTED = 20, 5_000
BAR = 1.1
PLAN_BAR = 5
"""Seconds of CPU."""


class Cost(NamedTuple):
    """The megabytes read and the seconds of CPU of something."""

    megabytes: float
    seconds: float


def main() -> None:
    args = arguments(__doc__)
    with scratch_folder(args.folder) as folder:
        for name, size in BATCHES.items():
            root = folder / f"long-{size}"
            end = _transactions(root / "t-0", int(TOTAL * args.scale), size)
            _cost(lambda: _tasks(root, 1, "read_committed"))  # noqa: B023 - imports
            for count in TASKS:
                _compared(f"{count} tasks, batches of {name}", lambda level: _tasks(root, count, level))  # noqa: B023
            for count in MICRO_BATCHES:
                _compared(
                    f"{count} micro-batches, batches of {name}",
                    lambda level: _stream(root, end, count, level),  # noqa: B023
                )
        root = folder / "short"
        end = _transactions(root / "t-0", int(TOTAL * args.scale), BATCHES["16 KiB"], batches=4)
        _compared(f"{TASKS[-1]} tasks, short transactions", lambda level: _tasks(root, TASKS[-1], level))
        _compared(
            f"{MICRO_BATCHES[-1]} micro-batches, short transactions",
            lambda level: _stream(root, end, MICRO_BATCHES[-1], level),
        )
        disk = folder / "dead"
        for number in range(PARTITIONS):
            _aborted(disk / f"t-{number}", max(int(ABORTED * args.scale), 1))
        cost = _cost(lambda: _plan(disk, 200))
        print_ratio(
            f"plan of {PARTITIONS} x {ABORTED} aborted transactions: {cost.seconds:.2f} s of CPU",
            cost.seconds / PLAN_BAR,
            at_most=1,
        )
        largest = max(len(pickle.dumps(LogInputPartition((split,)))) for split in _plan(disk, 200))
        print_ratio(f"its largest split: {largest / 1e3:.1f} kB", largest / 100e3, at_most=1)


def _compared(what: str, read: Callable[[str], object]) -> None:
    plain, committed = (_cost(lambda: read(level)) for level in ("read_uncommitted", "read_committed"))  # noqa: B023
    print_ratio(
        f"{what}: read_committed {committed.megabytes:.0f} MB in {committed.seconds:.2f} s of CPU,"
        f" read_uncommitted {plain.megabytes:.0f} in {plain.seconds:.2f}",
        committed.megabytes / plain.megabytes,
        at_most=BAR,
    )


def _cost(run: Callable[[], object]) -> Cost:
    read, began = _bytes_read(), time.process_time()
    run()
    return Cost((_bytes_read() - read) / 1e6, time.process_time() - began)


def _bytes_read() -> int:
    """What this process has read of files so far."""
    (count,) = re.findall(r"^rchar: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
    return int(count)


def _tasks(root: Path, count: int, level: str) -> None:
    for split in _plan(root, count, level):
        _run(root, split, level)


def _plan(root: Path, tasks: int, level: str = "read_committed") -> Sequence[Split]:
    options = {"subscribe": "t", "path": "/", "kafka.isolation.level": level}
    if tasks > 1:
        options["minPartitions"] = str(tasks)
    return plan_batch(LogDirectory.open(str(root)), read_options(options, batch=True))


def _stream(root: Path, end: int, count: int, level: str) -> None:
    """Micro-batches that a planner plans one after the other, with a task each."""
    place, is_committed = LogDirectory.open(str(root)), level == "read_committed"
    cuts = np.unique(np.linspace(0, end, count + 1).astype(int)).tolist()
    for offsets in map(OffsetRange._make, pairwise(cuts)):
        place.end_offsets([T0], read_committed=is_committed)
        splits = [Split(T0, offsets)]
        for split in with_decided(place, splits, look=lambda _: True) if is_committed else splits:
            _run(root, split, level)


def _run(root: Path, split: Split, level: str) -> None:
    """What a task does with its split."""
    (sent,) = pickle.loads(pickle.dumps(LogInputPartition((split,)))).splits
    rules = ReadRules(
        schema=columns_of(["value"]), read_committed=level == "read_committed", fail_on_data_loss=True
    )
    for _ in RecordReader(LogDirectory.open(str(root)), rules).read(sent):
        pass


def _transactions(folder: Path, total: int, size: int, *, batches: int = sys.maxsize) -> int:
    """Committed transactions of so many batches, one after the other, and their end.

    Of short ones there is a producer snapshot at the end, as where a broker was stopped.
    """
    per_batch = size // RECORD
    records = [record(b"x" * (RECORD - 10), delta=delta) for delta in range(per_batch)]
    count, end = max(total // size, 2), 0
    stored: list[bytes] = []
    for number in range(1, count + 1):
        stored.append(batch(records, base_offset=end, attributes=0x10, producer_id=7))
        end += per_batch
        if number % batches == 0 or number == count:
            stored.append(marker(7, commit=True, offset=end))
            end += 1
        if len(stored) * size >= SEGMENT or number == count:
            _segment(folder, stored)
            stored = []
    if batches < count:
        (folder / f"{end:020}.snapshot").write_bytes(format_snapshot([]))
    return end


def _segment(folder: Path, stored: Sequence[bytes]) -> None:
    """A segment with an index of each batch, by its last offset."""
    first = int.from_bytes(stored[0][:8], "big")
    offsets = (int.from_bytes(b[:8], "big") + int.from_bytes(b[23:27], "big") - first for b in stored[1:])
    write_index(
        write_segment(folder, stored), [*zip(offsets, accumulate(map(len, stored[:-1])), strict=True)]
    )


def _aborted(folder: Path, count: int) -> None:
    """Aborted transactions of a record each within another, on the disk of a broker that was killed."""
    end = 2 * count + 1

    def batches() -> Iterator[bytes]:
        yield data_batch(0, 1)
        for offset in range(1, end, 2):
            yield data_batch(offset, 2 + offset % 5)
            yield control_batch(offset + 1, 2 + offset % 5, commit=False)
        yield control_batch(end, 1, commit=False)

    write_segment(folder, [*batches()])


if __name__ == "__main__":
    main()
