"""The part of a process that Spark starts and ends: its errors, its socket to the JVM, and its last signal.

Spark quotes the whole traceback of an error in a Python worker: in the exception of the user's cell,
and several times in its log. For an error of this package that is noise, since its text says where and
what to do. Other errors, a bug here or in a user's partitioner, keep their tracebacks.

The JVM writes the input of a task in small pieces, and PySpark what comes out. Nagle's algorithm (RFC 896)
keeps a piece back until those before are acknowledged, and Linux delays acknowledgements by 40 ms, to send
them with an answer (RFC 1122, 4.2.3.2). Where none is due, both sides wait for nothing.
"""

from __future__ import annotations

import inspect
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

from pyspark_kafkalog.errors import KafkaLogError

_Kind = TypeVar("_Kind", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])

_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The variable that ``spark.sql.execution.pyspark.udf.hideTraceback.enabled`` sets in all of Spark's workers.

PySpark looks at it when it reports an error (``handle_worker_exception`` of ``pyspark.util``).
"""


def started_module() -> str:
    """The module that this process was started with, by ``python -m`` as Spark's workers are; else empty."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if started is None else str(started.name)


def with_short_errors(kind: _Kind) -> _Kind:
    """A class decorator: :func:`short_errors` for the public methods, which Spark calls in its workers."""
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(kind, name, short_errors(member))
    return kind


def short_errors(function: _Function) -> _Function:
    """Wrap a function, whose :class:`KafkaLogError` is then reported without a traceback or causes."""
    short: Any
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def short(*args: Any, **named: Any) -> Iterator[Any]:
            try:
                yield from function(*args, **named)
            except KafkaLogError as e:
                raise _alone(e) from None
    else:

        @wraps(function)
        def short(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except KafkaLogError as e:
                raise _alone(e) from None

    return short  # type: ignore[no-any-return]


def _alone(error: KafkaLogError) -> KafkaLogError:
    """``error`` under its public name, without the frames so far; PySpark then leaves out its own."""
    if started_module().startswith("pyspark."):
        # A worker of Spark's ends with its first error, so this hides no other one.
        os.environ[_HIDE_TRACEBACK] = "1"
    return error.as_public().with_traceback(None)


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


def exit_when_stopped() -> None:
    """Have a stream's ``stop`` called where Spark ends its planner, by one SIGTERM or more."""

    def stop(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        sys.exit()

    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, stop)


def exit_if_stopped() -> None:
    """End the process at once if :func:`exit_when_stopped` is ending it."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        os._exit(0)  # PySpark would tell a JVM that no longer listens
