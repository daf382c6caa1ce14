"""Frames on a socket, each a size as int32 followed by that many bytes, and how long they may take.

A slow link is not a dead link: a frame may take long as long as its bytes keep
moving, but not forever.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence

from pyspark_kafkalog.broker.wire.deadline import SHORTEST_WAIT

_PIECES_AT_ONCE = 512
"""The most pieces of one system call, below IOV_MAX on every system."""


class Pace:
    """The limits of one frame: ``stall`` seconds without a byte, and ``total`` seconds overall."""

    def __init__(self, stall: float, total: float) -> None:
        self.bytes = 0
        """The number of bytes that have moved so far."""
        self._stall = stall
        self._total = total
        self._last = self._started = time.monotonic()
        self.is_stalled = True
        """Whether the limit for the next byte ends before the limit for the whole frame."""

    def wait(self) -> float:
        """The seconds that the next byte may take.

        :raises TimeoutError: if a limit has passed.
        """
        now = time.monotonic()
        stall, total = self._last + self._stall - now, self._started + self._total - now
        self.is_stalled = stall <= total
        if min(stall, total) <= 0 and self.bytes:
            raise TimeoutError
        return max(min(stall, total), SHORTEST_WAIT)

    def moved(self, count: int) -> None:
        """Count bytes that were received or sent."""
        self.bytes += count
        self._last = time.monotonic()

    @property
    def limit_ms(self) -> int:
        """Whichever of the two limits :meth:`wait` applied last."""
        return round((self._stall if self.is_stalled else self._total) * 1000)


def read_size(sock: socket.socket, pace: Pace) -> bytes:
    """The four bytes that say how many follow."""
    prefix = bytearray(4)
    read_into(sock, memoryview(prefix), pace)
    return bytes(prefix)


def read_into(sock: socket.socket, view: memoryview, pace: Pace) -> None:
    """Fill ``view``; ``pace`` counts how far that went.

    :raises OSError: if the connection ends first.
    :raises TimeoutError: if a limit of ``pace`` passes.
    """
    while len(view):
        sock.settimeout(pace.wait())
        count = sock.recv_into(view)
        if not count:
            raise ConnectionResetError("closed by the broker")
        pace.moved(count)
        view = view[count:]


def write(sock: socket.socket, pieces: Sequence[bytes | bytearray | memoryview], pace: Pace) -> None:
    """Send all pieces, without a copy where the socket allows it.

    :raises OSError: if the connection ends first.
    :raises TimeoutError: if a limit of ``pace`` passes.
    """
    views = [memoryview(piece) for piece in pieces]
    if isinstance(sock, ssl.SSLSocket):
        _write_each(sock, views, pace)
        return
    for first in range(0, len(views), _PIECES_AT_ONCE):
        group = views[first : first + _PIECES_AT_ONCE]
        sock.settimeout(pace.wait())
        sent = sock.sendmsg(group)
        pace.moved(sent)
        for piece in group:
            if sent < len(piece):
                _write_each(sock, [piece[sent:]], pace)
            sent = max(sent - len(piece), 0)


def _write_each(sock: socket.socket, pieces: Sequence[memoryview], pace: Pace) -> None:
    # Not sendall: over TLS its timeout applies to each part, and a broker may take little at a time.
    for piece in pieces:
        rest = piece
        while len(rest):
            sock.settimeout(pace.wait())
            sent = sock.send(rest)
            pace.moved(sent)
            rest = rest[sent:]
