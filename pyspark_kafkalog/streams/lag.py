"""How far a stream is behind the end of what it reads (the metrics of Spark's KafkaMicroBatchStream)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets


@dataclass(frozen=True, slots=True)
class SourceLag:
    """Where one source of a query stands after a micro-batch.

    Offsets behind the latest are of the partition that is least behind, of the
    one that is most, and on average. Bytes are as stored and estimated; None
    where the mean size of records is not known.
    """

    min_offsets_behind: int
    avg_offsets_behind: float
    max_offsets_behind: int
    bytes_read: int | None
    bytes_behind: int | None


def source_lag(
    start: Offsets | None,
    end: Offsets,
    latest: Offsets,
    *,
    rows: int,
    record_bytes: Mapping[TopicPartition, float],
) -> SourceLag | None:
    """The lag at ``end`` of a micro-batch; None if there is no partition.

    As by Spark, a partition of which nothing is consumed yet counts from offset 0.

    :param start: where the micro-batch began, if it is known.
    :param rows: how many rows it had.
    :param record_bytes: mean bytes for each offset, of partitions of which they are known.
    """
    behind = {partition: offset - end.get(partition, 0) for partition, offset in latest.items()}
    if not behind:
        return None
    if start is None:
        known = [record_bytes[partition] for partition in end if partition in record_bytes]
        bytes_read = round(rows * sum(known) / len(known)) if known else None
    else:
        moved = {partition: max(offset - start.get(partition, 0), 0) for partition, offset in end.items()}
        bytes_read = _bytes(moved, record_bytes)
    return SourceLag(
        min(behind.values()),
        sum(behind.values()) / len(behind),
        max(behind.values()),
        bytes_read,
        _bytes(behind, record_bytes),
    )


def _bytes(offsets: Mapping[TopicPartition, int], record_bytes: Mapping[TopicPartition, float]) -> int | None:
    """What so many offsets of each partition take; None if that can't be told of all."""
    counted = {partition: count for partition, count in offsets.items() if count}
    if not record_bytes or not counted.keys() <= record_bytes.keys():
        return None
    return round(sum(count * record_bytes[partition] for partition, count in counted.items()))
