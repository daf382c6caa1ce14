"""How much is read of the files of a partition of any size."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.model import AbortedTransaction, Fetch, OffsetRange, Watermarks
from tests.calls import calls_of
from tests.log.partitions import (
    FIRST_TIMESTAMP,
    T0,
    batch,
    control_batch,
    data_batch,
    offset_after_bytes,
    offsets_read,
    write_index,
    write_segment,
    write_time_index,
)

_GIGABYTE = 1 << 30
_RECORDS = 150
"""In each batch."""


class Reads(fs.FSSpecHandler):
    """The local file system, noting the size of every read and the folders that are listed."""

    def __init__(self) -> None:
        super().__init__(LocalFileSystem())
        self.sizes: list[int] = []

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open for reads by position."""
        return pa.PythonFile(_Counted(path, self.sizes), mode="r")


class _Counted:
    def __init__(self, path: str, sizes: list[int]) -> None:
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - pyarrow closes it
        self._sizes = sizes
        self.seek, self.tell, self.close = self._file.seek, self._file.tell, self._file.close

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._sizes.append(len(data))
        return data

    @property
    def closed(self) -> bool:
        return self._file.closed


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A log root with one segment of a gigabyte, and its end: batches of 16 kB, each indexed."""
    root = tmp_path_factory.mktemp("costs")
    body = np.frombuffer(batch(0, _RECORDS, size=100), np.uint8)
    count, size = _GIGABYTE // body.size, body.size
    log = root / "t-0" / "00000000000000000000.log"
    log.parent.mkdir()
    with log.open("wb") as file:
        for first in range(0, count, 1000):
            # The CRC covers neither base offset nor leader epoch, so all share one body.
            base_offsets = _RECORDS * np.arange(first, min(first + 1000, count))
            block = np.tile(body, (base_offsets.size, 1))
            block[:, :8] = base_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
            file.write(block)
    write_index(log, [(i * _RECORDS + _RECORDS - 1, i * size) for i in range(1, count)], zeros=100_000)
    write_time_index(log, [(FIRST_TIMESTAMP + _RECORDS - 1, _RECORDS - 1)])
    yield root, count * _RECORDS
    log.unlink()


def opened(root: Path, **settings: int) -> tuple[LogDirectory, list[int]]:
    handler = Reads()
    folder = Folder(fs.PyFileSystem(handler), str(root), str(root))
    return LogDirectory([LogRoot(folder)], **settings), handler.sizes


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("from_end", [1000, 3_000_000])
def test_a_thousand_offsets_of_a_gigabyte_cost_little(partition: tuple[Path, int], from_end: int) -> None:
    root, end = partition
    place, sizes = opened(root)
    assert place.watermarks([T0], read_committed=False) == {T0: Watermarks(0, end, end)}
    start = end - from_end
    wanted = OffsetRange(start, start + 1000)
    assert offsets_read(place, T0, wanted) == list(range(start, start + 1000))
    assert sum(sizes) < 500_000
    offset_after_bytes(place, T0, OffsetRange(start, end), 10_000_000)
    assert sum(sizes) < 1_000_000


@pytest.mark.slow
def test_memory_is_a_slice_whatever_the_partition(partition: tuple[Path, int]) -> None:
    root, end = partition
    place, sizes = opened(root, slice_bytes=4 << 20)
    before, most, read = pa.total_allocated_bytes(), 0, 0
    for piece in place.fetch(Fetch(T0, OffsetRange(0, end), read_committed=True)):
        most = max(most, pa.total_allocated_bytes() - before)
        read += piece.buffer.size
    assert read == (root / "t-0" / "00000000000000000000.log").stat().st_size
    assert max(sizes) <= 4 << 20
    assert most <= 3 * (4 << 20)
    assert sum(sizes) < 1.02 * read


@pytest.mark.slow
def test_without_an_index_the_headers_are_walked(partition: tuple[Path, int]) -> None:
    root, end = partition
    index = root / "t-0" / "00000000000000000000.index"
    index.rename(root / "index")
    try:
        place, sizes = opened(root)
        assert place.watermarks([T0], read_committed=False) == {T0: Watermarks(0, end, end)}
        assert offsets_read(place, T0, OffsetRange(end - 1000, end)) == list(range(end - 1000, end))
        assert max(sizes) <= 8 << 20
    finally:
        (root / "index").rename(index)


@pytest.mark.slow
def test_asking_for_the_end_again_reads_nothing_or_what_is_new(partition: tuple[Path, int]) -> None:
    root, end = partition
    place, sizes = opened(root)
    for read_committed in (False, True):
        place.watermarks([T0], read_committed=read_committed)
        sizes.clear()
        for _ in range(20):
            assert calls_of(lambda: place.watermarks([T0], read_committed=read_committed)) < 1500  # noqa: B023
        assert sizes == []
    with (root / "t-0" / "00000000000000000000.log").open("ab") as log:
        log.write(batch(end, 5))
    assert place.watermarks([T0], read_committed=True) == {T0: Watermarks(0, end + 5, end + 5)}
    assert sum(sizes) < 200_000


@pytest.mark.parametrize("indexed", [False, True])
def test_a_txnindex_saves_looking_for_a_marker_far_ahead(tmp_path: Path, indexed: bool) -> None:
    plain = [batch(i, 1, size=200_000) for i in range(1, 40)]
    write_segment(tmp_path / "t-0", [data_batch(0, 7), *plain, data_batch(40, 7)])
    log = write_segment(tmp_path / "t-0", [control_batch(41, 7, commit=False), batch(42, 1)])
    if indexed:
        entry = struct.pack(">hqqqq", 0, 7, 0, 41, 41)
        log.with_suffix(".txnindex").write_bytes(entry)
    place, sizes = opened(tmp_path, slice_bytes=1 << 20)
    (piece, *_) = place.fetch(Fetch(T0, OffsetRange(0, 1), read_committed=True))
    assert piece.aborted == (AbortedTransaction(7, 0, 41),)
    assert (sum(sizes) < 2_000_000) == indexed
    assert offsets_read(place, T0, OffsetRange(0, 43), read_committed=True) == [*range(1, 40), 42]
