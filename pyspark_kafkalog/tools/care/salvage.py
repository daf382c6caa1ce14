"""Keeps every valid batch of a damaged segment, which Kafka can't: gaps between offsets are legal.

What is valid is what a reader with ``failOnDataLoss=false`` delivers, and its own code says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from pyspark_kafkalog.codec.buffers import as_array
from pyspark_kafkalog.codec.walk import Batches, batches_of, right_checksums, walk
from pyspark_kafkalog.errors import DataLossError, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import naming, sync_folder, write_all
from pyspark_kafkalog.filesystem.sharing import open_new
from pyspark_kafkalog.log.layout import CLEANED_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from pyspark_kafkalog.log.read.partition import Partition
from pyspark_kafkalog.log.segment.aside import copy_range
from pyspark_kafkalog.log.segment.producers import ProducerState
from pyspark_kafkalog.log.segment.recovery import Rebuilt, write_indexes
from pyspark_kafkalog.log.segment.scan import MAX_OFFSET
from pyspark_kafkalog.log.segment.segment import Segment
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition

_SLICE = 8 << 20


class Salvaged:
    """The valid batches of a segment: where they are in the file, and what follows from them.

    :param producers: their state at the segment's start; has that after the batches.
    """

    def __init__(self, base_offset: int, producers: ProducerState, index_interval_bytes: int) -> None:
        self.rebuilt = Rebuilt(base_offset, producers, index_interval_bytes)
        self.ranges: list[tuple[int, int]] = []
        """Begin and end of each stretch of valid batches."""
        self.markers: dict[int, bytes] = {}
        """The markers before the bytes at a position: they abort what was open when damage began."""
        self._producers = producers
        self._first_offsets: list[int] = []
        self._next_offsets: list[int] = []
        self._base_offset = base_offset

    def add(self, origin: int, data: np.ndarray, batches: Batches) -> None:
        """Take in those of ``batches`` that are valid; ``data`` begins at ``origin`` of the file."""
        rows = np.flatnonzero(right_checksums(data, batches))
        while rows.size:
            first = int(rows[0])
            is_v2 = batches.magic[first] == 2
            offset = int(batches.base_offset[first] if is_v2 else batches.last_offset[first])
            if self._next_offsets and offset < self._next_offsets[-1]:
                rows = rows[1:]  # what comes first counts
                continue
            if not self.end_transactions(origin + int(batches.position[first]), offset):
                rows = rows[1:]  # a marker needs its offset
                continue
            begins, ends = batches.position[rows], batches.position[rows] + batches.size[rows]
            damage = np.flatnonzero(begins[1:] != ends[:-1])
            stretch = rows[: int(damage[0]) + 1] if damage.size else rows
            taken, fault = self.rebuilt.add(data, batches.take(stretch))
            for row in stretch[:taken].tolist():
                begin = origin + int(batches.position[row])
                end = begin + int(batches.size[row])
                next_offset = int(batches.last_offset[row]) + 1
                if self.ranges and self.ranges[-1][1] == begin:
                    self.ranges[-1] = (self.ranges[-1][0], end)
                    self._next_offsets[-1] = next_offset
                else:
                    first_offset = batches.base_offset if batches.magic[row] == 2 else batches.last_offset
                    self.ranges.append((begin, end))
                    self._first_offsets.append(int(first_offset[row]))
                    self._next_offsets.append(next_offset)
            rows = rows[taken + (fault is not None) :]

    def end_transactions(self, position: int, offset: int) -> bool:
        """Abort what is open if offsets before ``offset`` are lost in damage that ends at ``position``.

        The marker of a transaction may be among them, and a later one of its producer must not commit it.

        :return: False if the damage has fewer offsets than there are transactions.
        """
        end, next_offset = 0, self._base_offset
        if self.ranges:
            end, next_offset = self.ranges[-1][1], self._next_offsets[-1]
        count = len(self._producers.open)
        if position == end or offset <= next_offset or not count:
            return True
        if count > offset - next_offset:
            return False
        epoch = self.rebuilt.epochs[-1][0] if self.rebuilt.epochs else -1
        markers = self._producers.abort_markers(offset - count, epoch)
        self.rebuilt.add(markers, walk(markers))
        self.markers[position] = markers.tobytes()
        return True

    def pieces(self) -> Iterator[tuple[int, int, OffsetRange]]:
        """Begin and end of each stretch, and its offsets."""
        offsets = map(OffsetRange, self._first_offsets, self._next_offsets)
        for (begin, end), found in zip(self.ranges, offsets, strict=True):
            yield begin, end, found


def salvage_segment(
    partition: TopicPartition,
    segment: Segment,
    segments: list[Segment],
    following: Segment | None,
    producers: ProducerState,
    index_interval_bytes: int,
) -> Salvaged:
    """Find the valid batches of a segment.

    :param following: the next segment; None if there is none.
    :param producers: their state at the segment's start; has that after the batches.
    :raises LogDirectoryError: if too few offsets are free to end all transactions that are open.
    """
    salvaged = Salvaged(segment.base_offset, producers, index_interval_bytes)
    source = Partition(partition, segment.folder, lambda _, first: first)
    end = source.log_end_offset(segments) if following is None else following.base_offset
    offsets = OffsetRange(segment.base_offset, end)
    with suppress(DataLossError):  # where the end can't be reached from here, readers stop, too
        for piece in source.read(_fetch(partition, offsets), max_bytes=_SLICE):
            salvaged.add(piece.origin.position, as_array(piece.buffer), batches_of(piece))
    # What is open at the end of a log may be ended yet, as in a broker.
    if following is not None and not salvaged.end_transactions(segment.size, following.base_offset):
        raise LogDirectoryError(
            f"The damage at the end has fewer offsets than the {len(producers.open)} transactions that are"
            " open there, whose markers may be in it",
            topic_partition=partition,
            file=os.path.join(segment.folder.label(), segment.name),
            hint="Repair it without salvage: the log then ends before the damage.",
        )
    return salvaged


def _fetch(partition: TopicPartition, offsets: OffsetRange) -> Fetch:
    """A fetch of all that is valid."""
    return Fetch(partition, offsets, on_corrupt=lambda error: None)


def count_valid(
    partition: TopicPartition,
    segments: list[Segment],
    position: int,
    progress: Callable[[int], None] = lambda size: None,
) -> tuple[int, OffsetRange]:
    """The number of records that salvage would find behind damage, and their offsets.

    What can't be read is not counted, and neither are markers.

    :param segments: of the log, until its end.
    :param position: where to begin in the first of them, in bytes.
    :param progress: called now and then, with 0.
    """
    records, first, end = 0, MAX_OFFSET, 0
    source = Partition(partition, segments[0].folder, lambda _, first: first)
    with suppress(DataLossError, LogDirectoryError, OSError):
        offsets = OffsetRange(segments[0].base_offset, source.log_end_offset(segments))
        for piece in source.read(_fetch(partition, offsets), max_bytes=_SLICE):
            progress(0)
            batches = batches_of(piece)
            valid = right_checksums(as_array(piece.buffer), batches)
            if piece.origin.file == segments[0].file:
                valid &= batches.position + piece.origin.position >= position
            records += int(batches.count[valid & ~batches.is_control].sum())
            starts = np.where(batches.magic == 2, batches.base_offset, batches.last_offset)
            first = min(first, int(starts[valid].min(initial=MAX_OFFSET)))
            end = max(end, int(batches.last_offset[valid].max(initial=-1)) + 1)
    return records, OffsetRange(first, end)


def put_in_place(folder: str, segment: Segment, salvaged: Salvaged) -> None:
    """Rewrite a segment with only its valid batches and their indexes.

    One rename replaces the old one. Meanwhile the segment may lack the indexes with positions, which opening
    or repairing it rebuilds. ``.txnindex`` fits both.
    """
    path = os.path.join(folder, segment.name)
    target = open_new(path + CLEANED_SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        with naming(path + CLEANED_SUFFIX):
            size = 0
            for begin, end in [*salvaged.ranges, (segment.size, segment.size)]:
                markers = salvaged.markers.get(begin, b"")
                write_all(target, markers, size)
                copy_range(path, begin, end - begin, target, size + len(markers))
                size += len(markers) + end - begin
            os.fsync(target)
    finally:
        os.close(target)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, segment_file(segment.base_offset, suffix)))
    sync_folder(folder)
    os.replace(path + CLEANED_SUFFIX, path)
    sync_folder(folder)
    write_indexes(folder, segment.base_offset, salvaged.rebuilt.indexes())
    sync_folder(folder)
