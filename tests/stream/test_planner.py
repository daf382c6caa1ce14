"""What each micro-batch holds: limits, waiting, AvailableNow, new and lost partitions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.model import Seen, TopicPartition, Watermarks
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.read.offsets import plan_batch
from pyspark_kafkalog.stream.planner import StreamPlanner
from tests.read.fake_groups import FakeGroups
from tests.read.fake_place import FakePlace

A0, A1, A2, B0 = (
    TopicPartition("a", 0),
    TopicPartition("a", 1),
    TopicPartition("a", 2),
    TopicPartition("b", 0),
)
ZERO = {A0: 0, A1: 0, A2: 0}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def planner(place: FakePlace, clock: Clock | None = None, **options: str) -> StreamPlanner:
    return StreamPlanner(
        place,
        read_options({"path": "/log", **options}, batch=False),
        groups=FakeGroups(),
        clock=clock or Clock(),
    )


def plan(
    stream: StreamPlanner, start: dict[TopicPartition, int], end: dict[TopicPartition, int]
) -> list[tuple]:
    return [(split.partition, *split.offsets) for split in stream.plan(start, end)]


class TestMaxOffsets:
    def test_shares_are_in_proportion_and_none_starves(self) -> None:
        """Backlogs 101, 11 and 1 at limit 10, as in Spark's own test."""
        stream = planner(FakePlace({A0: (0, 101), A1: (0, 11), A2: (0, 1)}), maxOffsetsPerTrigger="10")
        first = stream.next_offsets(ZERO)
        assert first == {A0: 8, A1: 1, A2: 1}
        assert stream.latest == {A0: 101, A1: 11, A2: 1}
        assert stream.next_offsets(first) == {A0: 17, A1: 2, A2: 1}

    def test_what_rounding_leaves_of_the_limit_is_shared_out(self) -> None:
        """So a backlog of twice the limit is two micro-batches, and none for a few records."""
        place = FakePlace({A0: (0, 501), A1: (0, 600), A2: (0, 899)})
        stream = planner(place, maxOffsetsPerTrigger="1000")
        first = stream.next_offsets({A0: 0, A1: 0, A2: 0})
        assert first == {A0: 251, A1: 300, A2: 449}
        assert stream.next_offsets(first) == {A0: 501, A1: 600, A2: 899}

    def test_the_largest_long_is_no_limit(self) -> None:
        """SPARK-26718: the sum of start and share must not overflow."""
        place = FakePlace({A0: (0, 101), A1: (0, 2**62)})
        stream = planner(place, maxOffsetsPerTrigger=str(2**63 - 1))
        assert stream.next_offsets({A0: 100, A1: 2**62 - 1}) == {A0: 101, A1: 2**62}

    def test_nothing_new(self) -> None:
        stream = planner(FakePlace({A0: (0, 5)}), maxOffsetsPerTrigger="10")
        assert stream.next_offsets({A0: 5}) == {A0: 5}

    def test_once_takes_all(self) -> None:
        options = {"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "1", "maxBytesPerTrigger": "1"}
        stream = planner(FakePlace({A0: (0, 101)}), **options)
        assert stream.next_offsets({A0: 0}, all_available=True) == {A0: 101}

    def test_new_partitions_count_from_their_log_start(self) -> None:
        stream = planner(
            FakePlace({A0: (0, 100), A1: (50, 150)}), maxOffsetsPerTrigger="10", failOnDataLoss="false"
        )
        assert stream.next_offsets({A0: 0}) == {A0: 5, A1: 55}

    @given(
        backlogs=st.lists(st.integers(0, 10**6), min_size=1, max_size=8),
        limit=st.integers(1, 10**6),
    )
    def test_all_is_read_and_no_batch_is_much_above_the_limit(self, backlogs: list[int], limit: int) -> None:
        limit = max(limit, sum(backlogs) // 50)
        partitions = [TopicPartition("a", number) for number in range(len(backlogs))]
        place = FakePlace({partition: (0, end) for partition, end in zip(partitions, backlogs, strict=True)})
        stream = planner(place, maxOffsetsPerTrigger=str(limit))
        offsets = dict.fromkeys(partitions, 0)
        while offsets != stream.latest:
            after = stream.next_offsets(offsets)
            grown = [after[partition] - offsets[partition] for partition in partitions]
            assert all(growth >= 0 for growth in grown)
            assert 0 < sum(grown) <= limit + len(partitions) or offsets == stream.latest
            offsets = after


class TestMaxBytes:
    def test_bytes_are_shared_by_unread_offsets(self) -> None:
        place = FakePlace({A0: (0, 300), A1: (0, 100)}, bytes_per_record={A0: 10, A1: 1000})
        stream = planner(place, maxBytesPerTrigger="4000")
        assert stream.next_offsets({A0: 0, A1: 0}) == {A0: 300, A1: 1}

    def test_at_least_one_record_batch_of_each(self) -> None:
        place = FakePlace({A0: (0, 30), A1: (0, 3)}, bytes_per_record={A0: 10, A1: 10}, records_per_batch=5)
        stream = planner(place, maxBytesPerTrigger="1")
        assert stream.next_offsets({A0: 0, A1: 0}) == {A0: 5, A1: 3}

    def test_the_lower_of_two_limits_counts(self) -> None:
        place = FakePlace({A0: (0, 30)}, bytes_per_record={A0: 10})
        assert planner(place, maxBytesPerTrigger="100", maxOffsetsPerTrigger="7").next_offsets({A0: 0}) == {
            A0: 7
        }
        assert planner(place, maxBytesPerTrigger="50", maxOffsetsPerTrigger="7").next_offsets({A0: 0}) == {
            A0: 5
        }


class TestMinOffsets:
    OPTIONS = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"}  # noqa: RUF012

    def test_the_first_trigger_runs_and_the_next_waits_for_enough(self) -> None:
        clock, place = Clock(), FakePlace({A0: (0, 3)})
        stream = planner(place, clock, **self.OPTIONS)
        assert stream.next_offsets({A0: 0}) == {A0: 3}
        place.bounds[A0] = (0, 12)
        clock.now += 59
        assert stream.next_offsets({A0: 3}) == {A0: 3}
        assert stream.latest == {A0: 12}
        place.bounds[A0] = (0, 13)
        assert stream.next_offsets({A0: 3}) == {A0: 13}

    def test_the_delay_ends_the_wait(self) -> None:
        clock, place = Clock(), FakePlace({A0: (0, 3)})
        stream = planner(place, clock, **self.OPTIONS)
        stream.next_offsets({A0: 0})
        place.bounds[A0] = (0, 4)
        clock.now += 60
        assert stream.next_offsets({A0: 3}) == {A0: 4}
        place.bounds[A0] = (0, 5)
        assert stream.next_offsets({A0: 4}) == {A0: 4}, "the clock starts again"

    def test_triggers_without_records_do_not_start_the_clock(self) -> None:
        clock, place = Clock(), FakePlace({A0: (0, 0)})
        stream = planner(place, clock, **self.OPTIONS)
        assert stream.next_offsets({A0: 0}) == {A0: 0}
        place.bounds[A0] = (0, 1)
        assert stream.next_offsets({A0: 0}) == {A0: 1}

    def test_with_a_maximum(self) -> None:
        clock, place = Clock(), FakePlace({A0: (0, 100)})
        stream = planner(place, clock, maxOffsetsPerTrigger="20", **self.OPTIONS)
        assert stream.next_offsets({A0: 0}) == {A0: 20}
        assert stream.next_offsets({A0: 20}) == {A0: 40}
        assert stream.next_offsets({A0: 95}) == {A0: 95}

    def test_available_now_leaves_no_remainder(self) -> None:
        stream = planner(FakePlace({A0: (0, 45)}), maxOffsetsPerTrigger="20", **self.OPTIONS)
        stream.prepare_for_available_now()
        ends = [0]
        while (end := stream.next_offsets({A0: ends[-1]})[A0]) != ends[-1]:
            ends.append(end)
        assert ends == [0, 20, 40, 45]


class TestAvailableNow:
    def test_later_records_and_partitions_are_left_for_the_next_run(self) -> None:
        place = FakePlace({A0: (0, 15)})
        stream = planner(place, maxOffsetsPerTrigger="5")
        stream.prepare_for_available_now()
        offsets = {A0: 0}
        ends = []
        while (end := stream.next_offsets(offsets)) != offsets:
            place.bounds = {A0: (0, place.bounds[A0][1] + 10), A1: (0, 10)}
            assert plan(stream, offsets, end) == [(A0, offsets[A0], end[A0])]
            offsets = end
            ends.append(end[A0])
        assert ends == [5, 10, 15]

    @pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
    def test_lost_partitions_and_shrunken_ends_always_fail(self, fail_on_data_loss: str) -> None:
        place = FakePlace({A0: (0, 15), A1: (0, 15)})
        stream = planner(place, failOnDataLoss=fail_on_data_loss)
        stream.prepare_for_available_now()
        end = stream.next_offsets({A0: 0, A1: 0})
        place.bounds = {A0: (0, 15), A1: (0, 14)}
        with pytest.raises(
            DataLossError, match=r"END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST.*15.*14.*a-1"
        ):
            stream.plan({A0: 0, A1: 0}, end)
        del place.bounds[A1]
        with pytest.raises(DataLossError, match=r"LOST_TOPIC_PARTITIONS_IN_END_OFFSET.*a-1"):
            stream.plan({A0: 0, A1: 0}, end)

    def test_the_first_batch_replayed_after_partitions_were_added(self) -> None:
        """Spark then asks for the initial offsets again, which have the partitions that the batch lacks."""
        stream = planner(FakePlace({A0: (0, 7), A1: (0, 5)}), startingOffsets="earliest")
        stream.prepare_for_available_now()
        assert plan(stream, stream.initial_offsets(), {A0: 7}) == [(A0, 0, 7)]
        assert plan(stream, {A0: 7}, stream.next_offsets({A0: 7})) == [(A1, 0, 5)]

    def test_a_batch_replayed_after_partitions_were_added_does_not_loop(self) -> None:
        """SPARK-53560: the replay is planned before the ends are frozen."""
        stream = planner(FakePlace({A0: (0, 15), A1: (0, 15)}))
        stream.prepare_for_available_now()
        assert plan(stream, {A0: 0}, {A0: 5}) == [(A0, 0, 5)]
        assert stream.next_offsets({A0: 5}) == {A0: 15, A1: 15}
        assert plan(stream, {A0: 5}, {A0: 15, A1: 15}) == [(A0, 5, 15), (A1, 0, 15)]
        assert stream.next_offsets({A0: 15, A1: 15}) == {A0: 15, A1: 15}


class TestPartitionsThatComeAndGo:
    def test_new_partitions_are_read_from_earliest(self) -> None:
        place = FakePlace({A0: (0, 5)})
        stream = planner(place, startingOffsets="latest")
        start = stream.initial_offsets()
        place.bounds |= {A1: (0, 3), B0: (0, 0)}
        end = stream.next_offsets(start)
        assert end == {A0: 5, A1: 3, B0: 0}
        assert plan(stream, start, end) == [(A1, 0, 3)]

    @pytest.mark.parametrize(
        ("bounds", "end", "ranges", "error"),
        [
            ({A0: (0, 9)}, {A0: 9}, [(A0, 5, 9)], "PARTITIONS_DELETED: a-1"),
            ({A0: (0, 9), A1: (0, 2)}, {A0: 9, A1: 2}, [(A0, 5, 9)], "PARTITION_OFFSET_CHANGED.*5 to 2.*a-1"),
            (
                {A0: (0, 9), A1: (0, 5), B0: (2, 4)},
                {A0: 9, A1: 5, B0: 4},
                [(A0, 5, 9), (B0, 2, 4)],
                "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO.*2.*b-0",
            ),
        ],
    )
    def test_data_loss(
        self,
        caplog: pytest.LogCaptureFixture,
        bounds: dict[TopicPartition, tuple[int, ...]],
        end: dict[TopicPartition, int],
        ranges: list[tuple],
        error: str,
    ) -> None:
        start = {A0: 5, A1: 5}
        strict, lax = planner(FakePlace(bounds)), planner(FakePlace(bounds), failOnDataLoss="false")
        with pytest.raises(DataLossError, match=error):
            strict.next_offsets(start)
        with pytest.raises(DataLossError, match=error):
            strict.plan(start, end)
        assert lax.next_offsets(start) == end
        with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
            assert plan(lax, start, end) == ranges
        assert error.split(":")[0].split(".")[0] in caplog.text

    def test_a_partition_that_was_added_and_is_gone_again(self, caplog: pytest.LogCaptureFixture) -> None:
        end = {A0: 9, A1: 4}
        with pytest.raises(DataLossError, match=r"INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS.*a-1"):
            planner(FakePlace({A0: (0, 9)})).plan({A0: 5}, end)
        assert plan(planner(FakePlace({A0: (0, 9)}), failOnDataLoss="false"), {A0: 5}, end) == [(A0, 5, 9)]
        assert "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS" in caplog.text

    def test_a_subscribed_topic_that_goes_is_data_loss_and_no_unknown_topic(self) -> None:
        stream = planner(FakePlace({A0: (0, 9)}), subscribe="a,b", failOnDataLoss="false")
        assert stream.next_offsets({A0: 5, B0: 5}) == {A0: 9}
        assert stream.next_offsets({A0: 9}) == {A0: 9}

    def test_a_place_with_no_partitions_at_all_forgets_nothing(self) -> None:
        """SPARK-41375: empty offsets are not logged."""
        assert planner(FakePlace({}), subscribePattern="a").next_offsets({A0: 5}) == {A0: 5}

    def test_a_topic_that_is_excluded_later(self) -> None:
        stream = planner(FakePlace({A0: (0, 9), B0: (0, 9)}), **{"topics.exclude": "b"})
        assert stream.next_offsets({A0: 5}) == {A0: 9}
        with pytest.raises(DataLossError, match=r"offsets of b-0, to which this query does not subscribe"):
            stream.next_offsets({A0: 5, B0: 5})


class TestEndsThatGoBack:
    """A leader that was paused and deposed reports where the log ended before."""

    AN_ID = "AAAAAAAAAAAAAAAAAAAAAA"

    class Deposed(FakePlace):
        """Reports the last end but one for so many lookups, or until it is told what to expect."""

        def watermarks(
            self, partitions: Collection[TopicPartition], *, read_committed: bool
        ) -> dict[TopicPartition, Watermarks]:
            true = super().watermarks(partitions, read_committed=read_committed)
            seen = self.expected.get(A0, Seen())
            return true if seen.end or A0 not in true else {**true, A0: Watermarks(0, 50, 50)}

    @pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
    def test_on_one_brokers_word_they_do_not(self, fail_on_data_loss: str) -> None:
        place = self.Deposed({A0: (0, 120), A1: (0, 9)}, ids={"a": self.AN_ID})
        stream = planner(place, failOnDataLoss=fail_on_data_loss)
        assert stream.next_offsets({A0: 100, A1: 5}) == {A0: 120, A1: 9}
        assert place.expected[A0] == Seen(self.AN_ID, -1, 100)

    def test_where_all_say_so_it_is_data_loss(self) -> None:
        stream = planner(FakePlace({A0: (0, 50), A1: (0, 9)}, ids={"a": self.AN_ID}))
        with pytest.raises(DataLossError, match=r"PARTITION_OFFSET_CHANGED.*100 to 50.*a-0"):
            stream.next_offsets({A0: 100, A1: 5})

    def test_and_without_fail_on_data_loss_the_stream_stands_there(self) -> None:
        place = FakePlace({A0: (0, 50), A1: (0, 9)}, ids={"a": self.AN_ID})
        stream = self.after_a_run(place)
        assert stream.next_offsets({A0: 100, A1: 5}) == {A0: 100, A1: 9}
        assert plan(stream, {A0: 100, A1: 5}, {A0: 100, A1: 9}) == [(A1, 5, 9)]
        place.expected.clear()
        assert stream.next_offsets({A0: 100, A1: 9}) == {A0: 100, A1: 9}
        assert place.expected == {}, "the place has waited once"
        place.bounds[A0] = (0, 101)
        assert stream.next_offsets({A0: 100, A1: 9}) == {A0: 101, A1: 9}

    def test_nor_does_it_go_back_behind_what_this_run_has_planned(self) -> None:
        place = FakePlace({A0: (0, 100)}, ids={"a": self.AN_ID})
        stream = planner(place, failOnDataLoss="false")
        stream.plan({A0: 90}, stream.next_offsets({A0: 90}))
        assert stream.next_offsets({A0: 100}) == {A0: 100}
        place.bounds[A0] = (0, 50)
        assert stream.next_offsets({A0: 100}) == {A0: 100}

    def test_without_an_id_of_an_earlier_run_it_may_be_another_topic_whose_records_are_read(self) -> None:
        place = FakePlace({A0: (0, 50)}, ids={"a": self.AN_ID})
        stream = planner(place, failOnDataLoss="false")
        assert plan(stream, {A0: 90}, {A0: 100}) == [(A0, 90, 100)], "a replay"
        assert stream.next_offsets({A0: 100}) == {A0: 50}
        assert plan(stream, {A0: 100}, {A0: 50}) == []
        place.bounds[A0] = (0, 101)
        assert stream.next_offsets({A0: 50}) == {A0: 101}

    def after_a_run(self, place: FakePlace) -> StreamPlanner:
        """A planner that knows from an earlier run of which topic the offsets are."""
        options = read_options({"path": "/log", "failOnDataLoss": "false"}, batch=False)
        return StreamPlanner(place, options, topic_ids={"a": self.AN_ID}, groups=FakeGroups(), clock=Clock())

    def test_a_start_that_the_user_gave_was_never_seen(self) -> None:
        place = FakePlace({A0: (0, 50)}, ids={"a": self.AN_ID})
        stream = planner(place, startingOffsets='{"a":{"0":100}}')
        with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
            stream.next_offsets(stream.initial_offsets())
        assert place.expected[A0].end == 0

    def test_available_now_keeps_what_it_froze(self) -> None:
        place = self.Deposed({A0: (0, 120)}, ids={"a": self.AN_ID}, expected={A0: Seen(end=1)})
        stream = planner(place)
        stream.prepare_for_available_now()
        assert stream.next_offsets({A0: 100}) == {A0: 120}
        place.expected.clear()
        assert plan(stream, {A0: 100}, {A0: 120}) == [(A0, 100, 120)]
        assert place.expected[A0].end == 120

    def test_available_now_does_not_die_of_what_was_lost_before(self) -> None:
        place = FakePlace({A0: (0, 50), A1: (0, 9)}, ids={"a": self.AN_ID})
        stream = self.after_a_run(place)
        stream.prepare_for_available_now()
        end = stream.next_offsets({A0: 100, A1: 5})
        assert plan(stream, {A0: 100, A1: 5}, end) == [(A1, 5, 9)]

    def test_tasks_are_told_what_the_planner_saw(self) -> None:
        place = FakePlace({A0: (0, 9), A1: (0, 9)}, ids={"a": self.AN_ID}, epochs={A0: 6})
        stream = planner(place, minPartitions="4")
        end = stream.next_offsets({A0: 5, A1: 5})
        seen = {split.partition: split.seen for split in stream.plan({A0: 5, A1: 5}, end)}
        assert seen == {A0: Seen(self.AN_ID, 6, 9), A1: Seen(self.AN_ID, -1, 9)}

    def test_what_an_earlier_run_has_read_is_expected_to_be_there(self) -> None:
        place = FakePlace({A0: (0, 9)}, ids={"a": self.AN_ID})
        options = read_options({"path": "/log"}, batch=False)
        stream = StreamPlanner(
            place, options, topic_ids={"a": self.AN_ID}, groups=FakeGroups(), clock=Clock()
        )
        stream.next_offsets({A0: 5})
        assert place.expected == {A0: Seen(self.AN_ID)}


class TestTopicsMadeAnew:
    OLD, NEW = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"

    def recreated(self, end: int = 7, **options: str) -> tuple[StreamPlanner, FakePlace]:
        """A planner that has seen the old topic ``a`` read up to 5, and a place with the new one."""
        place = FakePlace({A0: (0, 5), B0: (0, 1)}, ids={"a": self.OLD, "b": self.OLD})
        stream = planner(place, **options)
        assert stream.next_offsets({A0: 5, B0: 1}) == {A0: 5, B0: 1}
        place.bounds = {A0: (0, end), B0: (0, 2)}
        place.ids["a"] = self.NEW
        return stream, place

    @pytest.mark.parametrize("end", [3, 5, 7])
    def test_they_are_data_loss_longer_or_shorter(self, end: int) -> None:
        stream, _ = self.recreated(end)
        for ask in (stream.next_offsets, lambda start: stream.plan(start, {A0: end, B0: 2})):
            with pytest.raises(DataLossError, match=r"topic a is not the one that was read.*another cluster"):
                ask({A0: 5, B0: 1})

    @pytest.mark.parametrize("end", [3, 7])
    def test_or_they_are_read_from_their_start(self, end: int, caplog: pytest.LogCaptureFixture) -> None:
        stream, place = self.recreated(end, failOnDataLoss="false")
        start = {A0: 5, B0: 1}
        first = stream.next_offsets(start)
        assert first == {A0: end, B0: 2}
        with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
            assert plan(stream, start, first) == [(A0, 0, end), (B0, 1, 2)]
        assert "TOPIC_RECREATED" in caplog.text
        caplog.clear()
        place.bounds[A0] = (0, 9)
        second = stream.next_offsets(first)
        assert plan(stream, first, second) == [(A0, end, 9)]
        assert not caplog.text

    def test_limits_count_from_their_start(self) -> None:
        stream, _ = self.recreated(failOnDataLoss="false", maxOffsetsPerTrigger="4")
        start = {A0: 5, B0: 1}
        end = stream.next_offsets(start)
        assert end == {A0: 3, B0: 2}
        assert plan(stream, start, end) == [(A0, 0, 3), (B0, 1, 2)]
        assert stream.next_offsets(end) == {A0: 7, B0: 2}

    @pytest.mark.parametrize("count", [1, 5])
    def test_one_with_just_as_many_records_is_read_although_the_offsets_are_the_same(
        self, count: int
    ) -> None:
        place = FakePlace({A0: (0, count), B0: (0, 1)}, ids={"a": self.OLD, "b": self.OLD})
        stream = planner(place, failOnDataLoss="false")
        start = {A0: count, B0: 1}
        assert stream.next_offsets(start) == start
        place.ids["a"] = self.NEW
        read = []
        offsets = start
        for _ in range(2):
            end = stream.next_offsets(offsets)
            assert end != offsets, "Spark would make no micro-batch"
            for partition, first, last in plan(stream, offsets, end):
                read += [(partition, offset) for offset in range(first, last)]
            offsets = end
        assert read == [(A0, offset) for offset in range(count)]
        assert stream.next_offsets(offsets) == offsets == start

    @pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
    @pytest.mark.parametrize("end", [3, 7])
    @pytest.mark.parametrize("max_age", [0, 1])
    def test_ends_are_never_taken_for_those_of_the_old_topic(
        self, fail_on_data_loss: str, end: int, max_age: float
    ) -> None:
        """It is recreated after topics were listed, and before the ends are looked up."""

        class Racing(FakePlace):
            armed = False

            def watermarks(
                self, partitions: Collection[TopicPartition], *, read_committed: bool
            ) -> dict[TopicPartition, Watermarks]:
                if self.armed:
                    self.bounds, self.ids = {A0: (0, end)}, {"a": TestTopicsMadeAnew.NEW}
                return super().watermarks(partitions, read_committed=read_committed)

        place = Racing({A0: (0, 5)}, ids={"a": self.OLD})
        options = read_options({"path": "/log", "failOnDataLoss": fail_on_data_loss}, batch=False)
        stream = StreamPlanner(place, options, groups=FakeGroups(), topics_max_age=max_age, clock=Clock())
        assert stream.next_offsets({A0: 5}) == {A0: 5}
        place.armed = True
        if fail_on_data_loss == "true":
            with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
                stream.next_offsets({A0: 5})
        else:
            assert stream.next_offsets({A0: 5}) == {A0: end}
            (split,) = stream.plan({A0: 5}, {A0: end})
            assert (split.offsets, split.seen.topic_id) == ((0, end), self.NEW)

    def test_tasks_are_told_the_topic_that_the_end_was_looked_up_of(self) -> None:
        place = FakePlace({A0: (0, 5)}, ids={"a": self.OLD})
        stream = planner(place)
        end = stream.next_offsets({A0: 0})
        place.ids["a"] = self.NEW
        assert [split.seen.topic_id for split in stream.plan({A0: 0}, end)] == [self.OLD]

    def test_a_warning_does_not_advise_what_is_done(self, caplog: pytest.LogCaptureFixture) -> None:
        stream, _ = self.recreated(failOnDataLoss="false")
        stream.plan({A0: 5, B0: 1}, stream.next_offsets({A0: 5, B0: 1}))
        (warning,) = (record.getMessage() for record in caplog.records if "RECREATED" in record.getMessage())
        assert warning.startswith("Continuing, because failOnDataLoss=false: TOPIC_RECREATED")
        assert warning.count("failOnDataLoss") == 1

    def test_partitions_that_the_new_topic_lacks_are_no_further_loss(self) -> None:
        place = FakePlace({A0: (0, 5), A1: (0, 5)}, ids={"a": self.OLD})
        stream = planner(place, failOnDataLoss="false")
        stream.next_offsets({A0: 5, A1: 5})
        place.bounds, place.ids["a"] = {A0: (0, 2)}, self.NEW
        assert stream.next_offsets({A0: 5, A1: 5}) == {A0: 2}
        assert plan(stream, {A0: 5, A1: 5}, {A0: 2}) == [(A0, 0, 2)]

    def test_a_topic_that_is_dropped_and_comes_back_is_a_new_one(self) -> None:
        place = FakePlace({A0: (0, 5), B0: (0, 5)}, ids={"a": self.OLD, "b": self.OLD})
        stream = planner(place, failOnDataLoss="false")
        stream.next_offsets({A0: 5, B0: 5})
        del place.bounds[A0]
        end = stream.next_offsets({A0: 5, B0: 5})
        stream.plan({A0: 5, B0: 5}, end)
        place.bounds[A0], place.ids["a"] = (0, 1), self.NEW
        assert stream.next_offsets(end) == {A0: 1, B0: 5}
        assert [split.seen.topic_id for split in stream.plan(end, {A0: 1, B0: 5})] == [self.NEW]

    @pytest.mark.parametrize("ids", [{"a": ""}, {}])
    def test_an_id_that_is_not_known_is_no_other(self, ids: dict[str, str]) -> None:
        stream, place = self.recreated()
        place.ids = ids
        assert stream.next_offsets({A0: 5, B0: 1}) == {A0: 7, B0: 2}

    def test_available_now_fails_where_its_end_is_of_another_topic(self) -> None:
        place = FakePlace({A0: (0, 5)}, ids={"a": self.OLD})
        stream = planner(place, failOnDataLoss="false")
        stream.prepare_for_available_now()
        end = stream.next_offsets({A0: 0})
        place.ids["a"] = self.NEW
        with pytest.raises(DataLossError, match=r"TOPIC_RECREATED.*a .*Restart"):
            stream.plan({A0: 0}, end)

    def run(self, kept: list[dict[str, str]], place: FakePlace, **options: str) -> StreamPlanner:
        """A run of the query that goes on with what the one before has kept."""
        options = {"path": "/log", "failOnDataLoss": "false", **options}
        topic_ids = kept[-1] if kept else None
        settings = read_options(options, batch=False)
        return StreamPlanner(
            place,
            settings,
            topic_ids=topic_ids,
            store_topic_ids=lambda ids, before: kept.append(dict(ids if before is None else before)),
            groups=FakeGroups(),
        )

    def test_ids_are_kept_for_the_next_run_once_their_records_are_processed(self) -> None:
        kept: list[dict[str, str]] = []
        place = FakePlace({A0: (0, 5)}, ids={"a": self.OLD})
        first = self.run(kept, place)
        assert first.next_offsets({A0: 0}) == {A0: 5}
        assert kept == [{"a": self.OLD}]
        first.plan({A0: 0}, {A0: 5})
        place.ids["a"] = self.NEW
        place.bounds[A0] = (0, 9)
        with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
            self.run(kept, place, failOnDataLoss="true").next_offsets({A0: 5})
        second = self.run(kept, place)
        end = second.next_offsets({A0: 5})
        assert plan(second, {A0: 5}, end) == [(A0, 0, 9)]
        assert plan(self.run(kept, place), {A0: 5}, end) == [(A0, 0, 9)], "a replay reads the same"
        assert {ids["a"] for ids in kept} == {self.OLD}
        assert second.next_offsets(end) == end
        assert kept[-1] == {"a": self.NEW}
        assert plan(self.run(kept, place), end, {A0: 9}) == []

    def test_a_replay_up_to_where_the_old_topic_ended_reads_nothing_of_the_new_one(self) -> None:
        """The next micro-batch reads all of that."""
        place = FakePlace({A0: (0, 10), B0: (0, 2)}, ids={"a": self.NEW, "b": self.OLD})
        stream = self.run([{"a": self.OLD, "b": self.OLD}], place)
        assert plan(stream, {A0: 90, B0: 0}, {A0: 100, B0: 2}) == [(B0, 0, 2)]
        assert stream.next_offsets({A0: 100, B0: 2}) == {A0: 10, B0: 2}
        assert plan(stream, {A0: 100, B0: 2}, {A0: 10, B0: 2}) == [(A0, 0, 10)]
        assert stream.next_offsets({A0: 10, B0: 2}) == {A0: 10, B0: 2}


class TestTopicsAreListedSeldom:
    def test_a_list_of_all_may_have_some_that_are_gone(self) -> None:
        class Old(FakePlace):
            def topics(self, names: Collection[str] | None = None) -> Mapping[str, tuple[int, ...]]:
                return {**super().topics(names), "b": (0,)}

        place = Old({A0: (0, 5)})
        stream = planner(place, subscribePattern="a|b")
        assert stream.next_offsets({A0: 0}) == {A0: 5}
        options = read_options({"path": "/log", "subscribePattern": "a|b"}, batch=True)
        assert [split.partition for split in plan_batch(place, options)] == [A0]

    class Counted(FakePlace):
        listed = 0

        def topics(self, names: Collection[str] | None = None) -> Mapping[str, tuple[int, ...]]:
            self.listed += 1
            return super().topics(names)

    def test_new_partitions_are_noticed_when_the_list_is_old(self) -> None:
        clock, place = Clock(), self.Counted({A0: (0, 5)})
        stream = StreamPlanner(
            place,
            read_options({"path": "/log"}, batch=False),
            groups=FakeGroups(),
            topics_max_age=1,
            clock=clock,
        )
        for _ in range(10):
            assert stream.next_offsets({A0: 5}) == {A0: 5}
        place.bounds = {A0: (0, 6), A1: (0, 1)}
        assert stream.next_offsets({A0: 5}) == {A0: 6}
        assert place.listed == 1
        clock.now += 1
        assert stream.next_offsets({A0: 6}) == {A0: 6, A1: 1}
        assert place.listed == 2


class TestPlan:
    def test_partitions_are_split(self) -> None:
        stream = planner(FakePlace({A0: (0, 20), A1: (0, 4)}), maxRecordsPerPartition="10")
        assert plan(stream, {A0: 0, A1: 0}, {A0: 20, A1: 4}) == [(A0, 0, 10), (A0, 10, 20), (A1, 0, 4)]
        stream = planner(FakePlace({A0: (0, 20), A1: (0, 4)}), minPartitions="4")
        assert len(plan(stream, {A0: 0, A1: 0}, {A0: 20, A1: 4})) == 4

    def test_partitions_with_nothing_new_have_no_task(self) -> None:
        assert plan(planner(FakePlace({A0: (0, 20)})), {A0: 20}, {A0: 20}) == []

    def test_read_committed_stops_before_open_transactions(self) -> None:
        stream = planner(FakePlace({A0: (0, 20, 7)}), **{"kafka.isolation.level": "read_committed"})
        assert stream.next_offsets({A0: 0}) == {A0: 7}
