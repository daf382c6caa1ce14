"""A repair leaves what a broker's recovery leaves, or all that can be read, and nothing that isn't whole."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.client.partitions import partitions_of
from pyspark_kafkalog.errors import LogDirectoryLockedError, OptionError, UnknownTopicOrPartitionError
from pyspark_kafkalog.log import lock
from pyspark_kafkalog.log.layout import (
    CLEAN_SHUTDOWN_FILE,
    JOURNAL_FILE,
    RECOVERY_POINT_CHECKPOINT,
    format_offset_checkpoint,
    parse_offset_checkpoint,
    parse_partition_folder,
)
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.publish import publish as publish_module
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.snapshot import parse_snapshot
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.tools.care import partition_repair
from pyspark_kafkalog.tools.care.verify import verify
from tests.fixtures_dir import CASES, Case, case
from tests.log.partitions import T0, batch, copy, data_batch, rows, write_segment
from tests.log.test_hostile_directories import hurt
from tests.log.test_lock import HOLD as HOLD_FILE
from tests.log.test_undo import Crash
from tests.log.writing import read, values, write

DAMAGED = [fixture for fixture in CASES if fixture.damaged]
each_damaged = pytest.mark.parametrize("fixture", DAMAGED, ids=lambda fixture: fixture.name)
OURS = {".lock", ".kafkalog-lock", ".kafkalog-topics"}
"""Files in the root that say nothing of its state."""
ASIDE = ".kafkalog-cut"
NOT_AS_CLOSED = {"v2-live", "v0-gzip-compacted", "v2v1-downgraded"}
"""Copied from a running broker, with files that it was about to delete, or with an emptied epoch cache."""


def state(root: Path) -> dict[str, bytes]:
    """Every file but locks."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and path.name not in OURS)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def readable(root: Path, partition: TopicPartition) -> list[dict[str, Any]]:
    """The rows that a reader with failOnDataLoss=false delivers."""
    place = LogDirectory.open(str(root))
    bounds = place.watermarks([partition], read_committed=False)[partition]
    offsets = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
    return rows(place, partition, offsets, on_corrupt=lambda error: None)


def damages(root: Path) -> list[str]:
    place = LogDirectory.open(str(root))
    found = verify(place, partitions_of(place, internal=True))
    return [damage.message for partition in found for damage in partition.damages]


