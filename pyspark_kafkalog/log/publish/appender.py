"""Append staged record batches to one partition, with their offsets and epoch.

Sources: Kafka's ``UnifiedLog.append``, ``LogValidator``.
A roll writes no producer snapshot (``.snapshot``): batches written here have no
producer id, and a broker rebuilds what it lacks from the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pyspark_kafkalog.codec.batch_identity import header_of
from pyspark_kafkalog.codec.encode import put_checksums
from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_V2,
    LEADER_EPOCH_V2,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP_V2,
    OFFSET,
)
from pyspark_kafkalog.codec.walk import Batches, walk
from pyspark_kafkalog.codec.write_kernels import put_ints
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.durable import sync_folder, write_new
from pyspark_kafkalog.filesystem.sharing import new_folder
from pyspark_kafkalog.log.checkpoints import read_epochs, read_topic_id, write_epochs
from pyspark_kafkalog.log.journal_file import BATCH, PartitionEnd
from pyspark_kafkalog.log.layout import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA_FILE,
    format_leader_epoch_checkpoint,
    format_partition_metadata,
    segment_file,
)
from pyspark_kafkalog.log.segment.writer import ActiveSegment, SegmentLimits, SegmentWriter
from pyspark_kafkalog.model import BatchHeader, LogSettings, OffsetRange, TopicPartition

_CHUNK_BYTES = 128 << 10
"""About the size of the chunks in which batches are copied: they are patched in the processor's cache, and
larger writes get memory pages that have gone cold."""

ReadBytes = Callable[[int, int, np.ndarray], None]
"""Fills an array with bytes: (number of the source, position in it, array)."""


@dataclass(frozen=True, slots=True)
class PendingBatches:
    """Record batches to append to a partition, in order: each has an element in the arrays.

    ``source`` is the number of its staged file, ``position`` and ``size`` its place there,
    ``records`` the number of its offsets. ``read`` copies bytes from a staged file.
    """

    read: ReadBytes
    source: np.ndarray
    position: np.ndarray
    size: np.ndarray
    records: np.ndarray
    max_timestamp: np.ndarray
    attributes: np.ndarray
    crc: np.ndarray

    def listed(self) -> np.ndarray:
        """The batches as the journal lists them."""
        entries = np.empty(self.size.size, BATCH)
        for name in entries.dtype.names or ():
            entries[name] = getattr(self, name)
        return entries

    def chunks(self, first: int, stop: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Batches ``first`` to ``stop``, some at a time: their range, and a copy of their bytes without gaps.

        Each copy overwrites the one before.
        """
        ends = np.cumsum(self.size)
        copy = np.empty(max(_CHUNK_BYTES, int(self.size[first:stop].max(initial=0))), np.uint8)
        while first < stop:
            limit = int(ends[first] - self.size[first]) + copy.size
            part = slice(first, min(stop, int(np.searchsorted(ends, limit, side="right"))))
            yield part, self._gather(part, copy)
            first = part.stop

    def _gather(self, part: slice, copy: np.ndarray) -> np.ndarray:
        """Copy batches to the front of ``copy``, neighbours in a file at once."""
        source, position, size = self.source[part], self.position[part], self.size[part]
        apart = np.flatnonzero((source[1:] != source[:-1]) | (position[1:] != position[:-1] + size[:-1])) + 1
        filled = 0
        for first, stop in zip([0, *apart.tolist()], [*apart.tolist(), size.size], strict=True):
            start, length = int(position[first]), int(size[first:stop].sum())
            self.read(int(source[first]), start, copy[filled : filled + length])
            filled += length
        return copy[:filled]


def batch_table(batches: Batches, source: int) -> np.ndarray:
    """The fields of :class:`PendingBatches` after the first, a row each."""
    records = batches.last_offset - batches.base_offset + 1
    return np.stack(
        [
            np.full_like(batches.position, source),
            batches.position,
            batches.size,
            records,
            batches.max_timestamp,
            batches.attributes,
            batches.crc,
        ]
    )


def pending_batches(data: np.ndarray) -> PendingBatches:
    """The record batches that ``data`` holds."""

    def read(_: int, position: int, into: np.ndarray) -> None:
        into[:] = data[position : position + into.size]

    return PendingBatches(read, *batch_table(walk(data), 0))


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """A partition's folder, ready to be appended to."""

    folder: str
    created: bool
    next_offset: int
    leader_epochs: list[tuple[int, int]]
    active: ActiveSegment | None
    topic_id: str
    """Empty if ``partition.metadata`` does not tell it, as before Kafka 2.8."""
    others: tuple[str, ...] = ()
    """Names of files for base offsets above the active segment's, such as snapshots."""

    @property
    def leader_epoch(self) -> int:
        """The epoch to append in."""
        return self.leader_epochs[-1][0]

    def end(self) -> PartitionEnd:
        """The state to restore if an append is undone."""
        return PartitionEnd(
            log_end_offset=self.next_offset,
            created=self.created,
            segment=None if self.active is None else self.active.base_offset,
            sizes={} if self.active is None else self.active.sizes(),
            others=self.others,
            leader_epoch=self.leader_epoch,
            leader_epochs=self.leader_epochs,
            topic_id=self.topic_id,
        )


