"""Talk to Spark's JVM over TCP without waiting for 40 ms now and then.

The JVM writes the input of a task in small pieces, and PySpark what comes out. Nagle's algorithm (RFC 896)
keeps a piece back until those before are acknowledged, and Linux delays acknowledgements by 40 ms, to send
them with an answer (RFC 1122, 4.2.3.2). Where none is due, both sides wait for nothing.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any


def without_delay() -> None:
    """Acknowledge at once what the JVM sends to this process of Spark's, and send at once what it gets.

    The kernel goes back to delayed acknowledgements some time after this process has sent something
    (tcp(7), TCP_QUICKACK), so this is called whenever an object of this package arrives from the JVM. It
    never raises. In the driver, and where Spark uses Unix sockets, it finds nothing.
    """
    with suppress(Exception):
        for descriptor in _descriptors():
            with suppress(OSError):
                if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    _wait_for_nothing(descriptor)


def _wait_for_nothing(descriptor: int) -> None:
    is_blocking = os.get_blocking(descriptor)
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        # With a default timeout (socket.setdefaulttimeout) Python has just changed that for both.
        os.set_blocking(descriptor, is_blocking)
        if connection.family in (socket.AF_INET, socket.AF_INET6) and _is_to_spark(connection):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_QUICKACK"):  # Linux
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _descriptors() -> Iterator[int]:
    """The descriptors of this process, among which PySpark's worker reads from one."""
    if _port():
        yield from map(int, os.listdir("/dev/fd"))
        return
    frame: Any = sys._getframe()
    while frame is not None:
        infile = frame.f_locals.get("infile") if _is_of_pyspark(frame) else None
        if infile is not None:
            yield infile.fileno()
            return
        frame = frame.f_back


def _is_to_spark(connection: socket.socket) -> bool:
    return _port() in (0, connection.getpeername()[1])


def _port() -> int:
    """The port of the JVM to which a worker has connected itself; 0 for one that PySpark's daemon forked."""
    return int(os.environ.get("PYTHON_WORKER_FACTORY_PORT", "0"))


def _is_of_pyspark(frame: Any) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in ("pyspark", "__main__")
