"""Walks the ``.log`` of a segment on a local disk, and says what is wrong where its batches end.

Files are read, not mapped: a bad sector is an error that names the file, then, not a signal that ends the
process. :mod:`.segment` reads them from any place, by the same rules.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.codec.buffers import Buffer
from pyspark_kafkalog.codec.format import HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, check_batch, find_batch, first_bad_checksum, walk
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.durable import naming
from pyspark_kafkalog.filesystem.folder import InputFile

MAX_OFFSET = 2**63 - 1
_WINDOW = 8 << 20
_ZEROS_IN_BATCH = 8 << 20
"""The most zeros at the end of a batch with which it is found behind damage if more zeros follow."""
_WRONG_CHECKSUM = "its checksum is wrong"
_LAST_CHECKSUM = "its checksum is wrong, and no batch follows it"
_OUT_OF_ORDER = "its offsets are out of order"
_SHORTER = "the file has become shorter"


def framed(data: Buffer, wanted: int, left: int, next_offset: int, below: int) -> tuple[Batches, str | None]:
    """The batches at the beginning of ``data``, and the fault of the bytes after them, if any.

    Checksums are verified only where they decide what can be believed.

    :param wanted: the bytes that were asked for: ``data`` has fewer if the file has become shorter.
    :param left: the bytes of the file from the beginning of ``data`` on.
    :param next_offset: no batch may begin before it.
    :param below: no record may have this offset or a later one.
    """
    batches = walk(data)
    in_order = _in_order(data, batches, next_offset, below)
    if in_order < len(batches):
        batches, fault = _first(batches, in_order), _OUT_OF_ORDER
    elif batches.status == WalkStatus.INVALID:
        fault = "it has an unknown format, or an impossible size or offset"
    elif len(data) < wanted:
        fault = _SHORTER
    elif batches.end < left < batches.end + max(batches.needed, HEADER_SIZE_UP_TO_MAGIC):
        fault = "it reaches past the end of the file"
    else:
        return batches, None
    if len(batches) and not check_batch(data, int(batches.position[-1])):
        # Its size may be wrong, too, and have led here.
        return _first(batches, len(batches) - 1), _LAST_CHECKSUM
    return batches, fault


def _in_order(data: Buffer, batches: Batches, next_offset: int, below: int) -> int:
    """The number of batches of ``data`` before the first whose offsets go back, or are not all ``below``.

    No CRC covers the base offset or the order. Where two batches overlap, the first is at fault if it left a
    gap that the second, a valid one, fits into.
    """
    # The base offset of a compressed v0 or v1 message is unknown.
    first = np.where(batches.magic == 2, batches.base_offset, batches.last_offset)
    ends = np.append(next_offset, batches.last_offset + 1)
    wrong = np.flatnonzero((first < ends[:-1]) | (batches.last_offset >= below))
    if not wrong.size:
        return len(batches)
    at = int(wrong[0])
    left_a_gap = at > 0 and batches.magic[at - 1] == 2 and ends[at - 1] < first[at - 1]
    if left_a_gap and ends[at - 1] <= first[at] < ends[at] and check_batch(data, int(batches.position[at])):
        return at - 1
    return at


def _first(batches: Batches, count: int) -> Batches:
    """The first of the batches, as if nothing followed."""
    end = int(batches.position[count]) if count < len(batches) else batches.end
    return replace(batches, table=batches.table[:, :count], end=end, status=WalkStatus.END, needed=0)


class Stretch(NamedTuple):
    """Consecutive batches of a segment with their bytes: ``data[0]`` is at ``position``."""

    position: int
    data: np.ndarray
    batches: Batches


@dataclass(slots=True)
class Scan:
    """The valid batches of a segment's ``.log`` from a position on, in pieces; iterate over it once.

    A batch is valid if it is whole, its CRC is right, and its offsets follow those before it. Use up each
    piece before the next, which takes the same memory.
    """

    path: str
    next_offset: int
    """The offset after the last batch."""
    below: int = MAX_OFFSET
    """No record has this offset or a later one."""
    check_crcs: bool = True
    end: int = 0
    """The position after the last batch in the file; at first, that of the first batch."""
    size: int = 0
    """Bytes of the file."""
    fault: str | None = None
    """The reason why the batches end before the file does; None if they don't."""
    _needed: int = field(default=0, init=False)
    _room: bool | None = field(default=None, init=False)

    @property
    def ends_in_room(self) -> bool:
        """Whether only zeros follow the last batch, as in a preallocated file; asked after all pieces."""
        if self._room is None:
            self._room = ends_in_zeros(self.path, self.end)
        return self._room

    @property
    def is_whole(self) -> bool:
        """Whether what is wrong has the size of a whole batch: it is not the rest of an interrupted write."""
        return self.fault in (_WRONG_CHECKSUM, _OUT_OF_ORDER)

    def __iter__(self) -> Iterator[Stretch]:
        """:raises OSError: if the file can't be opened or read."""
        with opened(self.path) as descriptor:
            self.size = os.fstat(descriptor).st_size
            room = np.empty(0, np.uint8)
            while self.end < self.size and self.fault is None:
                wanted = min(max(self._needed, _WINDOW), self.size - self.end)
                room = room if room.size >= wanted else np.empty(wanted, np.uint8)
                data = room[: read_at(descriptor, room[:wanted], self.end)]
                _read_ahead(descriptor, self.end + wanted, self.size)
                piece = self._valid(data, wanted)
                if len(piece.batches):
                    yield piece

    def _valid(self, data: np.ndarray, wanted: int) -> Stretch:
        """The valid batches of ``data``, which begins at the end of those before."""
        position, left = self.end, self.size - self.end
        batches, self.fault = framed(data, wanted, left, self.next_offset, self.below)
        self._needed = max(batches.needed, HEADER_SIZE_UP_TO_MAGIC)
        if self.fault is None and batches.end < left and self._leaves_a_gap(batches):
            # Whether it is at fault shows the next one: both must be in one piece.
            if len(batches) == 1:
                self._needed += batches.end
            batches = _first(batches, len(batches) - 1)
        valid = first_bad_checksum(data, batches, 0, len(batches)) if self.check_crcs else len(batches)
        if valid < len(batches) or self.fault == _LAST_CHECKSUM:
            batches, self.fault = _first(batches, valid), _WRONG_CHECKSUM
        if valid:
            self.end += batches.end
            self.next_offset = int(batches.last_offset[-1]) + 1
        return Stretch(position, data, batches)

    def _leaves_a_gap(self, batches: Batches) -> bool:
        """Whether there are offsets before the last of the batches that none has."""
        if not len(batches) or batches.magic[-1] != 2:
            return False
        before = int(batches.last_offset[-2]) + 1 if len(batches) > 1 else self.next_offset
        return before < int(batches.base_offset[-1])


