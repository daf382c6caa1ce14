"""The cost of read_committed when many aborted transactions lie outside of what is read."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import AbortedTransaction, OffsetRange
from tests.calls import calls_of
from tests.log.partitions import T0, control_batch, data_batch, fetched, offsets_read, write_segment

ABORTED = 50_000
END = 2 * ABORTED + 2
LONG, OTHERS = 7, 8


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One transaction over the whole log, and within it 50,000 of another producer, all aborted."""
    root = tmp_path_factory.mktemp("aborted")
    batches, entries = [data_batch(0, LONG)], []
    for offset in range(1, END - 1, 2):
        batches += data_batch(offset, OTHERS), control_batch(offset + 1, OTHERS, commit=False)
        entries.append(struct.pack(">hqqqq", 0, OTHERS, offset, offset + 1, 0))
    batches.append(control_batch(END - 1, LONG, commit=False))
    entries.append(struct.pack(">hqqqq", 0, LONG, 0, END - 1, END))
    log = write_segment(root / "t-0", batches)
    log.with_suffix(".txnindex").write_bytes(b"".join(entries))
    return root


@pytest.mark.slow
def test_reading_all_costs_what_is_there(root: Path) -> None:
    place = LogDirectory.open(str(root))
    offsets = OffsetRange(0, END)
    uncommitted = calls_of(lambda: offsets_read(place, T0, offsets))
    assert not offsets_read(place, T0, OffsetRange(0, 100), read_committed=True)
    committed = calls_of(lambda: offsets_read(place, T0, offsets, read_committed=True))
    print(f"read_uncommitted {uncommitted} calls, read_committed {committed}")
    assert committed < 3 * uncommitted + 20 * ABORTED


@pytest.mark.slow
def test_one_offset_costs_nothing(root: Path) -> None:
    place = LogDirectory.open(str(root))
    for offset in (0, 1, ABORTED + 1, END - 3):
        wanted = OffsetRange(offset, offset + 1)
        calls = calls_of(lambda: fetched(place, T0, wanted, read_committed=True))  # noqa: B023
        print(f"offset {offset}: {calls} calls")
        assert calls < ABORTED / 10
        (piece,) = fetched(place, T0, wanted, read_committed=True)
        assert not offsets_read(place, T0, wanted, read_committed=True)
        if not offset:
            assert piece.aborted == (AbortedTransaction(LONG, 0, END - 1),)
