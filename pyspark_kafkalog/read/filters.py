"""The partitions and offsets that filters leave to be read, before any record is fetched.

Only what can't match is skipped. Spark still applies all filters.
"""

from __future__ import annotations

import datetime
import logging
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import ALL_OFFSETS, OffsetRange, Place, TopicPartition, Watermarks

_log = logging.getLogger("pyspark_kafkalog")


class Comparison(NamedTuple):
    """A condition that every wanted row meets: ``column operator value``.

    The operator is one of ``= < <= > >= in``. A timestamp is in microseconds
    since the epoch.
    """

    column: str
    operator: str
    value: Any


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def compared(value: Any) -> Any:
    """A value, or several, as a :class:`Comparison` has them: a point in time as microseconds."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // datetime.timedelta(microseconds=1)
    return [compared(item) for item in value] if isinstance(value, (list, tuple, set)) else value


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
    """No row outside these bounds is wanted."""

    topics: tuple[Comparison, ...] = ()
    partitions: tuple[Comparison, ...] = ()
    offsets: OffsetRange = ALL_OFFSETS
    since: int | None = None
    """The least timestamp, in ms."""

    def admit(self, partition: TopicPartition) -> bool:
        """Whether the partition may hold rows that are wanted."""
        return all(
            _TESTS[comparison.operator](partition.topic, comparison.value) for comparison in self.topics
        ) and all(
            _TESTS[comparison.operator](partition.partition, comparison.value)
            for comparison in self.partitions
        )


ALL_ROWS = Bounds()


def bounds_of(comparisons: Iterable[Comparison]) -> Bounds:
    """The bounds that follow from ``comparisons``; those on other columns or types are ignored.

    An upper bound on timestamps skips nothing. Producers set the timestamps, which
    need not rise with the offsets, so records that match may follow the first one
    that is too late. Even with LogAppendTime, where brokers set them, timestamps
    fall when the clock of a new leader is behind, and older records of the topic may have
    been stamped by producers.
    """
    usable = [comparison for comparison in comparisons if _is_usable(comparison)]
    starts, ends, since = [0], [ALL_OFFSETS.end], []
    for _, compared, value in (test for test in usable if test.column == "offset"):
        least, most = _extremes(value)
        if compared in ("=", "in", ">", ">="):
            starts.append(least + (compared == ">"))
        if compared in ("=", "in", "<", "<="):
            ends.append(most + (compared != "<"))
    for _, compared, value in (test for test in usable if test.column == "timestamp"):
        least, _ = _extremes(value)
        if compared == ">":
            since.append(least // 1000 + 1)
        elif compared in ("=", "in", ">="):
            since.append(-(-least // 1000))
    return Bounds(
        topics=tuple(comparison for comparison in usable if comparison.column == "topic"),
        partitions=tuple(comparison for comparison in usable if comparison.column == "partition"),
        offsets=OffsetRange(max(starts), min(ends)),
        since=max(since, default=None),
    )


def _is_usable(comparison: Comparison) -> bool:
    kind = _TYPES.get(comparison.column)
    values = comparison.value if comparison.operator == "in" else [comparison.value]
    # For the characters of topic names, Python's order of text is Spark's order by bytes.
    return comparison.operator in _TESTS and bool(values) and all(type(value) is kind for value in values)


def _extremes(value: int | Collection[int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (min(value), max(value))


def offsets_within(
    place: Place, bounds: Bounds, partitions: Mapping[TopicPartition, Watermarks]
) -> dict[TopicPartition, OffsetRange]:
    """The offsets that wanted rows may have in each partition, given its watermarks."""
    within = {
        partition: bounds.offsets if bounds.admit(partition) else OffsetRange(0, 0)
        for partition in partitions
    }
    # Negative timestamps have special meanings in ListOffsets, and records without a timestamp have -1.
    if bounds.since is None or bounds.since < 0:
        return within
    wanted = {p: seen for p, seen in partitions.items() if within[p].start < within[p].end}
    for partition, start in _starts(place, bounds.since, wanted).items():
        within[partition] = OffsetRange(max(start, bounds.offsets.start), bounds.offsets.end)
    return within


def _starts(
    place: Place, since: int, partitions: Mapping[TopicPartition, Watermarks]
) -> dict[TopicPartition, int]:
    """Offsets before which all records are older than ``since``, as far as the place knows."""
    from pyspark_kafkalog.read.times import known_offsets_at

    try:
        return known_offsets_at(place, partitions, since)
    except KafkaLogError as e:
        # The task that reads the records reports the error, if it meets it.
        _log.debug("Cannot look up offsets for timestamp %d, so reading from the start: %s", since, e)
        return {}
