"""Finds the end of a segment, and rebuilds its indexes from its batches.

If its last owner was interrupted, a segment may end in a torn batch, and its indexes in the zeros of their
preallocation. Before anything is appended, the torn tail is cut off, and indexes that can't be trusted are
rebuilt. Readers see no change. Unlike a broker's recovery, this one does not cut off damage. A last batch
that is whole and wrong may have been acknowledged: :func:`open_active_segment` refuses to append to it.
:func:`recover_segment` knows up to where all was flushed.

Sources: Kafka's ``LogSegment.recover``, ``LogLoader``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pyspark_kafkalog.codec.format import LOG_OVERHEAD, RECORDS_V2, SIZE
from pyspark_kafkalog.codec.walk import Batches, walk
from pyspark_kafkalog.errors import CorruptRecordError, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import cut, write_new
from pyspark_kafkalog.log.layout import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.log.segment import append_kernels as kernels
from pyspark_kafkalog.log.segment.epochs import EpochStart, epoch_starts
from pyspark_kafkalog.log.segment.index import MAX_RELATIVE, OFFSET_ENTRY, TIME_ENTRY, most_bytes
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers
from pyspark_kafkalog.log.segment.producers import ProducerState
from pyspark_kafkalog.log.segment.scan import (
    Scan,
    Stretch,
    find_behind,
    opened,
    read_at,
    read_rest,
)
from pyspark_kafkalog.log.segment.writer import ActiveSegment, SegmentLimits, spans_too_much
from pyspark_kafkalog.model import TopicPartition

TOO_FAR = "its offset is more than 2^31 above the segment's"
"""The fault of a batch that no index of its segment can hold; its records are sound."""
_RESTORE = "Restore the file, or run kafkalog repair, which drops all that follows, or salvages it."
_NONE = np.empty(0, np.int64)

_log = logging.getLogger("pyspark_kafkalog")


class Rebuilt:
    """A segment's indexes and its state for appends, rebuilt from its batches as it takes them in.

    :param producers: their state at the segment's start; has that after the batches. None if it is not
        wanted, nor ``.txnindex``.
    """

    def __init__(self, base_offset: int, producers: ProducerState | None, index_interval_bytes: int) -> None:
        self.segment = ActiveSegment(base_offset)
        self.epochs: list[EpochStart] = []
        """The leader epochs that start in the segment."""
        self.fault: str | None = None
        """The fault of the batch after those of the last :meth:`read`; None without one."""
        self._producers = producers
        self._limits = SegmentLimits.of_one(index_interval_bytes)
        known = INDEX_SUFFIXES if producers is not None else (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        self._indexes: dict[str, list[bytes]] = {suffix: [] for suffix in known}

    def read(self, scan: Scan) -> Iterator[Stretch]:
        """Take in the batches of a scan, up to the first that is not valid or does not fit."""
        for piece in scan:
            _, self.fault = self.add(piece.data, piece.batches)
            yield piece
            if self.fault is not None:
                return
        self.fault = scan.fault

    def add(self, data: np.ndarray, batches: Batches) -> tuple[int, str | None]:
        """Take in valid batches, which follow one another.

        :return: how many; and what is wrong with the next one, None if that are all.
        """
        # Producers are told of no batch that the segment does not take.
        fits = batches.last_offset - self.segment.base_offset <= MAX_RELATIVE
        fault = None if fits.all() else TOO_FAR
        if fault is not None:
            batches = batches.take(np.arange(int(fits.argmin())))
        if self._producers is not None:
            try:
                aborted = self._producers.add(data, batches)
            except CorruptRecordError as e:
                fault = e.message
                broken = int(np.searchsorted(batches.position, e.position or 0, side="right")) - 1
                batches = batches.take(np.arange(broken))
                aborted = self._producers.add(data, batches)
            self._indexes[TXN_INDEX_SUFFIX].append(aborted.tobytes())
        latest = self.epochs[-1].epoch if self.epochs else -1
        self.epochs += epoch_starts(batches, latest, self.segment.next_offset)
        _, offset_index, time_index = self.segment.append(
            self._limits, batches.size, batches.last_offset, batches.max_timestamp, closing=False
        )
        self._indexes[INDEX_SUFFIX].append(offset_index)
        self._indexes[TIME_INDEX_SUFFIX].append(time_index)
        return len(batches), fault

    def indexes(self) -> dict[str, bytes]:
        """The contents of the indexes, by suffix; takes in nothing after that."""
        _, _, closing = self.segment.append(self._limits, _NONE, _NONE, _NONE)
        self._indexes[TIME_INDEX_SUFFIX].append(closing)
        return {suffix: b"".join(parts) for suffix, parts in self._indexes.items()}


@dataclass(frozen=True, slots=True)
class Recovered:
    """A segment after its recovery: its state for appends, and the leader epochs that begin in it, with
    their first offsets.
    """

    segment: ActiveSegment
    epochs: list[tuple[int, int]]
    aborted_bytes: int
    """Size of its ``.txnindex``."""


def recover_segment(
    folder: str, base_offset: int, producers: ProducerState, recovery_point: int, *, index_interval_bytes: int
) -> Recovered:
    """Cut off a torn tail of the last segment, and rebuild its indexes; under the directory's lock.

    :param producers: their state at the segment's start; has that at its end afterwards.
    :param recovery_point: what was flushed ends there. Beyond, pages of a write may be on disk, and those
        before them not, if the machine lost its power.
    :raises LogDirectoryError: if below ``recovery_point`` valid batches follow one that is not, or if offsets
        span too much; nothing has changed then.
    """
    path = os.path.join(folder, segment_file(base_offset, LOG_SUFFIX))
    scan = Scan(path, base_offset)
    rebuilt = Rebuilt(base_offset, producers, index_interval_bytes)
    for _ in rebuilt.read(scan):
        pass
    if rebuilt.fault == TOO_FAR:
        raise spans_too_much(path)
    end, next_offset = rebuilt.segment.sizes()[LOG_SUFFIX], rebuilt.segment.next_offset
    if end < scan.size:
        if next_offset < recovery_point:
            check_tail(path, end, next_offset)
        cut(path, end)
    indexes = rebuilt.indexes()
    write_indexes(folder, base_offset, indexes)
    epochs = [(entry.epoch, entry.offset) for entry in rebuilt.epochs]
    return Recovered(rebuilt.segment, epochs, len(indexes[TXN_INDEX_SUFFIX]))


def check_tail(path: str, position: int, next_offset: int) -> None:
    """See that no valid batch follows the one at ``position`` of a ``.log``, which is not valid: it is torn.

    :param next_offset: follows the batches before it.
    :raises LogDirectoryError: if one follows.
    """
    found = _batch_behind(path, position, next_offset)
    if found is not None:
        raise LogDirectoryError(
            found[0],
            offset=next_offset,
            file=path,
            position=position,
            hint=f"Nothing is cut off or appended after damage. {_RESTORE}",
        )


def new_epochs(batches: Batches, latest: int) -> list[tuple[int, int]]:
    """The leader epochs above ``latest`` that begin in ``batches``, each with its first offset."""
    return [(entry.epoch, entry.offset) for entry in epoch_starts(batches, latest, 0)]


def offsets_of(folder: str, suffix: str) -> list[int]:
    """The offsets in the names of a partition's files with this suffix, sorted."""
    names = map(parse_segment_file, os.listdir(folder))
    return sorted(name[0] for name in names if name is not None and name[1] == suffix)


