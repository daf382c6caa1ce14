"""A backup becomes a stopped broker's: what is the broker's own stays, whenever it is interrupted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog import BackupRules, connect
from pyspark_kafkalog.codec.format import TRANSACTIONAL_BIT
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.exactly_once.group_marker import MarkerDetails, marker_metadata
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.log.layout import LOG_SUFFIX, segment_file
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import AbortedTransaction, CommittedOffset, OffsetRange, TopicPartition
from pyspark_kafkalog.tools.backup.copies.log import read_snapshot
from pyspark_kafkalog.tools.care.verify import verify
from tests.codec.raw import marker, values
from tests.faults.steps import KILLED, changes, step_runner
from tests.tools.backup.histories import (
    RECORDS,
    T0,
    batch,
    content,
    make_log,
    make_log_of,
    set_log_start,
    visible,
)
from tests.tools.backup.test_history import check_sound
from tests.tools.cli.running import run as run_command

U0 = TopicPartition("u", 0)
BROKERS_ID = "AAAAAAAAAAAAAAAAAAAAAw"


def make_broker(log_dir: Path, *partitions: TopicPartition, end: int = 0) -> None:
    """A stopped broker's log directory."""
    for partition in partitions:
        make_log(log_dir, [(0, end)], topic_id=BROKERS_ID, partition=partition)
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')


def groups_in(root: Path) -> DirectoryGroups:
    return DirectoryGroups.open(str(root), num_partitions=1)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def back_up(tmp_path: Path, *partitions: TopicPartition) -> Path:
    """A backup in which the group "etl" has read 40 of 50 records of each partition."""
    source, backup = tmp_path / "source", tmp_path / "backup"
    for partition in partitions:
        make_log(source, [(3, 50)], partition=partition)
    groups_in(source).commit("etl", dict.fromkeys(partitions, CommittedOffset(40, metadata="m")))
    connect(source).logs.backup(str(backup), BackupRules())
    return backup


def test_a_topic_with_more_partitions_is_told(tmp_path: Path) -> None:
    backup, log_dir = back_up(tmp_path, T0, U0), tmp_path / "broker"
    make_broker(log_dir, T0, TopicPartition("t", 2), U0)
    told = "t: the broker's topic has 3 partitions or more, the backup 1: the others stay empty"
    for words in [], ["--execute"]:
        done = run_command("adopt", backup, log_dir, "--no-groups", *words)
        assert (done.code, [line for line in done.out.splitlines() if "partitions or more" in line]) == (
            0,
            [f"{told}, and keys will go to other partitions than before"],
        )
    row, other = connect(backup).logs.adopt(str(log_dir), groups=False)
    assert told.removeprefix("t: ") in (row.note or "")
    assert other.note is None


def test_a_misspelt_topic_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    backup, log_dir = back_up(tmp_path, TopicPartition("orders", 0)), tmp_path / "broker"
    make_broker(log_dir, TopicPartition("orders", 0))
    done = run_command("adopt", backup, log_dir, "ordres")
    assert (done.code, "has no topic ordres" in done.err, "Did you mean orders?" in done.err) == (
        3,
        True,
        True,
    )


def test_the_room_of_a_preallocated_file_is_no_record(tmp_path: Path) -> None:
    """A broker with preallocate was killed: its empty partition is a file of zeros."""
    backup, log_dir = back_up(tmp_path, T0, U0), tmp_path / "broker"
    make_broker(log_dir, T0)
    make_broker(log_dir, U0, end=RECORDS)
    (log_dir / ".kafka_cleanshutdown").unlink()
    for partition in T0, U0:
        os.truncate(log_dir / str(partition) / segment_file(0, LOG_SUFFIX), 1 << 30)
    for execute in (False, True):
        row, other = connect(backup).logs.adopt(str(log_dir), groups=False, execute=execute)
        assert (row.problem, row.log_end_offset) == (None, 50)
        assert other.problem == "The broker's partition has records already"
    assert visible(log_dir) == list(range(50))
    assert visible(log_dir, U0) == list(range(RECORDS))
    assert len(content(log_dir)) == len(content(backup))


