"""A source whose log is no longer the one that was backed up: each change is told, and nothing is mixed."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog import BackedUpPartition, BackupRules, connect
from pyspark_kafkalog.errors import DataLossError, LogDirectoryError, OptionError
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.log.layout import parse_leader_epoch_checkpoint, parse_offset_checkpoint
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import CommittedOffset, OffsetRange, TopicPartition
from pyspark_kafkalog.tools.backup.copies.directory import open_backup
from pyspark_kafkalog.tools.backup.copies.log import BackupLog
from pyspark_kafkalog.tools.backup.copies.truncation import truncate
from pyspark_kafkalog.tools.care.verify import verify
from tests.log.partitions import batch as sized_batch
from tests.log.partitions import write_segment
from tests.tools.backup.histories import (
    RECORDS,
    SMALL,
    T0,
    backup_by_threads,
    batch,
    content,
    make_log,
    piece,
    set_log_start,
)

NO_GROUPS = BackupRules(groups=())
TRUNCATE = BackupRules(groups=(), truncate=True)
ALLOW_GAPS = BackupRules(groups=(), allow_gaps=True)


def run(source: Path, target: Path, rules: BackupRules = NO_GROUPS) -> BackedUpPartition:
    (row,) = connect(source).logs.backup(str(target), rules)
    return row


def check_sound(root: Path) -> None:
    """Nothing is damaged, and a broker would start without recovery."""
    place = LogDirectory.open(str(root))
    partitions = [TopicPartition(t, n) for t, numbers in place.topics().items() for n in numbers]
    assert not [damage for found in verify(place, partitions) for damage in found.damages]
    assert (root / ".kafka_cleanshutdown").exists()


def epochs(root: Path) -> list[tuple[int, int]]:
    return parse_leader_epoch_checkpoint((root / "t-0" / "leader-epoch-checkpoint").read_bytes(), "")


def test_it_goes_on_where_it_ended(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for end in 40, 45, 45, 300:
        shutil.rmtree(source, ignore_errors=True)
        make_log(source, [(2, 20), (4, end)])
        row = run(source, target)
        assert (row.log_start_offset, row.log_end_offset, row.high_watermark) == (0, end, end)
        assert row.problem is None
        assert content(target) == content(source)
        assert epochs(target) == [(2, 0), (4, 20)]
        check_sound(target)
    assert run(source, target).copied_bytes == 0
    assert [file.name for file in sorted((target / "t-0").glob("*.snapshot"))] == [
        file.name for file in sorted((source / "t-0").glob("*.snapshot"))
    ] or len([*(target / "t-0").glob("*.snapshot")]) <= len([*(target / "t-0").glob("*.log")]) + 1


def saved_and_replaced(
    before: list[tuple[int, int]], after: list[tuple[int, int]], kept: int, folder: Path
) -> tuple[Path, Path, bytes]:
    """A source with other records from ``kept`` on than were saved, its backup, and what that holds."""
    source, target = folder / "source", folder / "target"
    make_log(source, before)
    run(source, target)
    held = content(target)
    shutil.rmtree(source)
    make_log(source, after, mark="other", marked_from=kept)
    return source, target, held


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ([(1, 100)], [(1, 60), (3, 70)], 60),
        ([(1, 100)], [(1, 60), (3, 400)], 60),
        ([(1, 50), (2, 100)], [(1, 30), (3, 120)], 30),
        ([(1, 50), (2, 60), (4, 100)], [(1, 50), (3, 120)], 50),
        ([(1, 50), (2, 60), (4, 100)], [(1, 50), (2, 55), (3, 60), (5, 80)], 55),
        ([(1, 50), (2, 80)], [(1, 60), (5, 90)], 50),
        ([(1, 100)], [(1, 60)], 60),
    ],
    ids=str,
)
def test_what_a_leader_has_truncated_is_never_mixed(
    before: list[tuple[int, int]], after: list[tuple[int, int]], kept: int, tmp_path: Path
) -> None:
    """As Kafka's own followers find it (KIP-101, KIP-279)."""
    source, target, held = saved_and_replaced(before, after, kept, tmp_path)
    end = before[-1][1]
    row = run(source, target)
    assert f"Offsets {kept} to {end - 1} are not those of the source" in (row.problem or "")
    assert content(target) == held
    check_sound(target)
    row = run(source, target, TRUNCATE)
    assert (row.problem, row.truncated) == (None, [OffsetRange(kept, end)])
    assert row.log_end_offset == after[-1][1]
    expected = b"".join(batch(at, _epoch(before, at)) for at in range(0, kept, RECORDS))
    expected += b"".join(batch(at, _epoch(after, at), "other") for at in range(kept, after[-1][1], RECORDS))
    assert content(target) == expected
    check_sound(target)
    assert run(source, target).problem is None


