"""Append record batches that have their offsets already, as a follower does with those of its leader.

Nothing in a batch is changed, but that one in which a gap ends loses its records in the gap. Kafka's
``UnifiedLog.appendAsFollower``, ``LocalLog.roll``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from pyspark_kafkalog.codec import read_kernels as read
from pyspark_kafkalog.codec.buffers import as_array
from pyspark_kafkalog.codec.filtering import BatchRules, filter_batches
from pyspark_kafkalog.codec.indexing import MAX_RECORD_BYTES
from pyspark_kafkalog.codec.walk import Batches, batches_of, first_bad_checksum, walk
from pyspark_kafkalog.errors import (
    CorruptRecordError,
    DataLossError,
    OverlapError,
    OversizedRecordError,
)
from pyspark_kafkalog.filesystem.durable import replace, sync_folder, write_new
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.filesystem.sharing import new_folder
from pyspark_kafkalog.log.checkpoints import read_epochs, write_epochs
from pyspark_kafkalog.log.layout import (
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    TXN_INDEX_SUFFIX,
    format_partition_metadata,
    segment_file,
)
from pyspark_kafkalog.log.read.partition import Partition
from pyspark_kafkalog.log.segment.producers import ProducerState
from pyspark_kafkalog.log.segment.recovery import (
    new_epochs,
    offsets_of,
    open_active_segment,
    recover_segment,
    remove_segment,
)
from pyspark_kafkalog.log.segment.snapshots import producers_at, read_snapshot
from pyspark_kafkalog.log.segment.writer import ActiveSegment, SegmentLimits, SegmentWriter
from pyspark_kafkalog.log.snapshot import ProducerEntry
from pyspark_kafkalog.model import Fetch, LogSettings, OffsetRange, Slice, TopicPartition

_SLICE_BYTES = 8 << 20
_RAISE = "Raise maxRecordBytes, if there is memory for three times such a record."


class BackupLog:
    """The log of one partition, for a single writer that holds the directory's lock.

    Segments that are not the last one are on disk; what was appended since the last :meth:`flush` may not
    be. Opening the log after a crash finds all whole batches, and cuts off a torn one. Use it as a
    context manager, which closes its files. An append opens them again.
    """

    def __init__(
        self,
        folder: str,
        partition: TopicPartition,
        settings: LogSettings,
        next_offset: int,
        *,
        segment: ActiveSegment | None = None,
        aborted_bytes: int = 0,
        producers: ProducerState | None = None,
        epochs: Iterable[tuple[int, int]] = (),
        is_clean: bool = False,
    ) -> None:
        self.folder = folder
        self.partition = partition
        self.next_offset = next_offset
        """The next offset to append."""
        self.epochs = list(epochs)
        """Leader epochs, each with its first offset."""
        self._limits = SegmentLimits.of(settings)
        self._writer = None if segment is None else self._writing(segment, aborted_bytes)
        self.batches_end = next_offset if segment is None else segment.next_offset
        """The position at which the last batch ends; a gap may follow."""
        self.is_empty = not has_batches(folder)
        """Whether the log has no record batch."""
        self.has_failed = False
        """Whether a write or a flush has failed: what is on disk since the last flush is then unknown."""
        self._producers = ProducerState() if producers is None else producers
        self._saved_epochs = 0
        """The number of epochs that are in the checkpoint."""
        self._is_clean = is_clean
        """Whether the files are as :meth:`close` leaves them."""

    @classmethod
    def create(
        cls,
        folder: str,
        partition: TopicPartition,
        settings: LogSettings,
        next_offset: int,
        topic_id: str = "",
    ) -> BackupLog:
        """A new partition that begins with ``next_offset``; with the id of its topic, if that is known."""
        with suppress(FileExistsError):  # a process may have been killed right after this
            new_folder(folder)
        if topic_id:
            replace(os.path.join(folder, PARTITION_METADATA_FILE), format_partition_metadata(topic_id))
        sync_folder(folder)
        return cls(folder, partition, settings, next_offset)

    @classmethod
    def open(
        cls,
        folder: str,
        partition: TopicPartition,
        settings: LogSettings,
        log_start_offset: int,
        *,
        recovery_point: int = 0,
        was_clean: bool = False,
    ) -> BackupLog:
        """An existing partition; its last segment is recovered, which cuts off a torn write.

        :param recovery_point: the offset below which all was flushed; what is damaged there is not cut off.
        :param was_clean: whether the directory was shut down cleanly. If the log then ends at a producer
            snapshot, as :meth:`close` leaves it, its indexes are believed, and nothing is recovered.
        :raises LogDirectoryError: if it is damaged: valid batches follow one that is not.
        """
        bases = offsets_of(folder, LOG_SUFFIX)
        epochs = read_epochs(folder)
        if not bases:
            return cls(folder, partition, settings, log_start_offset)
        if was_clean and (closed := _closed_segment(folder, partition, settings, log_start_offset)):
            segment, known = closed
            next_offset = max(segment.next_offset, log_start_offset)
            log = cls(
                folder,
                partition,
                settings,
                next_offset,
                segment=segment,
                aborted_bytes=_size(os.path.join(folder, segment_file(bases[-1], TXN_INDEX_SUFFIX))),
                producers=ProducerState(known),
                epochs=[entry for entry in epochs if entry[1] < next_offset],
                is_clean=True,
            )
            log._saved_epochs = len(epochs)
            return log
        producers = producers_at(folder, bases)
        recovered = recover_segment(
            folder, bases[-1], producers, recovery_point, index_interval_bytes=settings.index_interval_bytes
        )
        next_offset = max(recovered.segment.next_offset, log_start_offset)
        for offset in offsets_of(folder, SNAPSHOT_SUFFIX):
            if offset > next_offset:  # of the end of a log that had more
                os.unlink(os.path.join(folder, segment_file(offset, SNAPSHOT_SUFFIX)))
        epochs = [entry for entry in epochs if entry[1] < next_offset]
        latest = epochs[-1][0] if epochs else -1
        log = cls(
            folder,
            partition,
            settings,
            next_offset,
            segment=recovered.segment,
            aborted_bytes=recovered.aborted_bytes,
            producers=producers,
            epochs=epochs + [entry for entry in recovered.epochs if entry[0] > latest],
        )
        assert log._writer is not None
        log._writer.touch()
        log._save_epochs()
        return log

    def check_skip(self, begin: int) -> None:
        """:raises DataLossError: if :meth:`skip_to` has no room for the markers."""
        count = len(self._producers.open)
        if self.batches_end < begin and count > begin - self.batches_end:
            raise DataLossError(
                f"Offsets {self.batches_end} to {begin - 1} are gone, and {count} transactions are open"
                " there, whose markers would need as many offsets",
                topic_partition=self.partition,
                hint="Begin a new backup in another directory.",
            )

    def skip_to(self, offset: int, begin: int) -> None:
        """Go on at a later offset: what lies between is gone.

        Transactions that are open here may have ended there, and what the same producer ends later may be
        another one: markers, at the last offsets of which no batch is left, abort them.

        :param begin: where the next batch begins: before ``offset``, if that lies in it.
        :raises DataLossError: if there are more of them than offsets; nothing has changed then.
        """
        self.check_skip(begin)
        if self.batches_end < begin:
            first = begin - len(self._producers.open)
            markers = self._producers.abort_markers(first, self.epochs[-1][0] if self.epochs else -1)
            with self._noting_failure():
                self._append(markers, walk(markers))
        self.next_offset = offset

    @property
    def first_offset(self) -> int:
        """The base offset of the first segment; the next offset if there is none."""
        return min(offsets_of(self.folder, LOG_SUFFIX), default=self.next_offset)

    def read(self, offsets: OffsetRange) -> Iterator[Slice]:
        """The batches of ``offsets`` that the log has, or the next one."""
        partition = Partition(self.partition, open_folder(self.folder), lambda _, first: first)
        with suppress(DataLossError):  # it begins later, or has ended
            yield from partition.read(Fetch(self.partition, offsets), max_bytes=_SLICE_BYTES)

    def append(self, piece: Slice, *, max_record_bytes: int = MAX_RECORD_BYTES) -> int:
        """Append the batches of a slice, but those that the log has already; returns how many bytes.

        One in which a gap ends loses its records in the gap, as to a cleaner: its range of offsets stays.

        :raises OverlapError: if one begins before the end of the log and ends behind it; nothing is appended.
        :param max_record_bytes: as the option ``maxRecordBytes``, of the one in which a gap ends.
        :raises CorruptRecordError: if a checksum is wrong; the batches before it are appended.
        :raises OversizedRecordError: if one in which a gap ends has a larger record; nothing is appended.
        """
        data, batches = as_array(piece.buffer), batches_of(piece)
        first = int(np.searchsorted(batches.last_offset, self.next_offset))
        if first < len(batches) and batches.magic[first] == 2 and not self.is_empty:
            base_offset = int(batches.base_offset[first])
            if base_offset < self.batches_end:
                raise OverlapError(
                    f"A record batch that begins before offset {self.batches_end} can't be appended",
                    topic_partition=self.partition,
                    offset=base_offset,
                )
        valid = first_bad_checksum(data, batches, first, len(batches))
        size = int(batches.size[first:].sum())
        ends_gap = self.batches_end < self.next_offset and not self.is_empty
        if first < valid and ends_gap and int(batches.base_offset[first]) < self.next_offset:
            left = self._behind_gap(piece, batches, first, max_record_bytes)
            with self._noting_failure():
                self._append(left, walk(left))
            size += left.size - int(batches.size[first])
            first += 1
        with self._noting_failure():
            self._append(data, batches.take(np.arange(first, valid)))
        if valid < len(batches):
            raise CorruptRecordError(
                "The record batch's checksum is wrong",
                topic_partition=self.partition,
                offset=int(batches.base_offset[valid]),
                file=piece.origin.file,
                position=piece.origin.position + int(batches.position[valid]),
            )
        return size

    def _behind_gap(self, piece: Slice, batches: Batches, row: int, max_record_bytes: int) -> np.ndarray:
        """A batch without its records in the gap at the end of the log.

        :raises KafkaLogError: if its records can't be read.
        """
        begin, end = int(batches.position[row]), int(batches.position[row] + batches.size[row])
        data, no, start = as_array(piece.buffer)[begin:end], np.zeros(1, bool), self.next_offset
        rules = BatchRules(whole=no, discarded=no, stays_empty=~no, starts_horizon=no)
        file, position = piece.origin.file, piece.origin.position + begin
        try:
            filtered = filter_batches(
                data,
                walk(data),
                rules,
                lambda found, _: found.table[read.OFFSET] >= start,
                max_record_bytes=max_record_bytes,
            )
        except CorruptRecordError as e:
            raise CorruptRecordError(
                e.message, topic_partition=self.partition, offset=start, file=file, position=position
            ) from None
        except OversizedRecordError as e:
            raise e.within(self.partition, file, position).with_hint(_RAISE) from None
        return filtered.data

    def _append(self, data: np.ndarray, batches: Batches) -> None:
        first, self._is_clean = 0, False
        if len(batches) and self._writer is not None and self.is_empty:
            self._writer.close()  # its first batch may begin before the segment does
            remove_segment(self.folder, self._writer.segment.base_offset)
            self._writer = None
        while first < len(batches):
            writer = self._writer or self._begin_segment(batches, first)
            stop = writer.fit(batches.size, batches.last_offset, batches.max_timestamp, first)
            part = batches.take(np.arange(first, stop))
            if len(part):
                begin = int(part.position[0])
                end = int(part.position[-1] + part.size[-1])
                aborted = self._producers.add(data, part)
                writer.write([data[begin:end]])
                writer.begin_flush(end - begin)
                writer.write_aborted(aborted)
                self._add_epochs(part)
                self.next_offset = self.batches_end = int(part.last_offset[-1]) + 1
            writer.write_indexes()
            if stop < len(batches):
                self.flush()
                self._begin_segment(batches, stop)
            first = stop

    def _begin_segment(self, batches: Batches, row: int) -> SegmentWriter:
        """The segment that begins with a batch, at its base offset: a gap may lie before it.

        The first one begins where the log does, or with a batch in which the log start offset lies.
        """
        base_offset = int(batches.base_offset[row]) if batches.magic[row] == 2 else self.next_offset
        if self.is_empty:
            base_offset = min(base_offset, self.next_offset)
        if self._writer is None:
            self._writer = self._writing(ActiveSegment(base_offset))
        else:
            self._writer.roll(base_offset)
        write_new(
            os.path.join(self.folder, segment_file(base_offset, SNAPSHOT_SUFFIX)), self._producers.snapshot()
        )
        return self._writer

    def _writing(self, segment: ActiveSegment, aborted_bytes: int = 0) -> SegmentWriter:
        return SegmentWriter(self.folder, self._limits, segment, aborted_bytes=aborted_bytes)

    def _add_epochs(self, batches: Batches) -> None:
        new = new_epochs(batches, self.epochs[-1][0] if self.epochs else -1)
        if self.is_empty and not self.epochs and new and batches.magic[0] == 2:
            # It began with the log, whatever deletion or compaction has left of it.
            new[0] = new[0][0], self.next_offset
        self.epochs += new
        self.is_empty = False

    def flush(self) -> int:
        """Flush all that was appended; returns the offset after it, Kafka's recovery point."""
        with self._noting_failure():
            if self._writer is not None:
                self._writer.flush()
            self._save_epochs()
            sync_folder(self.folder)
        return self.next_offset

    def close(self, *, cleanly: bool = True) -> None:
        """Close the files. ``cleanly``: flush them, and leave what lets a broker start without recovery."""
        with self._noting_failure():
            if cleanly and not self._is_clean:
                if self._writer is None:
                    self._writer = self._writing(ActiveSegment(self.next_offset))
                self._writer.touch()
                write_new(
                    os.path.join(self.folder, segment_file(self.next_offset, SNAPSHOT_SUFFIX)),
                    self._producers.snapshot(),
                )
                self.flush()
                self._remove_snapshots()
                self._is_clean = True
            if self._writer is not None:
                self._writer.close()

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.has_failed = True
            raise

    def _remove_snapshots(self) -> None:
        """Remove those at which no segment begins, except the last (Kafka's removeStraySnapshots)."""
        bases = {*offsets_of(self.folder, LOG_SUFFIX), self.next_offset}
        for offset in offsets_of(self.folder, SNAPSHOT_SUFFIX):
            if offset not in bases:
                os.unlink(os.path.join(self.folder, segment_file(offset, SNAPSHOT_SUFFIX)))

    def __enter__(self) -> BackupLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close(cleanly=kind is None)

    def _save_epochs(self) -> None:
        if self._saved_epochs != len(self.epochs):
            write_epochs(self.folder, self.epochs)
            self._saved_epochs = len(self.epochs)


def has_batches(folder: str) -> bool:
    """Whether a partition's folder is there, and has any record batch."""
    if not os.path.exists(folder):
        return False
    names = (segment_file(base, LOG_SUFFIX) for base in offsets_of(folder, LOG_SUFFIX))
    return any(_size(os.path.join(folder, name)) for name in names)


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _closed_segment(
    folder: str, partition: TopicPartition, settings: LogSettings, log_start_offset: int
) -> tuple[ActiveSegment, list[ProducerEntry]] | None:
    """The last segment and the producers at its end, if the log ends at a snapshot; else None."""
    snapshots = offsets_of(folder, SNAPSHOT_SUFFIX)
    if not snapshots:
        return None
    producers = read_snapshot(folder, snapshots[-1])
    with suppress(CorruptRecordError):  # recovery cuts it off, or refuses to
        segment = open_active_segment(folder, partition, settings.index_interval_bytes)
        if segment is not None and producers is not None:
            is_end = snapshots[-1] == max(segment.next_offset, log_start_offset)
            return (segment, producers) if is_end else None
    return None