def pieces(folder: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    with (folder / ASIDE).open("rb") as file:
        while line := file.readline():
            header = json.loads(line)
            yield header, file.read(header["length"])


def put_back(folder: Path) -> None:
    for piece, content in reversed(list(pieces(folder))):
        log = folder / piece["segment"]
        now, at = log.read_bytes() if log.exists() else b"", piece["position"]
        content += bytes(piece.get("zeros", 0))
        log.write_bytes(now[:at] + content + now[at + piece.get("inserted", 0) :])
    (folder / ASIDE).unlink()


def damaged(fixture: Case, root: Path) -> tuple[Path, TopicPartition]:
    copy(fixture, root)
    (name,) = fixture.partitions
    partition = parse_partition_folder(name)
    assert partition is not None
    write_topic_configs(str(root), {partition.topic: {"index.interval.bytes": "512"}})
    return root, partition


@each_damaged
def test_it_keeps_what_a_broker_kept(fixture: Case, tmp_path: Path) -> None:
    root, partition = damaged(fixture, tmp_path / "root")
    folder, logs = root / str(partition), {}
    logs = {log.name: log.read_bytes() for log in folder.glob("*.log")}
    (repaired,) = connect(root).logs.repair(execute=True).partitions
    if fixture.name != "hurt-magic":  # a broker keeps a format that no consumer can read
        assert repaired.log_end_offset == fixture.recovery["log_end_offset"]
        for entry in fixture.recovery["files"]:
            file = folder / entry["file"]
            # The broker became a leader, too, and took snapshots where there were none.
            if entry["size_before"] is not None or file.suffix not in (".snapshot", ""):
                assert file.exists() == (entry["size_after"] is not None), file.name
            if "sha256_after" in entry:
                assert hashlib.sha256(file.read_bytes()).hexdigest() == entry["sha256_after"]
            elif file.suffix in (".index", ".timeindex", ".txnindex"):
                assert file.stat().st_size == entry["size_after"], file.name
    found = readable(root, partition)
    assert [row["offset"] for row in found] == [row["offset"] for row in fixture.records]
    assert not damages(root)
    assert (root / CLEAN_SHUTDOWN_FILE).read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    points = parse_offset_checkpoint((root / RECOVERY_POINT_CHECKPOINT).read_bytes(), "")
    assert points[partition] == repaired.log_end_offset
    assert parse_snapshot((folder / f"{repaired.log_end_offset:020d}.snapshot").read_bytes()) is not None
    assert not connect(root).logs.repair().partitions[0].steps
    if (folder / ASIDE).exists():
        put_back(folder)
    for name, content in logs.items():
        now = (folder / name).read_bytes()
        trimmed = sum(step.size or 0 for step in repaired.steps if step.action == "trim")
        assert now + bytes(trimmed) == content


@each_damaged
def test_a_dry_run_says_the_same_and_changes_nothing(fixture: Case, tmp_path: Path) -> None:
    root, _ = damaged(fixture, tmp_path / "root")
    for salvage in (False, True):
        before = state(root)
        planned = connect(root).logs.repair(salvage=salvage)
        assert state(root) == before
        assert not planned.clean_shutdown
        other = copy(fixture, tmp_path / f"copy-{salvage}")
        done = connect(other).logs.repair(execute=True, salvage=salvage)
        assert [(p.log_end_offset, p.stored_bytes, p.cut_bytes) for p in done.partitions] == [
            (p.log_end_offset, p.stored_bytes, p.cut_bytes) for p in planned.partitions
        ]
        steps = [[(Path(s.file).name, s.why) for s in d.partitions[0].steps] for d in (planned, done)]
        assert steps[0] == steps[1]


@each_damaged
def test_salvage_keeps_all_that_can_be_read(fixture: Case, tmp_path: Path) -> None:
    root, partition = damaged(fixture, tmp_path / "root")
    before = readable(root, partition)
    done = connect(root).logs.repair(execute=True, salvage=True)
    assert done.clean_shutdown
    assert readable(root, partition) == before
    assert not damages(root)
    assert not connect(root).logs.repair().partitions[0].steps


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["v0-snappy", "v1-gzip", "v1v2-onesegment", "v2-rolled", "txn-basic", "v2-zstd"]
)
def test_whatever_is_damaged(name: str, tmp_path: Path, chance: random.Random, soak: bool) -> None:
    """What is left is sound, and all or the first part of what could be read. What is cut can come back."""
    fixture = case(name)
    for number in range(100 if soak else 12):
        root = copy(fixture, tmp_path / str(number))
        files = [file for file in sorted(root.glob("*-*/*")) if file.is_file() and file.stat().st_size]
        logs = [file for file in files if file.suffix == ".log"]
        for file in (chance.choice(logs), chance.choice(logs), chance.choice(files)):
            file.write_bytes(hurt(file.read_bytes(), chance))
        folders = [root / partition for partition in fixture.partitions]
        before = {folder: {log.name: log.read_bytes() for log in folder.glob("*.log")} for folder in folders}
        partitions = [TopicPartition(*folder.name.rsplit("-", 1)) for folder in folders]
        partitions = [TopicPartition(topic, int(n)) for topic, n in partitions]
        # No segment of a broker can hold an offset further off, which only damage makes.
        could_be_read = {
            partition: [row for row in readable(root, partition) if row["offset"] < 1 << 31]
            for partition in partitions
        }
        salvage = chance.random() < 0.7
        done = connect(root).logs.repair(execute=True, salvage=salvage)
        for partition in partitions:
            found = readable(root, partition)
            if salvage and found != could_be_read[partition]:  # its markers needed the offsets of a batch
                (repaired,) = (each for each in done.partitions if (each.topic, each.partition) == partition)
                is_aborted = "abort" in {step.action for step in repaired.steps}
                # What is open at the end of the log stays open, so no marker is there.
                is_first_part = found == could_be_read[partition][: len(found)] and name == "txn-basic"
                assert is_aborted or is_first_part, (number, partition)
                offsets = {row["offset"] for row in found}
                kept = [row for row in could_be_read[partition] if row["offset"] in offsets]
                assert found == kept, (number, partition)
            else:
                found = [row for row in found if row["offset"] < 1 << 31]  # a broker splits such a segment
                assert found == could_be_read[partition][: len(found)], (number, partition)
        again = connect(root).logs.repair()
        assert not [
            step for partition in again.partitions for step in partition.steps if step.action != "leave"
        ]
        if done.is_sound:
            assert not [message for message in damages(root) if "in no segment" not in message], number
        for folder in folders:
            if (folder / ASIDE).exists():
                put_back(folder)
            after = {log.name: log.read_bytes() for log in folder.glob("*.log")}
            for partition in done.partitions:
                for step in partition.steps:
                    if step.action == "trim" and Path(step.file).parent == folder:
                        after[Path(step.file).name] += bytes(step.size or 0)
            assert {name: data for name, data in after.items() if data} == {
                name: data for name, data in before[folder].items() if data
            }