class AnswersLikeBrokers:
    """A directory that has no answer for leader epochs above its newest one."""

    def __init__(self, source: Path, newest: int) -> None:
        self._place, self._newest = LogDirectory.open(str(source)), newest

    def epoch_ends(self, asked: dict[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        known = self._place.epoch_ends(asked)
        return {p: (-1, -1) if asked[p] > self._newest else end for p, end in known.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ([(0, 50), (2, 80), (4, 100)], [(0, 50), (2, 80)], 80),
        ([(0, 50), (2, 80), (4, 100)], [(0, 50), (2, 90)], 80),
        ([(0, 50), (2, 80), (4, 100)], [(0, 50), (2, 60)], 60),
        ([(0, 50), (2, 80), (4, 100)], [(0, 70)], 50),
        ([(0, 50), (2, 80), (4, 100)], [(0, 40), (1, 90)], 40),
        ([(2, 80), (4, 100)], [(1, 90)], 0),
    ],
    ids=str,
)
def test_a_cluster_that_went_back_to_older_epochs_shares_what_it_had(
    before: list[tuple[int, int]], after: list[tuple[int, int]], kept: int, tmp_path: Path
) -> None:
    source, target, held = saved_and_replaced(before, after, kept, tmp_path)
    went_back = AnswersLikeBrokers(source, after[-1][0])
    for rules in NO_GROUPS, TRUNCATE:
        with open_backup(str(target)) as directory:
            (row,) = backup_by_threads(went_back, directory, rules).once()
        if kept == 0 or rules is NO_GROUPS:
            assert f"Offsets {kept} to 99 are not those of the source" in (row.problem or "")
            assert content(target) == held
    if kept:
        assert (row.problem, row.truncated) == (None, [OffsetRange(kept, 100)])
        assert content(target) == content(source)
    check_sound(target)


def _epoch(history: list[tuple[int, int]], offset: int) -> int:
    return next(epoch for epoch, end in history if offset < end)


def test_a_topic_made_anew_is_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 50)])
    run(source, target)
    held = content(target)
    shutil.rmtree(source)
    make_log(source, [(0, 500)], topic_id="AAAAAAAAAAAAAAAAAAAAAg")
    for rules in NO_GROUPS, TRUNCATE, ALLOW_GAPS:
        problem = run(source, target, rules).problem or ""
        assert "AAAAAAAAAAAAAAAAAAAAAQ" in problem
        assert "AAAAAAAAAAAAAAAAAAAAAg" in problem
        assert "back it up into another directory" in problem
        assert content(target) == held


def test_a_folder_that_was_moved_away_leaves_nothing_for_the_next_one(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(1, 50)])
    run(source, target)
    shutil.rmtree(source)
    make_log(source, [(1, 300)], start=70)
    set_log_start(source, 70)
    assert run(source, target, ALLOW_GAPS).gaps == [OffsetRange(50, 70)]
    shutil.rmtree(target / "t-0")
    shutil.rmtree(source)
    source.mkdir()
    with open_backup(str(target)) as directory:
        directory.open(T0, SMALL, start=0, topic_id="AAAAAAAAAAAAAAAAAAAAAg")
        flushed = parse_offset_checkpoint((target / "recovery-point-offset-checkpoint").read_bytes(), "")
        assert flushed == {}, "what the next run would believe if this one were killed"
    for end in 50, 100:
        shutil.rmtree(source)
        make_log(source, [(0, end)], topic_id="AAAAAAAAAAAAAAAAAAAAAg")
        row = run(source, target)
        assert (row.problem, row.gaps, row.log_end_offset) == (None, [], end)
        assert content(target) == content(source)
    check_sound(target)


