"""The active segment of a partition, made fit to be appended to.

A partition whose last owner stopped in the middle of something may end in a
torn batch, and its indexes in the zeros they were made with. What a broker's
recovery would do to them is done before the first append: the torn tail is cut
off, and indexes that cannot be trusted are built anew from the batches. None of
this changes what readers see. Source: Kafka's ``LogSegment.recover``, ``LogLoader``.
"""

from __future__ import annotations

import logging
import mmap
import os
import stat
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.codec.format import LOG_OVERHEAD, SIZE
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, check_batch, find_batch, walk
from pyspark_kafkalog.errors import CorruptRecordError, LogDirectoryError
from pyspark_kafkalog.log import append_kernels as kernels
from pyspark_kafkalog.log.durable import write_new
from pyspark_kafkalog.log.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.model import TopicPartition

OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_MAX_INDEX_BYTES = 10 << 20
"""Kafka's default of segment.index.bytes."""
_NO_LIMIT = 1 << 62

logger = logging.getLogger("pyspark_kafkalog")


class SegmentLimits(NamedTuple):
    """When the next segment begins, and how sparse the indexes are; in the order of :mod:`.append_kernels`.

    The indexes are never fuller than a broker could have written them.
    """

    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    max_offset_entries: int = _MAX_INDEX_BYTES // OFFSET_ENTRY.itemsize
    max_time_entries: int = _MAX_INDEX_BYTES // TIME_ENTRY.itemsize


class ActiveSegment:
    """The segment that appends go to, as far as appending has to know it.

    ``next_offset`` is the one after its last batch. ``fields`` are those of :mod:`.append_kernels`.
    """

    def __init__(self, base_offset: int) -> None:
        self.next_offset = base_offset
        self.fields = np.zeros(kernels.SEGMENT_FIELDS, np.int64)
        self.fields[kernels.BASE_OFFSET] = base_offset
        self.fields[[kernels.FIRST_TIMESTAMP, kernels.MAX_TIMESTAMP, kernels.LAST_TIME_ENTRY]] = -1

    @property
    def base_offset(self) -> int:
        return int(self.fields[kernels.BASE_OFFSET])

    def sizes(self) -> dict[str, int]:
        """Size in bytes of each of its files, by suffix."""
        return {
            LOG_SUFFIX: int(self.fields[kernels.SIZE]),
            INDEX_SUFFIX: int(self.fields[kernels.OFFSET_ENTRIES]) * OFFSET_ENTRY.itemsize,
            TIME_INDEX_SUFFIX: int(self.fields[kernels.TIME_ENTRIES]) * TIME_ENTRY.itemsize,
        }

    def append(
        self,
        limits: SegmentLimits,
        sizes: np.ndarray,
        last_offsets: np.ndarray,
        max_timestamps: np.ndarray,
        first: int = 0,
    ) -> tuple[int, bytes, bytes]:
        """Account for batches, from number ``first`` on, up to one that asks for the next segment.

        :return: the number of that batch, the bytes to add to ``.index`` and to ``.timeindex``.
        """
        count = sizes.size - first
        offset_table, time_table = np.empty((2, count), np.int64), np.empty((2, count + 1), np.int64)
        stop, offsets, times = kernels.append_batches(
            sizes,
            last_offsets,
            max_timestamps,
            first,
            np.array(limits),
            self.fields,
            offset_table,
            time_table,
        )
        if stop > first:
            self.next_offset = int(last_offsets[stop - 1]) + 1
        return (
            stop,
            _pack(OFFSET_ENTRY, offset_table[:, :offsets]),
            _pack(TIME_ENTRY, time_table[:, :times]),
        )


def open_active_segment(
    folder: str, partition: TopicPartition, index_interval_bytes: int
) -> ActiveSegment | None:
    """Find the last segment in ``folder`` and repair what has to be; None if there is no segment.

    Reads what follows the last index entry, checksums verified; all of the
    segment if its indexes are not those of a segment that was closed.

    :raises CorruptRecordError: if valid batches follow invalid bytes: that is no torn tail.
    """
    names = map(parse_segment_file, os.listdir(folder))
    base_offset = max((name[0] for name in names if name and name[1] == LOG_SUFFIX), default=None)
    if base_offset is None:
        return None
    path = os.path.join(folder, segment_file(base_offset, LOG_SUFFIX))
    data = map_file(path)
    offsets = _read_index(folder, base_offset, INDEX_SUFFIX, OFFSET_ENTRY)
    times = _read_index(folder, base_offset, TIME_INDEX_SUFFIX, TIME_ENTRY)
    segment = _continue(data, base_offset, offsets, times, path, partition)
    if segment is None:
        return _rebuild(data, base_offset, index_interval_bytes, path, partition)
    return segment