@pytest.mark.parametrize(
    "fixture",
    [f for f in CASES if not f.damaged and f.name not in NOT_AS_CLOSED],
    ids=lambda fixture: fixture.name,
)
def test_nothing_is_done_to_what_is_sound(fixture: Case, tmp_path: Path) -> None:
    root = copy(fixture, tmp_path / "root")
    before = state(root)
    done = connect(root).logs.repair(execute=True)
    assert not [step for partition in done.partitions for step in partition.steps]
    assert done.clean_shutdown
    after = state(root)
    made = {name for name in after if after[name] != before.get(name)}
    assert {name.rpartition(".")[2] for name in made} <= {
        "snapshot",
        "kafka_cleanshutdown",
        RECOVERY_POINT_CHECKPOINT,
    }
    assert before.keys() <= after.keys()
    if CLEAN_SHUTDOWN_FILE in before:
        assert after[CLEAN_SHUTDOWN_FILE] == before[CLEAN_SHUTDOWN_FILE]


def several(root: Path) -> Path:
    """The offsets 0 to 49 of t-0 in segments of ten; the third batch of 20 to 29 is broken."""
    for base_offset in range(0, 50, 10):
        write_segment(root / "t-0", [batch(base_offset + part, 2) for part in range(0, 10, 2)])
    log = root / "t-0" / f"{20:020d}.log"
    content = bytearray(log.read_bytes())
    content[2 * len(batch(0, 2)) + 80] ^= 1
    log.write_bytes(content)
    connect(root).logs.repair()
    return root


def offsets(root: Path) -> list[int]:
    return [row["offset"] for row in readable(root, T0)]


def test_what_follows_damage_goes_or_stays(tmp_path: Path) -> None:
    (done,) = connect(several(tmp_path / "cut")).logs.repair(execute=True).partitions
    assert offsets(tmp_path / "cut") == list(range(24))
    assert [(Path(s.file).name, s.position, s.offset) for s in done.steps if s.action == "cut"] == [
        (f"{20:020d}.log", 2 * len(batch(0, 2)), 24),
        (f"{30:020d}.log", 0, 30),
        (f"{40:020d}.log", 0, 40),
    ]
    assert (done.dropped, done.dropped_records) == (OffsetRange(24, 50), 24)
    (done,) = connect(several(tmp_path / "kept")).logs.repair(execute=True, salvage=True).partitions
    assert (done.dropped, done.dropped_records) == (None, 0)
    assert offsets(tmp_path / "kept") == [*range(24), *range(26, 50)]
    assert done.cut_bytes == len(batch(0, 2))
    several(tmp_path / "gone")
    assert connect(tmp_path / "gone").logs.repair(execute=True, discard=True).partitions[0].cut_bytes > 0
    assert not (tmp_path / "gone" / "t-0" / ASIDE).exists()


