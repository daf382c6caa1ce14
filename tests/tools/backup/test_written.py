"""A backup that was written to: its logs end where their record batches do, whatever was noted before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from pyspark_kafkalog import BackupRules, connect
from pyspark_kafkalog.codec.format import TRANSACTIONAL_BIT
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.layout import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.topics import NewTopic
from pyspark_kafkalog.tools.backup.copies import adopt as adopting
from tests.codec.raw import marker, values
from tests.faults.steps import KILLED, changes, step_runner
from tests.kafka import Broker
from tests.tools.backup.consuming import consume
from tests.tools.backup.histories import T0, batch, make_log_of, visible
from tests.tools.backup.test_adopt import back_up, files, flip, groups_in, make_broker
from tests.tools.backup.test_history import check_sound
from tests.tools.backup.writer import WRITTEN

OFFSETS = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
KEPT = {"retention.ms": "-1"}
DUE = {"retention.bytes": "0", "cleanup.policy": "delete"}
PLAIN = [batch(offset, 3) for offset in range(0, 50, 5)]
OPEN = [
    values(2, base_offset=0, attributes=TRANSACTIONAL_BIT, producer_id=0),
    marker(0, commit=True, offset=2),
    values(2, base_offset=3, attributes=TRANSACTIONAL_BIT, producer_id=1),
    values(2, base_offset=5, producer_id=2),
]


def produce(root: Path, topic: str, text: str = "mid", rows: int = 10, **options: str) -> None:
    keys, found = (
        [b"k%d" % (row % 3) for row in range(rows)],
        [f"{text} {row}".encode() for row in range(rows)],
    )
    table = pa.table({"key": keys, "value": found})
    connect(root).write(table, topic, options={"segment.ms": "9000000000000", **options})


def nothing(root: Path, topic: str) -> None:
    """It stays as the backup has left it."""


def retain(root: Path, topic: str) -> None:
    produce(root, topic)
    connect(root).logs.retain([topic], DUE, execute=True)


def retain_then_produce(root: Path, topic: str) -> None:
    retain(root, topic)
    produce(root, topic, "late")


def delete(root: Path, topic: str) -> None:
    produce(root, topic)
    connect(root).logs.delete_records({TopicPartition(topic, 0): 55}, execute=True)


def compact(root: Path, topic: str) -> None:
    for text in ("one", "two"):
        produce(root, topic, text, 40, **{"segment.bytes": "500", "batch.size": "100"})
    ratio = {"min.cleanable.dirty.ratio": "0"}
    connect(root).logs.compact([topic], execute=True, any_policy=True, configs=ratio)


def repair(root: Path, topic: str) -> None:
    """What is damaged is behind the end of the last run."""
    for text in ("one", "two", "three"):
        produce(root, topic, text)
    log = max((root / f"{topic}-0").glob("*.log"))
    flip(log, log.stat().st_size - 20)
    connect(root).logs.repair([TopicPartition(topic, 0)], execute=True)


def roll(root: Path, topic: str) -> None:
    """The segment begins exactly where the backup has ended."""
    log = max((root / f"{topic}-0").glob("*.log"))
    produce(root, topic, **{"segment.bytes": str(max(log.stat().st_size, 400))})
    assert any(int(found.stem) == end_of_backup(root, topic) for found in log.parent.glob("*.log"))


def end_of_backup(root: Path, topic: str) -> int:
    return 50 if topic != "roll-open" else 7


STEPS: dict[str, tuple[list[bytes], Callable[[Path, str], None]]] = {
    "nothing": (PLAIN, nothing),
    "produce": (PLAIN, produce),
    "retain": (PLAIN, retain),
    "retain-produce": (PLAIN, retain_then_produce),
    "delete": (PLAIN, delete),
    "compact": (PLAIN, compact),
    "repair": (PLAIN, repair),
    "roll": (PLAIN, roll),
    "open": (OPEN, produce),
    "retain-open": (OPEN, retain),
    "roll-open": (OPEN, roll),
}


def write_to_backups(tmp_path: Path) -> Path:
    """A backup with a topic for each of the steps, which came after it."""
    source, backup = tmp_path / "source", tmp_path / "backup"
    for topic, (batches, _) in STEPS.items():
        make_log_of(source, batches, partition=TopicPartition(topic, 0))
    rows = connect(source).logs.backup(str(backup), BackupRules(groups=()))
    assert not [row for row in rows if row.problem]
    for topic, (_, step) in STEPS.items():
        step(backup, topic)
    assert (backup / CLEAN_SHUTDOWN_FILE).exists()
    return backup


@pytest.mark.long
@pytest.mark.broker
def test_a_broker_goes_on_behind_what_was_written(new_broker: Callable[..., Broker], tmp_path: Path) -> None:
    backup, broker = write_to_backups(tmp_path), new_broker({"log.cleaner.enable": "false"})
    expected = {topic: visible(backup, TopicPartition(topic, 0)) for topic in STEPS}
    broker.start()
    for topic in STEPS:
        broker.create_topic(topic, 1, KEPT)
    broker.stop()
    rows = connect(backup).logs.adopt(str(broker.log_dir), groups=False, execute=True)
    assert [row.problem for row in rows] == [None] * len(STEPS)
    ends = {row.topic: row.log_end_offset + len(row.aborted) for row in rows}
    check_sound(broker.log_dir)
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for topic in STEPS:
        assert list(consume(broker.bootstrap, topic, [0])[0]) in (
            expected[topic],
            # What was behind an open transaction is seen now that it is aborted.
            sorted({*expected[topic], 5, 6, *range(7, ends[topic] - 1)} - {3, 4}),
        ), topic
        for row in range(20):
            producer.produce(topic, b"new %d" % row)
    assert producer.flush(30) == 0
    for topic in STEPS:
        found = consume(broker.bootstrap, topic, [0])[0]
        new = {offset: record.value for offset, record in found.items() if offset >= ends[topic]}
        assert new == {ends[topic] + row: b"new %d" % row for row in range(20)}, topic
    broker.stop()
    check_sound(broker.log_dir)


@pytest.mark.parametrize("topic", ["produce", "roll"])
def test_stale_checkpoints_do_not_count(topic: str, tmp_path: Path) -> None:
    """As they are where somebody has copied segments into the backup."""
    backup, log_dir, partition = write_to_backups(tmp_path), tmp_path / "broker", TopicPartition(topic, 0)
    for name in OFFSETS:
        (backup / name).write_text(f"0\n1\n{topic} 0 50\n")
    make_broker(log_dir, partition)
    for execute in (False, True):
        (row,) = connect(backup).logs.adopt(str(log_dir), (topic,), groups=False, execute=execute)
        assert (row.problem, row.log_end_offset) == (None, 60)
    assert visible(log_dir, partition) == list(range(60))
    check_sound(log_dir)


def test_a_log_that_ends_elsewhere_than_planned_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, log_dir = tmp_path / "backup", tmp_path / "broker"
    make_log_of(tmp_path / "source", PLAIN)
    connect(tmp_path / "source").logs.backup(str(backup), BackupRules(groups=()))
    make_broker(log_dir, T0)
    before = files(log_dir / "t-0")
    really = adopting._staged

    def unlocked(*_: object, **__: object) -> nullcontext[Callable[[], None]]:
        return nullcontext(lambda: None)

    def late(folder: str) -> str:
        produce(backup, "t")
        return really(folder)

    monkeypatch.setattr(adopting, "_staged", late)
    monkeypatch.setattr("pyspark_kafkalog.log.publish.publish.directory_lock", unlocked)
    with pytest.raises(LogDirectoryError, match="log that ends at offset 50, got one that ends at 60"):
        connect(backup).logs.adopt(str(log_dir), groups=False, execute=True)
    assert files(log_dir / "t-0") == before


def test_the_end_of_what_was_written_is_known(tmp_path: Path) -> None:
    """Its last segment is missed, and damage in it is not taken for a torn write."""
    backup = tmp_path / "backup"
    make_log_of(tmp_path / "source", PLAIN)
    connect(tmp_path / "source").logs.backup(str(backup), BackupRules(groups=()))
    for text in ("one", "two", "three"):
        produce(backup, "t", text)
    log = max((backup / "t-0").glob("*.log"))
    held = log.read_bytes()
    (backup / CLEAN_SHUTDOWN_FILE).unlink()
    flip(log, len(held) - 30 - (len(held) - held.rindex(b"two 0")))
    damaged = log.read_bytes()
    (row,) = connect(tmp_path / "source").logs.backup(str(backup), BackupRules(groups=()))
    assert row.problem is not None
    assert "before a valid batch at byte" in row.problem
    assert log.read_bytes() == damaged
    log.write_bytes(held)
    log.rename(tmp_path / "kept")
    for index in log.parent.glob(f"{log.stem}.*"):
        index.unlink()
    (found,) = connect(backup).records.verify([T0])
    assert "the backup lacks their segments" in found.damages[0].message


@pytest.mark.parametrize("name", OFFSETS)
def test_a_malformed_checkpoint_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    """Later, a failed commit would be one that is visible, and a broker would recover all logs."""
    backup = back_up(tmp_path, T0)
    groups = groups_in(backup)
    (backup / name).write_text("0\n1\nt 0\n")
    before = {path.name: files(path) for path in backup.iterdir() if path.is_dir()}
    kafka = connect(backup)
    for write in (
        lambda: produce(backup, "t"),
        lambda: kafka.topics.create([NewTopic("new", partitions=1)]),
        lambda: groups.commit("etl", {T0: CommittedOffset(45)}),
    ):
        with pytest.raises(LogDirectoryError, match=name):
            write()
    assert {path.name: files(path) for path in backup.iterdir() if path.is_dir()} == before
    assert (backup / CLEAN_SHUTDOWN_FILE).exists()
    kafka.logs.repair(execute=True)
    groups.commit("etl", {T0: CommittedOffset(45)})
    assert groups.committed("etl")[T0].offset == 45


def test_indexes_come_from_the_batches(tmp_path: Path) -> None:
    """A flip in a backup's index of transactions shows no aborted rows in the new cluster."""
    source, backup, log_dir = tmp_path / "source", tmp_path / "backup", tmp_path / "broker"
    aborted = [*OPEN, marker(1, commit=False, offset=7), *(batch(at, 3) for at in range(8, 200, 5))]
    make_log_of(source, aborted)
    connect(source).logs.backup(str(backup), BackupRules(groups=()))
    make_broker(log_dir, T0)
    wanted = visible(backup)
    for suffix, position in (("index", 7), ("timeindex", 7), ("txnindex", 9)):
        found = [file for file in sorted((backup / "t-0").glob(f"*.{suffix}")) if file.stat().st_size]
        assert found
        for file in found:
            flip(file, position)
    connect(backup).logs.adopt(str(log_dir), groups=False, execute=True)
    assert visible(log_dir) == wanted
    check_sound(log_dir)


