"""The committed offsets of groups, and their lag."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import BrokerError, GroupError, UnknownTopicOrPartitionError
from pyspark_kafkalog.extensions.exactly_once.group_marker import MarkerDetails, marker_metadata
from pyspark_kafkalog.model import CommittedOffset, Group, TopicPartition
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.tools.groups.consumer_groups import (
    GroupLag,
    GroupOffset,
    delete_group,
    delete_offsets,
    group_offsets,
    groups,
    lags,
    total_lag,
)
from pyspark_kafkalog.tools.groups.prometheus import prometheus_text
from pyspark_kafkalog.tools.groups.reset import ResetTo, plan_import, plan_reset
from tests.read.fake_groups import FakeGroups
from tests.read.fake_place import FakePlace

BEYOND_NOTE = "beyond the end: kafkalog offsets reset"
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
        GroupOffset("cut", "a", 1, 9, None, "", None, None, -2, 7, None, "beyond", BEYOND_NOTE),
        GroupOffset("late", "a", 0, 4, 2, "note", 1000, 2000, 6, 10),
        GroupOffset("late", "gone", 0, 1, state="gone", note="the partition does not exist"),
    ]


def test_lag_of_groups() -> None:
    found = lags(group_offsets(PLACE, some_groups()))
    assert found == [
        GroupLag("cut", 0, 0, 2, 0, 1, 0, "beyond", f"1 {BEYOND_NOTE}"),
        GroupLag("late", 6, 6, 2, 1),
    ]
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
    assert group_offsets(PLACE, found, ["silent"]) == [
        GroupOffset("silent", None, None, None, state="none", note="nothing is committed")
    ]
    for ask in (lambda: groups(found, ["no"]), lambda: group_offsets(PLACE, found, ["no", "late"])):
        with pytest.raises(GroupError, match="No such consumer group: 'no'"):
            ask()


def lag_of(group: str, offsets: dict[TopicPartition, CommittedOffset], **more: bool) -> GroupLag:
    (found,) = lags(group_offsets(PLACE, FakeGroups({group: offsets}), [group], **more))
    return found


def test_a_commit_beyond_the_end_is_no_lag_of_0() -> None:
    lag = lag_of("g", {A0: CommittedOffset(500)})
    assert (lag.lag, lag.beyond, lag.state) == (0, 1, "beyond")
    assert lag.is_alarming(10**6, named=False)


def test_what_was_deleted_unread_is_no_lag_but_expired() -> None:
    """Offsets 0 to 4 of this partition are gone: no group can catch up with them."""
    lag = lag_of("g", {A1: CommittedOffset(1)})
    assert (lag.lag, lag.expired, lag.state) == (2, 4, "expired")
    assert not lag.is_alarming(2, named=True)
    assert lag.is_alarming(1, named=True)


def test_the_lag_of_a_committed_reader_ends_at_the_last_stable_offset() -> None:
    place = FakePlace({A0: (0, 10, 7), A1: (0, 10, 3)})
    groups = FakeGroups({"g": {A0: CommittedOffset(5), A1: CommittedOffset(4)}})
    assert [row.lag for row in group_offsets(place, groups)] == [5, 6]
    stable = group_offsets(place, groups, read_committed=True)
    assert [(row.lag, row.state) for row in stable] == [(2, "ok"), (0, "ok")]


def test_a_named_group_without_a_lag_fails_an_alarm() -> None:
    groups = FakeGroups({"silent": {}, "gone": {GONE: CommittedOffset(5)}, "late": {A0: CommittedOffset(5)}})
    found = {row.group: row for row in lags(group_offsets(PLACE, groups, ["silent", "gone", "late"]))}
    assert {group: (row.lag, row.state) for group, row in found.items()} == {
        "silent": (None, "none"),
        "gone": (None, "gone"),
        "late": (5, "ok"),
    }
    assert [group for group, row in found.items() if row.is_alarming(10, named=True)] == ["gone", "silent"]
    (row,) = lags(group_offsets(PLACE, groups, ["late"], Selection(topics=("a",))))
    assert not row.is_alarming(10, named=True)
    (row,) = lags(group_offsets(PLACE, groups, ["late"], Selection(partitions=(A1,))))
    assert row.note == "nothing is committed for these topics"
    assert row.is_alarming(10, named=True)


def test_one_groups_error_is_its_row_and_fails_an_alarm() -> None:
    trouble = GroupError("Reading the committed offsets of group late: COORDINATOR_NOT_AVAILABLE")
    groups = some_groups()
    groups.failures["late"] = trouble
    found = {row.group: row for row in lags(group_offsets(PLACE, groups))}
    assert (found["late"].lag, found["late"].state, found["late"].note) == (None, "failed", str(trouble))
    assert found["late"].is_alarming(10, named=False)
    assert found["cut"].partitions == 2
    with pytest.raises(GroupError, match="COORDINATOR_NOT_AVAILABLE"):
        group_offsets(PLACE, groups, ["late"])


def test_a_log_that_does_not_tell_its_end_is_its_row_and_fails_an_alarm() -> None:
    place = FakePlace({A0: (0, 10), A1: (0, 10)}, failures={A1: BrokerError("No leader", topic_partition=A1)})
    groups = FakeGroups({"g": {A0: CommittedOffset(4), A1: CommittedOffset(4), GONE: CommittedOffset(1)}})
    rows = group_offsets(place, groups)
    assert [(row.offset, row.lag, row.state, row.note) for row in rows] == [
        (4, 6, "ok", ""),
        (4, None, "unknown", "No leader"),
        (1, None, "gone", "the partition does not exist"),
    ]
    (group,) = lags(rows)
    assert (group.lag, group.state, group.note) == (6, "unknown", f"{A1}: No leader")
    assert group.is_alarming(10, named=False)
    assert total_lag([group]) is None


def test_groups_that_are_not_listed_have_a_row_and_fail_an_alarm() -> None:
    problem = BrokerError("Not listed")
    some = FakeGroups({"g": {A0: CommittedOffset(4)}}, unlisted=[problem, BrokerError("Nor these")])
    found = lags(group_offsets(PLACE, some))
    assert [(row.group, row.state, row.note) for row in found] == [
        ("", "failed", "Not listed; Nor these"),
        ("g", "ok", ""),
    ]
    assert found[0].is_alarming(10, named=False)
    assert [(row.group, row.note) for row in groups(some)] == [
        ("", "Not listed"),
        ("", "Nor these"),
        ("g", ""),
    ]
    (row,) = group_offsets(PLACE, some, ["g"])
    assert row.state == "ok", "who names a group asks for no list"
    text = prometheus_text(group_offsets(PLACE, some))
    assert 'kafkalog_consumergroup_trouble{consumergroup="",state="failed"} 1' in text


MARKED = {
    A0: CommittedOffset(
        7, metadata=marker_metadata(MarkerDetails("the-query", "c", "", 5, 7, 0, (0, 0, 0), ()))
    )
}


def test_a_marker_is_no_progress() -> None:
    place_groups = FakeGroups({"kafkalog-x": MARKED, "kafkalog-y": {A0: CommittedOffset(7)}})
    marker, other = lags(group_offsets(PLACE, place_groups))
    assert (marker.lag, marker.state, marker.note) == (None, "marker", "of query the-query")
    assert not marker.is_alarming(0, named=False)
    assert marker.is_alarming(0, named=True), "an alarm on it could never work"
    assert (other.lag, other.state) == (3, "ok")
    described = groups(place_groups)
    assert [(group.protocol_type, group.protocol) for group in described] == [
        ("marker", "the-query"),
        ("", ""),
    ]


def test_a_marker_is_never_moved() -> None:
    place_groups = FakeGroups({"kafkalog-x": MARKED})
    with pytest.raises(GroupError, match="marker of exactly-once query the-query"):
        plan_reset(PLACE, place_groups, "kafkalog-x", None, ResetTo.EARLIEST)
    with pytest.raises(GroupError, match="marker of exactly-once query the-query"):
        plan_import(PLACE, place_groups, {"kafkalog-x": {A0: CommittedOffset(1)}})


def test_a_marker_is_never_deleted() -> None:
    place_groups = FakeGroups({"kafkalog-x": MARKED, "kafkalog-other": {A0: CommittedOffset(1)}})
    with pytest.raises(GroupError, match=r"exactly-once query the-query\. If it were gone, rows"):
        delete_group(place_groups, "kafkalog-x")
    with pytest.raises(GroupError, match=r"exactly-once query the-query\. If it were gone, rows"):
        delete_offsets(place_groups, "kafkalog-x", [A0])
    assert place_groups.offsets["kafkalog-x"] == MARKED
    delete_offsets(place_groups, "kafkalog-other", [A0])
