"""Opens the active segment of a partition for appends.

If its last owner was interrupted, a partition may end in a torn batch, and its indexes in the zeros
of their preallocation. Before the first append this does what a broker's recovery would: it cuts off
the torn tail, and rebuilds untrustworthy indexes from the batches. Readers see no change.
Unlike a broker's recovery, this one keeps a last batch that is whole but has a wrong checksum, and
refuses to append to it: readers report such a batch, and it may have been acknowledged.

Source: Kafka's ``LogSegment.recover``, ``LogLoader``.
"""

from __future__ import annotations

import logging
import mmap
import os
import stat
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.codec.format import LOG_OVERHEAD, SIZE
from pyspark_kafkalog.codec.walk import Batches, check_batch, find_batch, walk
from pyspark_kafkalog.errors import CorruptRecordError, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import cut, write_new
from pyspark_kafkalog.log.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.log.segment import append_kernels as kernels
from pyspark_kafkalog.log.segment.index import OFFSET_ENTRY, TIME_ENTRY
from pyspark_kafkalog.log.segment.leftovers import settle
from pyspark_kafkalog.model import TopicPartition

_MAX_INDEX_BYTES = 10 << 20
"""Kafka's default of segment.index.bytes."""
NO_LIMIT = 1 << 62

_log = logging.getLogger("pyspark_kafkalog")


class SegmentLimits(NamedTuple):
    """When the next segment begins, and how sparse the indexes are; in the order of :mod:`.append_kernels`.

    The indexes hold no more entries than a broker could have written.
    """

    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    max_offset_entries: int = _MAX_INDEX_BYTES // OFFSET_ENTRY.itemsize
    max_time_entries: int = _MAX_INDEX_BYTES // TIME_ENTRY.itemsize


class ActiveSegment:
    """The state that appending needs of the segment that appends go to.

    ``next_offset`` follows its last batch. ``fields`` are those of :mod:`.append_kernels`.
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
        *,
        closing: bool = True,
    ) -> tuple[int, bytes, bytes]:
        """Account for batches, from number ``first`` on, up to the one that needs the next segment.

        :param closing: end ``.timeindex`` as that of a closed segment. What is appended later goes on after
            that entry, which an index that is built in one go would not have.
        :return: the number of that batch, the bytes to add to ``.index`` and to ``.timeindex``.
        """
        count = sizes.size - first
        offset_table, time_table = np.empty((2, count), np.int64), np.empty((2, count + 1), np.int64)
        stop, offsets, times = kernels.append_batches(
            sizes,
            last_offsets,
            max_timestamps,
            first,
            int(closing),
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
    """Find the last segment in ``folder``, and repair it if necessary; None if there is no segment.

    What a crash left of a replacement of segments is put in order first. Verifies the batches after the last
    index entry, or all batches if the indexes are not those of a closed segment.

    :raises CorruptRecordError: if valid batches follow invalid bytes, which is not a torn tail.
    """
    settle(folder)
    names = map(parse_segment_file, os.listdir(folder))
    base_offset = max((name[0] for name in names if name and name[1] == LOG_SUFFIX), default=None)
    if base_offset is None:
        return None
    path = os.path.join(folder, segment_file(base_offset, LOG_SUFFIX))
    log = _LogFile(map_file(path), path, base_offset, partition)
    offsets, times = log.read_index(INDEX_SUFFIX, OFFSET_ENTRY), log.read_index(TIME_INDEX_SUFFIX, TIME_ENTRY)
    segment = None
    if offsets is not None and times is not None:
        segment = _continue(log, offsets, times)
    if segment is None:
        segment = _rebuild(log, index_interval_bytes)
    log.cut(segment.sizes()[LOG_SUFFIX])
    return segment


def spans_too_much(path: str, partition: TopicPartition | None = None) -> LogDirectoryError:
    """The error for a segment with offsets that its indexes can't hold, which old brokers could write."""
    return LogDirectoryError(
        "The offsets of a segment span more than 2^31",
        topic_partition=partition,
        file=path,
        hint="Start a broker on the directory, which splits the segment, or copy it by kafkalog copy.",
    )


def map_file(path: str) -> np.ndarray:
    """The bytes of a regular file, mapped; don't cut the file while they are in use."""
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


