"""Recover one segment: find its end, and rebuild its indexes from its batches (Kafka's LogSegment.recover).

The file is read, not mapped: a bad sector is an error then, not a signal that ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.codec.format import HEADER_SIZE_UP_TO_MAGIC
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, find_batch, first_bad_checksum, walk
from pyspark_kafkalog.errors import CorruptRecordError, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import cut, naming, write_new
from pyspark_kafkalog.log.layout import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.log.segment.active_segment import NO_LIMIT, ActiveSegment, SegmentLimits, spans_too_much
from pyspark_kafkalog.log.segment.index import MAX_RELATIVE
from pyspark_kafkalog.log.segment.producers import ProducerState
from pyspark_kafkalog.log.segment.segment import MAX_OFFSET

TOO_FAR = "its offset is more than 2^31 above the segment's"
"""What is wrong with a batch that no index of its segment can hold. Nothing is wrong with its records."""
_WINDOW = 8 << 20
_NONE = np.empty(0, np.int64)


class Piece(NamedTuple):
    """Some batches of a segment, one after another, with their bytes: ``data[0]`` is at ``position``."""

    position: int
    data: np.ndarray
    batches: Batches


@dataclass(slots=True)
class Scan:
    """The valid batches at the beginning of a segment's ``.log``, in pieces; iterate over it once.

    A batch is valid if it is whole, its CRC is right, and its offsets follow those before it.
    ``next_offset`` follows the last batch, ``end`` is its end in the file of ``size`` bytes. ``fault``
    says why the batches end before the file does, None if they don't.
    """

    path: str
    next_offset: int
    below: int = MAX_OFFSET
    """No record has this offset or a later one."""
    check_crcs: bool = True
    end: int = 0
    size: int = 0
    fault: str | None = None
    _needed: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Piece]:
        """:raises OSError: if the file can't be opened or read."""
        with _opened(self.path) as descriptor:
            self.size = os.fstat(descriptor).st_size
            room = np.empty(min(_WINDOW, self.size), np.uint8)
            while self.end < self.size and self.fault is None:
                wanted = min(max(self._needed, _WINDOW), self.size - self.end)
                room = room if room.size >= wanted else np.empty(wanted, np.uint8)
                data = room[: read_at(descriptor, room[:wanted], self.end)]
                _read_ahead(descriptor, self.end + wanted)
                piece = self._valid(data)
                if len(piece.batches):
                    yield piece

    def _valid(self, data: np.ndarray) -> Piece:
        """The valid batches of ``data``, which begins at the end of those before."""
        position, left = self.end, self.size - self.end
        batches = walk(data)
        in_order = _in_order(batches, self.next_offset, self.below)
        valid = first_bad_checksum(data, batches, 0, in_order) if self.check_crcs else in_order
        self._needed = max(batches.needed, HEADER_SIZE_UP_TO_MAGIC)
        if valid < in_order:
            self.fault = "its checksum is wrong"
        elif valid < len(batches):
            self.fault = "its offsets are out of order"
        elif batches.status == WalkStatus.INVALID:
            self.fault = "it has an unknown format, or an impossible size or offset"
        elif data.size < min(_WINDOW, left):
            self.fault = "the file has become shorter"
        elif batches.end + self._needed > left and batches.end < left:
            self.fault = "it reaches past the end of the file"
        if valid < len(batches):
            batches = batches.take(np.arange(valid))
        if valid:
            self.end += int(batches.position[-1] + batches.size[-1])
            self.next_offset = int(batches.last_offset[-1]) + 1
        return Piece(position, data, batches)