def test_what_was_adopted_before_is_left_alone(tmp_path: Path) -> None:
    backup, log_dir = back_up(tmp_path, T0, U0), tmp_path / "broker"
    make_broker(log_dir, T0)
    make_broker(log_dir, U0, end=RECORDS)
    run_command("adopt", backup, log_dir, "t", "--no-groups", "--execute")
    before = files(log_dir / str(T0))
    for words in [], ["--execute"]:
        done = run_command("adopt", backup, log_dir, "t", "--no-groups", *words)
        assert (done.code, done.out.splitlines()[-1]) == (0, "t-0: adopted before; it is left as it is")
    assert files(log_dir / str(T0)) == before
    with connect(log_dir) as kafka:  # the broker goes on
        kafka.write(pa.table({"value": [b"new"]}), "t")
    again, other = connect(backup).logs.adopt(str(log_dir), groups=False, execute=True)
    assert (again.problem, again.adopted_before) == (None, True)
    assert (other.problem, other.adopted_before) == ("The broker's partition has records already", False)
    with connect(backup) as kafka:  # and so does the backup
        kafka.write(pa.table({"value": [b"other"]}), "t")
    assert run_command("adopt", backup, log_dir, "t", "--no-groups", "--execute").code == 1
    assert len(visible(log_dir)) == 51


@pytest.mark.parametrize("end", [30, 80])
def test_a_log_that_retention_has_emptied_does_not_go_back(end: int, tmp_path: Path) -> None:
    """A broker leaves an empty segment where the log has ended."""
    backup, log_dir = back_up(tmp_path, T0), tmp_path / "broker"
    make_log(log_dir, [], start=end, topic_id=BROKERS_ID)
    set_log_start(log_dir, end)
    make_broker(log_dir)
    for execute in (False, True):
        (row,) = connect(backup).logs.adopt(str(log_dir), groups=False, execute=execute)
        assert f"has had records below offset {end}: delete its topic" in (row.problem or "")
    assert LogDirectory.open(str(log_dir)).watermarks([T0], read_committed=False)[T0].high_watermark == end


def test_a_broker_that_starts_between_two_runs_is_in_nobodys_way(tmp_path: Path) -> None:
    """The bounds are entered already: it begins its empty log there."""
    source, backup, log_dir = tmp_path / "source", tmp_path / "backup", tmp_path / "broker"
    make_log(source, [(3, 50)])
    set_log_start(source, 23)
    connect(source).logs.backup(str(backup), BackupRules(groups=()))
    make_log(log_dir, [], start=23, topic_id=BROKERS_ID)
    set_log_start(log_dir, 23)
    make_broker(log_dir)
    (row,) = connect(backup).logs.adopt(str(log_dir), groups=False, execute=True)
    assert (row.problem, row.log_end_offset) == (None, 50)
    assert visible(log_dir) == list(range(23, 50))
    check_sound(log_dir)


def test_groups_of_the_brokers_own_records_stay(tmp_path: Path) -> None:
    backup, log_dir = back_up(tmp_path, T0, U0), tmp_path / "broker"
    make_broker(log_dir, T0, end=90)
    make_broker(log_dir, U0)
    groups_in(log_dir).commit("etl", {T0: CommittedOffset(80)})
    groups_in(log_dir).commit("other", {T0: CommittedOffset(70)})
    found = connect(backup).logs.adopt(str(log_dir), execute=True)
    assert [(row.topic, row.problem is None) for row in found] == [("t", False), ("u", True)]
    committed = groups_in(log_dir).committed("etl")
    assert {p: (c.offset, c.leader_epoch) for p, c in committed.items()} == {T0: (80, 0), U0: (40, 0)}
    # Once its consumers have gone on, another run changes nothing.
    groups_in(log_dir).commit("etl", {U0: CommittedOffset(45)})
    connect(backup).logs.adopt(str(log_dir), execute=True)
    assert groups_in(log_dir).committed("etl")[U0].offset == 45


