"""Reads files of object stores: in large pieces, and ahead of the reader, as each request takes long.

A store takes tens of milliseconds to answer a request, whatever its size. So what is read is cut into pieces
of :data:`PIECE_BYTES`, and where a reader says how far it will read, the next pieces are requested while it
is busy with the ones that it has. A small file is read in one request.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

_Result = TypeVar("_Result")

PIECE_BYTES = 8 << 20
"""Bytes that one request fetches where reading goes on."""
PIECES_AHEAD = 4
"""Pieces that are requested ahead. They hide the latency: it may be as long as these take to be decoded."""
_WHOLE_BYTES = 4 << 20
"""A file up to this size is read as one piece."""
_FIRST_BYTES = 256 << 10
"""Bytes of a request for a few bytes anywhere; more may be wanted, and a store sends these as fast."""
_MOST_KEPT = 2 * PIECES_AHEAD
"""Pieces that are kept: those ahead, and small ones behind, to which a search may come back."""


class _Piece:
    """The bytes of the file from ``start`` to ``end``, requested or there."""

    def __init__(self, start: int, end: int, data: Future[bytes]) -> None:
        self.start = start
        self.end = end
        self._data = data

    def buffer(self) -> pa.Buffer:
        """The bytes, fewer if the file has become shorter; waits for them."""
        return pa.py_buffer(self._data.result())


class PieceReader:
    """Reads ranges of one file of ``size`` bytes. Not for several threads at once.

    :param read_at: reads a number of bytes at a position; called by :data:`PIECES_AHEAD` threads at once.
    """

    def __init__(self, read_at: Callable[[int, int], bytes], size: int) -> None:
        self._read_at = read_at
        self._size = size
        self._threads = ThreadPoolExecutor(PIECES_AHEAD, thread_name_prefix="kafkalog-read")
        self._pieces: list[_Piece] = []
        self._until = 0

    def expect(self, until: int) -> None:
        """Expect reads to go on to the position ``until``: request pieces ahead."""
        self._until = min(until, self._size)

    def begin(self, until: int) -> None:
        """Request the first pieces already, as reads from the start of the file to ``until`` follow soon."""
        self.expect(until)
        if self._until and not self._pieces:
            self._request_ahead(self._piece_at(0, 0), 1)

    def read(self, position: int, size: int) -> pa.Buffer:
        """The bytes from ``position``: ``size`` of them, fewer at the end of the file."""
        end = min(position + size, self._size)
        self._pieces = [p for p in self._pieces if p.end >= position or p.end - p.start <= _FIRST_BYTES]
        parts: list[pa.Buffer] = []
        at = position
        while at < end:
            piece = self._piece_at(at, end)
            self._request_ahead(piece, PIECES_AHEAD)
            data = piece.buffer()
            begin, stop = at - piece.start, min(end, piece.end) - piece.start
            parts.append(data.slice(min(begin, data.size), max(min(stop, data.size) - begin, 0)))
            at = piece.end
            if data.size < stop:  # the file has become shorter
                break
        del self._pieces[:-_MOST_KEPT]
        return _joined(parts)

    def close(self) -> None:
        """Wait for requests under way, as they use the file, and drop the others."""
        self._threads.shutdown(cancel_futures=True)
        self._pieces.clear()

    def _piece_at(self, position: int, end: int) -> _Piece:
        """The piece that has ``position``; a new one goes on to ``end``, unless it is read ahead."""
        for piece in self._pieces:
            if piece.start <= position < piece.end:
                return piece
        if self._size <= _WHOLE_BYTES:
            return self._request(0, self._size)
        if position < self._until:
            return self._request(position, min(position + PIECE_BYTES, max(self._until, end)))
        before = self._pieces[-1] if self._pieces else None
        least = _FIRST_BYTES
        if before is not None and before.end == position and before.start >= self._until:
            least = min(2 * (before.end - before.start), PIECE_BYTES)
        return self._request(position, min(max(end, position + least), self._size))

    def _request_ahead(self, piece: _Piece, count: int) -> None:
        """Request so many pieces after this one, as far as they are expected."""
        start = piece.end
        for _ in range(count):
            following = next((p for p in self._pieces if p.start <= start < p.end), None)
            if following is None and start < self._until:
                following = self._request(start, min(start + PIECE_BYTES, self._until))
            if following is None:
                return
            start = following.end

    def _request(self, start: int, end: int) -> _Piece:
        piece = _Piece(start, end, self._threads.submit(self._read_at, end - start, start))
        self._pieces.append(piece)
        return piece


def in_background(call: Callable[[], _Result]) -> Future[_Result]:
    """Run ``call`` in a thread of its own."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="kafkalog-open")
    future = thread.submit(call)
    thread.shutdown(wait=False)
    return future


def _joined(parts: list[pa.Buffer]) -> pa.Buffer:
    """The parts as one buffer, copied only if there are several."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return pa.py_buffer(b"")
    joined = pa.allocate_buffer(sum(part.size for part in parts))
    view, filled = memoryview(joined).cast("B"), 0
    for part in parts:
        view[filled : filled + part.size] = memoryview(part).cast("B")
        filled += part.size
    return joined
