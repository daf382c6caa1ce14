"""The offset of a time in each partition, to act upon all older records, or all newer ones."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafkalog.errors import OversizedRecordError
from pyspark_kafkalog.model import Fetch, OffsetRange, Place, TopicPartition, Watermarks


def offsets_at(
    place: Place, bounds: Mapping[TopicPartition, Watermarks], timestamp: int
) -> dict[TopicPartition, int]:
    """The offset of each partition's first record from ``timestamp`` (ms) on; else its high watermark.

    Where look-ups do not tell, the records are read.

    :raises DataLossError: if records are deleted while they are read.
    :raises CorruptRecordError: if one of those batches can't be read.
    :raises OversizedRecordError: if one of their records is larger than can be looked into.
    """
    if timestamp < 0:  # a special value in ListOffsets, and -1 is that of a record without a timestamp
        return {partition: marks.log_start_offset for partition, marks in bounds.items()}
    known = known_offsets_at(place, bounds, timestamp)
    return {
        partition: min(known[partition], marks.high_watermark)
        if partition in known
        else _first_record(place, partition, marks, timestamp)
        for partition, marks in bounds.items()
    }


def known_offsets_at(
    place: Place, bounds: Mapping[TopicPartition, Watermarks], timestamp: int
) -> dict[TopicPartition, int]:
    """The offsets of :func:`offsets_at`, as far as look-ups tell: no record before is as new.

    A partition is left out where none was found, but a batch may be as new: a broker looks into one segment
    only, whose newest batch may have lost its records to compaction.
    """
    looked_up = place.offsets_for_times(dict.fromkeys(bounds, timestamp)) if bounds else {}
    found = {partition: offset for partition, offset in looked_up.items() if offset is not None}
    others = bounds.keys() - found.keys()
    newest = place.newest_timestamps(others) if others else {}
    # Records that came after the look-up of the watermarks may be new.
    return found | {p: bounds[p].high_watermark for p in others if newest.get(p, timestamp) < timestamp}


def _first_record(place: Place, partition: TopicPartition, marks: Watermarks, timestamp: int) -> int:
    from pyspark_kafkalog.codec.decode import first_record_at  # loads numpy and pyarrow

    offsets = OffsetRange(marks.log_start_offset, marks.high_watermark)
    for piece in place.fetch(Fetch(partition, offsets)):
        try:
            found = first_record_at(
                piece.buffer,
                timestamp=timestamp,
                min_offset=offsets.start,
                topic_partition=partition,
                origin=piece.origin,
            )
        except OversizedRecordError as e:
            raise e.with_hint(
                "Nothing raises this limit here, where the record's timestamp is looked for."
                f" Give another time, or an offset: its batch ends before offset {e.next_offset}."
            ) from None
        if found is not None:
            return min(found[0], offsets.end)
    return offsets.end
