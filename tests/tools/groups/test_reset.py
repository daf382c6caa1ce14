"""Where resets lead, by the rules of kafka-consumer-groups --reset-offsets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_kafkalog.errors import GroupError, OptionError, UnknownTopicOrPartitionError
from pyspark_kafkalog.model import CommittedOffset, Group, GroupMember, TopicPartition
from pyspark_kafkalog.tools.groups.reset import ResetStep, ResetTo, execute, plan_import, plan_reset
from tests.read.fake_groups import FakeGroups
from tests.read.fake_place import FakePlace

A0, A1, GONE = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("gone", 0)
PLACE = FakePlace({A0: (2, 10), A1: (5, 7)})


def some_groups() -> FakeGroups:
    return FakeGroups({"g": {A0: CommittedOffset(4), GONE: CommittedOffset(1)}})


@pytest.mark.parametrize(
    ("to", "value", "goal"),
    [
        (ResetTo.EARLIEST, 0, {A0: (2, ""), A1: (5, "")}),
        (ResetTo.LATEST, 0, {A0: (10, ""), A1: (7, "")}),
        (ResetTo.CURRENT, 0, {A0: (4, ""), A1: (7, "nothing is committed")}),
        (ResetTo.TIMESTAMP, 6000, {A0: (6, ""), A1: (6, "")}),
        (ResetTo.TIMESTAMP, 8500, {A0: (9, ""), A1: (7, "no record at or after this time")}),
        (ResetTo.OFFSET, 6, {A0: (6, ""), A1: (6, "")}),
        (ResetTo.OFFSET, 3, {A0: (3, ""), A1: (5, "the log starts after 3")}),
        (ResetTo.OFFSET, 99, {A0: (10, "the log ends before 99"), A1: (7, "the log ends before 99")}),
    ],
)
def test_named_partitions(to: ResetTo, value: int, goal: dict[TopicPartition, tuple[int, str]]) -> None:
    steps = plan_reset(PLACE, some_groups(), "g", [A1, A0], to, value)
    assert {TopicPartition(s.topic, s.partition): (s.offset, s.note) for s in steps} == goal
    assert [step.current for step in steps] == [4, None]


@pytest.mark.parametrize(
    ("shift", "offset", "note"), [(2, 6, ""), (-3, 2, "the log starts after 1"), (6, 10, "")]
)
def test_all_that_is_committed_is_shifted_where_it_exists(shift: int, offset: int, note: str) -> None:
    steps = plan_reset(PLACE, some_groups(), "g", None, ResetTo.SHIFT, shift)
    assert steps == [ResetStep("g", "a", 0, 4, offset, note)]


def test_nothing_is_shifted_from_nothing() -> None:
    with pytest.raises(GroupError, match=r"no committed offset to shift from .*a-1"):
        plan_reset(PLACE, some_groups(), "g", [A0, A1], ResetTo.SHIFT, 1)


def test_partitions_that_are_named_must_exist() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="gone-0"):
        plan_reset(PLACE, some_groups(), "g", [A0, GONE], ResetTo.EARLIEST)


def test_a_plan_changes_nothing_before_it_is_executed() -> None:
    groups = some_groups()
    steps = plan_reset(PLACE, groups, "g", [A0, A1], ResetTo.EARLIEST)
    steps += plan_reset(PLACE, groups, "new", [A1], ResetTo.LATEST)
    assert groups == some_groups()
    execute(groups, steps)
    assert groups.committed("g") == {A0: CommittedOffset(2), A1: CommittedOffset(5), GONE: CommittedOffset(1)}
    assert groups.committed("new") == {A1: CommittedOffset(7)}


class Busy(FakeGroups):
    def describe(self, groups):
        return {group: Group(group, "Stable", members=(GroupMember("m", "c", "h"),)) for group in groups}


def test_an_active_group_is_left_alone() -> None:
    groups = Busy(some_groups().offsets)
    with pytest.raises(GroupError, match=r"'g' can be changed only while it is inactive, but it is Stable"):
        plan_reset(PLACE, groups, "g", [A0], ResetTo.EARLIEST)
    with pytest.raises(GroupError, match="inactive"):
        plan_import(PLACE, groups, {"g": {A0: CommittedOffset(3)}})
    with pytest.raises(OptionError, match="empty"):
        plan_reset(PLACE, groups, "", [A0], ResetTo.EARLIEST)


def test_an_import_keeps_what_was_committed_with_the_offset() -> None:
    wanted = {"h": {A0: CommittedOffset(3, 7, "x"), A1: CommittedOffset(99, 7, "y")}}
    place = replace(PLACE, ended={A0: (7, 5), A1: (7, 7)})
    steps = plan_import(place, some_groups(), wanted)
    assert steps == [
        ResetStep("h", "a", 0, None, 3, "", 7, "x"),
        ResetStep("h", "a", 1, None, 7, "the log ends before 99", -1, "y"),
    ]
    for ended in ({}, {A0: (-1, -1)}, {A0: (6, 5)}, {A0: (7, 2)}):
        of_another_log = plan_import(replace(PLACE, ended=ended), some_groups(), wanted)[0]
        assert (of_another_log.offset, of_another_log.leader_epoch) == (3, -1), ended
    with pytest.raises(UnknownTopicOrPartitionError):
        plan_import(PLACE, some_groups(), {"h": {GONE: CommittedOffset(0)}})


def test_a_goal_may_be_a_word() -> None:
    assert plan_reset(PLACE, some_groups(), "g", [A0], "earliest") == plan_reset(  # type: ignore[arg-type]
        PLACE, some_groups(), "g", [A0], ResetTo.EARLIEST
    )
    with pytest.raises(OptionError, match="Expected one of earliest"):
        plan_reset(PLACE, some_groups(), "g", [A0], "begin", 7)  # type: ignore[arg-type]
