"""What filters leave to be read, and that they leave every row that they let pass."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.model import ALL_OFFSETS, EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.read.filters import ALL_ROWS, Bounds, Comparison, bounds_of
from pyspark_kafkalog.read.offsets import plan_batch
from tests.read.fake_place import FakePlace

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
NONE = OffsetRange(0, 0)


def batch(
    place: FakePlace, *comparisons: tuple[str, str, object], **options: str
) -> list[tuple[TopicPartition, int, int, OffsetRange]]:
    plan = plan_batch(
        place,
        read_options({"path": "/log", **options}, batch=True),
        bounds_of(Comparison(*comparison) for comparison in comparisons),
    )
    return [(split.partition, *split.offsets, split.within) for split in plan]


class TestBounds:
    @pytest.mark.parametrize(
        ("comparisons", "offsets"),
        [
            ([("offset", "=", 7)], (7, 8)),
            ([("offset", "<", 7)], (0, 7)),
            ([("offset", "<=", 7)], (0, 8)),
            ([("offset", ">", 7)], (8, ALL_OFFSETS.end)),
            ([("offset", ">=", 7)], (7, ALL_OFFSETS.end)),
            ([("offset", "in", [9, 3, 5])], (3, 10)),
            ([("offset", ">=", 3), ("offset", ">=", 5), ("offset", "<", 9), ("offset", "<", 8)], (5, 8)),
            ([("offset", ">", -5)], (0, ALL_OFFSETS.end)),
        ],
    )
    def test_of_offsets(self, comparisons: list[tuple], offsets: tuple[int, int]) -> None:
        assert bounds_of(Comparison(*comparison) for comparison in comparisons).offsets == offsets

    @pytest.mark.parametrize(
        ("comparison", "since"),
        [
            (("timestamp", ">=", 5_000), 5),
            (("timestamp", ">=", 5_001), 6),
            (("timestamp", ">", 5_000), 6),
            (("timestamp", ">", 5_001), 6),
            (("timestamp", "=", 4_999), 5),
            (("timestamp", "in", [9_000, 6_500]), 7),
            (("timestamp", ">=", -1_500), -1),
            (("timestamp", "<", 5_000), None),
            (("timestamp", "<=", 5_000), None),
        ],
    )
    def test_of_timestamps_are_whole_milliseconds(self, comparison: tuple, since: int | None) -> None:
        assert bounds_of([Comparison(*comparison)]) == Bounds(since=since)

    @pytest.mark.parametrize(
        ("comparison", "admitted"),
        [
            (("topic", "=", "a"), [A0, A1]),
            (("topic", "in", ["b", "c"]), [B0]),
            (("topic", ">", "a"), [B0]),
            (("partition", "=", 1), [A1]),
            (("partition", "<", 1), [A0, B0]),
            (("partition", ">=", 5), []),
        ],
    )
    def test_of_topics_and_partitions(self, comparison: tuple, admitted: list[TopicPartition]) -> None:
        bounds = bounds_of([Comparison(*comparison)])
        assert [partition for partition in (A0, A1, B0) if bounds.admit(partition)] == admitted

    @pytest.mark.parametrize(
        "comparison",
        [
            ("value", "=", b"x"),
            ("timestampType", "=", 0),
            ("offset", "=", None),
            ("offset", "in", []),
            ("offset", "in", [1, None]),
            ("offset", "=", 1.5),
            ("offset", "=", True),
            ("topic", "=", 1),
            ("offset", "!=", 1),
        ],
    )
    def test_of_nothing_else(self, comparison: tuple) -> None:
        assert bounds_of([Comparison(*comparison)]) == ALL_ROWS


class TestBatch:
    def test_partitions_that_are_ruled_out_have_no_task(self) -> None:
        place = FakePlace({A0: (0, 9), A1: (0, 9), B0: (0, 9)})
        assert batch(place, ("topic", "=", "a"), ("partition", ">", 0)) == [
            (A1, EARLIEST, LATEST, ALL_OFFSETS)
        ]
        assert batch(place, ("topic", "=", "c")) == []

    def test_ends_stay_open_and_what_is_wanted_goes_beside_them(self) -> None:
        """A plan that is used again must not report as lost what it never wanted."""
        place = FakePlace({A0: (5, 20)})
        within = OffsetRange(7, 12)
        assert batch(place, ("offset", ">=", 7), ("offset", "<", 12)) == [(A0, EARLIEST, LATEST, within)]

    def test_offsets_that_may_yet_come_have_a_task(self) -> None:
        place = FakePlace({A0: (5, 20)})
        assert len(batch(place, ("offset", ">=", 30))) == 1
        assert batch(place, ("offset", ">=", 30), endingOffsets='{"a":{"0":20}}') == []
        assert batch(place, ("offset", "<", 5)) == [], "older ones will not"

    def test_cuts_share_out_what_is_wanted(self) -> None:
        place = FakePlace({A0: (0, 1000)})
        wanted = ("offset", ">=", 900)
        within = OffsetRange(900, ALL_OFFSETS.end)
        assert batch(place, wanted, minPartitions="2") == [
            (A0, EARLIEST, 950, within),
            (A0, 950, LATEST, within),
        ]
        assert len(batch(place, wanted, maxRecordsPerPartition="50")) == 2

    @pytest.mark.parametrize(
        "options",
        [
            {"startingOffsets": '{"a":{"0":2}}'},
            {"startingOffsets": '{"a":{"0":2}}', "endingOffsets": '{"a":{"0":10}}'},
            {"endingOffsets": '{"a":{"0":30}}'},
        ],
    )
    @pytest.mark.parametrize("wanted", [("topic", "=", "b"), ("offset", "=", 1), ("offset", "=", 7)])
    def test_offsets_that_are_gone_are_reported_whatever_is_wanted(
        self, options: dict[str, str], wanted: tuple
    ) -> None:
        place = FakePlace({A0: (5, 20)})
        (whole,), (pruned,) = batch(place, **options), batch(place, wanted, **options)
        assert pruned[:3] == whole[:3]

    def test_options_that_do_not_fit_are_refused_whatever_is_wanted(self) -> None:
        place = FakePlace({A0: (0, 9), B0: (0, 9)})
        with pytest.raises(Exception, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
            batch(place, ("topic", "=", "b"), startingOffsets='{"b":{"0":1}}')


class TestTimestamps:
    """Offset n has timestamp 1000 n ms, so 1,000,000 n microseconds."""

    def test_reading_begins_at_the_first_late_enough_record(self) -> None:
        place = FakePlace({A0: (0, 9), A1: (5, 9)})
        assert [task[3].start for task in batch(place, ("timestamp", ">=", 3_000_000))] == [3, 5]
        assert [task[3].start for task in batch(place, ("timestamp", ">", 3_000_000))] == [4, 5]

    def test_a_partition_with_older_records_only_is_read_from_its_end(self) -> None:
        place = FakePlace({A0: (0, 9), A1: (0, 100)})
        found = batch(place, ("timestamp", ">=", 20_000_000))
        assert [task[3].start for task in found] == [9, 20]
        assert found[0][:3] == (A0, EARLIEST, LATEST), "records that come later may be wanted"
        ending = '{"a":{"0":9,"1":50}}'
        assert [task[0] for task in batch(place, ("timestamp", ">=", 20_000_000), endingOffsets=ending)] == [
            A1
        ]

    def test_a_lookup_that_finds_nothing_is_no_proof(self) -> None:
        """A broker looks into one segment only, and may not tell the newest timestamp."""

        class Forgetful(FakePlace):
            def offsets_for_times(
                self, times: Mapping[TopicPartition, int]
            ) -> dict[TopicPartition, int | None]:
                return dict.fromkeys(times)

        assert batch(Forgetful({A0: (0, 9)}), ("timestamp", ">=", 3_000_000))[0][3] == ALL_OFFSETS

        class Silent(Forgetful):
            def newest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
                return {}

        assert batch(Silent({A0: (0, 9)}), ("timestamp", ">=", 30_000_000))[0][3] == ALL_OFFSETS

    def test_a_lookup_that_fails_prunes_nothing(self) -> None:
        class Old(FakePlace):
            def offsets_for_times(
                self, times: Mapping[TopicPartition, int]
            ) -> dict[TopicPartition, int | None]:
                raise BrokerError("UNSUPPORTED_FOR_MESSAGE_FORMAT")

        assert batch(Old({A0: (0, 9)}), ("timestamp", ">=", 3_000_000))[0][3] == ALL_OFFSETS

    def test_only_what_is_left_is_asked_for(self) -> None:
        requested = []

        class Asked(FakePlace):
            def offsets_for_times(
                self, times: Mapping[TopicPartition, int]
            ) -> dict[TopicPartition, int | None]:
                requested.append(set(times))
                return super().offsets_for_times(times)

        place = Asked({A0: (0, 9), A1: (0, 9), B0: (0, 9)})
        batch(place, ("timestamp", ">=", 3_000_000), ("topic", "=", "a"), ("partition", "=", 0))
        batch(place, ("timestamp", ">=", -1_000), ("topic", "=", "a"))
        assert requested == [{A0}], "negative times stand for other things"


COMPARISONS = st.one_of(
    st.tuples(
        st.sampled_from(["offset", "partition", "timestamp"]),
        st.sampled_from(["=", "<", "<=", ">", ">="]),
        st.integers(-3, 30),
    ),
    st.tuples(
        st.sampled_from(["offset", "partition"]),
        st.just("in"),
        st.lists(st.integers(0, 30), min_size=1, max_size=3),
    ),
    st.tuples(
        st.just("topic"), st.sampled_from(["=", "<", "<=", ">", ">="]), st.sampled_from(["a", "aa", "b"])
    ),
)
TESTS = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda actual, values: actual in values,
}


@given(comparisons=st.lists(COMPARISONS, max_size=4), cut=st.sampled_from(["1", "7", "100"]))
def test_no_row_that_passes_the_filters_is_left_out(
    comparisons: list[tuple[str, str, object]], cut: str
) -> None:
    place = FakePlace({A0: (0, 25), A1: (3, 9), B0: (0, 0)})
    in_time = [
        (column, compared, value * 1_000_000) if column == "timestamp" else (column, compared, value)
        for column, compared, value in comparisons
    ]
    read = [
        (partition, offset)
        for partition, start, end, within in batch(place, *in_time, maxRecordsPerPartition=cut)
        for offset in range(
            max(place.bounds[partition][0] if start == EARLIEST else start, within.start),
            min(place.bounds[partition][1] if end == LATEST else end, within.end),
        )
    ]
    wanted = [
        (partition, offset)
        for partition, (start, end) in place.bounds.items()
        for offset in range(start, end)
        for row in [{**partition._asdict(), "offset": offset, "timestamp": offset}]
        if all(TESTS[compared](row[column], value) for column, compared, value in comparisons)
    ]
    assert len(read) == len(set(read))
    assert set(wanted) <= set(read)