def test_records_without_a_topic_id_are_not_mixed_with_those_of_a_topic_that_has_one(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for end in 50, 60:  # a source without topic ids
        shutil.rmtree(source, ignore_errors=True)
        make_log(source, [(0, end)], topic_id="")
        assert run(source, target).problem is None
    held = content(target)
    shutil.rmtree(source)
    make_log(source, [(0, 100)])
    for _ in range(2):
        problem = run(source, target, TRUNCATE).problem or ""
        assert "Expected the topic id AAAAAAAAAAAAAAAAAAAAAQ, got records without one" in problem
        assert content(target) == held
    (target / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert run(source, target).problem is None
    assert content(target) == content(source)
    check_sound(target)


@pytest.mark.parametrize("change", ["recreated", "diverged", "gone"])
def test_group_offsets_are_those_of_the_saved_records(change: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    other = TopicPartition("u", 0)
    make_log(source, [(0, 100)])
    make_log(source, [(0, 100)], partition=other)
    groups = DirectoryGroups.open(str(source), num_partitions=1)
    groups.commit("etl", dict.fromkeys([T0, other], CommittedOffset(90)))
    connect(source).logs.backup(str(target))
    shutil.rmtree(source / "t-0")
    if change == "recreated":
        make_log(source, [(0, 10)], topic_id="AAAAAAAAAAAAAAAAAAAAAg")
    elif change == "diverged":
        make_log(source, [(0, 60), (1, 200)])
    groups.commit("etl", dict.fromkeys([T0, other], CommittedOffset(5)))
    connect(source).logs.backup(str(target))
    committed = DirectoryGroups.open(str(target), retention_minutes=None).committed("etl")
    assert {partition: offset.offset for partition, offset in committed.items()} == {T0: 90, other: 5}


def commit(root: Path, **offsets: int) -> None:
    groups = DirectoryGroups.open(str(root), num_partitions=1)
    for group, offset in offsets.items():
        groups.commit(group, {T0: CommittedOffset(offset, leader_epoch=1)})


def saved(root: Path) -> dict[str, int]:
    groups = DirectoryGroups.open(str(root), retention_minutes=None)
    return {group: groups.committed(group)[T0].offset for group in groups.group_ids()}


@pytest.mark.parametrize("end", [60, 200])
@pytest.mark.parametrize("rules", [TRUNCATE, BackupRules(truncate=True)], ids=["no groups", "groups"])
def test_offsets_that_were_truncated_are_not_kept(end: int, rules: BackupRules, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(1, 100)])
    commit(source, etl=100, gone=90, early=40)
    connect(source).logs.backup(str(target))
    shutil.rmtree(source)
    make_log(source, [(1, 50), (3, end)])
    commit(source, etl=100, early=40)
    connect(source).logs.backup(str(target), rules)
    if end < 100 or rules is TRUNCATE:
        assert saved(target) == {"early": 40}
    else:
        assert saved(target) == {"early": 40, "etl": 100}


@pytest.mark.parametrize("rules", [NO_GROUPS, BackupRules()], ids=["no groups", "groups"])
@pytest.mark.parametrize("end", [10, 200])
def test_offsets_of_a_copy_that_was_moved_away_are_not_kept(
    end: int, rules: BackupRules, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 100)])
    commit(source, etl=100, early=5)
    connect(source).logs.backup(str(target))
    shutil.rmtree(source)
    make_log(source, [(0, end)], topic_id="AAAAAAAAAAAAAAAAAAAAAg")
    connect(source).logs.backup(str(target), rules)
    assert saved(target) == {"etl": 100, "early": 5}
    shutil.move(target / "t-0", tmp_path / "moved")
    connect(source).logs.backup(str(target), rules)
    assert saved(target) == {}


def test_offsets_beyond_the_backup_are_deleted(tmp_path: Path) -> None:
    """Whosever they are, and whatever put them there."""
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 100)])
    commit(source, etl=90)
    connect(source).logs.backup(str(target))
    commit(target, etl=110, gone=101, early=100)
    connect(source).logs.backup(str(target), BackupRules(groups=("etl",)))
    assert saved(target) == {"early": 100, "etl": 90}


def test_a_copy_does_not_begin_while_earlier_offsets_stay(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 100)])
    commit(source, etl=100)
    connect(source).logs.backup(str(target))
    shutil.move(target / "t-0", tmp_path / "moved")
    make_log(source, [(0, 10)], partition=TopicPartition("t", 1))
    (held,) = (target / "__consumer_offsets-0").glob("*.log")
    data = held.read_bytes()
    held.write_bytes(data[:80] + bytes([data[80] ^ 1]) + data[81:])
    rows = connect(source).logs.backup(str(target), NO_GROUPS)
    assert [str(held) in (row.problem or "") for row in rows] == [True, True]
    held.write_bytes(data)
    assert [row.problem for row in connect(source).logs.backup(str(target))] == [None, None]
    assert saved(target) == {"etl": 100}


