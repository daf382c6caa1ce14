"""Cuts ranges of offsets into tasks (Spark's KafkaOffsetRangeCalculator), and joins small ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark_kafkalog.model import (
    ALL_OFFSETS,
    NOTHING_SEEN,
    Files,
    OffsetRange,
    Place,
    Seen,
    TopicPartition,
)

if TYPE_CHECKING:
    from pyspark_kafkalog.options.settings import ReadOptions

PARALLELISM = 8
"""The least number of tasks that small splits share, where the session's parallelism is lower or unknown."""
TASK_OFFSETS = 10_000
TASK_BYTES = 1 << 20
"""The most bytes that a task of several partitions reads: in less time than a task's start takes."""


@dataclass(frozen=True, slots=True)
class Split:
    """A share of a task: a range of one partition, whose ends may be EARLIEST and LATEST in a batch.

    Of ``offsets``, which must all exist, only those ``within`` are wanted.
    """

    partition: TopicPartition
    offsets: OffsetRange
    within: OffsetRange = ALL_OFFSETS
    seen: Seen = NOTHING_SEEN
    """The partition as the plan saw it. Another topic may get its name; a deposed leader may answer."""

    @property
    def needs_bounds(self) -> bool:
        """Whether to look up the bounds before the fetch.

        A fetch of the topic needs no bounds if both ends are numbers, the plan has seen the records
        below the second one, and all of them are wanted.
        """
        start, end = self.offsets
        is_seen = bool(self.seen.topic_id) and 0 <= start < end <= self.seen.end
        return not is_seen or self.offsets.within(self.within) != self.offsets


def split_ranges(
    ranges: Iterable[Split], *, min_partitions: int | None, max_records_per_partition: int | None
) -> list[Split]:
    """Cut ``ranges``, which must not hold EARLIEST or LATEST; empty ones are dropped.

    Each range is first cut into near-equal parts of at most
    ``max_records_per_partition`` offsets. If that makes fewer than
    ``min_partitions``, ranges with a larger share of all offsets are cut into
    as many parts as rounding gives them, so their number is approximate. Unlike
    in Spark, so are they if there are more, and so many that small ones share
    tasks: else one that has most of the records would be one task of few.
    """
    splits = [split for split in ranges if _size(split) > 0]
    if max_records_per_partition is not None:
        splits = [
            part for split in splits for part in _cut(split, -(-_size(split) // max_records_per_partition))
        ]
    if min_partitions is None or min_partitions <= len(splits) < 2 * PARALLELISM:
        return splits
    total = sum(map(_size, splits))
    if min_partitions <= len(splits):
        return [
            part for split in splits for part in _cut(split, _part_count(_size(split), total, min_partitions))
        ]
    large = [_part_count(_size(split), total, min_partitions) > 1 for split in splits]
    total_large = sum(_size(split) for split, is_large in zip(splits, large, strict=True) if is_large)
    wanted = max(min_partitions - large.count(False), 1)
    return [
        part
        for split, is_large in zip(splits, large, strict=True)
        for part in _cut(split, _part_count(_size(split), total_large, wanted) if is_large else 1)
    ]


def with_decided(place: Place, splits: Sequence[Split], *, look: Callable[[Split], bool]) -> list[Split]:
    """``splits`` of a read_committed read, in order, with what their tasks need not look for themselves.

    :param look: see :meth:`pyspark_kafkalog.model.Files.decided`.
    """
    if not isinstance(place, Files):
        return list(splits)
    found = [(s, place.decided(s.partition, s.offsets, look=look(s))) for s in splits]
    return [replace(split, seen=split.seen._replace(decided=decided)) for split, decided in found]


def cuts_between(splits: Iterable[Split]) -> dict[TopicPartition, list[int]]:
    """The cuts of each partition: the offsets at which its splits, which are in order, follow one another."""
    starts: dict[TopicPartition, list[int]] = {}
    for split in splits:
        starts.setdefault(split.partition, []).append(split.offsets.start)
    return {partition: found[1:] for partition, found in starts.items()}


def tasks_of(
    place: Place,
    splits: Sequence[Split],
    sizes: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, float]],
    options: ReadOptions,
    *,
    parallelism: int = PARALLELISM,
) -> list[tuple[Split, ...]]:
    """The splits of each task of a read, as ``options`` want: see :func:`join_small` and :func:`join_all`.

    :param sizes: see :class:`.record_sizes.RecordSizes`.
    :param parallelism: the number of tasks that Spark runs at once.
    """
    least, most = max(parallelism, options.min_partitions or 1), options.max_partitions
    if options.wants_tasks:
        return [(split,) for split in splits]
    tasks = join_small(splits, sizes, least=least)
    return tasks if most is None or len(tasks) <= most else join_all(place, splits, sizes, most=most)