def test_the_markers_of_another_cluster_stay_behind(tmp_path: Path) -> None:
    """Records of a backup may be newer than the marker that it saved."""
    backup, log_dir = back_up(tmp_path, T0), tmp_path / "broker"
    metadata = marker_metadata(MarkerDetails("query", "c", "", 5, 7, 0, (0, 0, 0), ()))
    groups_in(backup).commit("kafkalog-x", {T0: CommittedOffset(7, metadata=metadata)})
    make_broker(log_dir, T0)
    groups_in(log_dir).commit("etl", {T0: CommittedOffset(0)})
    connect(backup).logs.adopt(str(log_dir), execute=True)
    assert groups_in(log_dir).group_ids() == ("etl",)


def test_groups_that_have_begun_stay_where_they_are(tmp_path: Path) -> None:
    backup, log_dir = back_up(tmp_path, T0, U0), tmp_path / "broker"
    make_broker(log_dir, T0, U0)
    groups_in(log_dir).commit("etl", {T0: CommittedOffset(0)})
    assert not [row for row in connect(backup).logs.adopt(str(log_dir), execute=True) if row.problem]
    committed = groups_in(log_dir).committed("etl")
    assert {p: (c.offset, c.metadata) for p, c in committed.items()} == {T0: (0, ""), U0: (40, "m")}


def test_without_a_place_for_groups_nothing_is_adopted(tmp_path: Path) -> None:
    backup, log_dir = back_up(tmp_path, T0), tmp_path / "broker"
    make_broker(log_dir, T0)
    for execute in (False, True):
        with pytest.raises(OptionError, match=f"nothing was adopted.*offsets export {backup} >"):
            connect(backup).logs.adopt(str(log_dir), execute=execute)
    assert not content(log_dir)
    assert (log_dir / ".kafka_cleanshutdown").exists()
    assert connect(backup).logs.adopt(str(log_dir), execute=True, groups=False)[0].problem is None
    assert len(content(log_dir)) == len(content(backup))
    with pytest.raises(OptionError, match="nothing was adopted"):  # the groups are still to come
        connect(backup).logs.adopt(str(log_dir), execute=True)
    groups_in(log_dir).commit("other", {T0: CommittedOffset(0)})
    assert connect(backup).logs.adopt(str(log_dir), execute=True)[0].adopted_before
    assert groups_in(log_dir).committed("etl")[T0].offset == 40


def test_names_that_are_long_or_look_deleted(tmp_path: Path) -> None:
    long = TopicPartition("t" * 230, 0)
    backup, log_dir = back_up(tmp_path, T0, long), tmp_path / "to-delete-soon" / "broker"
    make_broker(log_dir, T0, long)
    assert not [
        row for row in connect(backup).logs.adopt(str(log_dir), execute=True, groups=False) if row.problem
    ]
    assert sorted(path.name for path in log_dir.iterdir() if path.is_dir()) == sorted(map(str, (T0, long)))


