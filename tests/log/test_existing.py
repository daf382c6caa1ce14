"""Writers find partitions by their names, and see all that a listing shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog.errors import UnknownTopicOrPartitionError
from pyspark_kafkalog.log.layout import JOURNAL_FILE, META_PROPERTIES_FILE
from pyspark_kafkalog.log.publish import existing
from pyspark_kafkalog.log.publish.existing import TopicPartitions, existing_partitions
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import TopicPartition
from tests.log.test_undo import publish_and_die
from tests.log.writing import T0, T1, read, values, write

T5 = TopicPartition("t", 5)


def folders(root: Path, *numbers: int) -> str:
    for number in numbers:
        (root / f"t-{number}").mkdir()
    (root / "other-0").mkdir()
    return str(root)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each listing of a directory by its topics."""
    found: list[str] = []
    really = LogDirectory.topics

    def topics(place: LogDirectory, names: object = None) -> object:
        found.append("listed")
        return really(place, names)  # type: ignore[arg-type]

    monkeypatch.setattr(LogDirectory, "topics", topics)
    return found


def test_partitions_that_follow_one_another(tmp_path: Path, listed: list[str]) -> None:
    root = folders(tmp_path, *range(12))
    assert TopicPartitions(root).of("t") == tuple(range(12))
    assert not listed
    assert TopicPartitions(root).of("another") == ()


@pytest.mark.parametrize("numbers", [(0, 1, 5), (3,), (0, 10), tuple(range(101))])
def test_a_topic_that_lacks_partitions_is_listed(
    tmp_path: Path, listed: list[str], numbers: tuple[int, ...]
) -> None:
    assert TopicPartitions(folders(tmp_path, *numbers)).of("t") == numbers
    assert listed


def test_a_brokers_directory_is_listed(tmp_path: Path, listed: list[str]) -> None:
    """It may have any of a topic's partitions."""
    root = folders(tmp_path, 0, 1, 700)
    (tmp_path / META_PROPERTIES_FILE).touch()
    assert TopicPartitions(root).of("t") == (0, 1, 700)
    assert listed


def test_one_listing_is_for_all_topics_that_follow(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first topic that is missing, or one of many."""
    monkeypatch.setattr(existing, "_MOST_TOPICS", 2)
    root = folders(tmp_path, 0, 1)
    known = TopicPartitions(root)
    assert [known.of(topic) for topic in ("new", "t", "newer", "other", "t")] == [
        (),
        (0, 1),
        (),
        (0,),
        (0, 1),
    ]
    assert len(listed) == 1
    (tmp_path / "further-0").mkdir()
    known = TopicPartitions(root)
    assert [known.of(topic) for topic in ("t", "other", "t")] == [(0, 1), (0,), (0, 1)]
    assert len(listed) == 1
    assert [known.of(topic) for topic in ("further", "new", "other")] == [(0,), (), (0,)]
    assert len(listed) == 2


def test_partitions_of_an_unfinished_publish_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {T0: values(3)})
    publish_and_die(tmp_path, monkeypatch)
    assert (tmp_path / JOURNAL_FILE).exists()
    assert (tmp_path / "new-0").is_dir()
    assert TopicPartitions(str(tmp_path)).of("new") == ()
    assert TopicPartitions(str(tmp_path)).of("t") == (0, 1)


def test_a_topic_that_is_made_meanwhile_is_listed(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer makes partition 1 after it was looked for, and is done before the last look."""
    root = folders(tmp_path, 0)
    really = existing._is_there

    def look(root: str, partition: TopicPartition) -> bool:
        found = really(root, partition)
        if partition == T1:
            (tmp_path / "t-1").mkdir(exist_ok=True)
        return found

    monkeypatch.setattr(existing, "_is_there", look)
    assert TopicPartitions(root).of("t") == (0, 1)
    assert listed


def test_a_topic_that_is_deleted_meanwhile_is_listed(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folders(tmp_path, 0, 1)
    really = existing._is_there

    def look(root: str, partition: TopicPartition) -> bool:
        found = really(root, partition)
        if partition == T1 and found:
            (tmp_path / "t-1").rmdir()
        return found

    monkeypatch.setattr(existing, "_is_there", look)
    assert TopicPartitions(root).of("t") == (0,)
    assert listed


def test_another_topic_whose_name_the_file_system_finds_is_listed(tmp_path: Path, listed: list[str]) -> None:
    """It hides what may be partitions of this one."""
    root = folders(tmp_path, 0, 1)
    (tmp_path / "T-0").mkdir()
    (tmp_path / "T-1").symlink_to(tmp_path / "t-1")
    assert TopicPartitions(root).of("T") == LogDirectory.open(root).topics()["T"]
    assert len(listed) == 2


def test_what_is_wanted_is_looked_for_and_all_are_listed_where_one_is_missing(tmp_path: Path) -> None:
    root = folders(tmp_path, 0, 1, 2)
    assert existing_partitions(root, {T0, T1}) == {"t": {0, 1}}
    assert existing_partitions(root, {T0, T5}) == {"t": {0, 1, 2}, "other": {0}}
    (tmp_path / str(T5)).touch()
    assert existing_partitions(root, {T5}) == {"t": {0, 1, 2}, "other": {0}}


def test_a_name_of_other_case_is_another_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a file system that finds a folder by both names."""
    root = folders(tmp_path, 0)
    (tmp_path / "T-0").symlink_to(tmp_path / "t-0")
    assert not existing._is_there(root, T0)
    assert not existing._is_there(root, TopicPartition("T", 0))


def test_a_missing_partition_is_refused_with_the_topics_number(tmp_path: Path) -> None:
    write(tmp_path, {T0: values(3)})
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' has 2"):
        write(tmp_path, {T0: values(3), T5: values(3)})
    assert read(tmp_path) == {T0: values(3), T1: []}
