"""Changes of topics that were interrupted, and what brokers or damage have done to the directory since."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import LogDirectoryError, TopicExistsError, UnknownTopicOrPartitionError
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.layout import (
    CLEAN_SHUTDOWN_FILE,
    JOURNAL_FILE,
    JOURNAL_SEPARATOR,
    OFFSET_CHECKPOINTS,
)
from pyspark_kafkalog.log.publish import deletion, topics
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.log.topics import DirectoryTopics
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.log.partitions import batch
from tests.log.test_undo import Crash
from tests.log.writing import T0, T1, read, values, write

OTHER = TopicPartition("other", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, {T0: values(3), T1: values(3)})
    write(tmp_path, {OTHER: values(3)}, num_partitions=1)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\nt 0 3\nt 1 3\n")
    return tmp_path


def commit(root: Path) -> None:
    groups = DirectoryGroups.open(str(root), num_partitions=2)
    for group in ("a", "b", "c"):
        groups.commit(group, {T0: CommittedOffset(2), OTHER: CommittedOffset(1)})


def committed(root: Path) -> list[set[TopicPartition]]:
    groups = DirectoryGroups.open(str(root))
    return [set(groups.committed(group)) for group in ("a", "b", "c")]


def die_deleting(root: Path, at: str) -> None:
    with mock.patch.object(deletion, at, side_effect=Crash), pytest.raises(Crash):
        DirectoryTopics([str(root)]).delete(["t"])
    assert (root / JOURNAL_FILE).exists()


def broker_appends(root: Path) -> None:
    with (root / "t-0" / f"{0:020d}.log").open("ab") as log:
        log.write(batch(3))


def checkpoints_differ(root: Path) -> None:
    (root / "replication-offset-checkpoint").write_text("0\n2\nt 0 13\nt 1 3\n")


def shuts_down(root: Path) -> None:
    (root / CLEAN_SHUTDOWN_FILE).write_text("")


@pytest.mark.parametrize("leave_trace", [checkpoints_differ, shuts_down])
@pytest.mark.parametrize("clean", [True, False])
def test_what_a_broker_appended_is_not_deleted(root: Path, leave_trace, clean: bool) -> None:
    if clean:
        shuts_down(root)
    die_deleting(root, "carry_out")
    assert not (root / CLEAN_SHUTDOWN_FILE).exists()
    broker_appends(root)
    leave_trace(root)
    with pytest.raises(LogDirectoryError, match="Cannot finish the deletion of topics that was interrupted"):
        write(root, {OTHER: values(1)})
    (root / JOURNAL_FILE).unlink()
    write(root, {OTHER: values(1)})
    assert len(read(root)[T0]) == 13
    DirectoryTopics([str(root)]).delete(["t"])
    assert T0 not in read(root)


@pytest.mark.parametrize("at", ["carry_out", "_forget"])
def test_a_deletion_that_nothing_has_touched_is_finished(root: Path, at: str) -> None:
    die_deleting(root, at)
    if at == "_forget":  # which changes them itself
        (root / "replication-offset-checkpoint").write_text("0\n1\nt 1 3\n")
    write(root, {OTHER: values(1)})
    assert read(root).keys() == {OTHER}
    assert (root / "replication-offset-checkpoint").read_text() == "0\n0\n"


def test_offsets_stay_if_a_deletion_is_refused(root: Path) -> None:
    commit(root)
    (root / "replication-offset-checkpoint").write_text("garbage")
    with pytest.raises(LogDirectoryError, match="Malformed file"):
        DirectoryTopics([str(root)]).delete(["t"])
    assert committed(root) == [{T0, OTHER}] * 3


@pytest.mark.parametrize("at", ["carry_out", "_append_tombstones"])
def test_offsets_go_with_a_deletion_that_is_finished(root: Path, at: str) -> None:
    commit(root)
    shuts_down(root)
    die_deleting(root, at)
    assert committed(root) == [{T0, OTHER}] * 3
    for name in ("log-start-offset-checkpoint", "replication-offset-checkpoint"):
        if at == "_append_tombstones":
            (root / name).write_text("garbage")
    connect(root).logs.repair(execute=True)
    write(root, {T0: values(1)})
    assert committed(root) == [{OTHER}] * 3


def test_damaged_offsets_lock_nobody_out(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    commit(root)
    die_deleting(root, "_append_tombstones")
    for log in root.glob("__consumer_offsets-*/*.log"):
        log.write_bytes(bytes(100) + log.read_bytes()[100:])
    assert connect(root).logs.repair(execute=True).clean_shutdown
    assert "Could not delete the offsets of groups in __consumer_offsets-" in caplog.text
    assert read(root).keys() >= {OTHER}
    assert T0 not in read(root)


def test_offsets_in_a_topic_that_goes_too(root: Path) -> None:
    commit(root)
    DirectoryTopics([str(root)]).delete(["t", "__consumer_offsets"])
    assert read(root).keys() == {OTHER}


@pytest.mark.parametrize(
    "listed", ['{"t": ""}', '{"t-0": "!"}', '{"t-0": ""}', '{"t-0": "QUJD"}', '{"t-0": 1}', "[]"]
)
def test_tombstones_that_are_none(root: Path, listed: str) -> None:
    die_deleting(root, "carry_out")
    content = (root / JOURNAL_FILE).read_text().partition(JOURNAL_SEPARATOR)[0]
    (root / JOURNAL_FILE).write_text(content + JOURNAL_SEPARATOR + listed)
    with pytest.raises(LogDirectoryError, match="another version may have written"):
        write(root, {OTHER: values(1)})


def test_what_is_only_validated_changes_nothing(root: Path) -> None:
    die_deleting(root, "carry_out")
    for path in root.glob("*lock"):
        path.unlink()
    before = sorted(root.rglob("*"))
    topics.alter_configs(str(root), "other", {"retention.ms": "5"}, validate_only=True)
    topics.add_partitions(str(root), "other", 3, validate_only=True)
    topics.create_topics(str(root), {"t": (1, {})}, validate_only=True)
    with pytest.raises(UnknownTopicOrPartitionError):
        topics.add_partitions(str(root), "t", 3, validate_only=True)
    with pytest.raises(TopicExistsError):
        topics.create_topics(str(root), {"other": (1, {})}, validate_only=True)
    assert sorted(root.rglob("*")) == before


def test_a_clean_shutdown_stays_one(root: Path) -> None:
    shuts_down(root)
    DirectoryTopics([str(root)]).delete(["t"])
    assert (root / CLEAN_SHUTDOWN_FILE).exists()


@pytest.mark.parametrize("name", OFFSET_CHECKPOINTS)
def test_a_malformed_checkpoint_locks_nobody_out(root: Path, name: str) -> None:
    kept = (root / name).read_text() if (root / name).exists() else "0\n0\n"
    (root / name).write_text("0\n1\ngarbage\n")
    with pytest.raises(LogDirectoryError, match="Malformed file"):
        DirectoryTopics([str(root)]).delete(["t"])
    assert not (root / JOURNAL_FILE).exists()
    (root / name).write_text(kept)
    die_deleting(root, "_forget")
    (root / name).write_text("0\n1\ngarbage\n")
    assert connect(root).logs.repair(execute=True).clean_shutdown
    write(root, {OTHER: values(1)})
    assert read(root).keys() == {OTHER}


def test_configurations_of_a_topic_that_was_not_made_go_with_it(root: Path) -> None:
    def configs() -> dict[str, dict[str, str]]:
        return read_topic_configs(open_folder(str(root)))

    topics.alter_configs(str(root), "t", {"retention.ms": "5"})
    with mock.patch.object(topics.journal, "commit", side_effect=OSError("full")):
        with pytest.raises(LogDirectoryError):
            topics.create_topics(str(root), {"new": (2, {"retention.ms": "1"})})
        assert configs() == {"t": {"retention.ms": "5"}}
        with (
            mock.patch.object(topics.journal, "recover", side_effect=[None, Crash]),
            pytest.raises(Crash),
        ):
            topics.create_topics(str(root), {"new": (2, {"retention.ms": "1"})})
    write(root, {OTHER: values(1)})
    assert configs() == {"t": {"retention.ms": "5"}}
    topics.create_topics(str(root), {"new": (2, {"retention.ms": "1"})})
    assert configs() == {"t": {"retention.ms": "5"}, "new": {"retention.ms": "1"}}
