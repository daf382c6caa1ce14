"""Compaction keeps the last record of each key, whatever the log is made of."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog.codec.batch_identity import is_same
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import CorruptRecordError, LogDirectoryError, LogDirectoryLockedError
from pyspark_kafkalog.extensions.cleanup.compacting import compact_partition
from pyspark_kafkalog.extensions.cleanup.compaction import Compaction, CompactionSettings, LogBounds
from pyspark_kafkalog.extensions.cleanup.history import StoredBatches, in_groups
from pyspark_kafkalog.log.layout import CLEAN_SHUTDOWN_FILE, CLEANER_CHECKPOINT
from pyspark_kafkalog.log.lock import directory_lock
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import BatchHeader, OffsetRange, TopicPartition
from tests.codec import raw
from tests.fixtures_dir import CASES, Case
from tests.log.partitions import control_batch, copy, data_batch, rows
from tests.log.random_logs import DAY_MS, RandomLog, append

T0 = TopicPartition("t", 0)
ALL_OF_IT = CompactionSettings(min_cleanable_dirty_ratio=0, delete_retention_ms=DAY_MS)
Record = dict[str, Any]


@pytest.fixture(autouse=True)
def without_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def make(root: Path, rng: random.Random, batches: int = 60) -> RandomLog:
    """A partition of random batches in small segments."""
    log = RandomLog.of(rng)
    root.mkdir(exist_ok=True)
    append(root / str(T0), T0, log.batches(batches), rng.choice((700, 1500, 4000)))
    return log


def records(root: Path, partition: TopicPartition = T0, *, read_committed: bool = False) -> list[Record]:
    place = LogDirectory.open(str(root))
    bounds = place.watermarks([partition], read_committed=False)[partition]
    offsets = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
    return rows(place, partition, offsets, read_committed=read_committed)


def headers(root: Path) -> dict[int, BatchHeader]:
    """The headers of all record batches, by their last offsets."""
    place = LogDirectory.open(str(root))
    found = (place.batches_at({T0: row["offset"]}).get(T0) for row in records(root))
    return {header.last_offset: header for header in found if header is not None}


def segments(root: Path, partition: TopicPartition = T0) -> list[Path]:
    return sorted((root / str(partition)).glob("*.log"))


def cleanable_end(root: Path) -> int:
    """The base offset of the first segment that must not be compacted."""
    place = LogDirectory.open(str(root))
    stable = place.watermarks([T0], read_committed=True)[T0].last_stable_offset
    bases = [int(path.stem) for path in segments(root)]
    return max(base for base in bases if base <= stable)


def expected(root: Path, before: list[Record], end: int) -> list[Record]:
    """What has to be left below and from ``end``, by the records alone."""
    committed = {row["offset"] for row in records(root, read_committed=True)}
    last = {row["key"]: row["offset"] for row in before if row["offset"] in committed and row["offset"] < end}
    return [row for row in before if row["offset"] >= end or last.get(row["key"]) == row["offset"]]


def run(root: Path, settings: CompactionSettings = ALL_OF_IT, *, execute: bool = True) -> Any:
    return compact_partition(str(root), T0, settings, execute=execute)


@pytest.mark.parametrize("number", range(12))
def test_the_last_record_of_each_key_stays(number: int, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{seed} {number}")
    make(tmp_path, rng)
    before, end, noted = records(tmp_path), cleanable_end(tmp_path), headers(tmp_path)
    wanted = [
        row for row in expected(tmp_path, before, end) if row["key"] is not None or row["offset"] >= end
    ]
    sizes = [path.stat().st_size for path in segments(tmp_path)]
    planned = run(tmp_path, execute=False)
    assert [path.stat().st_size for path in segments(tmp_path)] == sizes, "A dry run changes nothing"
    memory = rng.choice((1, 24 * 8, 1 << 20))
    done = run(
        tmp_path, replace(ALL_OF_IT, dedupe_buffer_size=memory, segment_bytes=rng.choice((1000, 1 << 30)))
    )
    assert records(tmp_path) == wanted
    assert done.first_dirty_offset == end or not done.passes
    if done.passes == 1:
        assert (done.records, done.removed_records) == (planned.records, planned.removed_records)
        assert abs(done.removed_bytes - planned.removed_bytes) < 200, "Horizons take more bytes or less"
    place = LogDirectory.open(str(tmp_path))
    assert not place.file_faults(T0)
    again = run(tmp_path, replace(ALL_OF_IT, dedupe_buffer_size=memory))
    assert records(tmp_path) == wanted
    assert not again.removed_records
    left = headers(tmp_path)
    assert not [
        header for offset, header in noted.items() if is_same(header, left.get(offset, header)) is False
    ]


def test_tombstones_and_markers_go_after_the_delete_retention(tmp_path: Path) -> None:
    """Each is seen twice: then it gets its horizon, and goes once that is past."""
    log = RandomLog(random.Random(1), 3, ("none",))
    append(tmp_path / str(T0), T0, log.batches(200), 2000)
    at_once = replace(ALL_OF_IT, delete_retention_ms=0)
    end = cleanable_end(tmp_path)
    run(tmp_path, at_once)
    before = [row for row in records(tmp_path) if row["offset"] < end]
    markers = control_offsets(tmp_path, end)
    for _ in range(3):
        roll(tmp_path, log)
        end = cleanable_end(tmp_path)
        run(tmp_path, at_once)
    after = [row for row in records(tmp_path) if row["offset"] < end]
    assert not [row for row in after if row["value"] is None and row in before]
    assert markers
    assert not markers & control_offsets(tmp_path, end)


@pytest.mark.parametrize(("retention", "is_left"), [(0, False), (DAY_MS, True)])
def test_tombstones_of_old_formats_go_by_the_times_of_files(
    retention: int, is_left: bool, tmp_path: Path
) -> None:
    settings = replace(ALL_OF_IT, delete_retention_ms=retention)
    messages = [raw.message(None, key=b"gone", offset=0)]
    messages += [raw.message(b"x" * 50, key=b"%d" % offset, offset=offset) for offset in range(1, 30)]
    append(tmp_path / str(T0), T0, messages, 500)
    run(tmp_path, settings)
    assert records(tmp_path)[0]["key"] == b"gone", "It is seen for the first time"
    more = [raw.message(b"x" * 50, key=b"%d" % offset, offset=offset) for offset in range(30, 60)]
    append(tmp_path / str(T0), T0, more, 500)
    run(tmp_path, settings)
    assert (records(tmp_path)[0]["key"] == b"gone") == is_left


def control_offsets(root: Path, end: int) -> set[int]:
    found = set()
    for path in segments(root):
        batches = walk(path.read_bytes())
        found |= set(batches.base_offset[batches.is_control & (batches.count > 0)].tolist())
    return {offset for offset in found if offset < end}


def roll(root: Path, log: RandomLog) -> None:
    """Append until there is something new to compact."""
    before = cleanable_end(root)
    while cleanable_end(root) == before:
        append(root / str(T0), T0, log.batches(40), 2000)


def test_what_must_not_be_compacted(tmp_path: Path) -> None:
    log = RandomLog(random.Random(5), 2, ("none",))
    append(tmp_path / str(T0), T0, log.batches(80), 1000)
    open_at = cleanable_end(tmp_path)
    bases = [int(path.stem) for path in segments(tmp_path)]
    folder = str(tmp_path / str(T0))

    def planned(bounds: LogBounds = LogBounds(), **settings: Any) -> Any:  # noqa: B008 - frozen
        now_ms = time.time_ns() // 1_000_000
        return Compaction(folder, T0, replace(ALL_OF_IT, **settings), bounds, now_ms).plan()

    everything = planned()
    assert everything.passes == 1
    below = planned(LogBounds(high_watermark=bases[3] + 1))
    assert 0 < below.stored_bytes < everything.stored_bytes
    assert below.note == f"the high watermark is {bases[3] + 1}"
    assert planned(min_compaction_lag_ms=10 * DAY_MS).passes == 0
    assert "min.compaction.lag.ms" in planned(min_compaction_lag_ms=10 * DAY_MS).note
    assert planned(LogBounds(first_dirty_offset=open_at)).passes == 0
    clean = LogBounds(first_dirty_offset=bases[-3])
    assert "is dirty, min.cleanable.dirty.ratio is 0.9" in planned(clean, min_cleanable_dirty_ratio=0.9).note
    overdue = planned(clean, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=1)
    assert overdue.passes == (open_at > bases[-3])
    assert planned(LogBounds(first_dirty_offset=1 << 40)).passes == 1, "No such offset: all is dirty"
    for path in segments(tmp_path)[:-1]:
        path.unlink()
    assert planned().note == "nothing new before the active segment"
    segments(tmp_path)[0].unlink()
    assert planned().note == "nothing new before the active segment"


def test_an_open_transaction_holds_it_back(tmp_path: Path) -> None:
    batches = [data_batch(0, 1), control_batch(1, 1, commit=True), data_batch(2, 1)]
    batches += [data_batch(offset, -1) for offset in range(3, 60)]
    append(tmp_path / str(T0), T0, batches, 500)
    done = run(tmp_path)
    assert done.note == "a transaction is open at offset 2"
    assert done.passes == 0


def test_aborted_transactions_that_are_gone_need_no_index_entries(tmp_path: Path) -> None:
    """A snapshot of producers has them open still, as the cleaner leaves snapshots as they are."""
    batches = [data_batch(offset, -1) for offset in range(8)]
    batches += [data_batch(8, 1), *(data_batch(offset, -1) for offset in range(9, 30))]
    batches += [control_batch(30, 1, commit=False), *(data_batch(offset, -1) for offset in range(31, 50))]
    append(tmp_path / str(T0), T0, batches, 600)
    assert list((tmp_path / str(T0)).glob("*.txnindex"))
    for _ in range(2):
        (tmp_path / CLEANER_CHECKPOINT).unlink(missing_ok=True)
        run(tmp_path, replace(ALL_OF_IT, segment_bytes=1))  # so that no segments are merged
        assert not LogDirectory.open(str(tmp_path)).file_faults(T0)
    assert not list((tmp_path / str(T0)).glob("*.txnindex"))


def test_damage_is_refused(tmp_path: Path) -> None:
    make(tmp_path, random.Random(3))
    path = segments(tmp_path)[2]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    before = {path.name: path.read_bytes() for path in segments(tmp_path)}
    with pytest.raises(CorruptRecordError, match=r"checksum is wrong.*Repair the partition"):
        run(tmp_path)
    assert {path.name: path.read_bytes() for path in segments(tmp_path)} == before


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    make(tmp_path, random.Random(3))
    before = {path.name: path.read_bytes() for path in segments(tmp_path)}
    with directory_lock(str(tmp_path), 1), pytest.raises(LogDirectoryLockedError):
        compact_partition(str(tmp_path), T0, ALL_OF_IT, execute=True, lock_timeout=0.1)
    assert {path.name: path.read_bytes() for path in segments(tmp_path)} == before
    assert run(tmp_path, execute=False).passes == 1


def test_a_malformed_checkpoint_is_refused_before_anything_changes(tmp_path: Path) -> None:
    make(tmp_path, random.Random(3))
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_text("0")
    (tmp_path / CLEANER_CHECKPOINT).write_text("not a checkpoint")
    before = {path.name: path.read_bytes() for path in segments(tmp_path)}
    with pytest.raises(LogDirectoryError, match=CLEANER_CHECKPOINT):
        run(tmp_path)
    assert {path.name: path.read_bytes() for path in segments(tmp_path)} == before
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).read_text() == "0"


def test_the_files_of_the_root(tmp_path: Path) -> None:
    make(tmp_path, random.Random(3))
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_text("0")
    (tmp_path / CLEANER_CHECKPOINT).write_text("0\n1\nother 3 77\n")
    mtimes = {path.stem: path.stat().st_mtime_ns for path in segments(tmp_path)}
    done = run(tmp_path)
    assert (tmp_path / CLEANER_CHECKPOINT).read_text() == f"0\n2\nother 3 77\nt 0 {done.first_dirty_offset}\n"
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).read_text() == "0"
    first = segments(tmp_path)[0]
    compacted = [mtime for base, mtime in mtimes.items() if int(base) < done.first_dirty_offset]
    assert first.stat().st_mtime_ns == compacted[-1], "As old as the newest that it replaces"
    snapshots = {path.stem for path in (tmp_path / str(T0)).glob("*.snapshot")}
    assert {path.stem for path in segments(tmp_path)} <= snapshots
    assert not [base for base in mtimes if 0 < int(base) < done.first_dirty_offset and base in snapshots]


KEYED = [fixture for fixture in CASES if not fixture.damaged and fixture.name != "v2-times"]
"""Python has no dates for some of the others' timestamps."""


