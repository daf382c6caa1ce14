"""Indexes that contradict their record batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog.log.read.directory import LogDirectory
from tests.log.partitions import FIRST_TIMESTAMP, T0, batch, write_index, write_segment, write_time_index

SIZE = len(batch(0, 10))
LATEST = FIRST_TIMESTAMP + 29


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three batches of ten records."""
    return write_segment(tmp_path / "t-0", [batch(0), batch(10), batch(20)])


def faults(log: Path) -> list[tuple[str, int | None]]:
    """Suffix and position of each fault."""
    found = LogDirectory.open(str(log.parent.parent)).file_faults(T0)
    assert all(fault.topic_partition == "t-0" for fault in found)
    return [(Path(str(fault.file)).suffix, fault.position) for fault in found]


@pytest.mark.parametrize("zeros", [0, 5])
def test_right_ones(log: Path, zeros: int) -> None:
    # An append of two batches has one entry.
    write_index(log, [(19, SIZE), (29, 2 * SIZE)], zeros=zeros)
    write_time_index(log, [(FIRST_TIMESTAMP + 9, 9), (LATEST, 29)])
    assert faults(log) == []


@pytest.mark.parametrize(
    ("entries", "position"),
    [
        ([(9, 0), (19, SIZE + 1)], 8),
        ([(9, 0), (9, SIZE)], 8),
        ([(19, SIZE), (29, SIZE)], 8),
        ([(9, SIZE)], 0),
        ([(29, 3 * SIZE)], 0),
        ([(9, 0), (30, 2 * SIZE)], 8),
        ([(-1, -5)], 0),
    ],
)
def test_offset_index(log: Path, entries: list[tuple[int, int]], position: int) -> None:
    write_index(log, entries)
    assert faults(log) == [(".index", position)]


@pytest.mark.parametrize(
    ("entries", "position"),
    [
        ([(FIRST_TIMESTAMP + 8, 9)], 0),
        ([(FIRST_TIMESTAMP + 9, 9), (FIRST_TIMESTAMP + 9, 19)], 12),
        ([(FIRST_TIMESTAMP + 19, 19), (LATEST, 9)], 12),
        ([(LATEST, 30)], 0),
    ],
)
def test_time_index(log: Path, entries: list[tuple[int, int]], position: int) -> None:
    write_time_index(log, entries)
    assert faults(log) == [(".timeindex", position)]


def test_cut_ones(log: Path) -> None:
    for suffix, size in ((".index", 12), (".timeindex", 20), (".txnindex", 33)):
        log.with_suffix(suffix).write_bytes(b"\1" * size)
    assert faults(log) == [(".index", 12), (".timeindex", 20), (".txnindex", 0)]


def test_a_log_with_no_batch(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "t-0", [], base_offset=0)
    write_index(log, [], zeros=3)
    assert faults(log) == []
    write_index(log, [(0, 0)])
    assert faults(log) == [], "zeros are not an entry"
    write_index(log, [(1, 0)])
    assert faults(log) == [(".index", 0)]


def test_a_torn_tail(log: Path) -> None:
    log.write_bytes(log.read_bytes() + batch(30)[:50])
    assert faults(log) == [(".log", 3 * SIZE)]
