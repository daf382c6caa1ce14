"""Ranges are cut as Spark's KafkaOffsetRangeCalculator cuts them; most cases are from its test suite."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, Seen, TopicPartition
from pyspark_kafkalog.read.splits import Split, split_ranges

T0 = TopicPartition("t", 0)

SPARK_CASES = {
    "no minPartitions: N to N": (None, None, [10, 20, 30], [[10], [20], [30]]),
    "no minPartitions: empty ranges ignored": (None, None, [10, 0, 30], [[10], [], [30]]),
    "min 3: N to N": (3, None, [10, 20, 30], [[10], [20], [30]]),
    "min 4: 1 to N": (4, None, [4], [[1, 1, 1, 1]]),
    "min 4: N skewed to M": (4, None, [4, 20], [[4], [6, 7, 7]]),
    "min 4: ignore empty and split the rest": (4, None, [0, 20], [[], [5, 5, 5, 5]]),
    "min 4: N very skewed to M": (4, None, [1, 1000], [[1], [333, 333, 334]]),
    "min 1: fewer than partitions": (1, None, [10, 20, 30], [[10], [20], [30]]),
    "min 3: inexact multiple": (3, None, [10], [[3, 3, 4]]),
    "min 4: empty ranges ignored": (4, None, [4, 0, 0, 0], [[1, 1, 1, 1], [], [], []]),
    "min 6: never drop offsets": (6, None, [10, 10, 1], [[3, 3, 4], [3, 3, 4], [1]]),
    "min 9: no small, 3 large": (9, None, [10_000, 15_000, 20_000], [[5000] * 2, [5000] * 3, [5000] * 4]),
    "min 6: 1 small, 2 large": (6, None, [500, 12_000, 15_001], [[500], [6000, 6000], [5000, 5000, 5001]]),
    "min 6: 2 small, 1 large": (6, None, [1, 1, 10_000], [[1], [1], [2500] * 4]),
    "min 10: small ones stay whole": (10, None, [14] * 5 + [30], [[14]] * 5 + [[6] * 5]),
    "max 4: 1 to N": (None, 4, [5], [[2, 3]]),
    "max 20: N to N": (None, 20, [39, 49, 59], [[19, 20], [16, 16, 17], [19, 20, 20]]),
    "min 1, max 20": (1, 20, [39], [[19, 20]]),
    "min 4, max 20": (4, 20, [39], [[9, 10, 10, 10]]),
}


def ranges_of(sizes: list[int], start: int = 7) -> list[Split]:
    return [
        Split(TopicPartition("topic", number), OffsetRange(start, start + size))
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("case", SPARK_CASES.values(), ids=SPARK_CASES.keys())
def test_spark_cases(case: tuple[int | None, int | None, list[int], list[list[int]]]) -> None:
    min_partitions, max_records, sizes, parts = case
    splits = split_ranges(
        ranges_of(sizes), min_partitions=min_partitions, max_records_per_partition=max_records
    )
    found = [
        [split.offsets.end - split.offsets.start for split in splits if split.partition.partition == number]
        for number in range(len(sizes))
    ]
    assert found == parts


@pytest.mark.parametrize(
    ("sizes", "wanted", "parts"),
    [
        ([2_000_000] + [1000] * 50, 8, [8] + [1] * 50),
        ([1000] * 25 + [2_000_000] + [1000] * 25, 30, [1] * 25 + [29] + [1] * 25),
        ([1000] * 50, 8, [1] * 50),
        ([1000] * 20 + [40_000, 20_000], 4, [1] * 20 + [2, 1]),
        ([100] * 14 + [10_000], 8, [1] * 15),
    ],
)
def test_among_many_the_largest_are_divided_first(sizes: list[int], wanted: int, parts: list[int]) -> None:
    """Where small ones share tasks. Spark divides none of them."""
    splits = split_ranges(ranges_of(sizes), min_partitions=wanted, max_records_per_partition=None)
    counts = Counter(split.partition.partition for split in splits)
    assert [counts[number] for number in range(len(sizes))] == parts


def test_negative_ranges_are_dropped() -> None:
    backwards = Split(TopicPartition("topic", 0), OffsetRange(10, 5))
    assert split_ranges([backwards], min_partitions=4, max_records_per_partition=2) == []


@given(
    sizes=st.lists(st.integers(-3, 2**62), min_size=1, max_size=6),
    min_partitions=st.none() | st.integers(1, 50),
    parts=st.none() | st.integers(1, 40),
)
def test_every_offset_is_in_one_split(
    sizes: list[int], min_partitions: int | None, parts: int | None
) -> None:
    max_records = None if parts is None else max(max(sizes) // parts, 1)
    splits = split_ranges(
        ranges_of(sizes), min_partitions=min_partitions, max_records_per_partition=max_records
    )
    for whole in ranges_of(sizes):
        position = whole.offsets.start
        for split in splits:
            if split.partition == whole.partition:
                assert split.offsets.start == position < split.offsets.end
                assert max_records is None or split.offsets.end - position <= max_records
                position = split.offsets.end
        assert position == max(whole.offsets.end, whole.offsets.start)


@pytest.mark.parametrize(
    ("split", "needs_bounds"),
    [
        (Split(T0, OffsetRange(5, 10), seen=Seen("id", end=10)), False),
        (Split(T0, OffsetRange(5, 10), OffsetRange(0, 20), Seen("id", end=10)), False),
        (Split(T0, OffsetRange(5, 10), OffsetRange(6, 20), Seen("id", end=10)), True),
        (Split(T0, OffsetRange(5, 11), seen=Seen("id", end=10)), True),
        (Split(T0, OffsetRange(5, 10), seen=Seen("", end=10)), True),
        (Split(T0, OffsetRange(5, 5), seen=Seen("id", end=10)), True),
        (Split(T0, OffsetRange(EARLIEST, 10), seen=Seen("id", end=10)), True),
        (Split(T0, OffsetRange(5, LATEST), seen=Seen("id", end=10)), True),
    ],
)
def test_only_what_the_plan_saw_whole_needs_no_bounds(split: Split, needs_bounds: bool) -> None:
    assert split.needs_bounds is needs_bounds
