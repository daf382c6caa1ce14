"""One segment: its batches in bounded windows, and positions by its indexes.

The ``.log`` file is the truth. An index only says where to start: if no batch with
the right offsets and CRC lies there, the search starts at the beginning of the segment.
Source: Kafka's ``LogSegment``, ``FileRecords``.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import fs

from pyspark_kafkalog.codec.format import HEADER_SIZE_UP_TO_MAGIC
from pyspark_kafkalog.codec.walk import Batches, check_batch, find_batch
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.filesystem.folder import Folder, InputFile
from pyspark_kafkalog.log.layout import INDEX_SUFFIX, LOG_SUFFIX, segment_file
from pyspark_kafkalog.log.segment import index
from pyspark_kafkalog.log.segment.scan import MAX_OFFSET, first_batch_at, framed
from pyspark_kafkalog.model import BatchHeader

if TYPE_CHECKING:
    from concurrent.futures import Future

SMALL_WINDOW = 64 << 10
"""Bytes of the first read when it is unknown how much is wanted."""
SCAN_WINDOW = 1 << 20
"""Bytes of each read when only headers are wanted."""
_FIRST_HEADS, _MOST_HEADS = 16, 1024
"""Batches whose headers are read at a time: where it is unknown how many are wanted, and at most."""
_SEARCH_WINDOW = 16 << 20
_SEARCH_OVERLAP = 8 << 20
"""The size of a batch up to which it is found after damage, wherever it lies."""
GONE = -1
"""Size of a missing file, which differs from that of every file."""

_log = logging.getLogger("pyspark_kafkalog")


class FramingError(Exception):
    """No batch begins at ``position``; the one before it ended with ``next_offset - 1``."""

    def __init__(self, position: int, next_offset: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.next_offset = next_offset


class Window(NamedTuple):
    """A window of a segment: whole consecutive batches, at least one."""

    position: int
    """Position of the first in the file."""
    buffer: pa.Buffer
    """Begins with the first batch; may end with a partial one that is not in ``batches``."""
    batches: Batches


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment as a listing shows it."""

    folder: Folder = field(compare=False)
    base_offset: int
    """No record in the segment has a lower offset."""
    suffix: str
    """The suffix after ``.log`` in the file's name: ``.swap``, or nothing."""
    size: int
    """Bytes of the ``.log``; GONE if it had vanished after the listing."""
    mtime_ns: int
    is_active: bool
    """Whether it is the last one, to which a writer may append."""

    @property
    def name(self) -> str:
        """Name of the ``.log``."""
        return segment_file(self.base_offset, LOG_SUFFIX + self.suffix)

    @property
    def file(self) -> str:
        """Path or URI of the ``.log``, for error messages."""
        return self.folder.label(self.name)

    def now(self) -> Segment:
        """The segment as it is now, which may have grown; FileNotFoundError if it is gone."""
        entry = self.folder.look(self.name)
        if entry.type == fs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, "The segment is gone", self.file)
        if (entry.size, entry.mtime_ns) == (self.size, self.mtime_ns):
            return self
        return replace(self, size=entry.size, mtime_ns=entry.mtime_ns)

    @contextmanager
    def open(self, ahead: Future[InputFile] | None = None) -> Iterator[OpenSegment]:
        """Open the ``.log``; FileNotFoundError if it has been deleted, renamed or replaced.

        :param ahead: opens it already.
        """
        with self.folder.open(self.name) if ahead is None else ahead.result() as log:
            listed = self.size, self.mtime_ns if log.mtime_ns is not None else None
            if not self.is_active and (log.size, log.mtime_ns) != listed:
                # Another segment may follow this file than the listing showed.
                raise FileNotFoundError(errno.ENOENT, "The segment has been replaced", self.file)
            with ExitStack() as indexes:
                yield OpenSegment(self, log, indexes)

    @contextmanager
    def open_index(self, suffix: str) -> Iterator[InputFile | None]:
        """Open one of the indexes; None if it is missing."""
        name = segment_file(self.base_offset, suffix + self.suffix)
        with ExitStack() as stack:
            try:
                file = stack.enter_context(self.folder.open(name))
            except FileNotFoundError:
                file = None
            yield file


