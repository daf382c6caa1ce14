"""Cuts ranges of offsets into Spark's shares of work (its KafkaOffsetRangeCalculator)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark_kafkalog.model import ALL_OFFSETS, NOTHING_SEEN, OffsetRange, Seen, TopicPartition


@dataclass(frozen=True, slots=True)
class Split:
    """One task's share: a range of one partition, whose ends may be EARLIEST and LATEST in a batch.

    Of ``offsets``, which must all exist, only those ``within`` are wanted.
    """

    partition: TopicPartition
    offsets: OffsetRange
    within: OffsetRange = ALL_OFFSETS
    seen: Seen = NOTHING_SEEN
    """What the plan saw of the partition. Another topic may get its name; a deposed leader may answer."""

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
    """Cut ``ranges``, none of which may hold EARLIEST or LATEST; those of no offsets are dropped.

    Each range is first cut into near-equal parts of at most
    ``max_records_per_partition`` offsets. If that makes fewer than
    ``min_partitions``, ranges with a larger share of all offsets are cut into
    as many parts as rounding gives them, so their number is approximate.
    """
    splits = [split for split in ranges if _size(split) > 0]
    if max_records_per_partition is not None:
        splits = [
            part for split in splits for part in _cut(split, -(-_size(split) // max_records_per_partition))
        ]
    if min_partitions is None or len(splits) >= min_partitions:
        return splits
    total = sum(map(_size, splits))
    large = [_part_count(_size(split), total, min_partitions) > 1 for split in splits]
    total_large = sum(_size(split) for split, is_large in zip(splits, large, strict=True) if is_large)
    wanted = max(min_partitions - large.count(False), 1)
    return [
        part
        for split, is_large in zip(splits, large, strict=True)
        for part in _cut(split, _part_count(_size(split), total_large, wanted) if is_large else 1)
    ]


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
