"""The lag of a stream behind the ends of its partitions (the metrics of Spark's KafkaMicroBatchStream)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import listed
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets

_NAMED = 5
"""The number of partitions that a line lists."""


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The lag of one source of a query after a micro-batch.

    ``partitions`` has the offsets behind the latest of each partition, at least one, sorted. Bytes are
    estimates of the stored size; None if the mean size of records is not known. ``beyond`` has the partitions
    that end before what was read of them, and by how many offsets: their logs were cut or recreated.
    ``unknown`` has those whose ends can't be looked up, such as without a leader, and why.
    """

    partitions: Mapping[TopicPartition, int]
    bytes_read: int | None
    bytes_behind: int | None
    beyond: Mapping[TopicPartition, int] = field(default_factory=dict)
    unknown: Mapping[TopicPartition, str] = field(default_factory=dict)

    @property
    def min_offsets_behind(self) -> int:
        """The lag of the partition that is least behind."""
        return min(self.partitions.values())

    @property
    def avg_offsets_behind(self) -> float:
        """The average lag of the partitions."""
        return self.offsets_behind / len(self.partitions)

    @property
    def max_offsets_behind(self) -> int:
        """The lag of the partition that is furthest behind."""
        return max(self.partitions.values())

    @property
    def offsets_behind(self) -> int:
        """The lag of all partitions together."""
        return sum(self.partitions.values())


@dataclass(frozen=True, slots=True)
class QueryLag:
    """The state of a query at one progress event."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    timestamp: str
    """The time at which the trigger began, in ISO 8601."""
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    bytes_per_second: float | None
    """An estimate of the stored bytes; None if the sizes of records are not known."""
    sources: tuple[SourceLag | None, ...]
    """The lag of each source, in Spark's order; None for sources without Kafka's offsets."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Large messages that ``reassemble`` has dropped, by reason."""

    def __str__(self) -> str:
        """A line for a log or a notebook."""
        parts = [f"{self.rows:,} rows", f"{self.processed_rows_per_second:,.0f} rows/s"]
        if self.bytes_per_second is not None:
            parts.append(f"{self.bytes_per_second / 1e6:,.1f} MB/s")
        for lag in self.sources:
            if lag is not None:
                behind = f"{lag.min_offsets_behind:,} to {lag.max_offsets_behind:,} offsets behind"
                about = "" if lag.bytes_behind is None else f", {lag.bytes_behind / 1e6:,.1f} MB"
                parts.append(f"{behind} (mean {lag.avg_offsets_behind:,.1f}{about})")
                if lag.beyond:
                    parts.append(f"logs that end before what was read: {listed(lag.beyond, _NAMED)}")
                if lag.unknown:
                    parts.append(f"ends unknown: {listed(lag.unknown, _NAMED)}")
        if self.dropped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
            parts.append(f"dropped large messages: {reasons}")
        return f"{self.name or self.query_id} batch {self.batch_id}: {', '.join(parts)}"


def source_lag(
    start: Offsets | None,
    end: Offsets,
    latest: Offsets,
    *,
    rows: int,
    record_bytes: Mapping[TopicPartition, float],
    unknown: Mapping[TopicPartition, str] = {},
) -> SourceLag | None:
    """The lag at the ``end`` of a micro-batch; None if there is no partition.

    As in Spark, a partition that has not been read yet counts from offset 0.

    :param start: where the micro-batch began, if known.
    :param rows: the number of its rows.
    :param record_bytes: mean bytes per offset, for the partitions where they are known.
    :param unknown: why the latest offset of a partition is not known.
    """
    ahead = {partition: offset - end.get(partition, 0) for partition, offset in sorted(latest.items())}
    if not ahead:
        return None
    behind = {partition: max(offsets, 0) for partition, offsets in ahead.items()}
    beyond = {partition: -offsets for partition, offsets in ahead.items() if offsets < 0}
    if start is None:
        known = [record_bytes[partition] for partition in end if partition in record_bytes]
        bytes_read = round(rows * sum(known) / len(known)) if known else None
    else:
        moved = {partition: max(offset - start.get(partition, 0), 0) for partition, offset in end.items()}
        bytes_read = _bytes(moved, record_bytes)
    return SourceLag(behind, bytes_read, _bytes(behind, record_bytes), beyond, unknown)


def _bytes(offsets: Mapping[TopicPartition, int], record_bytes: Mapping[TopicPartition, float]) -> int | None:
    """The bytes of this many offsets of each partition; None if a mean size is missing."""
    counted = {partition: count for partition, count in offsets.items() if count}
    if not record_bytes or not counted.keys() <= record_bytes.keys():
        return None
    return round(sum(count * record_bytes[partition] for partition, count in counted.items()))