class Hiding:
    """A directory that does not show the configs of its topics, as a cluster with ACLs."""

    def __init__(self, root: Path) -> None:
        self._place = LogDirectory.open(str(root))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def topic_overrides(self, topic: str) -> None:
        return None


def test_configs_that_are_not_shown_stay_saved(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 10)])
    write_topic_configs(str(source), {"t": {"segment.bytes": "1000"}})
    run(source, target)
    shutil.rmtree(source)
    make_log(source, [(0, 100)])
    hiding = Hiding(source)
    with open_backup(str(target)) as directory:
        backup_by_threads(hiding, directory, NO_GROUPS).once()
    assert LogDirectory.open(str(target)).topic_config("t") == {"segment.bytes": "1000"}
    assert len([*(target / "t-0").glob("*.log")]) > 1
    run(source, target)
    assert LogDirectory.open(str(target)).topic_config("t") == {}


class Recreated:
    """A cluster whose topic is deleted and recreated right before the first call of a method.

    Only a fetch names the topic by its id.
    """

    def __init__(self, old: Path, new: Path, *, at: str) -> None:
        self._place, self._new = LogDirectory.open(str(old)), LogDirectory.open(str(new))
        self._at = at

    def cluster_id(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name == self._at:
            self._place = self._new
        if name == "fetch" and self._place is self._new:
            raise DataLossError("Offsets are gone: the topic was deleted and recreated")
        return getattr(self._place, name)


@pytest.mark.parametrize("at", ["try_watermarks", "epoch_ends", "fetch"])
@pytest.mark.parametrize("start", [0, 300])
def test_a_topic_made_anew_during_the_run_is_not_mixed(at: str, start: int, tmp_path: Path) -> None:
    source, anew, target = tmp_path / "source", tmp_path / "recreated", tmp_path / "target"
    make_log(source, [(0, 100)])
    make_log(anew, [(0, start + 10)], start=start, topic_id="AAAAAAAAAAAAAAAAAAAAAg", mark="other")
    run(source, target)
    held = content(target)
    shutil.rmtree(source)
    make_log(source, [(0, 200)])
    rules = BackupRules(groups=(), truncate=True, allow_gaps=True)
    with open_backup(str(target)) as directory:
        source_now = Recreated(source, anew, at=at)
        (row,) = backup_by_threads(source_now, directory, rules).once()
    assert "AAAAAAAAAAAAAAAAAAAAAg" in (row.problem or "")
    assert (row.truncated, row.gaps, row.log_end_offset) == ([], [], 100)
    assert content(target) == held
    check_sound(target)


def test_retention_that_overtook_is_a_gap(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 50)])
    run(source, target)
    held = content(target)
    shutil.rmtree(source)
    make_log(source, [(0, 200)], start=100)
    row = run(source, target)
    assert "Offsets 50 to 99 are gone from the source, and were never copied" in (row.problem or "")
    assert content(target) == held
    row = run(source, target, ALLOW_GAPS)
    assert (row.problem, row.gaps, row.log_end_offset) == (None, [OffsetRange(50, 100)], 200)
    assert content(target) == held + content(source)
    check_sound(target)
    # It is told for as long as the backup is there.
    assert run(source, target).gaps == [OffsetRange(50, 100)]


def test_deleted_records_are_deleted_in_the_backup(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 50)])
    set_log_start(source, 23)
    row = run(source, target)
    assert (row.log_start_offset, row.log_end_offset) == (23, 50)
    place = LogDirectory.open(str(target))
    assert place.watermarks([T0], read_committed=False)[T0].log_start_offset == 23
    assert content(target) == b"".join(batch(at, 0) for at in range(20, 50, RECORDS))
    check_sound(target)


def test_an_empty_partition_begins_where_its_source_does(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [])
    assert run(source, target).log_end_offset == 0
    shutil.rmtree(source)
    make_log(source, [(3, 200)], start=100)
    row = run(source, target)
    assert (row.problem, row.gaps, row.log_start_offset, row.log_end_offset) == (None, [], 100, 200)
    assert content(target) == content(source)
    check_sound(target)


def test_an_empty_partition_begins_anew_while_it_is_followed(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [])
    run(source, target)
    with open_backup(str(target)) as directory:
        for start, end in (0, 0), (100, 100), (200, 230):
            shutil.rmtree(source)
            make_log(source, [(3, end)], start=start)
            set_log_start(source, start)
            place = LogDirectory.open(str(source))
            (row,) = backup_by_threads(place, directory, NO_GROUPS).once()
            assert (row.problem, row.gaps) == (None, [])
            assert (row.log_start_offset, row.log_end_offset) == (start, end)
    assert content(target) == content(source)
    assert [file.name for file in (target / "t-0").glob("*.log")] == [f"{200:020d}.log"]
    check_sound(target)