@pytest.mark.slow
@pytest.mark.parametrize("fixture", KEYED, ids=lambda fixture: fixture.name)
def test_logs_of_real_brokers(fixture: Case, tmp_path: Path) -> None:
    """Of each key the last committed record stays, whatever wrote the log; a second time nothing changes."""
    root = copy(fixture, tmp_path / "root")
    place = LogDirectory.open(str(root))
    for topic, numbers in place.topics().items():
        for partition in (TopicPartition(topic, number) for number in numbers):
            before = records(root, partition)
            committed = {row["offset"] for row in records(root, partition, read_committed=True)}
            done = compact_partition(str(root), partition, ALL_OF_IT, execute=True)
            after = records(root, partition)
            end = done.first_dirty_offset if done.passes else 0
            last = {r["key"]: r["offset"] for r in before if r["offset"] in committed and r["offset"] < end}
            least = [
                r
                for r in before
                if r["offset"] >= end
                or (r["key"] is not None and r["value"] is not None and last.get(r["key"]) == r["offset"])
            ]
            assert [r for r in after if r["offset"] >= end or r["value"] is not None] == [
                r for r in least if r["offset"] >= end or r["value"] is not None
            ]
            assert all(r in before for r in after)
            assert not LogDirectory.open(str(root)).file_faults(partition)
            again = compact_partition(str(root), partition, ALL_OF_IT, execute=True)
            assert not again.passes
            assert records(root, partition) == after