class OpenSegment:
    """A segment whose file stays readable even if it is deleted meanwhile."""

    def __init__(self, segment: Segment, log: InputFile, indexes: ExitStack) -> None:
        """:param indexes: closes the index with the segment."""
        self.segment = segment
        self.file = log.name
        self.size = log.size
        self._log = log
        self._indexes = indexes

    def windows(
        self,
        position: int,
        *,
        until: int = 0,
        max_bytes: int = SCAN_WINDOW,
        next_offset: int = 0,
        below: int = MAX_OFFSET,
    ) -> Iterator[Window]:
        """All batches from ``position`` to the end of the file.

        Reads ``max_bytes`` at a time up to ``until``, smaller windows after that,
        and more only for a larger batch.

        :raises FramingError: where no batch can be framed: bytes that can't begin
            one, a batch that reaches past the end of the file, offsets that go
            back, are below ``next_offset``, or are not all ``below`` the next segment's.
        """
        self._log.expect(until)
        small, needed = SMALL_WINDOW, 0
        next_offset = max(next_offset, self.segment.base_offset)
        while position < self.size:
            wanted = max(needed, min(max_bytes, max(until - position, small)))
            small = min(2 * small, max_bytes)
            wanted = min(wanted, self.size - position)
            data = self._log.read(position, wanted)
            batches, fault = framed(data, wanted, self.size - position, next_offset, below)
            if len(batches):
                yield Window(position, data, batches)
                position += batches.end
                next_offset = int(batches.last_offset[-1]) + 1
            if fault is not None:
                raise FramingError(position, next_offset, fault)
            needed = max(batches.needed, HEADER_SIZE_UP_TO_MAGIC)

    def heads(
        self,
        position: int,
        *,
        stop: int = MAX_OFFSET,
        until: int = 0,
        next_offset: int = 0,
        below: int = MAX_OFFSET,
    ) -> Iterator[Window]:
        """All batches like :meth:`windows`, up to the one that has the offset ``stop`` or follows it.

        Of large batches the buffers have the headers alone, though their sizes are told. Where each read
        is a request, all is read.
        """
        from pyspark_kafkalog.log.segment.heads import LARGE, Next, read_heads  # a write needs none

        descriptor = self._log.descriptor
        if descriptor is None:
            yield from self.windows(position, until=until, next_offset=next_offset, below=below)
            return
        next_offset = max(next_offset, self.segment.base_offset)
        most, wanted = _FIRST_HEADS, LARGE
        while position < self.size and next_offset <= stop:
            with self._log.named():
                found = read_heads(
                    descriptor,
                    position,
                    self.size,
                    next_offset=next_offset,
                    stop=stop,
                    below=below,
                    most=most,
                )
            if len(found.batches):
                yield Window(position, found.buffer, found.batches)
                position, next_offset = found.end, int(found.batches.last_offset[-1]) + 1
                most, wanted = min(2 * most, _MOST_HEADS), LARGE
            if found.next is Next.FAULT:
                yield from self.windows(position, until=until, next_offset=next_offset, below=below)
                return
            if found.next is Next.BATCH:
                window = next(
                    self.windows(
                        position,
                        until=position + wanted,
                        max_bytes=wanted,
                        next_offset=next_offset,
                        below=below,
                    )
                )
                batches = window.batches
                # The last may be at fault for what follows.
                if len(batches) > 1 and position + batches.end < self.size:
                    batches = batches.between(0, len(batches) - 1)
                elif not check_batch(window.buffer, 0):
                    yield from self.windows(position, until=self.size, next_offset=next_offset, below=below)
                    return
                yield window._replace(batches=batches)
                position += int(batches.position[-1] + batches.size[-1])
                next_offset = int(batches.last_offset[-1]) + 1
                wanted = min(2 * wanted, SCAN_WINDOW)

    def header_at(self, position: int) -> BatchHeader | None:
        """The header of the batch at ``position``; None if no batch is there."""
        from pyspark_kafkalog.codec.batch_identity import header_of

        with suppress(FramingError):
            for window in self.heads(position, stop=self.segment.base_offset):
                return header_of(window.batches)
        return None

    def sound_windows(self, position: int) -> Iterator[Window]:
        """Like :meth:`windows`, but goes on at the next valid batch after damage."""
        next_offset = 0
        while True:
            try:
                yield from self.windows(position, next_offset=next_offset)
                return
            except FramingError as e:
                found = self.next_batch(e.position + 1, e.next_offset)
                if found is None:
                    return
                position, next_offset = found, e.next_offset

    def seek(self, offset: int) -> int:
        """Position of the first batch with a last offset >= ``offset``; the file's size if there is none."""
        for window in self.sound_windows(self.position_before(offset)):
            first = int(np.searchsorted(window.batches.last_offset, offset))
            if first < len(window.batches):
                return window.position + int(window.batches.position[first])
        return self.size

    def offset_at(self, start: int, end: int, *, at_least_one: bool) -> int | None:
        """The next offset after the batches that lie between the positions ``start`` and ``end``.

        None if there are none; with ``at_least_one``, the first batch counts in any case.
        """
        for begin in (max(start, self.batch_before(end)), start):
            found = None
            for window in self.sound_windows(begin):
                batches = window.batches
                fitting = int(np.count_nonzero(window.position + batches.position + batches.size <= end))
                if fitting:
                    found = int(batches.last_offset[fitting - 1]) + 1
                elif found is None and window.position == start and at_least_one:
                    found = int(batches.last_offset[0]) + 1
                elif found is None and window.position > start and batches.magic[0] == 2:
                    found = int(batches.base_offset[0])
                if fitting < len(batches):
                    break
            if found is not None:
                return found
        return None

    def position_before(self, offset: int) -> int:
        """Start of a batch before which all offsets are < ``offset``, as near as the index knows."""
        if offset <= self.segment.base_offset:
            return 0
        return self._verified(self._look_up(index.floor_offset, offset))

    def position_after(self, offset: int) -> int:
        """A position after which ``offset`` is unlikely to lie; not verified."""
        entry = self._look_up(index.higher_offset, offset - 1)
        return entry.position + SMALL_WINDOW if entry else self.size

    def batch_before(self, position: int) -> int:
        """Start of a batch at or before ``position``, as near as the index knows."""
        return self._verified(self._look_up(index.floor_position, position))

    def last_known_batch(self) -> int:
        """Start of a batch near the end, as near as the index knows."""
        return self.position_before(MAX_OFFSET)

    def next_batch(self, position: int, next_offset: int) -> int | None:
        """Position of the next batch from ``position`` on with offsets >= ``next_offset`` and the right CRC.

        :raises CorruptRecordError: if the search would take too long.
        """
        while (position := first_batch_at(self._log, position)) < self.size:
            data = self._log.read(position, min(_SEARCH_WINDOW, self.size - position))
            is_last = data.size < _SEARCH_WINDOW
            stop = None if is_last else _SEARCH_WINDOW - _SEARCH_OVERLAP
            try:
                found = find_batch(data, 0, min_offset=next_offset, stop=stop, strict=True)
            except CorruptRecordError as e:
                raise CorruptRecordError(
                    e.message,
                    offset=next_offset,
                    file=self.file,
                    position=position + (e.position or 0),
                    hint="If you need nothing of what follows, truncate the file there.",
                ) from None
            if found is not None:
                return position + found
            if is_last:
                return None
            position += _SEARCH_WINDOW - _SEARCH_OVERLAP
        return None

    def ends_in_zeros(self, position: int) -> bool:
        """Whether there are only zeros from ``position`` on, as in a file that is preallocated."""
        return self._log.skip_zeros(position) == self.size

    def window_at(self, position: int) -> Window | None:
        """Some batches, the first of which starts at ``position``; None if none can be framed there."""
        try:
            return next(self.windows(position), None)
        except FramingError:
            return None

    def _look_up(
        self, search: Callable[[InputFile, int, int], index.OffsetEntry | None], wanted: int
    ) -> index.OffsetEntry | None:
        if self.size <= SMALL_WINDOW:
            # One read gives all of it, faster than opening an index.
            return None
        file = self._index
        return None if file is None else search(file, self.segment.base_offset, wanted)

    @cached_property
    def _index(self) -> InputFile | None:
        """The offset index; None if it is missing."""
        return self._indexes.enter_context(self.segment.open_index(INDEX_SUFFIX))

    def _verified(self, entry: index.OffsetEntry | None) -> int:
        if entry is None:
            return 0
        window = self.window_at(entry.position) if entry.position > 0 else None
        # Brokers before 0.11 index the first offset of an append, later ones the last.
        if window and window.batches.base_offset[0] <= entry.offset and check_batch(window.buffer, 0):
            return entry.position
        _log.debug(
            "%s: the index entry %s does not point to a batch; reading from the start", self.file, entry
        )
        return 0
