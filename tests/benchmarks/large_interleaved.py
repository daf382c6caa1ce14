"""Bytes read, and memory, where many large messages are open at once, with default options (Linux)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.slice_file import SliceFile
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange
from pyspark_kafkalog.read.ranges import ReadRules
from pyspark_kafkalog.read.reader import columns_of
from pyspark_kafkalog.read.splits import Split
from tests.benchmarks.measure import arguments, print_ratio
from tests.benchmarks.session import scratch_folder
from tests.codec.raw import batch, record
from tests.extensions.large_messages.interleaved import segment_values
from tests.log.partitions import T0, write_index, write_segment

MESSAGES, SIZE, SEGMENT = 200, 1_000_000, 120_000
OPEN = (1, 10, 25, 50, 100)
BAR, BATCH_BAR = 1.3, 32


def main() -> None:
    args = arguments(__doc__)
    count = max(int(MESSAGES * args.scale), 2)
    with scratch_folder(args.folder) as folder:
        for opened in OPEN:
            root = folder / f"open-{opened}"
            stored = _log(root / "t-0", count, SIZE, min(opened, count))
            _read(root, count, SIZE, stored, f"{count} messages of 1 MB, {opened} open at once")
        root = folder / "larger"
        stored = _log(root / "t-0", count // 4, 5 * SIZE, 20)
        _read(root, count // 4, 5 * SIZE, stored, f"{count // 4} messages of 5 MB, 20 open at once")


def _read(root: Path, count: int, size: int, stored: float, what: str) -> None:
    rules = ReadRules(schema=columns_of(["value"]), read_committed=False, fail_on_data_loss=True)
    reader = WholeMessageReader(LogDirectory.open(str(root)), rules, LargeMessageOptions(enabled=True))
    aside, take = 0, SliceFile.take

    def counted(self: SliceFile, position: int, size: int) -> object:
        nonlocal aside
        aside += size
        return take(self, position, size)

    SliceFile.take = counted  # type: ignore[method-assign]
    before, began = _bytes_read(), time.process_time()
    batches = [(rows.num_rows, rows.nbytes) for rows in _rows(reader)]
    seconds, read = time.process_time() - began, _bytes_read() - before - aside
    SliceFile.take = take  # type: ignore[method-assign]
    assert sum(rows for rows, _ in batches) == count
    largest = max(nbytes for rows, nbytes in batches if rows > 1 or nbytes <= size * 1.1) / 1e6
    print_ratio(
        f"{what}: read {read / 1e6:.0f} MB of the log's {stored / 1e6:.0f}, and {aside / 1e6:.0f} of a"
        f" temporary file, in {seconds:.2f} s of CPU",
        read / stored,
        at_most=BAR,
    )
    print_ratio(f"{what}: largest arrow batch {largest:.0f} MB", largest / BATCH_BAR, at_most=1)


def _rows(reader: WholeMessageReader) -> Iterator[pa.RecordBatch]:
    yield from reader.read(Split(T0, OffsetRange(EARLIEST, LATEST)))


def _bytes_read() -> int:
    """What this process has read of files so far."""
    (count,) = re.findall(r"^rchar: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
    return int(count)


def _log(folder: Path, count: int, size: int, opened: int) -> int:
    """Messages whose segments alternate, so many at a time, and the bytes of the log."""
    values: list[bytes] = []
    for first in range(0, count, opened):
        messages = [
            segment_values(number, b"%08d" % number * (size // 8), SEGMENT)
            for number in range(first, min(first + opened, count))
        ]
        values += [segment for one_of_each in zip(*messages, strict=True) for segment in one_of_each]
    stored = [batch([record(value)], base_offset=offset) for offset, value in enumerate(values)]
    ends = [*accumulate(map(len, stored))]
    write_index(write_segment(folder, stored), [*enumerate(ends[:-1], 1)])
    return ends[-1]


if __name__ == "__main__":
    main()