def test_an_empty_partition_begins_with_another_range_of_time(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 100)])
    set_log_start(source, 23)
    row = run(source, target, BackupRules(groups=(), since=5000))
    assert (row.log_start_offset, row.log_end_offset) == (100, 100)
    row = run(source, target, BackupRules(groups=(), since=1000))
    assert (row.problem, row.log_start_offset, row.log_end_offset) == (None, 23, 100)
    assert content(target) == b"".join(batch(at, 0) for at in range(20, 100, RECORDS))
    check_sound(target)


def test_a_range_of_time_ends_with_whole_batches(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 100)])
    row = run(source, target, BackupRules(groups=(), since=1000 + 42, until=1000 + 63))
    assert (row.log_start_offset, row.log_end_offset, row.high_watermark) == (40, 65, 100)
    assert content(target) == b"".join(batch(at, 0) for at in range(40, 65, RECORDS))
    assert run(source, target).log_end_offset == 100
    check_sound(target)


def test_a_partition_that_is_gone_is_kept(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 50)])
    make_log(source, [(0, 10)], partition=TopicPartition("u", 0))
    connect(source).logs.backup(str(target), NO_GROUPS)
    held = content(target)
    shutil.rmtree(source / "t-0")
    rows = connect(source).logs.backup(str(target), NO_GROUPS)
    assert [(row.topic, row.log_end_offset, row.high_watermark) for row in rows] == [
        ("t", 50, None),
        ("u", 10, 10),
    ]
    assert content(target) == held


def test_internal_topics_are_refused_by_name() -> None:
    with pytest.raises(OptionError, match="__consumer_offsets can't be backed up as it is"):
        BackupRules(topics=("__consumer_offsets",))


def test_a_cut_leaves_what_was_there_before(tmp_path: Path) -> None:
    """Whatever the offset, the log is then as it was when it ended there."""
    whole, history = tmp_path / "whole", [(1, 100), (2, 150), (7, 300)]
    make_log(whole, history)
    for offset in random.Random(1).sample(range(310), 60):
        cut = tmp_path / f"cut-{offset}"
        shutil.copytree(whole, cut)
        truncate(str(cut / "t-0"), offset)
        truncate(str(cut / "t-0"), offset)
        end = min(offset, 300) // RECORDS * RECORDS
        with BackupLog.open(str(cut / "t-0"), T0, SMALL, 0) as log:
            assert log.next_offset == end
            assert log.epochs == [entry for entry in [(1, 0), (2, 100), (7, 150)] if entry[1] < end]
        assert content(cut) == b"".join(batch(at, _epoch(history, at)) for at in range(0, end, RECORDS))
        with BackupLog.open(str(cut / "t-0"), T0, SMALL, 0) as log:
            for at in range(end, 300, RECORDS):
                log.append(piece(batch(at, _epoch(history, at))))
        assert content(cut) == content(whole)
        names = {file.name for file in (cut / "t-0").iterdir()}
        assert {name for name in names if not name.endswith(".snapshot")} == {
            file.name for file in (whole / "t-0").iterdir() if file.suffix != ".snapshot"
        }
    assert len([*itertools.islice((whole / "t-0").glob("*.log"), 4)]) == 4


@pytest.mark.parametrize("size", [9 << 20, 17 << 20])
def test_a_flushed_batch_of_any_size_behind_damage_is_not_cut_off(size: int, tmp_path: Path) -> None:
    """It crosses every border of a search in windows."""
    folder = tmp_path / "t-0"
    damage = b"\x09" * ((8 << 20) - 100)
    path = write_segment(folder, [sized_batch(0, 1), damage, sized_batch(1, 1, size=size)], base_offset=0)
    before = path.stat()
    with pytest.raises(LogDirectoryError, match="before a valid batch at byte"):
        BackupLog.open(str(folder), T0, SMALL, 0, recovery_point=2)
    after = path.stat()  # reading may change when it was last read
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_nothing_is_cut_behind_damage(tmp_path: Path) -> None:
    """Neither by a truncation, of what it should leave, nor by a recovery; a torn write is."""
    make_log(tmp_path, [(1, 325)])
    folder = tmp_path / "t-0"
    segment = sorted(folder.glob("*.log"))[-1]
    whole, size = segment.read_bytes(), len(batch(320, 1))
    assert len(whole) > 4 * size
    segment.write_bytes(whole[: size + 80] + bytes(1) + whole[size + 81 :])
    held = {file.name: file.read_bytes() for file in folder.iterdir()}
    for change in (
        lambda: truncate(str(folder), 320),
        lambda: BackupLog.open(str(folder), T0, SMALL, 0, recovery_point=325),
    ):
        with pytest.raises(LogDirectoryError, match="before a valid batch at byte") as e:
            change()
        assert (e.value.file, e.value.position) == (str(segment), size)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == held
    segment.write_bytes(whole[:-40])
    with BackupLog.open(str(folder), T0, SMALL, 0) as log:
        assert log.next_offset == 320
    assert segment.read_bytes() == whole[: -len(batch(320, 1))]


