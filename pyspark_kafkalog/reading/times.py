"""Where a time begins in each partition, for what acts upon all that is older, or all that is newer."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafkalog.model import OffsetRange, Place, TopicPartition, Watermarks


def offsets_at(
    place: Place, bounds: Mapping[TopicPartition, Watermarks], timestamp: int
) -> dict[TopicPartition, int]:
    """For each partition the first record with a timestamp >= ``timestamp`` (ms); its high watermark if none.

    Where the place finds none, but has batches as new, those are read: a broker looks into one segment only,
    whose newest batch may have lost its records to compaction.

    :raises DataLossError: if records are deleted while they are read.
    :raises CorruptRecordError: if one of those batches can't be read.
    """
    if timestamp < 0:  # a special value in ListOffsets, and -1 is that of a record without a timestamp
        return {partition: marks.log_start_offset for partition, marks in bounds.items()}
    found = place.offsets_for_times(dict.fromkeys(bounds, timestamp)) if bounds else {}
    unsure = [partition for partition, offset in found.items() if offset is None]
    newest = place.newest_timestamps(unsure) if unsure else {}
    for partition in unsure:
        if newest.get(partition, timestamp) >= timestamp:
            found[partition] = _first_record(place, partition, bounds[partition], timestamp)
    ends = {partition: marks.high_watermark for partition, marks in bounds.items()}
    return {p: ends[p] if offset is None else min(offset, ends[p]) for p, offset in found.items()}


def _first_record(place: Place, partition: TopicPartition, marks: Watermarks, timestamp: int) -> int | None:
    from pyspark_kafkalog.codec.decode import first_record_at  # loads numpy and pyarrow

    offsets = OffsetRange(marks.log_start_offset, marks.high_watermark)
    for piece in place.fetch(partition, offsets, read_committed=False):
        found = first_record_at(
            piece.buffer,
            timestamp=timestamp,
            min_offset=offsets.start,
            topic_partition=partition,
            origin=piece.origin,
        )
        if found is not None:
            return found[0]
    return None
