"""Tombstones that compaction took before they were copied: they are missed, told, and the copy is renewed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaProducer

from pyspark_kafkalog import BackupRules, connect
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log import renewal
from pyspark_kafkalog.log.checkpoints import write_offsets
from pyspark_kafkalog.log.layout import new_copy
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.topic_configs import read_topic_configs, write_topic_configs
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.backup.copies.directory import open_backup
from pyspark_kafkalog.tools.backup.copies.truncation import truncate
from tests.broker.producing import unused_topic
from tests.kafka import Broker
from tests.tools.backup.histories import SMALL, T0, content, set_log_start, visible
from tests.tools.backup.test_history import NO_GROUPS, check_sound, run
from tests.tools.backup.test_lost_start import damages
from tests.tools.backup.test_shared_end import batches, make

RENEW = BackupRules(groups=(), renew_compacted=True, threads=1)
MISSED = "Keys that the source has deleted may live on in the copy"
GONE_AT_ONCE = {"cleanup.policy": "compact", "delete.retention.ms": "0"}
DELETED = {"cleanup.policy": "delete", "retention.bytes": "0"}
DAY = 24 * 3600 * 1000
NEVER_HERE = {"min.cleanable.dirty.ratio": "1"}
"""For topics that are written to: only the source was compacted, and the records here have no keys."""


def make_compacted(root: Path, configs: Mapping[str, str] = GONE_AT_ONCE) -> None:
    """What a cleaner left: tombstones at 50 to 59, and what they have deleted, are gone."""
    make(root, [*batches(20, 50), *batches(60, 100)])
    write_topic_configs(str(root), {"t": configs})


def backed_up(tmp_path: Path, configs: Mapping[str, str] = GONE_AT_ONCE) -> tuple[Path, Path]:
    """A compacted source that was backed up before a cleaner came."""
    source, target = tmp_path / "source", tmp_path / "target"
    make(source, batches(0, 50))
    write_topic_configs(str(source), {"t": configs})
    assert run(source, target).problem is None
    make_compacted(source, configs)
    return source, target


def complete(target: Path) -> list[int]:
    found: list[int] = json.loads((target / ".kafkalog-backup").read_text())["complete"]["t-0"]
    return found


def written(target: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((target / ".kafkalog-backup").read_text())["written"]
    return found


def complete_at(target: Path, ago: int) -> None:
    """As if so much time (ms) had passed since the last run."""
    path = target / ".kafkalog-backup"
    found = json.loads(path.read_text())
    found["complete"]["t-0"][0] -= ago
    path.write_text(json.dumps(found))


def test_what_the_source_has_deleted_is_told_until_the_copy_is_renewed(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path)
    noted = complete(target)
    for _ in range(2):
        problem = run(source, target).problem or ""
        assert MISSED in problem
        assert "--renew-compacted" in problem
        assert complete(target) == noted
    assert content(target) == b"".join([*batches(0, 50), *batches(60, 100)]), (
        "what came is copied all the same"
    )
    check_sound(target)
    row = run(source, target, RENEW)
    assert (row.renewed, row.log_end_offset) == (True, 100)
    assert content(target) == content(source)
    check_sound(target)


@pytest.mark.parametrize(("ago", "is_missed"), [(0, False), (DAY + 1000, True), (-DAY, True)])
def test_time_decides_whether_tombstones_may_have_gone(ago: int, is_missed: bool, tmp_path: Path) -> None:
    """A clock that went back proves nothing."""
    source, target = backed_up(tmp_path, {"cleanup.policy": "compact"})
    complete_at(target, ago)
    assert (MISSED in (run(source, target).problem or "")) == is_missed


def test_renewed_once_it_is_sound(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path, {"cleanup.policy": "compact,delete"})
    complete_at(target, 2 * DAY)
    row = run(source, target, RENEW)
    assert (row.problem, row.renewed) == (None, True)
    assert time.time() * 1000 - complete(target)[0] < 60_000
    for rules in NO_GROUPS, RENEW:
        row = run(source, target, rules)
        assert (row.problem, row.renewed, row.copied_bytes) == (None, False, 0)


@pytest.mark.parametrize(
    "configs", [{"cleanup.policy": "delete"}, GONE_AT_ONCE], ids=["deleted", "compacted"]
)
def test_without_compaction_nothing_is_missed(configs: dict[str, str], tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make(source, batches(0, 50))
    run(source, target)
    make(source, [*batches(0, 100), *(batches(110, 120) if configs is not GONE_AT_ONCE else [])])
    write_topic_configs(str(source), {"t": configs})
    complete_at(target, 30 * DAY)
    assert run(source, target).problem is None


def test_a_copy_of_which_nothing_is_noted_was_complete_at_an_unknown_time(tmp_path: Path) -> None:
    source, target = backed_up(tmp_path, {"cleanup.policy": "compact"})
    path = target / ".kafkalog-backup"
    found = json.loads(path.read_text())
    found["complete"] = {}
    path.write_text(json.dumps(found))
    assert "an unknown time after the copy was last complete" in (run(source, target).problem or "")
    assert run(source, target, RENEW).problem is None


def test_a_copy_that_was_killed_has_been_at_it_since_its_first_run(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_compacted(source, {"cleanup.policy": "compact"})
    run(source, target)
    noted = complete(target)
    complete_at(target, 2 * DAY)
    with open_backup(str(target)) as directory:
        directory.truncate(T0, SMALL, 45)
    assert complete(target) == [noted[0] - 2 * DAY, 45]
    assert MISSED in (run(source, target).problem or "")


def test_what_a_copy_has_lost_may_be_compacted_when_it_is_copied_again(tmp_path: Path) -> None:
    """Cut by a repair, or set back to an older copy: the last complete run says nothing of it any more."""
    source, target = tmp_path / "source", tmp_path / "target"
    for end in 0, 60:
        make(source, batches(0, 100))
        write_topic_configs(str(source), {"t": {"cleanup.policy": "compact"}})
        assert run(source, target).problem is None
        truncate(str(target / "t-0"), 60)
        if end:
            write_offsets(str(target), "recovery-point-offset-checkpoint", {T0: end})
        make(source, [*batches(0, 70), *batches(90, 100)])
        write_topic_configs(str(source), {"t": {"cleanup.policy": "compact"}})
        assert MISSED in (run(source, target).problem or "")
        shutil.rmtree(target)


def test_a_first_copy_that_was_killed_early_knows_when_it_began(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make(source, [*batches(50, 70), *batches(90, 100)], start=50)
    write_topic_configs(str(source), {"t": {"cleanup.policy": "compact"}})
    run(source, target)
    noted = json.loads((target / ".kafkalog-backup").read_text())
    noted["complete"]["t-0"][1] = 50
    (target / ".kafkalog-backup").write_text(json.dumps(noted))
    for name in ".kafka_cleanshutdown", "recovery-point-offset-checkpoint":
        (target / name).unlink()
    truncate(str(target / "t-0"), 60)
    assert run(source, target).problem is None


def renewed_until(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, bytes]:
    """Source, copy, and the old content of the copy, whose renewal ended at a step."""
    source, target = backed_up(tmp_path, GONE_AT_ONCE | NEVER_HERE)
    run(source, target)
    old, calls = content(target), []

    def dying(name: str, module: object) -> None:
        real = getattr(module, name)

        def call(*args: object, **how: object) -> object:
            if any(str(target) in str(arg) for arg in args):
                calls.append(name)
                if len(calls) > step:
                    raise KeyboardInterrupt
            return real(*args, **how)

        monkeypatch.setattr(module, name, call)

    dying("rename", os)
    dying("rmtree", shutil)
    dying("sync_folder", renewal)
    with pytest.raises(KeyboardInterrupt):
        run(source, target, RENEW)
    monkeypatch.undo()
    return source, target, old


@pytest.mark.parametrize("step", range(6))
def test_a_renewal_that_ends_anywhere_leaves_one_of_the_copies(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, old = renewed_until(step, tmp_path, monkeypatch)
    assert visible(target) in (list(range(50)), visible(source)), "readers miss neither"
    assert damages(target) == []
    with open_backup(str(target)) as directory:
        assert directory.partitions() == {T0}
    assert content(target) in (old, content(source))
    check_sound(target)
    assert not [*target.glob("*-delete")]
    assert run(source, target, RENEW).log_end_offset == 100
    assert content(target) == content(source)
    check_sound(target)


@pytest.mark.parametrize("step", range(6))
def test_what_is_written_goes_to_the_copy_that_counts(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target, _ = renewed_until(step, tmp_path, monkeypatch)
    before, topic_id = visible(target), LogDirectory.open(str(target)).topic_ids(["t"])
    end = before[-1] + 1
    connect(target).write(pa.table({"key": [b"k"] * 2, "value": [b"written"] * 2}), "t")
    for _ in range(2):
        assert visible(target) == [*before, end, end + 1]
        assert LogDirectory.open(str(target)).topic_ids(["t"]) == topic_id
        check_sound(target)
        with open_backup(str(target)):
            pass
    assert not [*target.glob("*-delete")]


@pytest.mark.parametrize("step", range(6))
def test_a_repair_vouches_for_the_copy_that_counts(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target, _ = renewed_until(step, tmp_path, monkeypatch)
    before = visible(target)
    done = connect(target).logs.repair(execute=True)
    assert [(one.topic, one.log_end_offset) for one in done.partitions] == [("t", before[-1] + 1)]
    assert visible(target) == before


def test_rows_that_were_written_to_the_copy_are_not_lost(tmp_path: Path) -> None:
    """A new copy would not have them, and nothing would say so."""
    source, target = backed_up(tmp_path, {"cleanup.policy": "compact"} | NEVER_HERE)
    complete_at(target, 2 * DAY)
    rows = pa.table({"key": [b"k"] * 3, "value": [b"written"] * 3})
    for _ in range(2):
        connect(target).write(rows, "t")
    for _ in range(2):
        row = run(source, target, RENEW)
        assert "rows were written to it from offset 50 on" in (row.problem or "")
        assert (row.renewed, row.log_end_offset) == (False, 100)
    assert visible(target) == [*range(56), *range(60, 100)]
    (target / "t-0").rename(tmp_path / "away")
    row = run(source, target, RENEW)
    assert (row.problem, visible(target)) == (None, visible(source))
    check_sound(target)


def test_rows_that_never_came_keep_no_copy_from_being_renewed(tmp_path: Path) -> None:
    """A write that was killed is undone."""
    source, target = backed_up(tmp_path, {"cleanup.policy": "compact"})
    complete_at(target, 2 * DAY)
    script = (
        "import os, sys\n"
        "import pyarrow as pa\n"
        "from pyspark_kafkalog import connect\n"
        "from pyspark_kafkalog.log.publish import journal\n"
        "journal.commit = lambda *_: os._exit(9)\n"
        "connect(sys.argv[1]).write(pa.table({'key': [b'k'], 'value': [b'v']}), 't')\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(target)], check=False).returncode == 9
    assert written(target) == {"t-0": 50}
    row = run(source, target, RENEW)
    assert (row.problem, row.renewed) == (None, True)
    assert written(target) == {}
    assert visible(target) == visible(source)


def killed_between_the_folders(tmp_path: Path) -> Path:
    """A copy whose renewal was killed when it had renamed the old folder, and not yet the new one."""
    source, target = backed_up(tmp_path)
    run(source, target)
    set_log_start(source, 25)
    script = (
        "import os, sys\n"
        "from pyspark_kafkalog import BackupRules, connect\n"
        "from pyspark_kafkalog.log import renewal\n"
        "renewal.sync_folder = lambda folder: os._exit(9)\n"
        "rules = BackupRules(groups=(), renew_compacted=True)\n"
        "connect(sys.argv[1]).logs.backup(sys.argv[2], rules)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(source), str(target)], check=False)
    assert (killed.returncode, (target / "t-0").exists()) == (9, False)
    return target


def test_between_the_folders_the_new_copy_counts(tmp_path: Path) -> None:
    source, target = tmp_path / "source", killed_between_the_folders(tmp_path)
    assert LogDirectory.open(str(target)).topics() == {"t": (0,)}
    assert visible(target) == visible(source)
    assert damages(target) == []
    log_dir = tmp_path / "broker"
    make(log_dir, [])
    (log_dir / "meta.properties").write_text("version=1\n")
    (adopted,) = connect(target).logs.adopt(str(log_dir), groups=False)
    assert "run the backup again" in (adopted.problem or "")
    run(source, target, RENEW)
    assert visible(target) == visible(source)
    check_sound(target)


def test_a_new_copy_that_is_a_link_out_of_the_backup_is_refused(tmp_path: Path) -> None:
    target, outside = killed_between_the_folders(tmp_path), tmp_path / "outside"
    copy = target / new_copy(T0)
    copy.rename(outside)
    copy.symlink_to(outside)
    with pytest.raises(LogDirectoryError, match="symbolic link leads out"):
        visible(target)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda logs, execute: logs.compact(["t"], execute=execute), [*range(25, 50), *range(60, 100)]),
        (lambda logs, execute: logs.retain(["t"], DELETED, execute=execute), []),
        (lambda logs, execute: logs.retain(configs=DELETED, execute=execute), []),
        (lambda logs, execute: logs.delete_records({T0: 70}, execute=execute), [*range(70, 100)]),
    ],
    ids=["compact", "retain", "retain all", "delete-records"],
)
def test_a_change_between_the_folders_is_one_of_the_new_copy(
    change: Callable[[Any, bool], list[Any]], left: list[int], tmp_path: Path
) -> None:
    """What it would do is known before the new copy is in its place, where the change puts it first."""
    target = killed_between_the_folders(tmp_path)
    write_topic_configs(str(target), {"t": {"cleanup.policy": "compact,delete"}})
    (would,) = change(connect(target).logs, False)
    assert not (target / "t-0").exists()
    (done,) = change(connect(target).logs, True)
    assert done == would
    assert visible(target) == left
    assert damages(target) == []


@pytest.mark.parametrize("partitions", [None, [T0]], ids=["all", "named"])
def test_a_repair_between_the_folders_is_one_of_the_new_copy(
    partitions: list[TopicPartition] | None, tmp_path: Path
) -> None:
    target = killed_between_the_folders(tmp_path)
    (would,) = connect(target).logs.repair(partitions).partitions
    assert not (target / "t-0").exists()
    (done,) = connect(target).logs.repair(partitions, execute=True).partitions
    assert done.log_end_offset == would.log_end_offset == 100
    assert damages(target) == []


def test_a_topic_between_the_folders_can_be_changed(tmp_path: Path) -> None:
    target = killed_between_the_folders(tmp_path)
    topics = connect(target).topics
    changes = topics.plan_alteration(["t"], configs={"retention.ms": "1000"})
    assert not (target / "t-0").exists()
    topics.alter(changes)
    assert read_topic_configs(open_folder(str(target)))["t"]["retention.ms"] == "1000"
    assert damages(target) == []


@pytest.mark.soak
@pytest.mark.broker
@pytest.mark.slow
def test_a_cleaner_of_a_real_broker(broker: Broker, tmp_path: Path) -> None:
    topic = unused_topic()
    options, rules = {"kafka.bootstrap.servers": broker.bootstrap}, BackupRules((topic,), groups=())
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": 100,
        "min.cleanable.dirty.ratio": 0.01,
        "delete.retention.ms": 0,
    }
    broker.make_topic(topic, 1, configs)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)

    def write(key: bytes, value: bytes | None) -> None:
        producer.send(topic, value, key, partition=0).get(30)

    def is_cleaned() -> bool:
        write(b"other", b"value")
        time.sleep(0.2)
        files = sorted(broker.partition_folder(topic, 0).glob("*.log"))
        is_swapped = files[0].stem == "0" * 20  # while it is not, the cleaner is at work
        return is_swapped and not any(b"user-1" in file.read_bytes() for file in files)

    write(b"user-1", b"name and address")
    (row,) = connect(options).logs.backup(str(tmp_path), rules)
    assert row.problem is None
    write(b"user-1", None)
    broker.wait_until(is_cleaned, "the cleaner has not come", 90)
    producer.close()
    (row,) = connect(options).logs.backup(str(tmp_path), rules)
    assert MISSED in (row.problem or "")
    (row,) = connect(options).logs.backup(str(tmp_path), replace(rules, renew_compacted=True))
    assert row.renewed
    kept = b"".join(file.read_bytes() for file in (tmp_path / f"{topic}-0").glob("*.log"))
    assert b"user-1" not in kept
    assert b"other" in kept