def test_what_a_loss_of_power_has_left_is_cut_off(tmp_path: Path) -> None:
    """Pages behind the recovery point are on disk in any order."""
    make_log(tmp_path, [(1, 325)])
    segment = sorted((tmp_path / "t-0").glob("*.log"))[-1]
    whole, size = segment.read_bytes(), len(batch(320, 1))
    flushed = int(segment.stem) + RECORDS
    segment.write_bytes(whole[:size] + bytes(size) + whole[2 * size :])
    with BackupLog.open(str(tmp_path / "t-0"), T0, SMALL, 0, recovery_point=flushed) as log:
        assert log.next_offset == flushed
    assert segment.read_bytes() == whole[:size]


def test_a_batch_that_is_only_too_far_away_is_not_cut_off(tmp_path: Path) -> None:
    make_log(tmp_path, [(1, 25)])
    segment = sorted((tmp_path / "t-0").glob("*.log"))[-1]
    whole = segment.read_bytes() + batch(2**31 + 100, 1)
    segment.write_bytes(whole)
    with pytest.raises(LogDirectoryError, match=r"span more than 2\^31"):
        BackupLog.open(str(tmp_path / "t-0"), T0, SMALL, 0)
    assert segment.read_bytes() == whole


@pytest.mark.parametrize("active", [True, False], ids=["an empty segment behind", "nothing else"])
def test_a_compaction_that_was_killed_loses_nothing(active: bool, tmp_path: Path) -> None:
    """All that there is may be in a ``.swap`` when the backup is opened."""
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(1, 100)])
    run(source, target)
    first = min((target / "t-0").glob("*.log"))
    records = content(target)
    first.with_suffix(".log.swap").write_bytes(records)
    for file in (target / "t-0").iterdir():
        if file.suffix in (".log", ".index", ".timeindex"):
            file.unlink()
    if active:
        (target / "t-0" / f"{100:020d}.log").touch()
    (target / ".kafka_cleanshutdown").unlink()
    with open_backup(str(target)):
        pass
    assert content(target) == records
    make_log(tmp_path / "more", [(1, 130)])
    assert run(tmp_path / "more", target).problem is None
    assert content(target) == content(tmp_path / "more")
    check_sound(target)


def test_checkpoints_say_what_is_on_disk(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 50)])
    set_log_start(source, 23)
    run(source, target)
    read = {
        name: parse_offset_checkpoint((target / name).read_bytes(), name)
        for name in (
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
            "log-start-offset-checkpoint",
        )
    }
    assert [*read.values()] == [{T0: 50}, {T0: 50}, {T0: 23}]


def test_a_folder_is_not_copied_onto_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, link = tmp_path / "source", tmp_path / "link"
    make_log(source, [(0, 20)])
    link.symlink_to(source)
    before = sorted(source.iterdir())
    monkeypatch.chdir(tmp_path)
    for path, directory in (
        (source, source),
        (source, link),
        (source, "source"),
        (link, source),
        (source.as_uri(), source),
        (source / "t-0", source),
        (source, source / "new" / "copy"),
        (source, link / "new"),
    ):
        with pytest.raises(OptionError, match="Expected another folder to copy to"):
            connect(path).logs.backup(str(directory))
    assert sorted(source.iterdir()) == before


def test_offsets_of_groups_are_copied_at_any_age(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 20)])
    weeks_ago = int(time.time() * 1000) - 30 * 24 * 3600 * 1000
    groups = DirectoryGroups.open(str(source), retention_minutes=None, num_partitions=1)
    groups.commit("old", {T0: CommittedOffset(7, commit_timestamp=weeks_ago)})
    connect(source).logs.backup(str(target))
    assert DirectoryGroups.open(str(target)).committed("old")[T0].offset == 7
