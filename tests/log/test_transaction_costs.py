"""What read_committed reads of a long transaction: each record once, whatever tasks share it."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest

from pyspark_kafkalog.filesystem.folder import InputFile
from pyspark_kafkalog.log.read import transactions
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.segment import heads
from pyspark_kafkalog.log.snapshot import ProducerEntry, format_snapshot
from pyspark_kafkalog.model import OffsetRange, Seen
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.read.offsets import plan_batch
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.reader import columns_of
from pyspark_kafkalog.read.splits import Split, with_decided
from pyspark_kafkalog.spark.reader import LogInputPartition
from tests.codec.raw import batch, marker, record
from tests.log.partitions import T0, control_batch, data_batch, write_index, write_segment

BATCHES, SIZE = 400, 64 << 10
END = BATCHES + 2
OPTIONS = {"subscribe": "t", "kafka.isolation.level": "read_committed"}
RULES = ReadRules(schema=columns_of(["offset"]), read_committed=True, fail_on_data_loss=True)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each read of a file."""
    sizes: list[int] = []
    read = InputFile.read

    def counted(self: InputFile, position: int, size: int, *room: object) -> object:
        data = read(self, position, size, *room)
        sizes.append(data.size)
        return data

    monkeypatch.setattr(InputFile, "read", counted)
    pread = os.pread

    def counted_head(descriptor: int, size: int, position: int) -> bytes:
        head = pread(descriptor, size, position)
        sizes.append(len(head))
        return head

    monkeypatch.setattr(heads.os, "pread", counted_head)
    return sizes


