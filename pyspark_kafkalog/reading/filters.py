"""What a query's filters leave to be read: topics, partitions and offsets, before any record is fetched.

Filters only ever take away what can't match. Spark still applies all of them.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import ALL_OFFSETS, OffsetRange, Place, TopicPartition, Watermarks

_log = logging.getLogger("pyspark_kafkalog")


class Comparison(NamedTuple):
    """A condition that every wanted row fulfils: ``column operator value``.

    The operator is one of ``= < <= > >= in``. A timestamp is in microseconds
    since the epoch.
    """

    column: str
    operator: str
    value: Any


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda actual, values: actual in values,
}
_TYPES = {"topic": str, "partition": int, "offset": int, "timestamp": int}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Outside of these no row is wanted."""

    topics: tuple[Comparison, ...] = ()
    partitions: tuple[Comparison, ...] = ()
    offsets: OffsetRange = ALL_OFFSETS
    since: int | None = None
    """Milliseconds: the least timestamp."""

    def admit(self, partition: TopicPartition) -> bool:
        """Whether the partition may hold rows that are wanted."""
        return all(_TESTS[its.operator](partition.topic, its.value) for its in self.topics) and all(
            _TESTS[its.operator](partition.partition, its.value) for its in self.partitions
        )


ALL_ROWS = Bounds()


def bounds_of(comparisons: Iterable[Comparison]) -> Bounds:
    """The bounds that follow from all of ``comparisons``; those of other columns or types are passed over.

    A timestamp's upper bound prunes nothing. Records bear the times of their
    producers, which need not rise with the offsets, so behind the first record
    that is too late there may be others that are not. Even with
    LogAppendTime, where a broker stamps them, they fall back when the clock of
    a new leader is behind, and a topic's older records may have producers' times.
    """
    usable = [its for its in comparisons if _is_usable(its)]
    starts, ends, since = [0], [ALL_OFFSETS.end], []
    for _, compared, value in (its for its in usable if its.column == "offset"):
        least, most = _extremes(value)
        if compared in ("=", "in", ">", ">="):
            starts.append(least + (compared == ">"))
        if compared in ("=", "in", "<", "<="):
            ends.append(most + (compared != "<"))
    for _, compared, value in (its for its in usable if its.column == "timestamp"):
        least, _ = _extremes(value)
        if compared == ">":
            since.append(least // 1000 + 1)
        elif compared in ("=", "in", ">="):
            since.append(-(-least // 1000))
    return Bounds(
        topics=tuple(its for its in usable if its.column == "topic"),
        partitions=tuple(its for its in usable if its.column == "partition"),
        offsets=OffsetRange(max(starts), min(ends)),
        since=max(since, default=None),
    )


def _is_usable(comparison: Comparison) -> bool:
    kind = _TYPES.get(comparison.column)
    values = comparison.value if comparison.operator == "in" else [comparison.value]
    # Ordering by text is Spark's by bytes for the characters that a topic may have.
    return comparison.operator in _TESTS and bool(values) and all(type(value) is kind for value in values)


def _extremes(value: int | Collection[int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (min(value), max(value))


def offsets_within(
    place: Place, bounds: Bounds, partitions: Mapping[TopicPartition, Watermarks]
) -> dict[TopicPartition, OffsetRange]:
    """For each partition, seen with these watermarks before, the offsets that wanted rows may have."""
    within = {
        partition: bounds.offsets if bounds.admit(partition) else OffsetRange(0, 0)
        for partition in partitions
    }
    # Times below 0 are not to be asked for: they stand for other things, and a record without a time has -1.
    if bounds.since is None or bounds.since < 0:
        return within
    wanted = {p: seen for p, seen in partitions.items() if within[p].start < within[p].end}
    for partition, start in _starts(place, bounds.since, wanted).items():
        within[partition] = OffsetRange(max(start, bounds.offsets.start), bounds.offsets.end)
    return within


def _starts(
    place: Place, since: int, partitions: Mapping[TopicPartition, Watermarks]
) -> dict[TopicPartition, int]:
    """Offsets before which all records are older, as far as the place can tell."""
    try:
        found = place.offsets_for_times(dict.fromkeys(partitions, since)) if partitions else {}
        starts = {partition: offset for partition, offset in found.items() if offset is not None}
        unknown = partitions.keys() - starts.keys()
        newest = place.newest_timestamps(unknown) if unknown else {}
    except KafkaLogError as e:
        # Whatever is wrong is for the reader of the records to report, if it comes across it.
        _log.debug("Reading from the start although rows since %d are wanted: %s", since, e)
        return {}
    # What has come after the watermarks were asked for may be new.
    too_old = {p: partitions[p].high_watermark for p in unknown if newest.get(p, since) < since}
    return starts | too_old
