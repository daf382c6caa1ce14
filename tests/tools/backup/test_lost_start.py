"""A backup that has lost its first or last segments: unlike a broker's log it knows where they were."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog import BackedUpPartition, BackupRules, RestoreSettings, connect
from pyspark_kafkalog.errors import DataLossError, LogDirectoryError
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.tools.backup.copies import directory as backup_directory
from pyspark_kafkalog.tools.care.partition_repair import PartitionRepair
from pyspark_kafkalog.tools.care.verify import verify
from tests.broker.producing import unused_topic
from tests.kafka import Broker
from tests.log.partitions import offsets_read
from tests.tools.backup.histories import RECORDS, T0, make_log, set_log_start
from tests.tools.backup.test_history import check_sound

NO_GROUPS = BackupRules(groups=())
LACKS = "the backup lacks their segments"
WHAT = f"Offsets 3 to {{}} are gone: {LACKS}"


def run(source: Path, target: Path) -> BackedUpPartition:
    (row,) = connect(source).logs.backup(str(target), NO_GROUPS)
    return row


def backed_up(tmp_path: Path) -> tuple[Path, Path, list[Path]]:
    """Source, copy, and the logs of its segments; the copy begins with offset 3."""
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 160)])
    set_log_start(source, 3)
    write_topic_configs(str(source), {"t": {"segment.bytes": "1000"}})
    assert run(source, target).problem is None
    logs = sorted((target / "t-0").glob("*.log"))
    assert len(logs) > 2
    return source, target, logs


def damages(root: Path) -> list[str]:
    return [found.message for row in verify(LogDirectory.open(str(root)), [T0]) for found in row.damages]


@pytest.mark.parametrize("with_indexes", [False, True])
@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("was_clean", [False, True])
def test_it_is_told_until_it_is_given_up(
    lost: int, with_indexes: bool, was_clean: bool, tmp_path: Path
) -> None:
    source, target, logs = backed_up(tmp_path)
    first = int(logs[lost].stem)
    for log in logs[:lost]:
        for file in log.parent.glob(f"{log.stem}*" if with_indexes else log.name):
            file.unlink()
    if not was_clean:
        (target / ".kafka_cleanshutdown").unlink()
    what = WHAT.format(first - 1)
    assert damages(target) == [what]
    row = run(source, target)
    assert what in (row.problem or "")
    assert "kafkalog delete-records" in (row.problem or "")
    assert not (target / ".kafka_cleanshutdown").exists()
    place = LogDirectory.open(str(target))
    assert place.watermarks([T0], read_committed=False)[T0].log_start_offset == 3
    with pytest.raises(DataLossError, match=what) as e:
        offsets_read(place, T0, OffsetRange(3, 160))
    assert e.value.next_offset == first
    assert offsets_read(place, T0, OffsetRange(3, 160), on_corrupt=lambda _: None) == list(range(first, 160))
    assert offsets_read(place, T0, OffsetRange(first, 160)) == list(range(first, 160))
    connect(target).logs.delete_records({T0: first}, execute=True)
    assert run(source, target).problem is None
    assert run(source, target).log_start_offset == first
    check_sound(target)


def test_nothing_of_it_is_adopted(tmp_path: Path) -> None:
    _, target, logs = backed_up(tmp_path)
    logs[0].unlink()
    log_dir = tmp_path / "broker"
    make_log(log_dir, [])
    (log_dir / "meta.properties").write_text("version=1\n")
    (row,) = connect(target).logs.adopt(str(log_dir), groups=False)
    assert WHAT.format(int(logs[1].stem) - 1) in (row.problem or "")


def test_a_backup_that_has_lost_all_segments_does_not_begin_anew(tmp_path: Path) -> None:
    source, target, logs = backed_up(tmp_path)
    for log in logs:
        log.unlink()
    assert damages(target) == [
        f"The segment {log.name} is missing, with all from offset {int(log.stem)} on" for log in logs
    ]
    for _ in range(2):
        assert WHAT.format(159) in (run(source, target).problem or "")
    assert not [*(target / "t-0").glob("*.log")]


@pytest.mark.parametrize("lost", [slice(-1, None), slice(None)], ids=["the last segment", "all segments"])
def test_a_lost_end_is_told_until_it_is_given_up(lost: slice, tmp_path: Path) -> None:
    """Though nothing of it is left, and nothing else in the directory is wrong."""
    source, target, logs = backed_up(tmp_path)
    assert LogDirectory.open(str(target)).try_watermarks([T0])[1] == {}
    for log in logs[lost]:
        for file in log.parent.glob(f"{log.stem}*"):
            file.unlink()
    (target / "t-0" / "00000000000000000160.snapshot").unlink(missing_ok=True)
    (what,) = damages(target)
    assert what == f"Offsets {155 if len(logs[lost]) == 1 else 3} to 159 are gone: {LACKS}"
    log_dir = tmp_path / "broker"
    make_log(log_dir, [])
    (log_dir / "meta.properties").write_text("version=1\n")
    for execute in False, True:
        (adopted,) = connect(target).logs.adopt(str(log_dir), groups=False, execute=execute)
        assert what in (adopted.problem or "")
    assert what in (run(target, tmp_path / "again").problem or "")
    first = 155 if len(logs[lost]) == 1 else 3
    for execute in False, True:
        (repaired,) = connect(target).logs.repair(execute=execute).partitions
        (step,) = (step for step in repaired.steps if step.action == "forget")
        assert step.why.startswith(
            f"offsets {first} to 159 ({160 - first} of them) were on disk in this backup"
        )
    check_sound(target)
    (repaired,) = connect(target).logs.repair().partitions
    assert repaired.steps == ()
    assert run(source, target).problem is None
    check_sound(target)


def test_what_a_repair_cuts_and_what_is_gone_is_told_apart(tmp_path: Path) -> None:
    source, target, logs = backed_up(tmp_path)
    damaged, lost = logs[-3], logs[-1]
    for file in lost.parent.glob(f"{lost.stem}*"):
        file.unlink()
    content = bytearray(damaged.read_bytes())
    content[80] ^= 1
    damaged.write_bytes(content)
    (repaired,) = connect(target).logs.repair().partitions
    assert repaired.dropped == OffsetRange(int(damaged.stem), int(lost.stem))
    assert repaired.dropped_records == int(lost.stem) - int(damaged.stem) - RECORDS
    (step,) = (step for step in repaired.steps if step.action == "forget")
    assert step.why.startswith(f"offsets {lost.stem.lstrip('0')} to 159 ")
    connect(target).logs.repair(execute=True)
    assert run(source, target).problem is None
    check_sound(target)


def test_a_copy_that_is_killed_when_it_was_cut_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, _ = backed_up(tmp_path)
    make_log(source, [(0, 100), (3, 140)])
    real = backup_directory.truncate

    def killed(*args: Any, **how: Any) -> None:
        real(*args, **how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(backup_directory, "truncate", killed)
        patch.setattr(backup_directory.BackupDirectory, "close", lambda _: {})
        with pytest.raises(KeyboardInterrupt):
            connect(source).logs.backup(str(target), BackupRules(groups=(), truncate=True))
    assert damages(target) == []


@pytest.mark.broker
def test_a_lost_end_is_not_restored(broker: Broker, tmp_path: Path) -> None:
    _, target, logs = backed_up(tmp_path)
    for file in logs[-1].parent.glob(f"{logs[-1].stem}*"):
        file.unlink()
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    with pytest.raises(DataLossError, match="Offsets 155 to 159 are gone"):
        connect(target).logs.restore(connect(options), RestoreSettings(["t"], {"t": unused_topic()}))


def test_what_no_backup_has_made_is_left_alone(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_log(source, [(0, 160)])
    make_log(target, [(0, 140)])
    before = sorted((path.name, path.stat().st_size) for path in target.rglob("*.log"))
    with pytest.raises(LogDirectoryError, match=r"Expected a backup or an empty folder.*partition t-0"):
        run(source, target)
    assert sorted((path.name, path.stat().st_size) for path in target.rglob("*.log")) == before
    assert not (target / ".kafkalog-backup").exists()


def test_a_broker_that_works_in_a_backup_deletes_what_it_likes(tmp_path: Path) -> None:
    _, target, logs = backed_up(tmp_path)
    (target / "meta.properties").write_text("version=1\n")
    logs[0].unlink()
    assert damages(target) == []


def test_retention_is_no_loss(tmp_path: Path) -> None:
    source, target, logs = backed_up(tmp_path)
    (row,) = connect(target).logs.retain(configs={"retention.bytes": "1500"}, execute=True)
    start = row.new_log_start_offset
    assert start == int(logs[row.segments or 0].stem) > 0
    check_sound(target)
    found = run(source, target)
    assert (found.problem, found.log_start_offset, found.log_end_offset) == (None, start, 160)
    check_sound(target)


@pytest.mark.parametrize("only", [None, [T0]], ids=["all", "one partition"])
def test_a_repair_of_the_checkpoint_is_no_loss(
    only: list[TopicPartition] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it is killed while it reads the segments, and if it is not about all partitions."""
    source, target, _ = backed_up(tmp_path)
    make_log(source, [(0, 180)], start=40, partition=TopicPartition("other", 0))
    connect(source).logs.backup(str(target), NO_GROUPS)
    (target / "log-start-offset-checkpoint").write_text("0\n2\nt 0 3\vother 0 40\n")
    with monkeypatch.context() as patch:
        patch.setattr(PartitionRepair, "run", lambda _: sys.exit("killed"))
        with pytest.raises(SystemExit):
            connect(target).logs.repair(execute=True)
    connect(target).logs.repair(only, execute=True)
    if only is None:
        check_sound(target)
    rows = connect(source).logs.backup(str(target), NO_GROUPS)
    assert [(row.problem, row.log_start_offset) for row in rows] == [(None, 40), (None, 0)]
    check_sound(target)