class Rebuilt:
    """What follows from a segment's batches, as it takes them in: its indexes, and its state for appends.

    :param producers: their state at the segment's start; has that after the batches.
    """

    def __init__(self, base_offset: int, producers: ProducerState, index_interval_bytes: int) -> None:
        self.segment = ActiveSegment(base_offset)
        self.epochs: list[tuple[int, int]] = []
        """The leader epochs that begin in it, with their first offsets."""
        self._producers = producers
        self._limits = SegmentLimits(NO_LIMIT, NO_LIMIT, index_interval_bytes, NO_LIMIT, NO_LIMIT)
        self._indexes: dict[str, list[bytes]] = {suffix: [] for suffix in INDEX_SUFFIXES}

    def add(self, data: np.ndarray, batches: Batches) -> tuple[int, str | None]:
        """Take in valid batches, which follow one another.

        :return: how many; and what is wrong with the next one, None if that are all.
        """
        # Producers are told of no batch that the segment does not take.
        fits = batches.last_offset - self.segment.base_offset <= MAX_RELATIVE
        fault = None if fits.all() else TOO_FAR
        if fault is not None:
            batches = batches.take(np.arange(int(fits.argmin())))
        try:
            aborted = self._producers.add(data, batches)
        except CorruptRecordError as e:
            fault = e.message
            broken = int(np.searchsorted(batches.position, e.position or 0, side="right")) - 1
            batches = batches.take(np.arange(broken))
            aborted = self._producers.add(data, batches)
        _, offset_index, time_index = self.segment.append(
            self._limits, batches.size, batches.last_offset, batches.max_timestamp, closing=False
        )
        for suffix, entries in zip(
            INDEX_SUFFIXES, (offset_index, time_index, aborted.tobytes()), strict=True
        ):
            self._indexes[suffix].append(entries)
        self.epochs += new_epochs(batches, self.epochs[-1][0] if self.epochs else -1)
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
    scan, fault = Scan(path, base_offset), None
    rebuilt = Rebuilt(base_offset, producers, index_interval_bytes)
    for piece in scan:
        _, fault = rebuilt.add(piece.data, piece.batches)
        if fault is not None:
            break
    if fault == TOO_FAR:
        raise spans_too_much(path)
    end, next_offset = rebuilt.segment.sizes()[LOG_SUFFIX], rebuilt.segment.next_offset
    if end < scan.size:
        if next_offset < recovery_point:
            check_tail(folder, base_offset, end, next_offset)
        cut(path, end)
    indexes = rebuilt.indexes()
    write_indexes(folder, base_offset, indexes)
    return Recovered(rebuilt.segment, rebuilt.epochs, len(indexes[TXN_INDEX_SUFFIX]))


def check_tail(folder: str, base_offset: int, position: int, next_offset: int) -> None:
    """See that no valid batch follows the one at ``position``, which is not valid: a write that was torn.

    :param next_offset: follows the batches before it.
    :raises LogDirectoryError: if one follows.
    """
    path = os.path.join(folder, segment_file(base_offset, LOG_SUFFIX))
    behind = position + 1
    try:
        found = find_batch(_read_rest(path, behind), 0, min_offset=next_offset, strict=True)
    except CorruptRecordError as e:
        raise _damaged(e.message, path, position, next_offset) from None
    if found is not None:
        message = f"Expected a record batch, got other bytes before a valid batch at byte {behind + found}"
        raise _damaged(message, path, position, next_offset)


def _read_rest(path: str, position: int) -> np.ndarray:
    """The bytes from ``position`` on, in one piece, as a batch may have any size."""
    with _opened(path) as descriptor:
        rest = np.empty(max(os.fstat(descriptor).st_size - position, 0), np.uint8)
        return rest[: read_at(descriptor, rest, position)]


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """A descriptor to read a file by; errors name the file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        with naming(path):
            yield descriptor
    finally:
        os.close(descriptor)


def _damaged(message: str, path: str, position: int, offset: int) -> LogDirectoryError:
    return LogDirectoryError(
        message,
        offset=offset,
        file=path,
        position=position,
        hint="Nothing is cut off or appended after damage. Restore the file, or run kafkalog repair, which"
        " drops all that follows, or salvages it.",
    )


def new_epochs(batches: Batches, latest: int) -> list[tuple[int, int]]:
    """The leader epochs above ``latest`` that begin in ``batches``, each with its first offset."""
    epochs = np.where(batches.magic == 2, batches.leader_epoch, -1)
    rising = np.flatnonzero(epochs > np.maximum.accumulate(np.append(latest, epochs))[:-1])
    return list(zip(epochs[rising].tolist(), batches.base_offset[rising].tolist(), strict=True))


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


def _read_ahead(descriptor: int, position: int) -> None:
    """Let the system read on while what was read is checked."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, position, _WINDOW, os.POSIX_FADV_WILLNEED)


def read_at(descriptor: int, into: np.ndarray, position: int) -> int:
    """Fill ``into`` from the file, as far as it goes; the number of bytes."""
    view, filled = memoryview(into.data), 0
    while filled < into.size:
        count = os.preadv(descriptor, [view[filled:]], position + filled)
        if not count:
            break
        filled += count
    return filled


def _in_order(batches: Batches, next_offset: int, below: int) -> int:
    """How many batches come before the first whose offsets go back, or are not all ``below``."""
    first = np.where(batches.magic == 2, batches.base_offset, batches.last_offset)
    wrong = (first < np.append(next_offset, batches.last_offset + 1)[:-1]) | (batches.last_offset >= below)
    return int(wrong.argmax()) if wrong.any() else len(batches)