@pytest.fixture(scope="module", params=["committed", "aborted", "committed-snapshot", "aborted-snapshot"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, bool]:
    """The root of a log of one transaction, its bytes, and whether it is committed."""
    root, is_committed = tmp_path_factory.mktemp("long"), "committed" in request.param
    return root, make(root / "t-0", commit=is_committed, snapshot="snapshot" in request.param), is_committed


def make(folder: Path, *, commit: bool, snapshot: bool = False, batches: int = BATCHES) -> int:
    """A transaction in four segments, its marker, and a record; their bytes."""
    stored = [data(offset) for offset in range(batches)]
    stored += [marker(7, commit=commit, offset=batches), batch([record(b"last")], base_offset=batches + 1)]
    for start in range(0, len(stored), 101):
        segment = stored[start : start + 101]
        write_index(write_segment(folder, segment), [*enumerate(accumulate(map(len, segment[:-1])), 1)])
    if snapshot:
        (folder / f"{batches + 2:020}.snapshot").write_bytes(format_snapshot([]))
    return sum(map(len, stored))


def data(offset: int, producer_id: int = 7, *, size: int = SIZE) -> bytes:
    """A batch of a transaction, with one record."""
    return batch([record(b"x" * size)], base_offset=offset, attributes=0x10, producer_id=producer_id)


def opened(root: Path) -> LogDirectory:
    return LogDirectory.open(str(root), slice_bytes=1 << 20)


def offsets_of(root: Path, split: Split) -> list[int]:
    """The rows of a task, which has a place of its own and its split as it is sent."""
    (sent,) = pickle.loads(pickle.dumps(LogInputPartition((split,)))).splits
    assert sent == split
    rows = RecordReader(opened(root), RULES).read(sent)
    return [offset for arrow_batch in rows for offset in arrow_batch.column("offset").to_pylist()]


def batch_plan(place: LogDirectory, tasks: int, **options: str) -> list[Split]:
    given = {**OPTIONS, "path": "/", "minPartitions": str(tasks), **options}
    return plan_batch(place, read_options(given, batch=True))


def micro_batches(place: LogDirectory, count: int, *, end: int = END) -> list[Split]:
    """Planned one after the other, as a stream does: it looks for the end before each."""
    cuts = np.linspace(0, end, count + 1).astype(int).tolist()
    splits = []
    for offsets in map(OffsetRange._make, pairwise(cuts)):
        place.end_offsets([T0], read_committed=True)
        splits += with_decided(place, [Split(T0, offsets)], look=lambda _: True)
    return splits


@pytest.mark.parametrize("plan", [batch_plan, micro_batches])
@pytest.mark.parametrize("count", [1, 8, 40])
def test_each_record_is_read_once(
    plan: Callable[[LogDirectory, int], Sequence[Split]],
    count: int,
    log: tuple[Path, int, bool],
    read_bytes: list[int],
) -> None:
    root, size, is_committed = log
    splits = plan(opened(root), count)
    assert len(splits) == count
    planned = sum(read_bytes)
    assert planned < 0.02 * size + count * (10 << 10)
    found = [offset for split in splits for offset in offsets_of(root, split)]
    assert found == ([*range(BATCHES)] if is_committed else []) + [BATCHES + 1]
    tasks = sum(read_bytes) - planned
    print(f"of {size >> 20} MB: plan {planned >> 20}, tasks {tasks >> 20}")
    # Each slice ends in a part of a batch; each task reads one before, of which the index tells, and behind.
    assert tasks < 1.1 * size + count * (300 << 10)


@pytest.mark.parametrize("commit", [True, False], ids=["was committed", "was aborted"])
@pytest.mark.parametrize("snapshot", [True, False])
@pytest.mark.parametrize("is_shorter", [True, False])
def test_a_log_that_has_changed_since_the_plan_decides_itself(
    commit: bool, snapshot: bool, is_shorter: bool, tmp_path: Path
) -> None:
    """A new leader had another end of it, with a marker of its own."""
    folder = tmp_path / "t-0"
    make(folder, commit=commit, snapshot=snapshot, batches=20)
    splits = micro_batches(opened(tmp_path), 10, end=22)
    assert all(split.seen.decided is not None for split in splits[:5])
    for path in folder.iterdir():
        path.unlink()
    other = [*map(data, range(20)), marker(7, commit=not commit, offset=20)]
    write_segment(folder, other if is_shorter else [*other, batch([record(b"another")], base_offset=21)])
    found = [offset for split in splits[:-1] for offset in offsets_of(tmp_path, split)]
    assert found == ([] if commit else [*range(19)])


def test_a_planner_notices_another_log(tmp_path: Path) -> None:
    """What it has found out of the old one does not count, though the new one is longer."""
    folder = tmp_path / "t-0"
    make(folder, commit=False, batches=20)
    place = opened(tmp_path)
    assert place.end_offsets([T0], read_committed=True) == {T0: 22}
    (folder / f"{0:020}.index").unlink()
    write_segment(
        folder,
        [
            *map(data, range(20)),
            marker(7, commit=True, offset=20),
            batch([record(b"x")], base_offset=21),
            batch([record(b"y")], base_offset=22),
        ],
    )
    assert place.end_offsets([T0], read_committed=True) == {T0: 23}
    known = place.decided(T0, OffsetRange(0, 23))
    assert known is not None
    assert known.aborted == ()


def test_a_planner_notices_another_log_of_the_same_length(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    make(folder, commit=False, batches=20)
    place = opened(tmp_path)
    assert place.end_offsets([T0], read_committed=True) == {T0: 22}
    write_segment(folder, [*map(data, range(21)), batch([record(b"x")], base_offset=21)])
    assert place.end_offsets([T0], read_committed=True) == {T0: 0}


def test_plans_of_an_earlier_version_are_read() -> None:
    partition = LogInputPartition((Split(T0, OffsetRange(1, 2), seen=Seen("id", 3, 4)),))
    make_again, (query_id, value) = partition.__reduce__()
    assert make_again(query_id, value[:-1]) == partition


def test_many_aborted_transactions(tmp_path: Path, read_bytes: list[int]) -> None:
    stored = []
    for offset in range(0, 10_000, 2):
        stored += data_batch(offset, 7), control_batch(offset + 1, 7, commit=False)
    write_segment(tmp_path / "t-0", stored)
    place = opened(tmp_path)
    assert place.end_offsets([T0], read_committed=True) == {T0: 10_000}
    read_bytes.clear()
    few, all_of_them = (place.decided(T0, OffsetRange(start, 9_999)) for start in (9_001, 0))
    assert few is not None
    assert [few.aborted[0].first_offset, len(few.aborted)] == [9_000, 500]
    assert all_of_them is not None
    assert [all_of_them.since, len(all_of_them.aborted)] == [9_999, 1]
    assert len(read_bytes) < 20
    for split in batch_plan(place, 5):
        assert offsets_of(tmp_path, split) == []
    assert len(read_bytes) < 100


@pytest.mark.parametrize("seed", range(12))
def test_any_log_in_any_splits(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of four producers, interleaved at random."""
    choose = random.Random(seed)
    monkeypatch.setattr(transactions, "_SMALL", 7)
    monkeypatch.setattr(transactions, "_MOST_KEPT", 5)
    monkeypatch.setattr(transactions, "_MOST_SENT", choose.choice([1, 3, 1_000]))
    open_ones: dict[int, list[int]] = {}
    stored, visible, snapshots = [], set(), {}
    for offset in range(120):
        producer = choose.randrange(5)
        if producer == 4:
            stored.append(batch([record(b"plain")], base_offset=offset))
            visible.add(offset)
        elif producer in open_ones and choose.random() < 0.2 + 0.1 * producer - 0.1 * (seed % 2):
            is_committed = choose.random() < 0.5
            stored.append(control_batch(offset, producer, commit=is_committed))
            ended = open_ones.pop(producer)
            visible.update(ended if is_committed else ())
        else:
            stored.append(data(offset, producer, size=choose.choice([1, 1, 200, 5_000])))
            open_ones.setdefault(producer, []).append(offset)
        snapshots[offset + 1] = [ProducerEntry(p, 0, first_offset=o[0]) for p, o in open_ones.items()]
    folder = tmp_path / "t-0"
    for start in range(0, 120, 30):
        write_segment(folder, stored[start : start + 30])
    if seed % 3:
        at = choose.randrange(1, 121)
        (folder / f"{at:020}.snapshot").write_bytes(format_snapshot(snapshots[at]))
    stable = min((first[0] for first in open_ones.values()), default=120)
    expected = sorted(offset for offset in visible if offset < stable)
    place = LogDirectory.open(str(tmp_path), slice_bytes=200)
    assert place.end_offsets([T0], read_committed=True) == {T0: stable}
    count = min(choose.randrange(1, 30), stable)
    for splits in (batch_plan(place, count), micro_batches(place, count, end=stable)):
        assert [offset for split in splits for offset in offsets_of(tmp_path, split)] == expected