@pytest.mark.parametrize("overlapped", ["read", "only later offsets", "empty"])
def test_a_segment_that_begins_before_the_end_goes(overlapped: str, tmp_path: Path) -> None:
    """A damaged offset, which no checksum covers, lets the first segment reach past where the next begins."""
    folder = tmp_path / "t-0"
    write_segment(folder, [batch(0, 2), batch(25, 1)])
    batches = {"read": [batch(10, 30)], "only later offsets": [batch(30, 10)], "empty": []}[overlapped]
    write_segment(folder, batches, base_offset=10)
    write_segment(folder, [batch(40, 10)], base_offset=40)
    before = {log.name: log.read_bytes() for log in folder.glob("*.log") if log.stat().st_size}
    planned = connect(tmp_path).logs.repair()
    done = connect(tmp_path).logs.repair(execute=True)
    assert planned.partitions == done.partitions
    (repaired,) = done.partitions
    assert repaired.log_end_offset == 26
    assert repaired.dropped is not None
    assert [log.name for log in folder.glob("*.log")] == [f"{0:020d}.log"]
    assert offsets(tmp_path) == [0, 1, 25]
    assert not damages(tmp_path)
    assert not connect(tmp_path).logs.repair().partitions[0].steps
    put_back(folder)
    assert {log.name: log.read_bytes() for log in folder.glob("*.log")} == before


@pytest.mark.parametrize("damaged", [0, 15, 19])
def test_what_goes_below_a_false_end_is_counted(damaged: int, tmp_path: Path) -> None:
    """One bit of a base offset, which no checksum covers, lets the log end far behind what is dropped."""
    for segment in range(3):
        batches = [bytearray(batch(100 * segment + first, 10)) for first in range(0, 100, 10)]
        if segment == damaged // 10:
            batches[damaged % 10][6] ^= 0x40
        write_segment(tmp_path / "t-0", [bytes(each) for each in batches], base_offset=100 * segment)
    could_be_read = len(readable(tmp_path, T0))
    planned = connect(tmp_path).logs.repair().partitions
    assert planned == connect(tmp_path).logs.repair(execute=True).partitions
    (done,) = planned
    assert could_be_read == 290
    assert done.dropped is not None
    assert done.dropped.end == 300
    # Readers leave the batch with the false offset out, except the last of a segment.
    stays = 10 if damaged == 19 else 0
    assert done.dropped_records + len(readable(tmp_path, T0)) == could_be_read + stays


def test_salvage_believes_the_order_across_damage(tmp_path: Path) -> None:
    """After bytes that aren't a batch, a lowered base offset is at fault, not the batch before."""
    short = batch(10, 2)[:90] + batch(10, 2)[91:]
    write_segment(tmp_path / "t-0", [batch(0, 5), batch(5, 5), short, batch(12, 3), batch(9, 3)])
    write_segment(tmp_path / "t-0", [batch(20, 10)], base_offset=20)
    before = offsets(tmp_path)
    assert before == [*range(10), 12, 13, 14, *range(20, 30)]
    done = connect(tmp_path).logs.repair(execute=True, salvage=True)
    assert done.clean_shutdown
    assert offsets(tmp_path) == before
    assert not damages(tmp_path)
    assert not connect(tmp_path).logs.repair().partitions[0].steps