def find_behind(path: str, position: int, next_offset: int) -> int | None:
    """The position in a file of the first valid batch that begins behind ``position``.

    :param next_offset: batches with lower offsets don't count.
    :raises CorruptRecordError: if the search would take too long.
    """
    begin, data = read_data(path, position + 1)
    found = find_batch(data, 0, min_offset=next_offset, strict=True)
    return None if found is None else begin + found


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A descriptor to read a regular file by; errors name the file.

    :raises LogDirectoryError: if it is not a regular file.
    """
    descriptor = open_regular(path)
    try:
        with naming(path):
            yield descriptor
    finally:
        os.close(descriptor)


def open_regular(path: str) -> int:
    """Open a regular file to read it, and follow no link.

    :raises LogDirectoryError: if it is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise LogDirectoryError("Not a regular file", file=path)


def read_rest(descriptor: int, position: int) -> np.ndarray:
    """The bytes of an open file from ``position`` on, in one piece, as a batch may have any size."""
    rest = np.empty(max(os.fstat(descriptor).st_size - position, 0), np.uint8)
    return rest[: read_at(descriptor, rest, position)]


def read_data(path: str, position: int) -> tuple[int, np.ndarray]:
    """The bytes of a file from ``position`` on, in one piece, as a batch may have any size, and their start.

    Zeros before the first batch that may be there, and at the end of the file, are left out.
    """
    with opened(path) as descriptor:
        file = _as_file(descriptor, path)
        begin = first_batch_at(file, position)
        end = min(file.end_before_zeros(begin) + _ZEROS_IN_BATCH, file.size)
        data = np.empty(max(end - begin, 0), np.uint8)
        return begin, data[: read_at(descriptor, data, begin)]


def first_batch_at(file: InputFile, position: int) -> int:
    """The first position, ``position`` or later, where a batch may begin; the file's size without one.

    Of a batch, no more than the offset and a part of its size, which is not zero, are zeros at its beginning.
    """
    data = file.skip_zeros(position)
    return data if data == file.size else max(position, data - LOG_OVERHEAD + 1)


def ends_in_zeros(path: str, position: int) -> bool:
    """Whether a file has only zeros from ``position`` on, as one that is preallocated."""
    with opened(path) as descriptor:
        file = _as_file(descriptor, path)
        return file.skip_zeros(position) == file.size


def before_zeros(path: str, position: int, end: int) -> int:
    """The position at which the zeros before ``end`` in a file begin, ``position`` at least."""
    with opened(path) as descriptor:
        return _as_file(descriptor, path, end).end_before_zeros(position)


def _as_file(descriptor: int, path: str, size: int | None = None) -> InputFile:
    size = os.fstat(descriptor).st_size if size is None else size
    return InputFile(io.FileIO(descriptor, closefd=False), path, size)


def read_at(descriptor: int, into: np.ndarray, position: int) -> int:
    """Fill ``into`` from the file, as far as it goes; the number of bytes."""
    view, filled = memoryview(into.data), 0
    while filled < into.size:
        count = os.preadv(descriptor, [view[filled:]], position + filled)
        if not count:
            break
        filled += count
    return filled


def _read_ahead(descriptor: int, position: int, size: int) -> None:
    """Let the system read on while what was read is checked."""
    if position < size and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, position, _WINDOW, os.POSIX_FADV_WILLNEED)
