"""Changes of topics that were interrupted, and what brokers or damage have done to the directory since."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from pyspark_kafkalog import admin
from pyspark_kafkalog.errors import LogDirectoryError, TopicExistsError, UnknownTopicOrPartitionError
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.layout import CLEAN_SHUTDOWN_FILE, JOURNAL_FILE, OFFSET_CHECKPOINTS
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.log.write import deletion, topics
from pyspark_kafkalog.model import TopicPartition
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


def die_deleting(root: Path, at: str) -> None:
    with mock.patch.object(deletion, at, side_effect=Crash), pytest.raises(Crash):
        topics.delete_topics(str(root), ["t"])
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
    topics.delete_topics(str(root), ["t"])
    assert T0 not in read(root)


@pytest.mark.parametrize("at", ["carry_out", "_forget"])
def test_a_deletion_that_nothing_has_touched_is_finished(root: Path, at: str) -> None:
    die_deleting(root, at)
    if at == "_forget":  # which changes them itself
        (root / "replication-offset-checkpoint").write_text("0\n1\nt 1 3\n")
    write(root, {OTHER: values(1)})
    assert read(root).keys() == {OTHER}
    assert (root / "replication-offset-checkpoint").read_text() == "0\n0\n"


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
    topics.delete_topics(str(root), ["t"])
    assert (root / CLEAN_SHUTDOWN_FILE).exists()


@pytest.mark.parametrize("name", OFFSET_CHECKPOINTS)
def test_a_malformed_checkpoint_locks_nobody_out(root: Path, name: str) -> None:
    kept = (root / name).read_text() if (root / name).exists() else "0\n0\n"
    (root / name).write_text("0\n1\ngarbage\n")
    with pytest.raises(LogDirectoryError, match="Malformed file"):
        topics.delete_topics(str(root), ["t"])
    assert not (root / JOURNAL_FILE).exists()
    (root / name).write_text(kept)
    die_deleting(root, "_forget")
    (root / name).write_text("0\n1\ngarbage\n")
    assert admin.repair(str(root), execute=True).clean_shutdown
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
