"""Topics of a directory that a kill at any step leaves: created or not, or deleted in part, from the end."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import UnknownTopicOrPartitionError
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.log.publish.topics import add_partitions, create_topics
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.topics import DirectoryTopics
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC
from tests.faults.steps import KILLED, Runner, changes, step_runner
from tests.faults.topic_changer import NEW
from tests.log.writing import T0, T1, read, values, write

U0, V0 = T0._replace(topic="u"), T0._replace(topic="v")


@pytest.fixture(scope="module")
def changer() -> Iterator[Runner]:
    with step_runner("tests.faults.topic_changer") as run:
        yield run


@pytest.fixture(autouse=True)
def nothing_is_flushed(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def make(root: Path) -> None:
    root.mkdir(parents=True)
    write(root, {T0: values(20), T1: values(3)})
    write(root, {U0: values(4)}, num_partitions=1)
    offsets = {T0: CommittedOffset(7), U0: CommittedOffset(1)}
    DirectoryGroups.open(str(root), num_partitions=1).commit("g", offsets)
    (root / "log-start-offset-checkpoint").write_text("0\n2\nt 0 5\nu 0 1\n")


def topics(root: Path) -> dict[str, int]:
    found = LogDirectory.open(str(root)).topics()
    return {topic: len(numbers) for topic, numbers in found.items() if topic != OFFSETS_TOPIC}


def committed(root: Path) -> set[TopicPartition]:
    return set(DirectoryGroups.open(str(root)).committed("g"))


@pytest.mark.slow
def test_a_deletion_leaves_what_can_be_deleted(changer, tmp_path):
    """And nothing that a topic of the same name would inherit."""
    seen: Counter[int] = Counter()

    def run(step: int) -> int:
        folder = tmp_path / str(step)
        root = folder / "log"
        make(root)
        code = changer(folder, step)
        if step == 0:
            (folder / "steps").rename(tmp_path / "steps")
        left = topics(root).get("t", 0)
        seen[left] += 1
        assert topics(root) == {"u": 1, **({"t": left} if left else {})}
        assert len(read(root)[U0]) == 3
        # Other writers go on, also to the partitions that are left, and add some.
        write(root, {V0: values(1)}, num_partitions=1)
        if left:
            end = len(read(root)[T0])
            write(root, {T0: values(2)})
            assert len(read(root)[T0]) == end + 2
        if left == 1:
            add_partitions(str(root), "t", 2)
            write(root, {T1: values(2)})
            assert len(read(root)[T1]) == 2
        if left:
            DirectoryTopics([str(root)]).delete(["t"])
        create_topics(str(root), {"t": (2, {})})
        names = {path.name for path in root.iterdir() if path.is_dir()}
        assert names == {"t-0", "t-1", "u-0", "v-0", f"{OFFSETS_TOPIC}-0"}
        assert not (root / ".kafkalog-publish").exists()
        assert (root / "log-start-offset-checkpoint").read_text() == "0\n1\nu 0 1\n"
        assert committed(root) == {U0}
        write(root, {T0: values(2)})
        assert len(read(root)[T0]) == 2
        shutil.rmtree(folder)
        return code

    assert run(0) == 0
    assert {run(number) for number in changes(tmp_path / "steps")} == {KILLED}
    assert set(seen) == {0, 1, 2}


@pytest.mark.slow
def test_a_creation_is_all_or_nothing(changer, tmp_path):
    seen: Counter[bool] = Counter()

    def run(step: int) -> int:
        folder = tmp_path / str(step)
        root = folder / "log"
        root.mkdir(parents=True)
        write(root, {U0: values(4)}, num_partitions=1)
        code = changer(folder, step)
        if step == 0:
            (folder / "steps").rename(tmp_path / "steps")
        found = topics(root)
        assert found in ({"u": 1}, {"u": 1, "fresh": 3, "other": 1})
        seen["fresh" in found] += 1
        if "fresh" not in found:
            create_topics(str(root), NEW)
        assert LogDirectory.open(str(root)).topic_config("fresh") == {"retention.ms": "7"}
        assert topics(root) == {"u": 1, "fresh": 3, "other": 1}
        with pytest.raises(UnknownTopicOrPartitionError):
            DirectoryTopics([str(root)]).delete(["fresh", "missing"])
        shutil.rmtree(folder)
        return code

    assert run(0) == 0
    assert {run(number) for number in changes(tmp_path / "steps")} == {KILLED}
    assert set(seen) == {True, False}
