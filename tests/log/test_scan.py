"""The walk through a segment's file, at the borders of what is read at a time."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pyspark_kafkalog.errors import CorruptRecordError, LogDirectoryError
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.segment import scan as scanning
from pyspark_kafkalog.log.segment.loading import live_segments
from pyspark_kafkalog.log.segment.producers import ProducerState
from pyspark_kafkalog.log.segment.recovery import open_active_segment, recover_segment
from pyspark_kafkalog.log.segment.scan import Scan
from pyspark_kafkalog.log.segment.segment import FramingError
from tests.log.partitions import T0, batch, write_segment

ONE = len(batch(0, 2))


def scanned(path: Path) -> tuple[list[int], Scan]:
    """The base offsets of the valid batches, and the scan after that."""
    scan = Scan(str(path), 0)
    return [offset for piece in scan for offset in piece.batches.base_offset.tolist()], scan


@pytest.fixture(params=[20, ONE - 1, ONE, ONE + 1, ONE + 20, 2 * ONE, 5 * ONE // 2, 1 << 20])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    size: int = request.param
    monkeypatch.setattr(scanning, "_WINDOW", size)
    return size


def test_batches_at_borders_and_larger_than_a_window(tmp_path: Path, window: int) -> None:
    batches = [batch(0, 2), batch(2, 2), batch(4, 2, size=4000), batch(6, 2), batch(9, 2), batch(11, 2)]
    path = write_segment(tmp_path, batches)
    found, scan = scanned(path)
    assert (found, scan.fault) == ([0, 2, 4, 6, 9, 11], None)
    assert (scan.end, scan.next_offset) == (path.stat().st_size, 13)


def test_the_first_of_two_that_overlap_is_at_fault_wherever_a_window_ends(
    tmp_path: Path, window: int
) -> None:
    path = write_segment(tmp_path, [batch(0, 2), batch(4, 2), batch(2, 2), batch(8, 2)])
    found, scan = scanned(path)
    assert (found, scan.fault) == ([0], "its offsets are out of order")
    assert (scan.end, scan.next_offset) == (ONE, 2)


def test_a_damaged_second_one_says_nothing_against_the_first(tmp_path: Path, window: int) -> None:
    path = write_segment(tmp_path, [batch(0, 2), batch(4, 2), batch(2, 2)[:-1] + b"\xff", batch(8, 2)])
    found, scan = scanned(path)
    assert found == [0, 4]
    assert scan.end == 2 * ONE


@pytest.mark.parametrize("left", [0, 10, ONE, ONE + 30, 2 * ONE])
def test_a_file_that_becomes_shorter(tmp_path: Path, window: int, left: int) -> None:
    path = write_segment(tmp_path, [batch(offset, 2) for offset in range(0, 40, 2)])
    scan = Scan(str(path), 0)
    pieces = iter(scan)
    found = len(next(pieces).batches)
    os.truncate(path, max(left, scan.end))
    found += sum(len(piece.batches) for piece in pieces)
    if scan.end < scan.size:
        assert scan.fault == "the file has become shorter"
    assert scan.end == found * ONE


def test_a_reader_of_a_file_that_becomes_shorter_does_not_wait(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [batch(0, 2), batch(2, 2)])
    (segment,) = live_segments(open_folder(str(tmp_path)))
    with segment.open() as opened:
        os.truncate(path, ONE + 30)
        with pytest.raises(FramingError, match="the file has become shorter") as e:
            list(opened.windows(0))
    assert e.value.position == ONE


@pytest.mark.parametrize("claimed", [ONE + 50, 3 * ONE - 12, 1 << 30])
def test_a_size_that_hides_what_follows(tmp_path: Path, window: int, claimed: int) -> None:
    """Neither a publish nor a backup cuts off the valid batches in what a damaged header claims."""
    false = bytearray(batch(2, 2))
    false[8:12] = claimed.to_bytes(4, "big")
    path = write_segment(tmp_path, [batch(0, 2), bytes(false), batch(4, 2), batch(6, 2)])
    data = path.read_bytes()
    with pytest.raises(CorruptRecordError, match=f"before a valid batch at byte {2 * ONE}"):
        open_active_segment(str(tmp_path), T0, 4096)
    with pytest.raises(LogDirectoryError, match=f"before a valid batch at byte {2 * ONE}"):
        recover_segment(str(tmp_path), 0, ProducerState(), 8, index_interval_bytes=4096)
    assert path.read_bytes() == data


def test_a_valid_batch_larger_than_a_search_by_windows_is_found_behind_damage(
    tmp_path: Path, window: int
) -> None:
    path = write_segment(tmp_path, [batch(0, 2), bytes(100), batch(2, 2, size=50_000)])
    with pytest.raises(CorruptRecordError, match=f"before a valid batch at byte {ONE + 100}"):
        open_active_segment(str(tmp_path), T0, 4096)
    assert path.stat().st_size > 100_000


def test_opening_a_closed_segment_reads_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_segment(tmp_path, [batch(offset, 10, size=1000) for offset in range(0, 1000, 10)])
    first = open_active_segment(str(tmp_path), T0, 4096)
    total, really = 0, os.preadv

    def counting(descriptor: int, buffers: list[memoryview], position: int) -> int:
        nonlocal total
        count = really(descriptor, buffers, position)
        total += count
        return count

    monkeypatch.setattr(os, "preadv", counting)
    again = open_active_segment(str(tmp_path), T0, 4096)
    assert first is not None
    assert again is not None
    assert np.array_equal(first.fields[:3], again.fields[:3])
    assert again.next_offset == 1000
    assert total < path.stat().st_size / 10
