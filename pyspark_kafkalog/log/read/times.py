"""Offsets for timestamps: the first record with timestamp >= t, as Kafka's ListOffsets answers.

Timestamps need not rise with offsets. Source: Kafka's ``UnifiedLog.fetchOffsetByTimestamp``,
``LogSegment.findOffsetByTimestamp``, ``FileRecords.searchForTimestamp``.

Where a batch's header can't be right, its records decide. The time index of a large segment is believed all
the same: it speaks for the batches before an entry, and to doubt it would be to read them all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyspark_kafkalog.codec.decode import first_record_at, newest_record
from pyspark_kafkalog.errors import CorruptRecordError, OversizedRecordError
from pyspark_kafkalog.log.layout import TIME_INDEX_SUFFIX
from pyspark_kafkalog.log.read.partition import Partition, segments_from
from pyspark_kafkalog.log.segment import index
from pyspark_kafkalog.log.segment.index import TimeEntry
from pyspark_kafkalog.log.segment.segment import SMALL_WINDOW, OpenSegment, Segment, Window
from pyspark_kafkalog.model import StoredSegment, TopicPartition

_MAX_TIMESTAMP = 2**63 - 1


def first_at(partition: Partition, timestamp: int) -> tuple[int, int] | None:
    """Offset and timestamp (ms) of the first record with a timestamp >= ``timestamp``, or None.

    Like a broker, this looks only into the first segment that has a batch with such
    a largest timestamp, even if compaction has removed the record from this batch.
    """
    segments = partition.segments()
    start = partition.log_start_offset(segments)
    for segment, _ in segments_from(segments, start):
        if not segment.is_active and _newest_in(partition, segment) < timestamp:
            continue
        with segment.open() as opened:
            entry = _verified_floor(opened, timestamp)
            begin = start if entry is None else max(start, entry.offset)
            is_chosen = False
            for window in opened.sound_windows(opened.position_before(begin)):
                is_late = window.batches.max_timestamp >= timestamp
                for row in np.flatnonzero(is_late | window.batches.is_misdated).tolist():
                    is_chosen |= bool(is_late[row])
                    found = _first_in(window, row, partition.topic_partition, timestamp, start)
                    if found is not None:
                        return found
            if is_chosen:
                return None
    return None


def newest_timestamp(partition: Partition) -> int:
    """The largest timestamp (ms) of all records, at least; -1 if there are none."""
    return max((_newest_in(partition, segment) for segment in partition.segments()), default=-1)


def stored_segments(partition: Partition) -> list[StoredSegment]:
    """The live segments with their timestamps and the state of their indexes."""
    from pyspark_kafkalog.log.segment.index_check import index_state

    segments = partition.segments()
    return [
        StoredSegment(
            segment.file,
            segment.base_offset,
            size,
            _earliest_timestamp(segment),
            largest_timestamp(partition, segment),
            index_state(segment),
            segment.is_active,
        )
        for segment, size in zip(segments, partition.sizes(segments), strict=True)
    ]


def _earliest_timestamp(segment: Segment) -> int:
    """The timestamp (ms) of the first batch of a segment that has one, -1 without any."""
    with segment.open() as opened:
        for window in opened.sound_windows(0):
            first = window.batches.first_timestamp
            if (dated := first[first >= 0]).size:
                return int(dated[0])
    return -1


def largest_timestamp(partition: Partition, segment: Segment) -> int:
    """The largest timestamp (ms) of a segment's batches, -1 without any.

    It is that of their headers, even if records are newer: so retention goes by what a broker goes by
    (Kafka's ``LogSegment.largestTimestamp``).
    """
    return _largest(partition, segment, _in_headers)


def _in_headers(window: Window) -> int:
    return int(window.batches.max_timestamp.max())


def _newest_in(partition: Partition, segment: Segment) -> int:
    """The largest timestamp (ms) of a segment's records, at least; -1 without any."""
    return _largest(partition, segment, _newest_record)


def _newest_record(window: Window) -> int:
    """The largest timestamp (ms) of the records, at least: where a header is wrong, they are read."""
    batches = window.batches
    misdated = np.flatnonzero(batches.is_misdated)
    pieces = zip(batches.position[misdated].tolist(), batches.size[misdated].tolist(), strict=True)
    newest = (newest_record(window.buffer.slice(position, size)) for position, size in pieces)
    return max([_in_headers(window), *newest])


def _largest(partition: Partition, segment: Segment, largest_in: Callable[[Window], int]) -> int:
    """The largest in the windows of a segment, by one of the above; remembered if the segment is closed."""
    known = partition.largest_timestamps.get((segment, largest_in))
    if known is not None:
        return known
    largest = -1
    with segment.open() as opened:
        entry = _verified_floor(opened, _MAX_TIMESTAMP)
        begin = segment.base_offset if entry is None else entry.offset
        for window in opened.sound_windows(opened.position_before(begin)):
            largest = max(largest, largest_in(window))
    if not segment.is_active:
        partition.largest_timestamps[segment, largest_in] = largest
    return largest


def _first_in(
    window: Window, row: int, topic_partition: TopicPartition, timestamp: int, min_offset: int
) -> tuple[int, int] | None:
    batches = window.batches
    batch = window.buffer.slice(int(batches.position[row]), int(batches.size[row]))
    try:
        return first_record_at(
            batch, timestamp=timestamp, min_offset=min_offset, topic_partition=topic_partition
        )
    except (CorruptRecordError, OversizedRecordError):
        # The records begin here, so that their reader reports what is wrong.
        return max(min_offset, int(batches.base_offset[row])), int(batches.max_timestamp[row])


def _verified_floor(opened: OpenSegment, timestamp: int) -> TimeEntry | None:
    """The time index entry for ``timestamp``, if the batch at its offset has its timestamp."""
    if opened.size <= SMALL_WINDOW:
        return None
    with opened.segment.open_index(TIME_INDEX_SUFFIX) as file:
        if file is None or file.size % index.TIME_ENTRY.itemsize:
            return None
        entry = index.floor_timestamp(file, opened.segment.base_offset, timestamp)
    if entry is not None:
        for window in opened.sound_windows(opened.position_before(entry.offset)):
            found = int(np.searchsorted(window.batches.last_offset, entry.offset))
            if found < len(window.batches):
                return entry if window.batches.max_timestamp[found] == entry.timestamp else None
    return None