def begin_segment(folder: str, base_offset: int) -> None:
    """Make an empty segment, its log first: indexes alone would say that it is lost."""
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        write_new(os.path.join(folder, segment_file(base_offset, suffix)), b"")


def remove_segment(folder: str, base_offset: int) -> None:
    """Remove a segment, its log last: indexes alone would say that it is lost. The folder is not flushed."""
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, segment_file(base_offset, suffix)))


def write_indexes(folder: str, base_offset: int, indexes: dict[str, bytes]) -> None:
    """Replace the indexes of a segment, by their suffixes. A ``.txnindex`` without entries is removed."""
    for suffix, entries in indexes.items():
        path = os.path.join(folder, segment_file(base_offset, suffix))
        if entries or suffix != TXN_INDEX_SUFFIX:
            write_new(path, entries)
        else:
            with suppress(FileNotFoundError):
                os.unlink(path)


def open_active_segment(
    folder: str, partition: TopicPartition, index_interval_bytes: int
) -> ActiveSegment | None:
    """Find the last segment in ``folder``, and open it as :func:`open_segment` does; None without one.

    What a crash left of a replacement of segments is put in order first.
    """
    clear_leftovers(folder)
    bases = offsets_of(folder, LOG_SUFFIX)
    return open_segment(folder, bases[-1], partition, index_interval_bytes) if bases else None


