"""The state of a whole log that compaction needs before it begins: segments, producers, transactions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from pyspark_kafkalog.errors import CorruptRecordError, OversizedRecordError
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from pyspark_kafkalog.log.segment.index import MAX_RELATIVE, TXN_ENTRY
from pyspark_kafkalog.log.segment.loading import live_segments
from pyspark_kafkalog.log.segment.producers import ProducerState
from pyspark_kafkalog.log.segment.scan import MAX_OFFSET, Scan, Stretch
from pyspark_kafkalog.log.snapshot import ProducerEntry
from pyspark_kafkalog.model import TopicPartition

_REPAIR = "Repair the partition first: nothing behind damage can be trusted."


@dataclass(slots=True)
class StoredBatches:
    """A segment that is not the active one. Times are ms."""

    path: str
    base_offset: int
    size: int
    mtime_ns: int
    index_bytes: int
    time_index_bytes: int
    first_timestamp: int = -1
    """The timestamp of the first batch."""
    latest_timestamp: int = -1
    """The largest of its batches."""
    most_records: int = 0
    """No more records than these are in it."""

    @property
    def modified_ms(self) -> int:
        return self.mtime_ns // 1_000_000

    def is_file_of(self, other: StoredBatches) -> bool:
        """Whether both are the same file, which has not changed."""
        mine, others = ((s.base_offset, s.size, s.mtime_ns) for s in (self, other))
        return mine == others


@dataclass(slots=True)
class Walked:
    """The first closed segments of a log, and what their batches say."""

    segments: list[StoredBatches] = field(default_factory=list)
    producers: list[ProducerEntry] = field(default_factory=list)
    """The state of the producers after these segments."""
    aborted: np.ndarray = field(default_factory=lambda: np.empty(0, TXN_ENTRY))
    """The aborted transactions whose markers are in them: of :data:`.segment.index.TXN_ENTRY`."""


@dataclass(frozen=True, slots=True)
class History:
    """A log from its start to its end."""

    closed: list[StoredBatches]
    active_base: int
    """Base offset of the active segment."""
    log_end_offset: int
    last_stable_offset: int
    aborted: np.ndarray
    """The aborted transactions that have data here: :data:`~pyspark_kafkalog.log.segment.index.TXN_ENTRY`."""
    producers: list[ProducerEntry]
    """The state of the producers at the end."""

    def reaching(self, offset: int) -> list[StoredBatches]:
        """The closed segments from the one on that may hold ``offset``."""
        return [] if offset >= self.active_base else reaching(self.closed, offset)


def reaching(closed: Sequence[StoredBatches], offset: int) -> list[StoredBatches]:
    """The closed segments from the one on that may hold ``offset``, which is before the active one."""
    first = sum(segment.base_offset <= offset for segment in closed) - 1
    return list(closed[max(first, 0) :])


def read_history(
    folder: str,
    partition: TopicPartition,
    progress: Callable[[int], object],
    walked: Walked | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> History | None:
    """Walk all batches of a partition, and verify them.

    :param walked: what an earlier call has walked; a log that has changed since is walked from its start.
        This call adds to it.
    :param is_over: whether the time is up, asked after each segment that was walked.
    :return: None if the time was up before the last closed segment.
    :raises CorruptRecordError: if one before the active segment is damaged. What follows the last valid
        batch of that one is left out.
    """
    closed, active_segment = stored_batches(folder)
    if active_segment is None:
        return History([], 0, 0, 0, np.empty(0, TXN_ENTRY), [])
    known = Walked() if walked is None else walked
    count = len(known.segments)
    if not (count <= len(closed) and all(map(StoredBatches.is_file_of, known.segments, closed))):
        known.segments, known.producers, known.aborted, count = [], [], Walked().aborted, 0
    closed[:count] = known.segments
    producers = ProducerState(known.producers)
    ends = [segment.base_offset for segment in (*closed, active_segment)][1:]
    for stored, end in list(zip(closed, ends, strict=True))[count:]:
        if len(known.segments) > count and is_over():
            return None
        aborted = [known.aborted]
        for piece in read(partition, stored, progress, below=end):
            batches = piece.batches
            if stored.first_timestamp < 0:
                stored.first_timestamp = int(batches.max_timestamp[0])
            stored.latest_timestamp = max(stored.latest_timestamp, int(batches.max_timestamp.max()))
            offsets = batches.last_offset - batches.base_offset + 1
            stored.most_records += int(np.where(batches.count < 0, offsets, batches.count).sum())
            with naming(partition, stored, piece):
                aborted.append(producers.add(piece.data, batches))
        known.segments.append(stored)
        known.producers, known.aborted = list(producers.entries), np.concatenate(aborted)
    active = Scan(active_segment.path, active_segment.base_offset)
    aborted = [known.aborted]
    for piece in active:
        aborted.append(producers.add(piece.data, piece.batches))
        progress(piece.batches.end)
    entries = list(producers.entries)
    open_offsets = (entry.first_offset for entry in entries if entry.first_offset >= 0)
    return History(
        closed,
        active_segment.base_offset,
        active.next_offset,
        min(open_offsets, default=active.next_offset),
        np.concatenate(aborted),
        entries,
    )


def stored_batches(folder: str) -> tuple[list[StoredBatches], StoredBatches | None]:
    """The closed segments of a partition, of which nothing is read, and the active one; None without any."""
    found = [
        StoredBatches(
            os.path.join(folder, segment.name),
            segment.base_offset,
            segment.size,
            segment.mtime_ns,
            _size(folder, segment.base_offset, INDEX_SUFFIX),
            _size(folder, segment.base_offset, TIME_INDEX_SUFFIX),
        )
        for segment in live_segments(open_folder(folder))
    ]
    return found[:-1], found[-1] if found else None


def read(
    partition: TopicPartition,
    segment: StoredBatches,
    progress: Callable[[int], object],
    *,
    below: int = MAX_OFFSET,
    check_crcs: bool = True,
) -> Iterator[Stretch]:
    """The batches of a segment. Use up each piece before the next, which takes the same memory.

    :raises CorruptRecordError: where one is not valid.
    """
    scan = Scan(segment.path, segment.base_offset, below, check_crcs=check_crcs)
    for piece in scan:
        yield piece
        progress(piece.batches.end)
    if scan.fault is not None:
        raise CorruptRecordError(
            f"No record batch can be read here: {scan.fault}",
            topic_partition=partition,
            offset=scan.next_offset,
            file=segment.path,
            position=scan.end,
            hint=_REPAIR,
        )


@contextmanager
def naming(partition: TopicPartition, segment: StoredBatches, piece: Stretch) -> Iterator[None]:
    """Add the place to errors that have a position in ``piece``."""
    try:
        yield
    except CorruptRecordError as e:
        raise CorruptRecordError(
            e.message,
            topic_partition=partition,
            file=segment.path,
            position=piece.position + (e.position or 0),
            hint=_REPAIR,
        ) from None
    except OversizedRecordError as e:
        raise e.within(partition, segment.path, piece.position) from None


def in_groups(
    segments: Iterable[StoredBatches], end: int, segment_bytes: int, index_bytes: int
) -> list[list[StoredBatches]]:
    """Neighbours that fit into one segment together (Kafka's ``Cleaner.groupSegmentsBySize``).

    :param end: an offset after those of the last segment.
    """
    rest = list(segments)
    most = (min(segment_bytes, MAX_RELATIVE), index_bytes, index_bytes)
    groups: list[list[StoredBatches]] = []
    taken: tuple[int, ...] = ()
    for number, segment in enumerate(rest):
        sizes = (segment.size, segment.index_bytes, segment.time_index_bytes)
        last_offset = (rest[number + 1].base_offset if number + 1 < len(rest) else end) - 1
        together = tuple(map(sum, zip(taken, sizes, strict=True))) if groups else sizes
        fits = all(size <= limit for size, limit in zip(together, most, strict=True))
        if groups and fits and last_offset - groups[-1][0].base_offset <= MAX_RELATIVE:
            groups[-1].append(segment)
            taken = together
        else:
            groups.append([segment])
            taken = sizes
    return groups


def _size(folder: str, base_offset: int, suffix: str) -> int:
    try:
        return os.stat(os.path.join(folder, segment_file(base_offset, suffix))).st_size
    except FileNotFoundError:
        return 0
