"""Changes of topics that were interrupted, and what brokers or damage have done to the directory since."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from unittest import mock

import pytest

from pyspark_kafkalog.errors import (
    KafkaLogError,
    LogDirectoryError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.layout import (
    BACKUP_FILE,
    CLEAN_SHUTDOWN_FILE,
    OFFSET_CHECKPOINTS,
    TOPIC_CONFIGS_FILE,
)
from pyspark_kafkalog.log.publish import topics
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.log.topics import DirectoryTopics
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.log.test_undo import Crash, files
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
    with mock.patch.object(topics, at, side_effect=Crash), pytest.raises(Crash):
        DirectoryTopics([str(root)]).delete(["t"])


def shuts_down(root: Path) -> None:
    (root / CLEAN_SHUTDOWN_FILE).write_text("")


def test_a_topic_loses_its_highest_numbers_first(root: Path) -> None:
    """So what a kill leaves is a topic with fewer partitions, for readers and writers, and can be deleted."""
    topics.add_partitions(str(root), "t", 4)
    rename, left = os.rename, []

    def renamed(old: str, new: str) -> None:
        if len(left) == 2:
            raise Crash
        rename(old, new)
        left.append(LogDirectory.open(str(root)).topics()["t"])

    with mock.patch.object(os, "rename", renamed), pytest.raises(Crash):
        DirectoryTopics([str(root)]).delete(["t"])
    assert left == [(0, 1, 2), (0, 1)]
    write(root, {T0: values(1, start=3)})
    assert read(root) == {T0: values(4), T1: values(3), OTHER: values(3)}
    DirectoryTopics([str(root)]).delete(["t"])
    assert read(root) == {OTHER: values(3)}
    assert not [*root.glob("*-delete")]


@pytest.mark.parametrize("at", ["append_batch", "_set_aside", "_remove_deleted"])
def test_a_new_topic_inherits_nothing(root: Path, at: str) -> None:
    """Neither does a new partition of a topic that was deleted in part."""
    commit(root)
    shuts_down(root)
    (root / "log-start-offset-checkpoint").write_text("0\n2\nother 0 1\nt 1 3\n")
    topics.alter_configs(str(root), "t", {"retention.ms": "5"})
    if at == "_remove_deleted":
        with mock.patch.object(shutil, "rmtree"):
            DirectoryTopics([str(root)]).delete(["t"])
        assert len([*root.glob("t-*-delete")]) == 2
    else:
        die_deleting(root, at)
        assert not (root / CLEAN_SHUTDOWN_FILE).exists()
        DirectoryTopics([str(root)]).delete(["t"])
    topics.create_topics(str(root), {"new": (1, {})})
    assert not [*root.glob("*-delete")]
    write(root, {T0: values(2), T1: values(2)})
    found = read(root)
    assert [found[partition] for partition in (T0, T1, OTHER)] == [values(2), values(2), values(3)[1:]]
    assert committed(root) == [{OTHER}] * 3
    assert read_topic_configs(open_folder(str(root))) == {}


def test_topics_whose_names_begin_alike(root: Path) -> None:
    """Folders of deleted partitions have names of limited length."""
    long = ["x" * 248 + end for end in "ab"]
    for topic in long:
        write(root, {TopicPartition(topic, 0): values(1)}, num_partitions=1)
    DirectoryTopics([str(root)]).delete(long)
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["other-0", "t-0", "t-1"]


@pytest.mark.parametrize("name", [*OFFSET_CHECKPOINTS, BACKUP_FILE, TOPIC_CONFIGS_FILE])
def test_what_is_refused_changes_nothing(root: Path, name: str) -> None:
    commit(root)
    (root / name).write_text("garbage")
    before = files(root)
    with pytest.raises(LogDirectoryError, match=name):
        DirectoryTopics([str(root)]).delete(["t"])
    assert files(root) == before


def test_offsets_that_are_damaged_leave_the_topic(root: Path) -> None:
    commit(root)
    for log in root.glob("__consumer_offsets-*/*.log"):
        log.write_bytes(bytes(100) + log.read_bytes()[100:])
    with pytest.raises(KafkaLogError, match="__consumer_offsets"):
        DirectoryTopics([str(root)]).delete(["t"])
    assert LogDirectory.open(str(root)).topics()["t"] == (0, 1)


def test_offsets_in_a_topic_that_goes_too(root: Path) -> None:
    commit(root)
    DirectoryTopics([str(root)]).delete(["t", "__consumer_offsets"])
    assert read(root).keys() == {OTHER}


def test_what_is_only_validated_changes_nothing(root: Path) -> None:
    """It does not see a topic, either, whose creation was interrupted."""
    with (
        mock.patch.object(topics.journal, "commit", side_effect=Crash),
        mock.patch.object(topics.journal, "recover", side_effect=[None, Crash]),
        pytest.raises(Crash),
    ):
        topics.create_topics(str(root), {"new": (2, {})})
    for path in root.glob("*lock"):
        path.unlink()
    before = sorted(root.rglob("*"))
    topics.alter_configs(str(root), "other", {"retention.ms": "5"}, validate_only=True)
    topics.add_partitions(str(root), "other", 3, validate_only=True)
    topics.create_topics(str(root), {"new": (1, {})}, validate_only=True)
    with pytest.raises(UnknownTopicOrPartitionError):
        topics.add_partitions(str(root), "new", 3, validate_only=True)
    with pytest.raises(TopicExistsError):
        topics.create_topics(str(root), {"other": (1, {})}, validate_only=True)
    assert sorted(root.rglob("*")) == before


def test_a_clean_shutdown_stays_one(root: Path) -> None:
    shuts_down(root)
    DirectoryTopics([str(root)]).delete(["t"])
    assert (root / CLEAN_SHUTDOWN_FILE).exists()


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
