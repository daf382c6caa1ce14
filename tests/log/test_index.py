"""Binary searches in index files, compared with a plain definition of their results."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.filesystem.folder import InputFile
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.segment import index

ENTRIES = st.integers(0, 3000).flatmap(
    lambda count: st.tuples(st.just(count), st.integers(1, 5), st.integers(1, 4000))
)


def aborted(file: InputFile) -> list[tuple[int, int, int]]:
    entries = index.aborted_transactions(file)
    return entries[["producer_id", "first_offset", "last_offset"]].tolist()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], InputFile]:
    folder = tmp_path_factory.mktemp("index")

    def open_bytes(data: bytes) -> InputFile:
        (folder / "index").write_bytes(data)
        return open_folder(str(folder)).open("index")

    return open_bytes


@given(ENTRIES, st.integers(-2, 20_000), st.integers(0, 2000))
def test_offset_index(
    opened: Callable[[bytes], InputFile], shape: tuple[int, int, int], wanted: int, zeros: int
) -> None:
    count, offset_step, position_step = shape
    entries = [(1000 + i * offset_step, i * position_step) for i in range(1, count + 1)]
    data = b"".join(struct.pack(">ii", offset - 1000, position) for offset, position in entries)
    with opened(data + bytes(8 * zeros)) as file:
        below = [e for e in entries if e[0] <= wanted]
        above = [e for e in entries if e[0] > wanted]
        assert index.floor_offset(file, 1000, wanted) == (below[-1] if below else None)
        assert index.higher_offset(file, 1000, wanted) == (above[0] if above else None)
        below = [e for e in entries if e[1] <= wanted]
        assert index.floor_position(file, 1000, wanted) == (below[-1] if below else None)


@given(ENTRIES, st.integers(-10, 20_000), st.integers(0, 2000))
def test_time_index(
    opened: Callable[[bytes], InputFile], shape: tuple[int, int, int], wanted: int, zeros: int
) -> None:
    count, offset_step, time_step = shape
    entries = [(i * time_step - 3, 1000 + i * offset_step) for i in range(1, count + 1)]
    data = b"".join(struct.pack(">qi", timestamp, offset - 1000) for timestamp, offset in entries)
    with opened(data + bytes(12 * zeros)) as file:
        below = [e for e in entries if e[0] <= wanted]
        assert index.floor_timestamp(file, 1000, wanted) == (below[-1] if below else None)


@given(
    st.binary(max_size=3000) | st.binary(min_size=1, max_size=3000).map(lambda some: (some * 9000)[:9000]),
    st.integers(-(2**63), 2**63 - 1),
)
def test_garbage_gives_some_entry_or_none(
    opened: Callable[[bytes], InputFile], data: bytes, wanted: int
) -> None:
    with opened(data) as file:
        for search in (index.floor_offset, index.higher_offset, index.floor_position, index.floor_timestamp):
            found = search(file, 0, wanted)
            assert found is None or len(found) == 2
        for _, first_offset, last_offset in aborted(file):
            assert 0 <= first_offset < last_offset


def test_txn_index(opened: Callable[[bytes], InputFile], tmp_path: Path) -> None:
    entries = [(7, 3, 9, 2), (8, 5, 11, 5)]
    data = b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)
    with opened(data) as file:
        assert aborted(file) == [(7, 3, 9), (8, 5, 11)]
    wrong = {
        "cut": data[:-1],
        "version": b"\1" + data[1:],
        "marker before the data": struct.pack(">hqqqq", 0, 7, 9, 3, 2),
        "negative offset": struct.pack(">hqqqq", 0, 7, -1, 3, 2),
        "no producer": struct.pack(">hqqqq", 0, -1, 3, 9, 2),
    }
    for what, bad in wrong.items():
        with opened(bad) as file:
            assert aborted(file) == [], what


def test_a_search_reads_little(tmp_path: Path) -> None:
    """Ten megabytes of preallocated index, a tenth used."""
    count = 130_000
    data = b"".join(struct.pack(">ii", 5 * i, 4096 * i) for i in range(1, count + 1))
    (tmp_path / "index").write_bytes(data + bytes((10 << 20) - len(data)))
    with open_folder(str(tmp_path)).open("index") as file:
        read = 0

        class Counting:
            size = file.size

            def read(self, position: int, size: int):
                nonlocal read
                read += size
                return file.read(position, size)

        assert index.floor_offset(Counting(), 0, 5 * 77_777 + 3) == (5 * 77_777, 4096 * 77_777)
        assert read < 64 << 10