def map_file(path: str) -> np.ndarray:
    """The bytes of a regular file, mapped; it must not be cut while they are in use."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise LogDirectoryError("Not a regular file", file=path)
        if status.st_size == 0:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), np.uint8)
    finally:
        os.close(descriptor)


def _read_index(folder: str, base_offset: int, suffix: str, entry: np.dtype) -> np.ndarray | None:
    """The entries of an index, or None unless it is that of a closed segment: whole, and rising."""
    path = os.path.join(folder, segment_file(base_offset, suffix))
    try:
        data = map_file(path)
    except FileNotFoundError:
        return None
    if data.size % entry.itemsize:
        return None
    entries = data.view(entry)
    first, second = (entries[name].astype(np.int64) for name in entry.names or ())
    rising = (np.diff(first) > 0).all() and (np.diff(second) >= 0).all()
    return entries if rising and not (entries.size and min(first[0], second[0]) < 0) else None


def _continue(
    data: np.ndarray,
    base_offset: int,
    offsets: np.ndarray | None,
    times: np.ndarray | None,
    path: str,
    partition: TopicPartition,
) -> ActiveSegment | None:
    """The segment as its indexes tell and the batches after the last entry; None if they do not fit it."""
    if offsets is None or times is None:
        return None
    start = int(offsets["position"][-1]) if offsets.size else 0
    batches = walk(data, start)
    if offsets.size and not (
        len(batches)
        and batches.last_offset[0] == base_offset + offsets["offset"][-1]
        and check_batch(data, start)
    ):
        return None
    end, valid = _valid_end(data, batches, base_offset, path, partition)
    next_offset = int(batches.last_offset[valid - 1]) + 1 if valid else base_offset
    if times.size and base_offset + times["offset"][-1] >= next_offset:
        return None
    segment = ActiveSegment(base_offset)
    segment.next_offset = next_offset
    fields = segment.fields
    fields[kernels.SIZE] = end
    fields[kernels.UNINDEXED_BYTES] = end - start
    fields[kernels.OFFSET_ENTRIES] = offsets.size
    fields[kernels.TIME_ENTRIES] = times.size
    if end:
        first_size = int.from_bytes(data[SIZE : SIZE + 4].tobytes(), "big") + LOG_OVERHEAD
        fields[kernels.FIRST_TIMESTAMP] = walk(data[:first_size]).max_timestamp[0]
    if times.size:
        fields[[kernels.MAX_TIMESTAMP, kernels.LAST_TIME_ENTRY]] = times["timestamp"][-1]
        fields[kernels.OFFSET_OF_MAX_TIMESTAMP] = base_offset + times["offset"][-1]
    if valid:
        latest = int(np.argmax(batches.max_timestamp[:valid]))
        if batches.max_timestamp[latest] > fields[kernels.MAX_TIMESTAMP]:
            fields[kernels.MAX_TIMESTAMP] = batches.max_timestamp[latest]
            fields[kernels.OFFSET_OF_MAX_TIMESTAMP] = batches.last_offset[latest]
    return segment


def _rebuild(
    data: np.ndarray, base_offset: int, index_interval_bytes: int, path: str, partition: TopicPartition
) -> ActiveSegment:
    """The segment as all its batches tell, with new indexes."""
    batches = walk(data)
    _, valid = _valid_end(data, batches, base_offset, path, partition)
    segment = ActiveSegment(base_offset)
    no_limits = SegmentLimits(_NO_LIMIT, _NO_LIMIT, index_interval_bytes, _NO_LIMIT, _NO_LIMIT)
    stop, offset_index, time_index = segment.append(
        no_limits, batches.size[:valid], batches.last_offset[:valid], batches.max_timestamp[:valid]
    )
    if stop < valid:
        raise LogDirectoryError(
            "A segment whose offsets span more than 2^31",
            topic_partition=partition,
            file=path,
            hint="A broker splits it when it starts.",
        )
    stem = path.removesuffix(LOG_SUFFIX)
    write_new(stem + INDEX_SUFFIX, offset_index)
    write_new(stem + TIME_INDEX_SUFFIX, time_index)
    logger.warning("Rebuilt the indexes of %s, which its last owner did not close", path)
    return segment


def _pack(entry: np.dtype, table: np.ndarray) -> bytes:
    entries = np.empty(table.shape[1], entry)
    for name, values in zip(entry.names or (), table, strict=True):
        entries[name] = values
    return entries.tobytes()


def _valid_end(
    data: np.ndarray, batches: Batches, base_offset: int, path: str, partition: TopicPartition
) -> tuple[int, int]:
    """Position after the last valid batch of ``batches``, and how many those are; cuts a torn tail off."""
    valid = 0
    next_offset = base_offset
    for position, last in zip(batches.position.tolist(), batches.last_offset.tolist(), strict=True):
        if last < next_offset or not check_batch(data, position):
            break
        valid, next_offset = valid + 1, last + 1
    if valid == len(batches) and batches.status == WalkStatus.END:
        return batches.end, valid
    end = int(batches.position[valid]) if valid < len(batches) else batches.end
    found = find_batch(data, end + 1, min_offset=next_offset)
    if found is not None:
        raise CorruptRecordError(
            f"Invalid bytes in the middle of a log, as a valid batch follows at byte {found}",
            topic_partition=partition,
            offset=next_offset,
            file=path,
            position=end,
            hint="Nothing is appended behind damage. Restore the file, or let a broker recover it, "
            "which drops all that follows.",
        )
    logger.warning("Cut the torn tail of %s off: %d bytes from byte %d on", path, data.size - end, end)
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return end, valid
