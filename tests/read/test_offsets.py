"""Which partitions are read, and from where to where a batch reads them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from pyspark_kafkalog.errors import GroupError, OptionError, UnknownTopicOrPartitionError
from pyspark_kafkalog.model import (
    EARLIEST,
    LATEST,
    CommittedOffset,
    OffsetRange,
    Seen,
    TopicPartition,
    Watermarks,
)
from pyspark_kafkalog.options import times
from pyspark_kafkalog.options.settings import ReadOptions, Selection, read_options
from pyspark_kafkalog.options.user_options import log_once_for
from pyspark_kafkalog.read import partitions
from pyspark_kafkalog.read.offsets import initial_offsets, plan_batch, start_from_group
from pyspark_kafkalog.read.partitions import select_partitions
from pyspark_kafkalog.read.splits import Split
from tests.read.fake_groups import FakeGroups
from tests.read.fake_place import FakePlace

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
INTERNAL = TopicPartition("__consumer_offsets", 0)


@pytest.fixture(autouse=True)
def _times_of_a_fake_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records are of the first seconds of 1970."""
    monkeypatch.setattr(times, "_USUAL", (0, 7_258_118_400_000))


def batch(place: FakePlace, **options: str) -> list[tuple[TopicPartition, int, int]]:
    plan = plan_batch(place, read_options({"path": "/log", **options}, batch=True))
    return [(split.partition, *split.offsets) for split in plan]


def initial(place: FakePlace, **options: str) -> dict[TopicPartition, int]:
    return initial_offsets(place, read_options({"path": "/log", **options}, batch=False))