def join_small(
    splits: Sequence[Split],
    mean_record_bytes: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, float]],
    *,
    least: int,
) -> list[tuple[Split, ...]]:
    """The splits of each task, in their order: one, but small ones share if that leaves ``least`` tasks.

    Those of a partition that was divided share none.

    :param mean_record_bytes: see :meth:`pyspark_kafkalog.model.Place.mean_record_bytes`; asked only for
        splits of few offsets. One of an unknown size gets a task of its own.
    """
    most = len(splits) // least
    offsets = {split.partition: _most_offsets(split) for split in splits}
    divided = [one.partition for one, other in pairwise(splits) if one.partition == other.partition]
    offsets |= dict.fromkeys(divided, TASK_OFFSETS + 1)
    few = [partition for partition, count in offsets.items() if count <= TASK_OFFSETS // 2]
    if most < 2 or len(few) < 2:
        return [(split,) for split in splits]
    means = mean_record_bytes(few)
    tasks: list[list[Split]] = []
    offsets_left, bytes_left = 0, 0.0
    for split in splits:
        count = offsets[split.partition]
        size = count * means.get(split.partition, math.inf) if count else 0
        if tasks and len(tasks[-1]) < most and count <= offsets_left and size <= bytes_left:
            tasks[-1].append(split)
        else:
            tasks.append([split])
            offsets_left, bytes_left = TASK_OFFSETS, float(TASK_BYTES)
        offsets_left -= count
        bytes_left -= size
    return [tuple(task) for task in tasks]


def join_all(
    place: Place,
    splits: Sequence[Split],
    mean_record_bytes: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, float]],
    *,
    most: int,
) -> list[tuple[Split, ...]]:
    """Tasks of about equal bytes, ``most`` at most, in order of leader, partition and offset.

    Partitions of one leader are neighbours, as Kafka's first consumers sorted them. So a task has those of
    few leaders: tasks and leaders together are more than all connections. Neighbours of one partition become
    one split.

    :param splits: those of a partition must follow one another.
    :param mean_record_bytes: see :meth:`pyspark_kafkalog.model.Place.mean_record_bytes`. Records of an
        unknown size count like the others.
    """
    partitions = [split.partition for split in splits]
    leaders, means = place.leaders(partitions), mean_record_bytes(partitions)
    usual = sum(means.values()) / len(means) if means else 1.0
    open_starts = [split.partition for split in splits if split.offsets.start < 0]
    bounds = place.watermarks(open_starts, read_committed=False) if open_starts else {}
    in_order = sorted(splits, key=lambda split: leaders.get(split.partition, -1))
    sizes = []
    for split in in_order:
        bound = bounds.get(split.partition) if split.offsets.start < 0 else None
        count = _most_offsets(split) - (0 if bound is None else bound.log_start_offset)
        sizes.append(max(count, 1) * means.get(split.partition, usual) + 1)
    sizes = _aligned(sizes, [leaders.get(split.partition, -1) for split in in_order], most)
    tasks: dict[int, list[Split]] = {}
    before, total = 0.0, sum(sizes)
    for split, size in zip(in_order, sizes, strict=True):
        task = tasks.setdefault(min(int((before + size / 2) / total * most), most - 1), [])
        before += size
        if task and task[-1].partition == split.partition:
            task[-1] = _one_of(task[-1], split)
        else:
            task.append(split)
    return [tuple(task) for task in tasks.values()]


def _aligned(sizes: Sequence[float], leaders: Sequence[int], most: int) -> list[float]:
    """The sizes, an eighth more or less, so that a leader with almost a whole number of tasks has it."""
    of_leader: dict[int, float] = {}
    task = sum(sizes) / most
    for leader, size in zip(leaders, sizes, strict=True):
        of_leader[leader] = of_leader.get(leader, 0) + size / task
    whole = {leader: round(share) for leader, share in of_leader.items()}
    scales = {
        leader: whole[leader] / share if abs(whole[leader] / share - 1) < 1 / 8 else 1.0
        for leader, share in of_leader.items()
    }
    return [size * scales[leader] for leader, size in zip(leaders, sizes, strict=True)]


def _one_of(first: Split, second: Split) -> Split:
    """A split of both ranges, of which the second begins where the first ends."""
    offsets = OffsetRange(first.offsets.start, second.offsets.end)
    return replace(first, offsets=offsets, seen=first.seen._replace(decided=None))


def _most_offsets(split: Split) -> int:
    """The number of offsets that the split has at most, as far as the plan has seen the log."""
    start, end = split.offsets
    return max((split.seen.end if end < 0 else end) - max(start, 0), 0)


def _size(split: Split) -> int:
    return split.offsets.end - split.offsets.start


def _part_count(size: int, total: int, wanted: int) -> int:
    return max((2 * size * wanted + total) // (2 * total), 1)


def _cut(split: Split, parts: int) -> list[Split]:
    start, end = split.offsets
    parts = min(parts, end - start)
    result = []
    for left in range(parts, 0, -1):
        stop = start + (end - start) // left
        result.append(replace(split, offsets=OffsetRange(start, stop)))
        start = stop
    return result