def open_segment(
    folder: str, base_offset: int, partition: TopicPartition, index_interval_bytes: int
) -> ActiveSegment:
    """Open the last segment of a partition to append to it, and mend its end if necessary.

    Verifies the batches after the last index entry, or all batches if the indexes are not those of a closed
    segment.

    :raises CorruptRecordError: if more than a torn tail follows the valid batches.
    :raises LogDirectoryError: if its offsets span too much.
    """
    path = os.path.join(folder, segment_file(base_offset, LOG_SUFFIX))
    offsets = _closed_index(folder, base_offset, INDEX_SUFFIX, OFFSET_ENTRY)
    times = _closed_index(folder, base_offset, TIME_INDEX_SUFFIX, TIME_ENTRY)
    segment = None
    if offsets is not None and times is not None:
        scan = Scan(path, base_offset, end=int(offsets["position"][-1]) if offsets.size else 0)
        segment = _continue(scan, partition, base_offset, offsets, times)
    if segment is None:
        scan = Scan(path, base_offset)
        segment = _rebuild(scan, partition, folder, base_offset, index_interval_bytes)
    torn = scan.size - scan.end
    if torn:
        if not scan.ends_in_room:
            _log.warning("Cut off the torn tail of %s: %d bytes from byte %d on", path, torn, scan.end)
        cut(path, scan.end)
    return segment


def _closed_index(folder: str, base_offset: int, suffix: str, entry: np.dtype) -> np.ndarray | None:
    """The entries of an index; None unless they are whole and rise, as in a closed segment."""
    try:
        with opened(os.path.join(folder, segment_file(base_offset, suffix))) as descriptor:
            log_size = os.path.getsize(os.path.join(folder, segment_file(base_offset, LOG_SUFFIX)))
            if os.fstat(descriptor).st_size > most_bytes(log_size):
                return None
            data = read_rest(descriptor, 0)
    except FileNotFoundError:
        return None
    if data.size % entry.itemsize:
        return None
    # As int64: a base offset can't be added to an int32 of NumPy.
    entries = data.view(entry).astype([(name, np.int64) for name in entry.names or ()])
    first, second = (entries[name] for name in entry.names or ())
    rising = (np.diff(first) > 0).all() and (np.diff(second) >= 0).all()
    return entries if rising and not (entries.size and min(first[0], second[0]) < 0) else None