READER = """
import sys
from tests.extensions.cleanup.test_compaction import LogDirectory, OffsetRange, Path, T0, rows
root, end = sys.argv[1], int(sys.argv[2])
print("reading", flush=True)
place = None
while not Path(root, "stop").exists():
    place = LogDirectory.open(root) if place is None or len(sys.argv) > 3 else place
    found = rows(place, T0, OffsetRange(0, end))
    print([row["offset"] for row in found], flush=True)
"""


@pytest.mark.long
@pytest.mark.slow
def test_readers_that_race_it_see_right_rows_only(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    log = RandomLog(rng, 30, ("none", "zstd"))
    append(tmp_path / str(T0), T0, log.batches(400), 1500)
    end = log.offset
    before, upto = records(tmp_path), cleanable_end(tmp_path)
    least = {row["offset"] for row in expected(tmp_path, before, upto)}
    every = {row["offset"] for row in before}
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(tmp_path), str(end), *more], stdout=subprocess.PIPE, text=True
        )
        for more in ([], ["open again"])
    ]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        assert reader.stdout.readline()
    few_keys = replace(ALL_OF_IT, dedupe_buffer_size=24 * 6, segment_bytes=4000)
    passes = 0
    deadline = time.monotonic() + 60
    while passes < 100 and time.monotonic() < deadline:
        (tmp_path / CLEANER_CHECKPOINT).unlink(missing_ok=True)
        passes += run(tmp_path, few_keys).passes
    (tmp_path / "stop").touch()
    reads = 0
    for reader in readers:
        assert reader.stdout is not None
        with reader.stdout as printed:
            lines = printed.readlines()
        assert reader.wait(timeout=60) == 0
        for line in lines:
            offsets = json.loads(line)
            assert offsets == sorted(set(offsets))
            assert least <= set(offsets) <= every
            reads += 1
    assert reads > 10


def test_groups_of_segments_stay_within_what_indexes_can_address() -> None:
    segments = [StoredBatches("", 10 * i, 3 << 28, 0, 0, 0) for i in range(6)]
    assert [len(group) for group in in_groups(segments, 60, 1 << 40, 1 << 20)] == [2, 2, 2]
