"""Batches appended to a backup: a real broker's log, byte for byte, and what is kept beside it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.log.layout import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    format_offset_checkpoint,
    parse_leader_epoch_checkpoint,
    parse_segment_file,
)
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.snapshot import ProducerEntry, format_snapshot, parse_snapshot
from pyspark_kafkalog.model import Fetch, LogSettings, OffsetRange, TopicPartition, Watermarks
from pyspark_kafkalog.tools.backup.copies.log import BackupLog
from tests.fixtures_dir import CASES, Case, case

WHOLE = [fixture for fixture in CASES if not fixture.damaged]
each_whole = pytest.mark.parametrize("fixture", WHOLE, ids=lambda fixture: fixture.name)

OLDER_PRODUCERS = {"v2-compacted", "v2-epochs", "v2-emptied"}
"""Where a broker knew producers whose records are gone, or had forgotten some (producer.id.expiration.ms)."""
SMALL = LogSettings(segment_bytes=2000, index_interval_bytes=200)


def files(folder: Path, suffix: str) -> list[Path]:
    named = ((file, parse_segment_file(file.name)) for file in sorted(folder.iterdir()))
    return [file for file, found in named if found is not None and found[1] == suffix]


def content(folder: Path, suffix: str) -> bytes:
    return b"".join(file.read_bytes() for file in files(folder, suffix))


def everything(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def snapshots(folder: Path) -> dict[int, list[ProducerEntry] | None]:
    return {int(file.stem): parse_snapshot(file.read_bytes()) for file in files(folder, ".snapshot")}


def epochs(folder: Path) -> list[tuple[int, int]]:
    file = folder / LEADER_EPOCH_CHECKPOINT
    return parse_leader_epoch_checkpoint(file.read_bytes(), str(file)) if file.exists() else []


def partitions_of(place: LogDirectory) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in place.topics().items() for number in numbers]


def bounds_of(place: LogDirectory, partition: TopicPartition) -> Watermarks:
    return place.watermarks([partition], read_committed=True)[partition]


def append_all(log: BackupLog, place: LogDirectory) -> None:
    offsets = OffsetRange(log.next_offset, bounds_of(place, log.partition).high_watermark)
    for piece in place.fetch(Fetch(log.partition, offsets)):
        log.append(piece)


def follow(place: LogDirectory, partition: TopicPartition, folder: Path, settings: LogSettings) -> None:
    start = bounds_of(place, partition).log_start_offset
    with BackupLog.create(str(folder), partition, settings, start) as log:
        append_all(log, place)


@each_whole
def test_a_backup_has_what_its_source_has(fixture: Case, tmp_path: Path) -> None:
    place = LogDirectory.open(str(fixture.directory))
    for partition in partitions_of(place):
        leader, own = fixture.directory / str(partition), tmp_path / str(partition)
        follow(place, partition, own, LogSettings())
        assert content(leader, ".log").endswith(content(own, ".log"))
        assert content(own, ".txnindex") == content(leader, ".txnindex")
        theirs, ours = snapshots(leader), snapshots(own)
        if fixture.name not in OLDER_PRODUCERS:
            for offset in theirs.keys() & ours.keys():
                assert sorted(ours[offset] or ()) == sorted(theirs[offset] or ())
        if epochs(own) and epochs(leader):
            assert epochs(own) == epochs(leader)
        start = {partition: bounds_of(place, partition).log_start_offset}
        (tmp_path / LOG_START_OFFSET_CHECKPOINT).write_bytes(format_offset_checkpoint(start))
        copy = LogDirectory.open(str(tmp_path))
        assert not copy.file_faults(partition)
        assert bounds_of(copy, partition) == bounds_of(place, partition)


@pytest.mark.parametrize("name", ["txn-basic", "v2-epochs", "v0v1-upgraded"])
def test_a_backup_that_was_killed_goes_on(name: str, tmp_path: Path) -> None:
    """Whatever of the last segment is lost, it ends up as if nothing had happened."""
    fixture = case(name)
    place = LogDirectory.open(str(fixture.directory))
    partition = partitions_of(place)[0]
    whole = tmp_path / "whole"
    follow(place, partition, whole, SMALL)
    assert len(files(whole, ".log")) > 2
    rng = random.Random(name)
    for number in range(20):
        killed = tmp_path / f"killed-{number}"
        shutil.copytree(whole, killed)
        log = files(killed, ".log")
        keep = rng.randrange(1, len(log) + 1)
        gone = {file.stem for file in log[keep:]} | {files(whole, ".snapshot")[-1].stem}
        for file in list(killed.iterdir()):
            if file.stem in gone:
                file.unlink()
        last = files(killed, ".log")[-1]
        last.write_bytes(last.read_bytes()[: rng.randrange(last.stat().st_size + 1)])
        for suffix in (".index", ".timeindex", ".txnindex"):
            if rng.random() < 0.5 and (index := last.with_suffix(suffix)).exists():
                index.write_bytes(index.read_bytes()[: rng.randrange(30)])
        with BackupLog.open(str(killed), partition, SMALL, 0) as backup:
            append_all(backup, place)
        now, before = everything(killed), everything(whole)
        # An append writes the time index to its end, so how much was appended at once shows in it.
        assert {name for name in now if not name.endswith(".timeindex")} == {
            name for name in before if not name.endswith(".timeindex")
        }
        assert not [name for name in now if not name.endswith(".timeindex") and now[name] != before[name]]


def test_a_batch_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    fixture = case("v2-none")
    place = LogDirectory.open(str(fixture.directory))
    partition = partitions_of(place)[0]
    (piece,) = place.fetch(Fetch(partition, OffsetRange(0, bounds_of(place, partition).high_watermark)))
    damaged = bytearray(piece.buffer)
    damaged[-1] ^= 1
    with BackupLog.create(str(tmp_path / "own"), partition, SMALL, 0) as log:
        with pytest.raises(CorruptRecordError, match="checksum"):
            log.append(type(piece)(pa.py_buffer(bytes(damaged)), piece.headers, piece.origin))
        assert log.next_offset == int(piece.headers[2][-1])


def test_snapshots_that_are_not_whole_are_not_read() -> None:
    data = format_snapshot([ProducerEntry(7, 1, 2, 3, 0, 5, 6, -1)])
    assert parse_snapshot(data) == [ProducerEntry(7, 1, 2, 3, 0, 5, 6, -1)]
    assert parse_snapshot(format_snapshot([])) == []
    for size in range(len(data)):
        assert parse_snapshot(data[:size]) is None