def test_what_goes_below_the_log_start_offset_can_come_back(tmp_path: Path) -> None:
    """Even if a salvage has put markers in."""
    folder, damaged = tmp_path / "t-0", bytearray(batch(5, 2))
    damaged[-1] ^= 1
    write_segment(folder, [data_batch(0, 1), batch(1, 4), bytes(damaged), batch(7, 3)])
    write_segment(folder, [batch(10, 2)], base_offset=10)
    (tmp_path / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({T0: 40}))
    before = {log.name: log.read_bytes() for log in folder.glob("*.log")}
    connect(tmp_path).logs.repair(execute=True, salvage=True)
    put_back(folder)
    after = {log.name: log.read_bytes() for log in folder.glob("*.log")}
    assert {name: data for name, data in after.items() if data} == before


def test_only_what_is_named_is_repaired(tmp_path: Path) -> None:
    several(tmp_path)
    write_segment(tmp_path / "u-0", [batch(0)[:-1]])
    before = (tmp_path / "u-0" / f"{0:020d}.log").read_bytes()
    done = connect(tmp_path).logs.repair([T0], execute=True)
    assert [partition.topic for partition in done.partitions] == ["t"]
    assert not done.clean_shutdown
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    assert (tmp_path / "u-0" / f"{0:020d}.log").read_bytes() == before
    with pytest.raises(UnknownTopicOrPartitionError, match="No such partition: v-0"):
        connect(tmp_path).logs.repair([TopicPartition("v", 0)])
    with pytest.raises(OptionError, match=r"name the partition, t-0\."):
        connect(tmp_path / "t-0").logs.repair()
    with pytest.raises(OptionError, match="a disk or a mount"):
        connect("memory://").logs.repair()


def test_nothing_is_vouched_for_that_was_not_looked_at(tmp_path: Path) -> None:
    """With a part repaired, a clean shutdown stays what it was."""
    several(tmp_path)
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_text("")
    assert connect(tmp_path).logs.repair([T0], execute=True).clean_shutdown
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).read_bytes() == b'{"version":0,"brokerEpoch":-1}'


def test_what_the_log_start_offset_hides_goes_when_the_log_ends_before_it(tmp_path: Path) -> None:
    several(tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({T0: 35}))
    planned = connect(tmp_path).logs.repair()
    done = connect(tmp_path).logs.repair(execute=True)
    assert planned.partitions == done.partitions
    assert (done.partitions[0].log_start_offset, done.partitions[0].log_end_offset) == (35, 35)
    assert [log.name for log in (tmp_path / "t-0").glob("*.log")] == [f"{35:020d}.log"]
    assert offsets(tmp_path) == []
    assert not connect(tmp_path).logs.repair().partitions[0].steps


def swapped(folder: Path) -> list[int]:
    """A merge of the segments 0 and 10, interrupted while the old ones were deleted."""
    write_segment(folder, [batch(0, 5), batch(12, 5)], base_offset=0, suffix=".swap")
    (folder / f"{0:020d}.log").rename(folder / f"{0:020d}.log.deleted")
    return [*range(5), *range(12, 17), *range(20, 30)]


def unfinished(folder: Path) -> list[int]:
    """A split whose first half is not there yet."""
    write_segment(folder, [batch(5, 5)], suffix=".swap")
    write_segment(folder, [batch(0, 5)], suffix=".cleaned")
    return list(range(30))


def renamed_in_part(folder: Path) -> list[int]:
    """A replacement in which the log has its name already."""
    write_segment(folder, [batch(10, 2)])
    for suffix in (".index", ".timeindex"):
        (folder / f"{10:020d}{suffix}.swap").write_bytes(b"")
    return [*range(12), *range(20, 30)]


def stray(folder: Path) -> list[int]:
    """A segment without its log."""
    (folder / f"{15:020d}.index").write_bytes(b"")
    (folder / f"{15:020d}.txnindex").write_bytes(b"")
    return list(range(30))


