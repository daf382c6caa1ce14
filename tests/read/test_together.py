"""Small ranges share a task, within its bounds, and their rows come in few arrow batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.model import (
    EARLIEST,
    LATEST,
    BatchHeader,
    Decided,
    OffsetRange,
    Origin,
    Seen,
    StoredBatch,
    TopicPartition,
)
from pyspark_kafkalog.read.ranges import Existing
from pyspark_kafkalog.read.record_sizes import RecordSizes
from pyspark_kafkalog.read.splits import TASK_BYTES, TASK_OFFSETS, Split, join_all, join_small, split_ranges
from pyspark_kafkalog.read.together import rows_together
from tests.read.fake_place import FakePlace


def split(number: int, start: int, end: int, seen: int = 0) -> Split:
    return Split(TopicPartition("t", number), OffsetRange(start, end), seen=Seen("", -1, seen))


@given(
    sizes=st.lists(st.integers(0, TASK_OFFSETS * 2) | st.integers(0, 300), max_size=60),
    means=st.dictionaries(st.integers(0, 60), st.floats(0, 2000)),
    least=st.integers(1, 20),
)
def test_tasks_hold_all_splits_in_order_within_their_bounds(
    sizes: list[int], means: dict[int, float], least: int
) -> None:
    splits = [split(number, 5, 5 + size) for number, size in enumerate(sizes)]
    known = {TopicPartition("t", number): mean for number, mean in means.items()}
    tasks = join_small(splits, lambda asked: {p: known[p] for p in asked if p in known}, least=least)
    assert len(tasks) >= min(least, len(splits))
    assert [each for task in tasks for each in task] == splits
    for task in tasks:
        counts = [each.offsets.end - each.offsets.start for each in task]
        if len(task) > 1:
            assert sum(counts) <= TASK_OFFSETS
            of_records = [(each, count) for each, count in zip(task, counts, strict=True) if count]
            size = sum(count * known[each.partition] for each, count in of_records)
            assert size <= TASK_BYTES * 1.001


def test_small_ones_share_a_task() -> None:
    splits = [split(number, 0, 10) for number in range(2000)]
    tasks = join_small(splits, lambda asked: dict.fromkeys(asked, 100.0), least=1)
    assert [len(task) for task in tasks] == [1000] * 2


@pytest.mark.parametrize(("count", "tasks"), [(8, 8), (15, 15), (16, 8), (200, 8), (2000, 8)])
def test_no_fewer_tasks_than_the_user_has_cores(count: int, tasks: int) -> None:
    splits = [split(number, 0, 5) for number in range(count)]
    assert len(join_small(splits, lambda asked: dict.fromkeys(asked, 10.0), least=8)) == tasks


@pytest.mark.parametrize(("wanted", "alone", "shared"), [(1, 1, 9), (8, 8, 8), (30, 29, 25), (52, 2, 50)])
def test_a_hot_one_is_divided_and_small_ones_share_tasks(wanted: int, alone: int, shared: int) -> None:
    """2 M records in one, 1000 in each of 50: no fewer tasks than wanted, and than the user has cores."""
    ranges = [split(0, 0, 2_000_000), *(split(number, 0, 1000) for number in range(1, 51))]
    splits = split_ranges(ranges, min_partitions=wanted, max_records_per_partition=None)
    tasks = join_small(splits, lambda asked: dict.fromkeys(asked, 100.0), least=max(wanted, 8))
    of_hot = [task for task in tasks if task[0].partition.partition == 0]
    assert {len(task) for task in of_hot} == {1}
    assert (len(of_hot), len(tasks) - len(of_hot)) == (alone, shared)


def test_parts_of_one_partition_share_no_task() -> None:
    parts = [split(0, start, start + 10) for start in range(0, 40, 10)]
    splits = [*parts, *(split(number, 0, 10) for number in range(1, 20))]
    tasks = join_small(splits, lambda asked: dict.fromkeys(asked, 10.0), least=1)
    assert [len(task) for task in tasks] == [1, 1, 1, 1, 19]


def test_nobody_is_asked_for_sizes_where_all_are_large() -> None:
    def sizes(asked: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        raise AssertionError

    splits = [split(number, 0, TASK_OFFSETS) for number in range(4)] + [split(4, 0, 10)]
    assert join_small(splits, sizes, least=1) == [(each,) for each in splits]


@pytest.mark.parametrize(("end", "tasks"), [(0, 1), (100, 1), (TASK_OFFSETS, 3)])
def test_an_open_range_has_at_most_what_the_plan_has_seen(end: int, tasks: int) -> None:
    splits = [split(number, EARLIEST, LATEST, seen=end) for number in range(3)]
    assert len(join_small(splits, lambda asked: dict.fromkeys(asked, 10.0), least=1)) == tasks


def test_what_is_of_unknown_size_has_a_task_of_its_own() -> None:
    splits = [split(number, 0, 10) for number in range(4)]
    means = {splits[number].partition: 1.0 for number in (0, 1, 3)}
    tasks = join_small(splits, lambda asked: means, least=1)
    assert [len(task) for task in tasks] == [2, 1, 1]


class Led(FakePlace):
    """Brokers 0 to 2; broker N % 3 leads partition N."""

    def __init__(self, bounds: dict[TopicPartition, tuple[int, ...]]) -> None:
        super().__init__(bounds, led_by={each: each.partition % 3 for each in bounds})


def of_ten(asked: Collection[TopicPartition]) -> dict[TopicPartition, float]:
    return dict.fromkeys(asked, 10.0)


@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=60),
    most=st.integers(1, 20),
    least=st.none() | st.integers(1, 20),
)
def test_tasks_at_most_hold_every_offset_once(sizes: list[int], most: int, least: int | None) -> None:
    """However many there may be at least, too: about equal, few connections, a partition once in each."""
    wanted = None if least is None else min(least, most)
    ranges = [split(number, 5, 5 + size) for number, size in enumerate(sizes)]
    splits = split_ranges(ranges, min_partitions=wanted, max_records_per_partition=None)
    place = Led({each.partition: (0, 2000) for each in ranges})
    tasks = join_all(place, splits, of_ten, most=most)
    assert len(tasks) <= most
    parts = sorted(
        (each for task in tasks for each in task), key=lambda each: each[:2] if 0 else each.offsets
    )
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for each in parts:
        found.setdefault(each.partition, []).append(each.offsets)
    for whole in ranges:
        position = whole.offsets.start
        for offsets in found[whole.partition]:
            assert offsets.start == position < offsets.end
            position = offsets.end
        assert position == whole.offsets.end
    largest = max(each.offsets.end - each.offsets.start for each in splits)
    connections = 0
    for task in tasks:
        assert len({each.partition for each in task}) == len(task)
        size = sum(each.offsets.end - each.offsets.start for each in task)
        assert size <= 1.3 * sum(sizes) / most + largest + len(splits)
        connections += len({each.partition.partition % 3 for each in task})
    assert connections < len(tasks) + 3


def test_a_task_has_partitions_of_one_leader_in_order() -> None:
    splits = [split(number, 0, 100) for number in range(12)]
    tasks = join_all(Led({each.partition: (0, 100) for each in splits}), splits, of_ten, most=3)
    numbers = [[each.partition.partition for each in task] for task in tasks]
    assert numbers == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    without = join_all(FakePlace({}), splits, of_ten, most=3)
    assert [[each.partition.partition for each in task] for task in without] == [
        list(range(begin, begin + 4)) for begin in (0, 4, 8)
    ]


def test_a_little_more_of_one_leader_does_not_spread_its_partitions() -> None:
    splits = [split(number, 0, 110 if number % 3 == 0 else 100) for number in range(12)]
    tasks = join_all(Led({each.partition: (0, 110) for each in splits}), splits, of_ten, most=6)
    assert [{each.partition.partition % 3 for each in task} for task in tasks] == [{n // 2} for n in range(6)]


def test_an_open_start_counts_from_the_log_start_offset() -> None:
    """Of records that retention has deleted, none are read."""
    starts = [0, 10_000, 0, 0]
    splits = [split(number, EARLIEST, LATEST, seen=start + 100) for number, start in enumerate(starts)]
    place = FakePlace(
        {each.partition: (start, start + 100) for each, start in zip(splits, starts, strict=True)}
    )
    tasks = join_all(place, splits, of_ten, most=2)
    assert [len(task) for task in tasks] == [2, 2]


def test_neighbours_of_one_partition_are_one_split_without_what_was_decided_of_them() -> None:
    """Each reader looks for the ends of transactions itself."""
    decided = Decided(OffsetRange(0, 10), (), StoredBatch(BatchHeader(*[0] * 13), Origin()), 0)
    parts = [
        Split(TopicPartition("t", 0), OffsetRange(*ends), seen=Seen("id", 3, 20, decided))
        for ends in ((EARLIEST, 10), (10, LATEST))
    ]
    tasks = join_all(FakePlace({parts[0].partition: (0, 20)}), parts, of_ten, most=1)
    assert tasks == [(Split(parts[0].partition, OffsetRange(EARLIEST, LATEST), seen=Seen("id", 3, 20)),)]


class Sizes(FakePlace):
    asked: ClassVar[list[list[TopicPartition]]] = []

    def mean_record_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        self.asked.append(list(partitions))
        if len(self.asked) == 2:
            raise BrokerError("It does not answer")
        return {partition: 5.0 for partition in partitions if partition.partition != 1}


def test_sizes_are_advice_and_asked_for_once_a_minute() -> None:
    now = 100.0
    first, second, third = (TopicPartition("t", number) for number in range(3))
    sizes = RecordSizes(Sizes({}), lambda: now)
    for _ in range(2):
        assert sizes([first, second]) == {first: 5.0}
    for _ in range(2):
        assert sizes([first, third]) == {first: 5.0}, "a place that fails has no answer"
    assert Sizes.asked == [[first, second], [third]]
    now += 61
    assert sizes([first, third]) == {first: 5.0, third: 5.0}


@given(st.lists(st.integers(1, 12_000), max_size=30), st.integers(1, 200_000))
def test_rows_stay_in_order_in_few_batches_of_few_bytes(sizes: list[int], max_bytes: int) -> None:
    def read(share: Split, existing: Existing) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array(range(share.offsets.start, share.offsets.end))})

    begins = [sum(sizes[:number]) for number in range(len(sizes))]
    shares = [
        split(n, begin, begin + size) for n, (begin, size) in enumerate(zip(begins, sizes, strict=True))
    ]
    found = [(share, Existing(share.offsets, None)) for share in shares]
    batches = list(rows_together(found, read, max_bytes=max_bytes))
    assert [n for batch in batches for n in batch.column(0).to_pylist()] == list(range(sum(sizes)))
    most = min(10_000, max_bytes // 8)
    assert all(batch.num_rows <= most or batch.num_rows in sizes for batch in batches)
    assert len(batches) <= 1 + 2 * sum(sizes) / most if most else len(batches) == len(sizes)