@pytest.mark.long
@pytest.mark.slow
def test_killed_at_every_step_of_a_write(tmp_path: Path, soak: bool) -> None:
    start = tmp_path / "start"
    make_log_of(tmp_path / "source", PLAIN)
    connect(tmp_path / "source").logs.backup(str(start / "backup"), BackupRules(groups=()))
    make_broker(start / "broker", T0)
    with step_runner("tests.tools.backup.writer") as writer:
        whole = tmp_path / "whole"
        shutil.copytree(start, whole)
        assert writer(whole, 0) == 0
        steps = changes(whole / "steps")
        ends = set()
        for step in steps if soak else {*steps[::4], *steps[-9:]}:
            killed = tmp_path / str(step)
            shutil.copytree(start, killed)
            assert writer(killed, step) == KILLED
            end = len(visible(killed / "backup"))
            (row,) = connect(killed / "backup").logs.adopt(str(killed / "broker"), groups=False, execute=True)
            assert (row.problem, row.log_end_offset) == (None, end), step
            assert visible(killed / "broker") == list(range(end)), step
            recovery = (killed / "backup" / RECOVERY_POINT_CHECKPOINT).read_text()
            assert recovery == f"0\n1\nt 0 {end}\n", step
            ends.add(end)
            shutil.rmtree(killed)
        assert ends == {50, 50 + WRITTEN}