def test_damage_in_a_backup_that_was_killed_is_told(tmp_path: Path) -> None:
    """A bit flips in it: opening the backup keeps the valid batches behind."""
    backup, log_dir = back_up(tmp_path, T0), tmp_path / "broker"
    make_broker(log_dir, T0)
    (backup / ".kafka_cleanshutdown").unlink()
    segment = sorted((backup / "t-0").glob("*.log"))[-1]
    assert segment.stat().st_size > 2 * len(batch(0, 0))
    flip(segment, len(batch(0, 0)) // 2)
    held = files(backup / "t-0")
    for execute in (False, True):
        (row,) = connect(backup).logs.adopt(str(log_dir), groups=False, execute=execute)
        assert "before a valid batch at byte" in (row.problem or "")
        assert f"file {segment}, byte 0" in (row.problem or "")
        assert "kafkalog repair" in (row.problem or "")
        assert not (backup / ".kafka_cleanshutdown").exists()
    (copied,) = connect(tmp_path / "source").logs.backup(str(backup), BackupRules())
    assert copied.problem == row.problem
    assert files(backup / "t-0") == held
    assert not content(log_dir)
    connect(backup).logs.repair(execute=True, salvage=True)
    (row,) = connect(backup).logs.adopt(str(log_dir), groups=False, execute=True)
    assert (row.problem, row.log_end_offset) == (None, 50)


@pytest.mark.parametrize("was_killed", [False, True])
def test_damage_in_one_partition_hinders_no_other(was_killed: bool, tmp_path: Path) -> None:
    """Each damaged one is named, at once. A torn write does not count."""
    partitions = [T0, TopicPartition("t", 1), U0]
    backup, log_dir = back_up(tmp_path, *partitions), tmp_path / "broker"
    make_broker(log_dir, *partitions)
    damaged = [sorted((backup / str(p)).glob("*.log"))[0] for p in (T0, U0)]
    for segment in damaged:
        flip(segment, len(batch(0, 0)) - 1)
    if was_killed:
        (backup / ".kafka_cleanshutdown").unlink()
        (torn,) = sorted((backup / "t-1").glob("*.log"))[-1:]
        with torn.open("ab") as file:
            file.write(batch(50, 3)[:-1])
    for execute in (False, True):
        rows = connect(backup).logs.adopt(str(log_dir), groups=False, execute=execute)
        assert [row.problem is None for row in rows] == [False, True, False]
        for row, segment in zip((rows[0], rows[2]), damaged, strict=True):
            assert f"file {segment}, byte 0" in (row.problem or "")
    assert [bool(content(log_dir, p)) for p in partitions] == [False, True, False]
    assert visible(log_dir, partitions[1]) == list(range(50))
    check_sound(log_dir)


def test_a_gap_with_nothing_behind_is_adopted(tmp_path: Path) -> None:
    """Retention has emptied an idle topic; whatever opens the backup, it ends behind the gap."""
    backup, source, log_dir = back_up(tmp_path, T0), tmp_path / "source", tmp_path / "broker"
    make_broker(log_dir, T0)
    shutil.rmtree(source)
    make_log(source, [], start=100)
    set_log_start(source, 100)
    for run, rules in enumerate([BackupRules(groups=(), allow_gaps=True), BackupRules(groups=())]):
        (row,) = connect(source).logs.backup(str(backup), rules)
        assert (row.problem, row.gaps, row.log_end_offset) == (None, [OffsetRange(50, 100)], 100), run
        assert (backup / "t-0" / f"{100:020d}.snapshot").exists()
    (backup / ".kafka_cleanshutdown").unlink()
    (row,) = connect(backup).logs.adopt(str(log_dir), groups=False, execute=True)
    assert (row.problem, row.log_end_offset) == (None, 100)
    watermarks = LogDirectory.open(str(log_dir)).watermarks([T0], read_committed=False)[T0]
    assert (watermarks.log_start_offset, watermarks.high_watermark) == (0, 100)
    shutil.rmtree(source)
    make_log(source, [(3, 130)], start=100)
    (row,) = connect(source).logs.backup(str(backup), BackupRules(groups=()))
    assert (row.problem, row.log_end_offset) == (None, 130)
    check_sound(backup)


def test_transactions_end_and_producers_are_not_those_of_the_new_cluster(tmp_path: Path) -> None:
    """Two transactions are open, one is committed and one aborted."""
    source, log_dir = tmp_path / "source", tmp_path / "broker"
    batches = [
        values(2, base_offset=0, attributes=TRANSACTIONAL_BIT, producer_id=0),
        marker(0, commit=True, offset=2),
        values(2, base_offset=3, attributes=TRANSACTIONAL_BIT, producer_id=1),
        values(2, base_offset=5, producer_id=2),
        marker(1, commit=False, offset=7),
        values(2, base_offset=8, attributes=TRANSACTIONAL_BIT, producer_id=1),
        values(2, base_offset=10),
        values(2, base_offset=12, attributes=TRANSACTIONAL_BIT, producer_id=0),
    ]
    make_log_of(source, batches)
    connect(source).logs.backup(str(tmp_path / "backup"), BackupRules())
    make_broker(log_dir, T0)
    aborted = (AbortedTransaction(1, 8, 14), AbortedTransaction(0, 12, 15))
    for execute in (False, True):
        (row,) = connect(tmp_path / "backup").logs.adopt(str(log_dir), groups=False, execute=execute)
        assert (row.log_end_offset, row.aborted, row.problem) == (14, aborted, None)
    place = LogDirectory.open(str(log_dir))
    watermarks = place.watermarks([T0], read_committed=True)[T0]
    assert (watermarks.high_watermark, watermarks.last_stable_offset) == (16, 16)
    assert not [found.damages for found in verify(place, [T0]) if found.damages]
    assert visible(log_dir) == [0, 1, 5, 6, 10, 11]
    headers = walk(np.frombuffer(content(log_dir), np.uint8))
    assert (headers.producer_id[headers.producer_id >= 0] >= 1 << 62).all()
    assert (headers.producer_id & ~(1 << 62)).tolist()[:6] == [0, 0, 1, 2, 1, 1]
    for at, known in ((14, {8, 12}), (16, set())):
        entries = read_snapshot(str(log_dir / "t-0"), at) or []
        assert {entry.first_offset for entry in entries} == known
        assert all(entry.producer_id >= 1 << 62 for entry in entries)
    # What is adopted can be backed up, and adopted again.
    connect(log_dir).logs.backup(str(tmp_path / "later"), BackupRules(groups=()))
    make_broker(tmp_path / "next", T0)
    (row,) = connect(tmp_path / "later").logs.adopt(str(tmp_path / "next"), groups=False, execute=True)
    assert (row.log_end_offset, row.aborted, row.problem) == (16, (), None)
    assert visible(tmp_path / "next") == [0, 1, 5, 6, 10, 11]


@pytest.mark.long
@pytest.mark.slow
def test_killed_at_every_step_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soak: bool
) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    start = tmp_path / "start"
    source, log_dir = tmp_path / "source", start / "broker"
    for partition in T0, U0:
        make_log(source, [(3, 50)], partition=partition)
    set_log_start(source, 23)
    groups_in(source).commit("etl", dict.fromkeys([T0, U0], CommittedOffset(40)))
    connect(source).logs.backup(str(start / "backup"), BackupRules())
    make_broker(log_dir, T0, U0)
    groups_in(log_dir).commit("other", {T0: CommittedOffset(0)})

    def state(folder: Path) -> list[dict[Any, Any]]:
        root = folder / "broker"
        committed = groups_in(root).committed("etl")
        # Which times are indexed depends on whether the backup had to be recovered.
        kept = [path for path in root.glob("[tu]-0/*") if path.suffix != ".timeindex"]
        return [
            {path.relative_to(root): path.read_bytes() for path in kept},
            {path.name: path.read_text() for path in root.glob("*-checkpoint")},
            {partition: (offset.offset, offset.leader_epoch) for partition, offset in committed.items()},
        ]

    with step_runner("tests.tools.backup.adopter") as adopter:
        whole = tmp_path / "whole"
        shutil.copytree(start, whole)
        assert adopter(whole, 0) == 0
        expected = state(whole)
        assert expected[2] == {T0: (40, 0), U0: (40, 0)}
        watermarks = LogDirectory.open(str(whole / "broker")).watermarks([T0], read_committed=False)[T0]
        assert (watermarks.log_start_offset, watermarks.high_watermark) == (23, 50)
        report = (whole / "steps").read_text().splitlines()
        steps = changes(whole / "steps")
        exchanges = [step for step in steps if report[step - 1].startswith(("rename", "rmdir"))]
        assert len(exchanges) == 6
        for step in steps if soak else {*steps[::9], *exchanges, *(step - 1 for step in exchanges)}:
            killed = tmp_path / str(step)
            shutil.copytree(start, killed)
            assert adopter(killed, step) == KILLED
            connect(killed / "backup").logs.adopt(str(killed / "broker"), execute=True)
            for now, wanted in zip(state(killed), expected, strict=True):
                assert now == wanted, step
            shutil.rmtree(killed)