def _continue(
    scan: Scan, partition: TopicPartition, base_offset: int, offsets: np.ndarray, times: np.ndarray
) -> ActiveSegment | None:
    """The segment by its indexes and the batches after their last entry; None if they do not fit."""
    segment, start = ActiveSegment(base_offset), scan.end
    fields = segment.fields
    if times.size:
        fields[[kernels.MAX_TIMESTAMP, kernels.LAST_TIME_ENTRY]] = times["timestamp"][-1]
        fields[kernels.OFFSET_OF_MAX_TIMESTAMP] = base_offset + int(times["offset"][-1])
    fits = not offsets.size
    for piece in scan:
        batches = piece.batches
        fits = fits or bool((batches.last_offset == base_offset + int(offsets["offset"][-1])).any())
        latest = int(np.argmax(batches.max_timestamp))
        if batches.max_timestamp[latest] > fields[kernels.MAX_TIMESTAMP]:
            fields[kernels.MAX_TIMESTAMP] = batches.max_timestamp[latest]
            fields[kernels.OFFSET_OF_MAX_TIMESTAMP] = batches.last_offset[latest]
    if not fits:
        return None
    _check_torn(scan, partition)
    if times.size and base_offset + int(times["offset"][-1]) >= scan.next_offset:
        return None
    segment.next_offset = scan.next_offset
    fields[kernels.SIZE] = scan.end
    fields[kernels.UNINDEXED_BYTES] = scan.end - start
    fields[kernels.OFFSET_ENTRIES] = offsets.size
    fields[kernels.TIME_ENTRIES] = times.size
    fields[kernels.FIRST_TIMESTAMP] = _first_timestamp(scan.path)
    return segment


def _first_timestamp(path: str) -> int:
    """The largest timestamp of the first batch, of which only the header is read; -1 if it has none."""
    with opened(path) as descriptor:
        header = np.zeros(RECORDS_V2, np.uint8)
        read_at(descriptor, header, 0)
        whole = int.from_bytes(header[SIZE : SIZE + 4].tobytes(), "big") + LOG_OVERHEAD
        batch = np.zeros(min(whole, os.fstat(descriptor).st_size), np.uint8)  # memory that is not touched
    batch[: header.size] = header[: batch.size]
    return int(max(walk(batch).max_timestamp[:1], default=-1))


def _rebuild(
    scan: Scan, partition: TopicPartition, folder: str, base_offset: int, index_interval_bytes: int
) -> ActiveSegment:
    """The segment by all its batches, with new indexes."""
    rebuilt, fault = Rebuilt(base_offset, None, index_interval_bytes), None
    for piece in scan:
        fault = fault or rebuilt.add(piece.data, piece.batches)[1]
    _check_torn(scan, partition)
    if fault is not None:
        raise spans_too_much(scan.path, partition)
    write_indexes(folder, base_offset, rebuilt.indexes())
    _log.warning("Rebuilt the indexes of %s, which were not those of a closed segment", scan.path)
    return rebuilt.segment


def _check_torn(scan: Scan, partition: TopicPartition) -> None:
    """See that only a torn tail, a part of a batch, follows the valid ones.

    :raises CorruptRecordError: if there is more.
    """
    if scan.fault is None or scan.ends_in_room:
        return
    cut_off = f"cut it off: truncate -s {scan.end} {scan.path}"
    found = _batch_behind(scan.path, scan.end, scan.next_offset)
    if found is not None:
        message, is_certain = found
        hint = _RESTORE if is_certain else f"If you need nothing of what follows, {cut_off}"
    elif scan.is_whole:
        message = "The last record batch is whole, but its checksum or its offsets are wrong"
        hint = (
            "It may have been acknowledged. Restore the file. If the machine lost power before the batch was"
            f" flushed, let a broker recover it, or {cut_off}"
        )
    else:
        return
    raise CorruptRecordError(
        message,
        topic_partition=partition,
        offset=scan.next_offset,
        file=scan.path,
        position=scan.end,
        hint=f"Nothing is appended after damage. {hint}",
    )


def _batch_behind(path: str, position: int, next_offset: int) -> tuple[str, bool] | None:
    """The fault at ``position``, which has no valid batch, if one follows; and whether that is certain."""
    try:
        found = find_behind(path, position, next_offset)
    except CorruptRecordError as e:
        return e.message, False
    if found is None:
        return None
    return f"Expected a record batch, got other bytes before a valid batch at byte {found}", True