@pytest.mark.parametrize("left", [swapped, unfinished, renamed_in_part, stray])
def test_what_a_crash_left_is_finished_or_undone(left: Callable[[Path], list[int]], tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    for base_offset in (0, 10, 20):
        write_segment(folder, [batch(base_offset)])
    expected = left(folder)
    planned = connect(tmp_path).logs.repair()
    assert planned.partitions[0].steps
    done = connect(tmp_path).logs.repair(execute=True)
    assert offsets(tmp_path) == expected
    assert not [file.name for file in folder.iterdir() if file.suffix in (".swap", ".cleaned", ".deleted")]
    logs, indexes = ({file.stem for file in folder.glob(f"*{s}")} for s in (".log", ".index"))
    assert logs == indexes
    assert len(done.partitions[0].steps) == len(planned.partitions[0].steps)
    assert done.clean_shutdown


def test_an_unfinished_publish_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {T0: values(5)})

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(journal, "commit", crash)
        patch.setattr(publish_module.journal, "recover", lambda root: None)
        with pytest.raises(Crash):
            write(tmp_path, {T0: values(9), TopicPartition("new", 0): values(3)})
    planned = connect(tmp_path).logs.repair()
    assert [(step.action, Path(step.file).name) for step in planned.steps] == [("undo", JOURNAL_FILE)]
    assert {partition.topic for partition in planned.partitions} == {"t"}
    done = connect(tmp_path).logs.repair(execute=True)
    assert done.clean_shutdown
    assert not (tmp_path / JOURNAL_FILE).exists()
    assert read(tmp_path)[T0] == values(5)
    assert not (tmp_path / "new-0").exists()


def test_broken_checkpoints_are_replaced(tmp_path: Path) -> None:
    root = copy(case("txn-basic"), tmp_path / "root")
    broken = [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ]
    for name in broken:
        (root / name).write_text("0\n7\n")
    for folder in root.glob("txn-basic-*"):
        (folder / "leader-epoch-checkpoint").write_text("x")
        for snapshot in folder.glob("*.snapshot"):
            snapshot.write_bytes(snapshot.read_bytes()[:-1])
    done = connect(root).logs.repair(execute=True)
    assert {Path(step.file).name for step in done.steps} == set(broken)
    assert done.clean_shutdown
    assert not damages(root)
    whole = state(case("txn-basic").directory)
    for folder in root.glob("txn-basic-*"):
        name = f"{folder.name}/leader-epoch-checkpoint"
        assert (root / name).read_bytes() == whole[name]
        for snapshot in folder.glob("*.snapshot"):
            ours = parse_snapshot(snapshot.read_bytes())
            theirs = parse_snapshot(whole[f"{folder.name}/{snapshot.name}"])
            assert sorted(ours or ()) == sorted(theirs or ())


def test_what_cannot_be_mended_is_left_and_not_vouched_for(tmp_path: Path) -> None:
    root = copy(case("v2-rolled"), tmp_path / "root")
    (root / "v2-rolled-0" / "partition.metadata").write_text("version: 0")
    (root / "v2-rolled-1" / f"{0:020d}.log").unlink()
    (root / "v2-rolled-1" / f"{0:020d}.log").mkdir()
    done = connect(root).logs.repair(execute=True)
    assert not done.is_sound
    assert not done.clean_shutdown
    left = [step for partition in done.partitions for step in partition.steps if step.action == "leave"]
    assert [("metadata" in s.file, "Not a regular file" in s.why) for s in left] == [
        (True, False),
        (False, True),
    ]


