"""``kafkalog repair`` of a partition whose indexes are lost, against a loop that only reads it; memory.

Batches have 16 KB, as a producer of Java makes them by default, or 1 MB. The bar is for files on a disk: what
the system has in its memory is read faster than any checksum is computed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyspark_kafkalog import connect
from tests.benchmarks.measure import arguments, print_ratio, seconds_by_turns
from tests.benchmarks.session import scratch_folder
from tests.log.partitions import batch

SIZES = {"small": 200 << 20, "large": 2 << 30}
SEGMENT = 512 << 20
RECORDS = {"16 KB": 155, "1 MB": 9900}
"""Records of 100 bytes in a batch."""
BAR, MEMORY_BAR = 0.8, 1.10
_CHUNK = 8 << 20


def main() -> None:
    args = arguments(__doc__)
    with scratch_folder(args.folder) as folder:
        for name, records in RECORDS.items():
            for which in SIZES if name == "16 KB" else ("large",):
                _write(folder / name / which, int(SIZES[which] * args.scale), records)
            large = folder / name / "large"
            size = sum(log.stat().st_size for log in large.rglob("*.log"))
            for where, bar in (("the disk", BAR), ("the system's cache", None)):
                prepare = _forget if where == "the disk" else _lose_indexes
                contestants = {"read": _reading(large), "ours": _repairing(large)}
                contestants["read"]()
                prepare(large)
                seconds = seconds_by_turns(contestants, args.rounds, after=lambda _: prepare(large))  # noqa: B023
                rates = {who: size / taken / 1e9 for who, taken in seconds.items()}
                print_ratio(
                    f"repair, batches of {name}, from {where}: {rates['ours']:.2f} GB/s,"
                    f" reading alone {rates['read']:.2f}",
                    seconds["read"] / seconds["ours"],
                    at_least=bar,
                )
        peaks = {which: _peak_bytes(folder / "16 KB" / which) for which in SIZES}
    large_mb, small_mb = (f"{SIZES[which] * args.scale / 1e6:.0f} MB" for which in ("large", "small"))
    print_ratio(
        f"peak memory, {large_mb}: {peaks['large'] / 1e6:.1f} MB, {small_mb}: {peaks['small'] / 1e6:.1f}",
        peaks["large"] / peaks["small"],
        at_most=MEMORY_BAR,
    )


def _write(root: Path, size: int, records: int) -> None:
    """A partition of about ``size`` bytes, with no indexes."""
    folder = root / "events-0"
    folder.mkdir(parents=True)
    one = np.frombuffer(batch(0, records, size=100), np.uint8)
    per_segment = min(SEGMENT, size) // one.size
    written = 0
    while written < size // one.size:
        chunk = np.tile(one, (min(64, per_segment), 1))
        with (folder / f"{written * records:020d}.log").open("wb") as log:
            for start in range(written, written + per_segment, len(chunk)):
                offsets = np.arange(start, start + len(chunk)) * records
                chunk[:, :8] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
                log.write(chunk[: min(len(chunk), written + per_segment - start)].data)
        written += per_segment


def _reading(root: Path) -> Callable[[], None]:
    room = memoryview(bytearray(_CHUNK))

    def read() -> None:
        for log in sorted(root.rglob("*.log")):
            with log.open("rb", buffering=0) as file:
                while file.readinto(room):
                    pass

    return read


def _repairing(root: Path) -> Callable[[], None]:
    def run() -> None:
        done = connect(root).logs.repair(execute=True)
        assert done.clean_shutdown
        assert not done.partitions[0].cut_bytes

    return run


def _lose_indexes(root: Path) -> None:
    for index in [*root.rglob("*.index"), *root.rglob("*.timeindex")]:
        index.unlink()


def _forget(root: Path) -> None:
    """Lose the indexes, and let the system forget the segments (Linux)."""
    _lose_indexes(root)
    for log in root.rglob("*.log"):
        with log.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


_SCRIPT = """
import sys
from pyspark_kafkalog import connect
connect(sys.argv[1]).logs.repair(execute=True)
print(open("/proc/self/status").read())
"""


def _peak_bytes(root: Path) -> int:
    """The highest resident set of a process that repairs (Linux)."""
    command = [sys.executable, "-c", _SCRIPT, str(root)]
    status = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kib) * 1024


if __name__ == "__main__":
    main()