@dataclass(frozen=True, slots=True)
class _LogFile:
    """The ``.log`` of a segment before any repair."""

    data: np.ndarray
    path: str
    base_offset: int
    partition: TopicPartition

    def index_path(self, suffix: str) -> str:
        return self.path.removesuffix(LOG_SUFFIX) + suffix

    def read_index(self, suffix: str, entry: np.dtype) -> np.ndarray | None:
        """The entries of an index; None unless they are whole and rise, as in a closed segment."""
        try:
            data = map_file(self.index_path(suffix))
        except FileNotFoundError:
            return None
        if data.size % entry.itemsize:
            return None
        entries = data.view(entry)
        first, second = (entries[name].astype(np.int64) for name in entry.names or ())
        rising = (np.diff(first) > 0).all() and (np.diff(second) >= 0).all()
        return entries if rising and not (entries.size and min(first[0], second[0]) < 0) else None

    def valid_batches(self, batches: Batches) -> tuple[int, int]:
        """How many of ``batches``, a walk to the end, are valid, and where they end.

        :raises CorruptRecordError: if more than a torn tail (a partial batch) follows them.
        """
        valid = 0
        next_offset = self.base_offset
        for position, last in zip(batches.position.tolist(), batches.last_offset.tolist(), strict=True):
            if last < next_offset or not check_batch(self.data, position):
                break
            valid, next_offset = valid + 1, last + 1
        end = int(batches.position[valid]) if valid < len(batches) else batches.end
        found = None
        if end < self.data.size:
            try:
                found = find_batch(self.data, end + 1, min_offset=next_offset, strict=True)
            except CorruptRecordError as e:
                hint = f"If you need nothing of what follows, cut it off: truncate -s {end} {self.path}"
                raise self._damaged(e.message, next_offset, end, hint) from None
        if found is not None:
            raise self._damaged(
                f"Expected a record batch, got other bytes before a valid batch at byte {found}",
                next_offset,
                end,
                "Restore the file, or run kafkalog repair, which drops all that follows, or salvages it.",
            )
        if valid < len(batches):
            raise self._damaged(
                "The last record batch is whole, but its checksum or its offsets are wrong",
                next_offset,
                end,
                "It may have been acknowledged. Restore the file. If the machine lost power before the batch "
                f"was flushed, let a broker recover it, or cut it off: truncate -s {end} {self.path}",
            )
        return valid, end

    def _damaged(self, message: str, offset: int, position: int, hint: str) -> CorruptRecordError:
        return CorruptRecordError(
            message,
            topic_partition=self.partition,
            offset=offset,
            file=self.path,
            position=position,
            hint=f"Nothing is appended after damage. {hint}",
        )

    def cut(self, size: int) -> None:
        """Cut off what follows the first ``size`` bytes; don't use ``data`` after that."""
        torn = self.data.size - size
        if torn:
            _log.warning("Cut off the torn tail of %s: %d bytes from byte %d on", self.path, torn, size)
            cut(self.path, size)


def _continue(log: _LogFile, offsets: np.ndarray, times: np.ndarray) -> ActiveSegment | None:
    """The segment by its indexes and the batches after their last entry; None if they do not fit."""
    start = int(offsets["position"][-1]) if offsets.size else 0
    batches = walk(log.data, start)
    if offsets.size:
        indexed = log.base_offset + int(offsets["offset"][-1])
        if not (batches.last_offset == indexed).any() or not check_batch(log.data, start):
            return None
    valid, end = log.valid_batches(batches)
    segment = ActiveSegment(log.base_offset)
    if valid:
        segment.next_offset = int(batches.last_offset[valid - 1]) + 1
    if times.size and log.base_offset + times["offset"][-1] >= segment.next_offset:
        return None
    fields = segment.fields
    fields[kernels.SIZE] = end
    fields[kernels.UNINDEXED_BYTES] = end - start
    fields[kernels.OFFSET_ENTRIES] = offsets.size
    fields[kernels.TIME_ENTRIES] = times.size
    first_size = int.from_bytes(log.data[SIZE : SIZE + 4].tobytes(), "big") + LOG_OVERHEAD
    for timestamp in walk(log.data[:first_size]).max_timestamp[:1]:
        fields[kernels.FIRST_TIMESTAMP] = timestamp
    if times.size:
        fields[[kernels.MAX_TIMESTAMP, kernels.LAST_TIME_ENTRY]] = times["timestamp"][-1]
        fields[kernels.OFFSET_OF_MAX_TIMESTAMP] = log.base_offset + times["offset"][-1]
    if valid:
        latest = int(np.argmax(batches.max_timestamp[:valid]))
        if batches.max_timestamp[latest] > fields[kernels.MAX_TIMESTAMP]:
            fields[kernels.MAX_TIMESTAMP] = batches.max_timestamp[latest]
            fields[kernels.OFFSET_OF_MAX_TIMESTAMP] = batches.last_offset[latest]
    return segment


def _rebuild(log: _LogFile, index_interval_bytes: int) -> ActiveSegment:
    """The segment by all its batches, with new indexes."""
    batches = walk(log.data)
    valid, _ = log.valid_batches(batches)
    segment = ActiveSegment(log.base_offset)
    no_limits = SegmentLimits(NO_LIMIT, NO_LIMIT, index_interval_bytes, NO_LIMIT, NO_LIMIT)
    stop, offset_index, time_index = segment.append(
        no_limits, batches.size[:valid], batches.last_offset[:valid], batches.max_timestamp[:valid]
    )
    if stop < valid:
        raise spans_too_much(log.path, log.partition)
    write_new(log.index_path(INDEX_SUFFIX), offset_index)
    write_new(log.index_path(TIME_INDEX_SUFFIX), time_index)
    _log.warning("Rebuilt the indexes of %s, which were not those of a closed segment", log.path)
    return segment


def _pack(entry: np.dtype, table: np.ndarray) -> bytes:
    entries = np.empty(table.shape[1], entry)
    for name, values in zip(entry.names or (), table, strict=True):
        entries[name] = values
    return entries.tobytes()