def open_partition(
    folder: str, partition: TopicPartition, settings: LogSettings, log_start_offset: int
) -> PartitionLog:
    """Open an existing partition, and repair what its last owner left unfinished (invisible to readers).

    A log without a leader epoch gets epoch 0 from its end on, as it would from its first leader.
    """
    from pyspark_kafkalog.log.publish.newest import find_newest
    from pyspark_kafkalog.log.segment.recovery import open_segment

    base_offset, others = find_newest(folder)
    active = None
    if base_offset is not None:
        active = open_segment(folder, base_offset, partition, settings.index_interval_bytes)
    next_offset = max(log_start_offset, 0 if active is None else active.next_offset)
    epochs = read_epochs(folder)
    if not epochs:
        epochs = [(0, next_offset)]
        write_epochs(folder, epochs)
    return PartitionLog(folder, False, next_offset, epochs, active, read_topic_id(folder), others)


def header_at(log: PartitionLog, offset: int) -> BatchHeader | None:
    """The header of the record batch with an offset in the active segment; None without one.

    :raises CorruptRecordError: if damage before it can't be passed.
    """
    from pyspark_kafkalog.filesystem.locate import open_folder
    from pyspark_kafkalog.log.segment.segment import Segment

    assert log.active is not None
    base_offset = log.active.base_offset
    segment = Segment(open_folder(log.folder), base_offset, "", 0, 0, is_active=True)
    with segment.open() as opened:
        window = opened.window_at(opened.seek(offset))
    header = None if window is None else header_of(window.batches)
    return header if header is not None and header.base_offset <= offset else None


def new_partition(folder: str, topic_id: str) -> PartitionLog:
    """A partition that does not exist yet, to begin with offset 0 and epoch 0; see :func:`create_folder`.

    :raises LogDirectoryError: if something else has its name.
    """
    if os.path.lexists(folder):
        raise LogDirectoryError(
            "Expected a folder for the new partition, found something else",
            file=folder,
            hint="Move it away.",
        )
    return PartitionLog(folder, True, 0, [(0, 0)], None, topic_id)


def create_folder(log: PartitionLog) -> None:
    """Create the folder of a new partition like a broker: an empty segment, its topic's id, epoch 0."""
    new_folder(log.folder)
    metadata = {PARTITION_METADATA_FILE: format_partition_metadata(log.topic_id)}
    files = {
        **(metadata if log.topic_id else {}),  # a topic from before Kafka 2.8 has none
        LEADER_EPOCH_CHECKPOINT: format_leader_epoch_checkpoint(log.leader_epochs),
        **{segment_file(log.next_offset, suffix): b"" for suffix in ActiveSegment(log.next_offset).sizes()},
    }
    for name, data in files.items():
        write_new(os.path.join(log.folder, name), data)
    sync_folder(log.folder)


def append(
    log: PartitionLog,
    batches: PendingBatches,
    settings: LogSettings,
    append_time: int | None = None,
    progress: Callable[[], None] = lambda: None,
    *,
    framed_last: bool = False,
) -> OffsetRange:
    """Append the batches, and flush all that was written.

    :param append_time: the timestamp, in ms, that all records get if ``settings`` say so.
    :param progress: called every now and then.
    :param framed_last: for a batch without a journal: write its offset and size when all else is on disk,
        so that no crash leaves a batch that is whole by its size, and wrong.
    :return: the offsets that the records got.
    """
    if not settings.log_append_time:
        append_time = None
    base_offsets = _base_offsets(log, batches)
    last_offsets = base_offsets + batches.records - 1
    max_timestamps = batches.max_timestamp if append_time is None else np.full_like(last_offsets, append_time)
    segment = log.active or ActiveSegment(log.next_offset)
    first = 0
    with SegmentWriter(log.folder, SegmentLimits.of(settings), segment) as writer:
        while first < last_offsets.size:
            stop = writer.fit(batches.size, last_offsets, max_timestamps, first)
            data = _stamped(batches, first, stop, base_offsets, log.leader_epoch, append_time, progress)
            writer.write(data, framed_last=framed_last)
            writer.write_indexes()
            writer.flush()
            progress()
            if stop < last_offsets.size:
                writer.roll(int(base_offsets[stop]))
            first = stop
    sync_folder(log.folder)
    return OffsetRange(log.next_offset, int(last_offsets[-1]) + 1)


def last_batch(
    log: PartitionLog, batches: PendingBatches, settings: LogSettings, append_time: int | None
) -> BatchHeader:
    """The header of the last of the batches, as :func:`append` writes it."""
    if not settings.log_append_time:
        append_time = None
    offsets, count = _base_offsets(log, batches), batches.size.size
    data = next(_stamped(batches, count - 1, count, offsets, log.leader_epoch, append_time))
    return header_of(walk(data))


def _base_offsets(log: PartitionLog, batches: PendingBatches) -> np.ndarray:
    base_offsets: np.ndarray = log.next_offset + np.cumsum(batches.records) - batches.records
    return base_offsets


def _stamped(
    batches: PendingBatches,
    first: int,
    stop: int,
    base_offsets: np.ndarray,
    leader_epoch: int,
    append_time: int | None,
    progress: Callable[[], None] = lambda: None,
) -> Iterator[np.ndarray]:
    """The bytes of some batches, in pieces, with their offsets, epoch and append time set."""
    for part, data in batches.chunks(first, stop):
        sizes = batches.size[part]
        positions = np.cumsum(sizes) - sizes
        put_ints(data, positions + OFFSET, base_offsets[part], 8)
        put_ints(data, positions + LEADER_EPOCH_V2, np.full_like(positions, leader_epoch), 4)
        if append_time is not None:
            put_ints(data, positions + ATTRIBUTES_V2, batches.attributes[part] | LOG_APPEND_TIME_BIT, 2)
            put_ints(data, positions + MAX_TIMESTAMP_V2, np.full_like(positions, append_time), 8)
            put_checksums(data, positions, sizes)
        yield data
        progress()