def test_folders_that_are_not_live_are_mentioned(tmp_path: Path) -> None:
    several(tmp_path)
    (tmp_path / "t-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    (step,) = connect(tmp_path).logs.repair(execute=True).steps
    assert step.action == "skip"
    assert Path(step.file).is_dir()


HOLD = """
import sys
from pyspark_kafkalog.log.lock import directory_lock
with directory_lock(sys.argv[1], 10):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("execute", [False, True])
def test_not_while_another_holds_it(execute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several(tmp_path)
    monkeypatch.setattr("pyspark_kafkalog.tools.care.repair.CHECK_SECONDS", 0.2)
    assert lock.CHECK_SECONDS > 1
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        with pytest.raises(LogDirectoryLockedError, match="The log directory is in use"):
            connect(tmp_path).logs.repair(execute=execute)
        holder.communicate()


def test_a_dry_run_creates_no_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several(tmp_path)
    (tmp_path / ".lock").touch()
    before = sorted(tmp_path.rglob("*"))
    connect(tmp_path).logs.repair()
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.setattr("pyspark_kafkalog.tools.care.repair.CHECK_SECONDS", 0.2)
    command = [sys.executable, "-c", HOLD_FILE, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline()
        with pytest.raises(LogDirectoryLockedError, match="Stop the broker"):
            connect(tmp_path).logs.repair()
        broker.communicate()


def test_producers_of_lost_batches_are_known_by_the_next_snapshot(tmp_path: Path) -> None:
    """As in a broker: what a snapshot says holds, also of what is gone."""
    folder = tmp_path / "t-0"
    write_segment(folder, [data_batch(0, 7), data_batch(1, 8)])
    write_segment(folder, [data_batch(2, 9)])
    connect(tmp_path).logs.repair(execute=True)
    (folder / f"{3:020d}.snapshot").rename(folder / f"{2:020d}.snapshot")
    (folder / f"{0:020d}.log").write_bytes(data_batch(0, 7))
    connect(tmp_path).logs.repair(execute=True)
    entries = parse_snapshot((folder / f"{3:020d}.snapshot").read_bytes())
    assert {entry.producer_id for entry in entries or ()} == {7, 8, 9}


def test_pieces_of_several_repairs_come_back_to_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t-0"
    log = write_segment(folder, [batch(offset) for offset in range(0, 100, 10)])
    size = len(batch(0))
    put_aside = partition_repair.put_aside

    def die(*args: Any, **how: Any) -> None:
        put_aside(*args, **how)
        raise Crash

    for broken in ([5, 7], [1, 4], [0]):
        content = bytearray(log.read_bytes())
        for number in broken:
            content[number * size + 80] ^= 1
        log.write_bytes(content)
        with monkeypatch.context() as patch:
            patch.setattr(partition_repair, "put_aside", die)
            with pytest.raises(Crash):
                connect(tmp_path).logs.repair(execute=True, salvage=True)
        connect(tmp_path).logs.repair(execute=True, salvage=True)
        assert len(log.read_bytes()) == len(content) - len(broken) * size
    put_back(folder)
    now = log.read_bytes()
    assert [int.from_bytes(now[at : at + 8], "big") for at in range(0, len(now), size)] == [
        *range(0, 100, 10)
    ]


def test_offsets_that_no_segment_holds_are_left_to_a_broker(tmp_path: Path) -> None:
    far = (1 << 31) + 10
    folder = tmp_path / "t-0"
    write_segment(folder, [batch(0), data_batch(far, 7)], base_offset=0)
    write_segment(folder, [batch(far + 1)])
    before = readable(tmp_path, T0)
    for _ in range(2):
        repaired = connect(tmp_path).logs.repair(execute=True)
        (step,) = repaired.partitions[0].steps
        assert step.action == "leave"
        assert "span more than 2^31" in step.why
        assert "Start a broker" in step.why
        assert not repaired.clean_shutdown
        assert readable(tmp_path, T0) == before
    salvaged = connect(tmp_path).logs.repair(execute=True, salvage=True)
    assert salvaged.is_sound
    (kept,) = folder.glob("*.snapshot")
    assert parse_snapshot(kept.read_bytes()) == [], "Its segment does not have the producer's batch"


def test_all_files_are_on_disk_before_they_are_vouched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t-0"
    log = write_segment(folder, [batch(0)])
    connect(tmp_path).logs.repair(execute=True)
    synced: list[str] = []
    monkeypatch.setattr(partition_repair, "sync_file", synced.append)
    assert connect(tmp_path).logs.repair(execute=True).clean_shutdown
    assert {str(log), str(log.with_suffix(".index")), str(log.with_suffix(".timeindex"))} < {*synced}
    assert {str(path) for path in folder.iterdir()} == {*synced}
