"""Frames on a socket, each its size as int32 and then so many bytes, and how long they may take.

A slow link is no dead one: a frame is waited for as long as bytes of it move
often enough, and only in all not for ever.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence

_PIECES_AT_ONCE = 512
"""Below IOV_MAX of all systems."""
_SHORTEST_WAIT = 0.001


class Pace:
    """How long one frame may take: ``stall`` seconds without a byte of it, and ``total`` in all."""

    def __init__(self, stall: float, total: float) -> None:
        self.bytes = 0
        """What has moved so far."""
        self._stall = min(stall, total)
        self._total = total
        self._last = self._begun = time.monotonic()
        self.is_stalled = True
        """Whether it is the wait for the next byte that ends first, not that for all."""

    def wait(self) -> float:
        """How long the next byte may take.

        :raises TimeoutError: if it comes too late.
        """
        now = time.monotonic()
        left, left_in_all = self._last + self._stall - now, self._begun + self._total - now
        self.is_stalled = left <= left_in_all
        if min(left, left_in_all) <= 0 and self.bytes:
            raise TimeoutError
        return max(min(left, left_in_all), _SHORTEST_WAIT)

    def moved(self, count: int) -> None:
        """So many bytes came, or went."""
        self.bytes += count
        self._last = time.monotonic()

    @property
    def limit_ms(self) -> int:
        """The one of the two limits that :meth:`wait` kept last."""
        return round((self._stall if self.is_stalled else self._total) * 1000)


def read_size(sock: socket.socket, pace: Pace) -> bytes:
    """The four bytes that tell how many follow."""
    prefix = bytearray(4)
    read_into(sock, memoryview(prefix), pace)
    return bytes(prefix)


def read_into(sock: socket.socket, view: memoryview, pace: Pace) -> None:
    """Fill ``view``, or as much of it as ``pace`` counts.

    :raises OSError: if that ends before; TimeoutError by the pace.
    """
    while len(view):
        sock.settimeout(pace.wait())
        count = sock.recv_into(view)
        if not count:
            raise ConnectionResetError("the broker closed it")
        pace.moved(count)
        view = view[count:]


def write(sock: socket.socket, pieces: Sequence[bytes | bytearray | memoryview], pace: Pace) -> None:
    """Send all of the pieces, without a copy where the socket allows.

    :raises OSError: if that ends before; TimeoutError by the pace.
    """
    views = [memoryview(piece) for piece in pieces]
    if isinstance(sock, ssl.SSLSocket):
        _write_each(sock, views, pace)
        return
    for first in range(0, len(views), _PIECES_AT_ONCE):
        some = views[first : first + _PIECES_AT_ONCE]
        sock.settimeout(pace.wait())
        sent = sock.sendmsg(some)
        pace.moved(sent)
        for piece in some:
            if sent < len(piece):
                _write_each(sock, [piece[sent:]], pace)
            sent = max(sent - len(piece), 0)


def _write_each(sock: socket.socket, pieces: Sequence[memoryview], pace: Pace) -> None:
    # Not sendall: through TLS its timeout is that of each part, and a broker may take little at a time.
    for piece in pieces:
        rest = piece
        while len(rest):
            sock.settimeout(pace.wait())
            sent = sock.send(rest)
            pace.moved(sent)
            rest = rest[sent:]
