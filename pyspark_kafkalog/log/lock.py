"""The locks of a log directory: the one that brokers hold while they run, and the one of writers.

A broker locks ``.lock`` in each of its log directories for as long as it runs
(Kafka's ``LogManager.lockLogDirs``: ``FileChannel.tryLock``, a POSIX record lock
on Linux and macOS). A writer of ours locks ``.kafkalog-lock`` first, and then
``.lock``. So who finds the first one held waits for a writer, which will end, and who
finds only ``.lock`` held has met a broker. Both go when their holder dies.

``.kafkalog-lock`` names its holder, which touches the file as it makes progress.
Others look only at whether it changes, so that no clock has to agree with another.
The files stay behind when the locks are released.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import LogDirectoryLockedError
from pyspark_kafkalog.log.disk_errors import disk_errors, naming
from pyspark_kafkalog.log.durable import sync_parents, write_all
from pyspark_kafkalog.log.layout import LOCK_FILE

WRITER_LOCK_FILE = ".kafkalog-lock"
CHECK_SECONDS = 5
"""How long a broker may be in the way of :func:`check_unlocked`: it may be about to stop."""
PATIENCE_SECONDS = 600
"""How long a writer that holds the lock may go without progress: a flush of one large file to a slow disk."""
_RETRY_SECONDS = 0.02
_PROGRESS_SECONDS = 1
_TELL_SECONDS = 60

logger = logging.getLogger("pyspark_kafkalog")


@dataclass(slots=True)
class _Threads:
    """Excludes the threads of this process, and tells them of the one that holds the directory.

    POSIX locks belong to the process, and closing any descriptor of the file gives them up: threads of
    one process have to exclude each other before they open it.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    progress: int = 0


_threads: dict[str, _Threads] = {}
_threads_guard = threading.Lock()


@contextmanager
def directory_lock(
    root: str, timeout: float, *, patience: float | None = None
) -> Iterator[Callable[[], None]]:
    """Hold the locks of the log directory ``root``, which must exist.

    Gives a function to call as often as there is progress, from any thread; others wait for that.

    :param timeout: seconds to wait for a broker.
    :param patience: seconds that a writer may hold it without progress; with progress it is waited
        for as long as it takes. None: ``timeout`` is for writers, too.
    :raises LogDirectoryLockedError: if it is held by another all that time.
    :raises OSError: if a lock file can't be opened, or locked.
    """
    with _threads_guard:
        threads = _threads.setdefault(os.path.realpath(root), _Threads())
    wait = _Wait(root, timeout, patience)
    while not threads.lock.acquire(timeout=_RETRY_SECONDS):
        wait.on_writer(f"thread of this process {os.getpid()}", threads.progress)
    descriptors: list[int] = []
    try:
        path = os.path.join(root, WRITER_LOCK_FILE)
        if not os.path.exists(path):
            sync_parents(root)  # the file is there only where they are known to last
        descriptors.append(_open(path))
        while not _try_lock(descriptors[0], path):
            status = os.fstat(descriptors[0])
            wait.on_writer(_holder(descriptors[0]), (status.st_mtime_ns, status.st_size))
            time.sleep(_RETRY_SECONDS)
        _introduce(descriptors[0])
        path = os.path.join(root, LOCK_FILE)
        descriptors.append(_open(path))
        while not _try_lock(descriptors[1], path):
            wait.on_broker()
            time.sleep(_RETRY_SECONDS)
        yield _Progress(threads, descriptors[0])
    finally:
        for descriptor in reversed(descriptors):
            with suppress(OSError):  # what was done under the lock is done
                os.close(descriptor)
        threads.lock.release()


def check_unlocked(root: str) -> None:
    """Refuse a log directory that a broker holds now, so that a job fails before it has done any work.

    A writer that holds it is in nobody's way until there is something to publish.

    :raises LogDirectoryLockedError: if a broker holds the lock for more than a moment.
    :raises LogDirectoryError: if the lock files can't be opened, or locked.
    """
    if not os.path.exists(os.path.join(root, LOCK_FILE)):
        return
    with (
        disk_errors("Could not lock the log directory", root),
        suppress(_HeldByWriterError),
        directory_lock(root, CHECK_SECONDS, patience=0),
    ):
        pass


class _HeldByWriterError(LogDirectoryLockedError):
    """It is a writer of this package that holds it."""


class _Wait:
    """How long one waits for the locks, and what is told of it."""

    def __init__(self, root: str, timeout: float, patience: float | None) -> None:
        self._root = root
        self._timeout = timeout
        self._patience = patience
        self._begun = self._progressed = time.monotonic()
        self._told = self._begun
        self._progress: object = None
        self._free_of_writers: float | None = None

    def on_writer(self, holder: str, progress: object) -> None:
        """:raises LogDirectoryLockedError: if the holder, a writer, was waited for long enough."""
        now = time.monotonic()
        if progress != self._progress:
            self._progress, self._progressed = progress, now
        if self._patience is None:
            waited, limit = now - self._begun, self._timeout
        else:
            waited, limit = now - self._progressed, self._patience
        if waited >= limit:
            raise _HeldByWriterError(
                f"The log directory is in use: a writer, {holder}, held it for {limit:g} s"
                + ("" if self._patience is None else " without progress"),
                file=os.path.join(self._root, WRITER_LOCK_FILE),
                hint="End that process if it hangs; its lock goes with it.",
            )
        if now - self._told >= _TELL_SECONDS:
            self._told = now
            logger.warning(
                "For %.0f s waiting for %s, which writes to %s", now - self._begun, holder, self._root
            )

    def on_broker(self) -> None:
        """:raises LogDirectoryLockedError: if it is held by others than writers for long enough."""
        now = time.monotonic()
        self._free_of_writers = self._free_of_writers or now
        if now - self._free_of_writers >= self._timeout:
            raise LogDirectoryLockedError(
                f"The log directory is in use: another process held its lock for all of {self._timeout:g} s",
                file=os.path.join(self._root, LOCK_FILE),
                hint="A running broker holds it until it stops, a writer of an earlier version "
                "of this package while it publishes.",
            )


class _Progress:
    """Shows others that the holder of the locks is not hung."""

    def __init__(self, threads: _Threads, descriptor: int) -> None:
        self._threads = threads
        self._descriptor = descriptor
        self._shown = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._shown >= _PROGRESS_SECONDS:
            self._shown = now
            self._threads.progress += 1
            with suppress(OSError):
                os.utime(self._descriptor)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)


def _try_lock(descriptor: int, path: str) -> bool:
    try:
        with naming(path):
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX allows both
        return False
    return True


def _introduce(descriptor: int) -> None:
    """Say who holds the lock."""
    with suppress(OSError):  # a full disk must not keep anybody from publishing what is small
        os.ftruncate(descriptor, 0)
        write_all(descriptor, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode(), 0)


def _holder(descriptor: int) -> str:
    """Who said so last; not known for a moment after the lock was taken."""
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
