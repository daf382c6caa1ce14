"""The committed offsets of groups, and their lag."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.admin.consumer_groups import (
    GroupLag,
    GroupOffset,
    group_offsets,
    groups,
    lags,
    total_lag,
)
from pyspark_kafkalog.errors import GroupError, UnknownTopicOrPartitionError
from pyspark_kafkalog.model import CommittedOffset, Group, TopicPartition
from pyspark_kafkalog.options.settings import Selection
from tests.reading.fake_groups import FakeGroups
from tests.reading.fake_place import FakePlace

A0, A1, GONE = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("gone", 0)
PLACE = FakePlace({A0: (0, 10), A1: (5, 7)})


def some_groups() -> FakeGroups:
    return FakeGroups(
        {
            "late": {GONE: CommittedOffset(1), A0: CommittedOffset(4, 2, "note", 1000, 2000)},
            "cut": {A1: CommittedOffset(9), A0: CommittedOffset(10)},
        }
    )


def test_offsets_and_lag() -> None:
    assert group_offsets(PLACE, some_groups()) == [
        GroupOffset("cut", "a", 0, 10, None, "", None, None, 0, 10),
        GroupOffset("cut", "a", 1, 9, None, "", None, None, -2, 7),
        GroupOffset("late", "a", 0, 4, 2, "note", 1000, 2000, 6, 10),
        GroupOffset("late", "gone", 0, 1, None, "", None, None, None, None),
    ]


def test_lag_of_groups() -> None:
    found = lags(group_offsets(PLACE, some_groups()))
    assert found == [GroupLag("cut", 0, 0, 2, 0), GroupLag("late", 6, 6, 2, 1)]
    assert total_lag(found) == 6


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(topics=("gone",)), [GONE]),
        (Selection(pattern="^a"), [A0]),
        (Selection(partitions=(A1, GONE)), [GONE]),
        (Selection(), [A0, GONE]),
    ],
)
def test_a_selection_need_not_exist(selection: Selection, expected: list[TopicPartition]) -> None:
    rows = group_offsets(PLACE, some_groups(), ["late"], selection)
    assert [TopicPartition(row.topic, row.partition) for row in rows] == expected


@pytest.mark.parametrize(
    "selection", [Selection(topics=("a", "aa")), Selection(partitions=(TopicPartition("aa", 0),))]
)
def test_named_topics_must_exist_or_have_offsets(selection: Selection) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=r"No such topic: aa\. Did you mean a\?"):
        group_offsets(PLACE, some_groups(), None, selection)
    with pytest.raises(UnknownTopicOrPartitionError, match="No such topic: gone"):
        group_offsets(PLACE, some_groups(), ["cut"], Selection(topics=("gone",)))


def test_named_groups_must_exist() -> None:
    found = some_groups()
    found.offsets["silent"] = {}
    assert groups(found, ["silent"]) == [Group("silent", "Empty")]
    assert group_offsets(PLACE, found, ["silent"]) == []
    for ask in (lambda: groups(found, ["no"]), lambda: group_offsets(PLACE, found, ["no", "late"])):
        with pytest.raises(GroupError, match="No such consumer group: 'no'"):
            ask()


def test_progress_counts_groups() -> None:
    done: list[int] = []
    group_offsets(PLACE, some_groups(), progress=done.append)
    assert sum(done) == 2