class TestSelection:
    TOPICS = FakePlace(dict.fromkeys([B0, A1, A0, INTERNAL], (0, 1))).topics()

    @pytest.mark.parametrize(
        ("options", "partitions"),
        [
            ({}, (A0, A1, B0)),
            ({"subscribe": "b"}, (B0,)),
            ({"subscribe": "b,a"}, (A0, A1, B0)),
            ({"subscribe": "__consumer_offsets"}, (INTERNAL,)),
            ({"subscribePattern": "^a"}, (A0, A1)),
            ({"subscribePattern": "."}, (A0, A1, B0)),
            ({"subscribePattern": "offsets"}, ()),
            ({"assign": '{"b":[0],"a":[1,9]}'}, (A1, B0)),
            ({"assign": '{"__consumer_offsets":[0]}'}, (INTERNAL,)),
        ],
    )
    def test_selected(self, options: dict[str, str], partitions: tuple[TopicPartition, ...]) -> None:
        selection = read_options({"path": "/log", **options}, batch=True).selection
        assert select_partitions(self.TOPICS, selection) == partitions

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (
                {"subscribePattern": "zzz"},
                "No topic matches subscribePattern 'zzz', so nothing is read."
                " There are 3 topics: __consumer_offsets, a, b.",
            ),
            (
                {"assign": '{"a":[0,7,9]}'},
                "No such partition: a-7, a-9. Topic a has 2 partitions, 0 to 1.",
            ),
            ({"subscribePattern": "a"}, None),
            ({"assign": '{"a":[1]}'}, None),
        ],
    )
    def test_what_is_selected_in_vain_is_said_once(
        self, options: dict[str, str], said: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Spark skips it, and so does this, but a query of nothing looks like one of an empty topic."""
        with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
            batch(FakePlace(dict.fromkeys([A0, A1, B0, INTERNAL], (0, 1))), **options)
        assert [record.getMessage() for record in caplog.records] == ([] if said is None else [said])

    @pytest.mark.parametrize(
        "selection", [Selection(topics=("a", "c")), Selection(partitions=(TopicPartition("c", 0),))]
    )
    def test_a_topic_that_is_named_must_exist_at_first(self, selection: Selection) -> None:
        with pytest.raises(UnknownTopicOrPartitionError, match=r"No such topic: c.*a, b"):
            select_partitions(self.TOPICS, selection)
        assert TopicPartition("c", 0) not in select_partitions(self.TOPICS, selection, must_exist=False)

    def test_of_many_topics_the_first_are_named(self) -> None:
        topics = {f"topic-{number:02}": (0,) for number in range(12)}
        with pytest.raises(UnknownTopicOrPartitionError, match=r"There are 12 topics, such as .*00, .*09\."):
            select_partitions(topics, Selection(topics=("a",)))

    def test_an_empty_place(self) -> None:
        assert select_partitions({}, Selection()) == ()
        with pytest.raises(UnknownTopicOrPartitionError, match="There are no topics"):
            select_partitions({}, Selection(topics=("a",)))


class TestBatch:
    def test_tasks_are_told_what_the_planner_saw(self) -> None:
        place = FakePlace({A0: (0, 9), A1: (0, 9)}, ids={"a": "X"}, epochs={A0: 6})
        ending = '{"a":{"0":5,"1":12}}'
        options = read_options({"path": "/log", "endingOffsets": ending}, batch=True)
        assert [split.seen for split in plan_batch(place, options)] == [Seen("X", 6, 9), Seen("X", -1, 9)]
        open_ended = read_options({"path": "/log"}, batch=True)
        assert [split.seen for split in plan_batch(place, open_ended)] == [
            Seen("X", 6, 9),
            Seen("X", -1, 9),
        ]

    def test_ends_stay_open_for_the_tasks_to_look_up(self) -> None:
        place = FakePlace({A0: (5, 10), A1: (0, 0)})
        assert batch(place) == [(A0, EARLIEST, LATEST), (A1, EARLIEST, LATEST)]

    def test_planned_ends_are_those_of_the_plan_and_so_are_the_starts(self) -> None:
        """So that a task that Spark runs again, unknowingly, reads what it read before, or fails."""
        place = FakePlace({A0: (5, 10), A1: (0, 0), B0: (0, 20, 8)})
        assert batch(place, endingOffsets="planned") == [(A0, 5, 10), (B0, 0, 20)]
        committed = {"kafka.isolation.level": "read_committed"}
        assert batch(place, endingOffsets="planned", **committed) == [(A0, 5, 10), (B0, 0, 8)]
        starting = '{"a":{"0":7,"1":-2},"b":{"0":8}}'
        assert batch(place, startingOffsets=starting, endingOffsets="planned") == [(A0, 7, 10), (B0, 8, 20)]

    def test_explicit_offsets(self) -> None:
        place = FakePlace({A0: (5, 10), A1: (0, 20)})
        options = {"startingOffsets": '{"a":{"0":7,"1":-2}}', "endingOffsets": '{"a":{"0":-1,"1":20}}'}
        assert batch(place, **options) == [(A0, 7, LATEST), (A1, EARLIEST, 20)]

    def test_offsets_that_are_gone_or_to_come_are_left_for_the_task_to_report(self) -> None:
        place = FakePlace({A0: (5, 10)})
        options = {"startingOffsets": '{"a":{"0":2}}', "endingOffsets": '{"a":{"0":12}}'}
        assert batch(place, **options) == [(A0, 2, 12)]

    def test_offsets_that_do_not_exist_are_not_cut(self) -> None:
        place = FakePlace({A0: (5, 11)})
        options = {"startingOffsets": '{"a":{"0":2}}', "endingOffsets": '{"a":{"0":9223372036854775807}}'}
        assert batch(place, maxRecordsPerPartition="3", **options) == [(A0, 2, 8), (A0, 8, 2**63 - 1)]
        gone = {"startingOffsets": '{"a":{"0":2}}', "endingOffsets": '{"a":{"0":4}}'}
        assert batch(place, maxRecordsPerPartition="3", **gone) == [(A0, 2, 4)]

    def test_ranges_that_can_never_hold_records_are_dropped(self) -> None:
        place = FakePlace({A0: (5, 10), A1: (0, 20)})
        assert batch(place, endingOffsets='{"a":{"0":5,"1":3}}') == [(A1, EARLIEST, 3)]
        assert batch(place, endingOffsets='{"a":{"0":4,"1":0}}') == []

    def test_max_records_splits_although_the_ends_stay_open(self) -> None:
        place = FakePlace({A0: (5, 15), A1: (0, 3), B0: (4, 4)})
        assert batch(place, maxRecordsPerPartition="4") == [
            (A0, EARLIEST, 8),
            (A0, 8, 11),
            (A0, 11, LATEST),
            (A1, EARLIEST, LATEST),
            (B0, EARLIEST, LATEST),
        ]

    def test_min_partitions_splits_although_the_ends_stay_open(self) -> None:
        place = FakePlace({A0: (0, 20), A1: (0, 0)})
        assert batch(place, minPartitions="2") == [
            (A0, EARLIEST, 10),
            (A0, 10, LATEST),
            (A1, EARLIEST, LATEST),
        ]

    def test_read_committed_ends_where_an_open_transaction_begins(self) -> None:
        place = FakePlace({A0: (0, 20, 8)})
        options = {"kafka.isolation.level": "read_committed", "maxRecordsPerPartition": "4"}
        assert batch(place, **options) == [(A0, EARLIEST, 4), (A0, 4, LATEST)]

    @pytest.mark.parametrize("side", ["startingOffsets", "endingOffsets"])
    @pytest.mark.parametrize(
        ("partitions", "hint"),
        [
            ('"0":1', r"Add a-1 with an offset, or -\d for its (beginning|end)\."),
            ('"0":1,"1":1,"2":1', r"Leave out a-2\."),
            ('"0":1,"2":1', r"Add a-1 with an offset, or -\d for its (beginning|end), and leave out a-2\."),
        ],
    )
    def test_every_partition_must_be_specified(self, side: str, partitions: str, hint: str) -> None:
        place = FakePlace({A0: (0, 9), A1: (0, 9)})
        says = f"KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED: {side}.*a-0.*a-1. {hint}$"
        with pytest.raises(OptionError, match=says):
            batch(place, **{side: f'{{"a":{{{partitions}}}}}'})

    def test_start_beyond_a_given_end(self) -> None:
        place = FakePlace({A0: (0, 9)})
        options = {"startingOffsets": '{"a":{"0":5}}', "endingTimestamp": "3000"}
        with pytest.raises(
            OptionError,
            match=r"RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.*5.*3.*a-0.*ends at 9: end at 5 or later",
        ):
            batch(place, **options)

    def test_start_beyond_latest(self) -> None:
        place = FakePlace({A0: (0, 9)})
        assert batch(place, startingOffsets='{"a":{"0":9}}') == [(A0, 9, LATEST)]
        said = r"RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.*The log ends at 9: start at 9 or before\.$"
        with pytest.raises(OptionError, match=said):
            batch(place, startingOffsets='{"a":{"0":10}}')

    def test_unknown_topic(self) -> None:
        with pytest.raises(UnknownTopicOrPartitionError):
            batch(FakePlace({A0: (0, 9)}), subscribe="b")

    def test_a_partition_that_goes_between_the_two_lookups_is_left_out(self) -> None:
        class Racing(FakePlace):
            def watermarks(self, *args: Any, **kwargs: Any) -> dict[TopicPartition, Watermarks]:
                self.bounds.pop(A1, None)
                return super().watermarks(*args, **kwargs)

        place = Racing({A0: (0, 9), A1: (0, 9)})
        assert batch(place, minPartitions="1") == [(A0, EARLIEST, LATEST)]

    def test_all_of_each_partition_is_planned_with_a_look_at_their_ends_alone(self) -> None:
        class Unasked(FakePlace):
            def watermarks(self, *args: Any, **kwargs: Any) -> dict[TopicPartition, Watermarks]:
                pytest.fail("it takes twice the requests")

            def end_offsets(self, *args: Any, **kwargs: Any) -> dict[TopicPartition, int]:
                return {A0: 9, A1: 3}

        assert batch(Unasked({A0: (0, 9), A1: (3, 3)})) == [(A0, EARLIEST, LATEST), (A1, EARLIEST, LATEST)]


class TestTimestamps:
    PLACE = FakePlace({A0: (0, 9), A1: (3, 20)})

    def test_global(self) -> None:
        options = {"startingTimestamp": "1500", "endingTimestamp": "8000"}
        assert batch(self.PLACE, **options) == [(A0, 2, 8), (A1, 3, 8)]

    def test_by_partition(self) -> None:
        options = {
            "startingOffsetsByTimestamp": '{"a":{"0":0,"1":5000}}',
            "endingOffsetsByTimestamp": '{"a":{"0":1,"1":19000}}',
        }
        assert batch(self.PLACE, **options) == [(A0, 0, 1), (A1, 5, 19)]

    def test_times_ago_count_back_from_one_instant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All partitions and both ends have the same now, and it is that of the plan, not of the options."""
        options = read_options(
            {
                "path": "/log",
                "startingTimestamp": "-6s",
                "endingOffsetsByTimestamp": '{"a":{"0":"2s","1":"-1s"}}',
            },
            batch=True,
        )
        clock = iter([9_000_000_000])
        monkeypatch.setattr(time, "time_ns", lambda: next(clock))
        assert [(s.partition, *s.offsets) for s in plan_batch(self.PLACE, options)] == [
            (A0, 3, 7),
            (A1, 3, 8),
        ]

    def test_start_by_timestamp_and_end_by_offset_and_the_other_way_round(self) -> None:
        assert batch(self.PLACE, startingTimestamp="4000") == [(A0, 4, LATEST), (A1, 4, LATEST)]
        assert batch(self.PLACE, endingTimestamp="4000") == [(A0, EARLIEST, 4), (A1, EARLIEST, 4)]
        options = {"startingTimestamp": "4000", "endingOffsets": '{"a":{"0":6,"1":-1}}'}
        assert batch(self.PLACE, **options) == [(A0, 4, 6), (A1, 4, LATEST)]

    def test_no_match_at_the_start(self) -> None:
        with pytest.raises(
            OptionError,
            match=r"or after 10000 \(1970-01-01T00:00:10.000Z\), as starting.*a-0.*Strategy=latest",
        ):
            batch(self.PLACE, startingTimestamp="10000")
        options = {"startingTimestamp": "10000", "startingOffsetsByTimestampStrategy": "latest"}
        assert batch(self.PLACE, **options) == [(A0, 9, LATEST), (A1, 10, LATEST)]

    def test_no_match_at_the_end_means_the_end_as_it_is_now(self) -> None:
        options = {"endingTimestamp": "10000", "startingOffsetsByTimestampStrategy": "error"}
        assert batch(self.PLACE, **options) == [(A0, EARLIEST, 9), (A1, EARLIEST, 10)]

    def test_read_committed_does_not_look_beyond_an_open_transaction(self) -> None:
        place = FakePlace({A0: (0, 9, 4)})
        committed = {"kafka.isolation.level": "read_committed"}
        assert batch(place, startingTimestamp="3000", **committed) == [(A0, 3, LATEST)]
        with pytest.raises(OptionError, match="No record has a timestamp"):
            batch(place, startingTimestamp="4000", **committed)

    def test_every_partition_must_be_specified(self) -> None:
        for side in ("starting", "ending"):
            name = f"{side}OffsetsByTimestamp"
            with pytest.raises(
                OptionError,
                match=f"TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED: {name}.*assigned a-0, a-1. Add a-1.$",
            ):
                batch(self.PLACE, **{name: '{"a":{"0":0}}'})


class TestInitialOffsets:
    PLACE = FakePlace({A0: (5, 10, 8), B0: (0, 0)})

    def test_nothing_is_left_to_look_up(self) -> None:
        assert initial(self.PLACE) == {A0: 10, B0: 0}
        assert initial(self.PLACE, startingOffsets="earliest") == {A0: 5, B0: 0}
        assert initial(self.PLACE, startingOffsets='{"a":{"0":-1},"b":{"0":-2}}') == {A0: 10, B0: 0}
        assert initial(self.PLACE, startingOffsets='{"a":{"0":7},"b":{"0":0}}') == {A0: 7, B0: 0}

    def test_read_committed(self) -> None:
        assert initial(self.PLACE, **{"kafka.isolation.level": "read_committed"}) == {A0: 8, B0: 0}

    def test_timestamps(self) -> None:
        options = {"startingTimestamp": "6000", "startingOffsetsByTimestampStrategy": "latest"}
        assert initial(self.PLACE, **options) == {A0: 6, B0: 0}

    def test_an_empty_pattern(self) -> None:
        assert initial(self.PLACE, subscribePattern="nothing") == {}

    def test_every_partition_must_be_specified(self) -> None:
        with pytest.raises(OptionError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
            initial(self.PLACE, startingOffsets='{"a":{"0":-1}}')


def test_splits_are_plain_values() -> None:
    assert Split(A0, OffsetRange(0, 1)) == Split(TopicPartition("a", 0), OffsetRange(0, 1))


def test_of_topics_that_are_named_no_others_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_LOOK_PAUSE", 0)
    requests: list[Collection[str] | None] = []

    class Asked(FakePlace):
        def topics(self, names: Collection[str] | None = None) -> Mapping[str, tuple[int, ...]]:
            requests.append(names)
            if len(requests) == late:
                self.bounds[B0] = (0, 1)
            return super().topics(names)

    late = 3  # brokers hear of a new topic one after another
    assert batch(Asked({A0: (0, 9)}), subscribe="a,b") == [(A0, EARLIEST, LATEST), (B0, EARLIEST, LATEST)]
    assert requests == [("a", "b")] * 3
    late = 0
    for options, names in (
        ({"subscribe": "a"}, [("a",)]),
        ({"assign": '{"a":[0]}'}, [("a",)]),
        ({"subscribePattern": "a"}, [None]),
        ({}, [None]),
    ):
        requests.clear()
        batch(Asked({A0: (0, 9)}), **options)
        assert requests == names
    requests.clear()
    with pytest.raises(UnknownTopicOrPartitionError, match="There is 1 topic: a"):
        batch(Asked({A0: (0, 9)}), subscribe="c")
    assert requests == [("c",)] * 3 + [None]


class TestStartFromGroup:
    PLACE = FakePlace({A0: (2, 10), A1: (0, 20)})

    def start(self, groups: FakeGroups, *, batch: bool, **options: str) -> ReadOptions:
        given = {"path": "/log", "startingOffsets": "committed", "kafka.group.id": "g", **options}
        return start_from_group(read_options(given, batch=batch), self.PLACE, groups)

    @pytest.mark.parametrize(
        ("batch", "strategy", "offset"),
        [
            (True, "auto", EARLIEST),
            (False, "auto", 20),
            (False, "earliest", EARLIEST),
            (True, "latest", 20),
        ],
    )
    def test_each_partition_starts_where_the_group_is(self, batch: bool, strategy: str, offset: int) -> None:
        groups = FakeGroups({"g": {A0: CommittedOffset(7)}, "other": {A1: CommittedOffset(9)}})
        options = self.start(groups, batch=batch, startingOffsetsByCommittedStrategy=strategy)
        assert options.starting.values == {A0: 7, A1: offset}
        assert groups.require_stable, "an open transaction may be about to move it"

    def test_commits_beyond_the_end_are_refused(self) -> None:
        with pytest.raises(GroupError, match="Group 'g' has committed offset 500, but the log ends at 10"):
            self.start(FakeGroups({"g": {A0: CommittedOffset(500)}}), batch=False)

    def test_none_committed_can_be_an_error(self) -> None:
        with pytest.raises(GroupError, match="Group 'g' has committed nothing for a-1") as raised:
            self.start(
                FakeGroups({"g": {A0: CommittedOffset(7)}}),
                batch=True,
                startingOffsetsByCommittedStrategy="error",
            )
        assert "earliest or latest" in str(raised.value)

    def test_a_group_without_any_commit_is_probably_misspelt(self) -> None:
        groups = FakeGroups({"other": {A0: CommittedOffset(7)}})
        for batch in True, False:
            with pytest.raises(GroupError, match="Group 'g' has committed nothing for a-0, a-1") as raised:
                self.start(groups, batch=batch)
            assert "Check its name. For a new group set startingOffsetsByCommittedStrategy" in str(
                raised.value
            )

    def test_a_new_group_starts_where_the_strategy_says(self, caplog: pytest.LogCaptureFixture) -> None:
        groups = FakeGroups({"other": {A0: CommittedOffset(7)}})
        for batch in True, False:
            found = self.start(groups, batch=batch, startingOffsetsByCommittedStrategy="latest")
            assert found.starting.values == {A0: 10, A1: 20}
            found = self.start(groups, batch=batch, startingOffsetsByCommittedStrategy="earliest")
            assert found.starting.values == {A0: EARLIEST, A1: EARLIEST}
        assert caplog.messages == []

    def test_a_partition_that_starts_at_its_end_is_told(self, caplog: pytest.LogCaptureFixture) -> None:
        log_once_for.cache_clear()
        self.start(FakeGroups({"g": {A0: CommittedOffset(7)}}), batch=True)
        self.start(FakeGroups({"g": {A0: CommittedOffset(7)}}), batch=False)
        (told,) = caplog.messages
        assert told.startswith("Consumer group 'g' has committed nothing for a-1: starting at latest there")

    def test_a_batch_reads_from_there_and_says_what_is_gone(self) -> None:
        groups = FakeGroups({"g": {A0: CommittedOffset(1), A1: CommittedOffset(15)}})
        splits = plan_batch(self.PLACE, self.start(groups, batch=True))
        assert [(split.partition, *split.offsets) for split in splits] == [(A0, 1, LATEST), (A1, 15, LATEST)]

    def test_other_starts_ask_no_group(self) -> None:
        options = read_options({"path": "/log", "kafka.group.id": "g"}, batch=True)
        assert start_from_group(options, self.PLACE, lambda: pytest.fail("asked")) is options
