"""The lock of a log directory, the one that brokers hold while they run.

A broker locks ``.lock`` in each of its log directories for as long as it runs
(Kafka's ``LogManager.lockLogDirs``: ``FileChannel.tryLock``, a POSIX record lock
on Linux and macOS). The file stays behind when the lock is released.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_kafkalog.errors import LogDirectoryLockedError
from pyspark_kafkalog.log.layout import LOCK_FILE

CHECK_SECONDS = 5
"""How long a writer may be in the way of :func:`check_unlocked`."""
_RETRY_SECONDS = 0.02

# POSIX locks belong to the process, and closing any descriptor of the file gives them up:
# threads of one process have to exclude each other before they open it.
_threads: dict[str, threading.Lock] = {}
_threads_guard = threading.Lock()


@contextmanager
def directory_lock(root: str, timeout: float) -> Iterator[None]:
    """Hold the lock of the log directory ``root``, which must exist.

    :param timeout: seconds to wait for another writer to finish.
    :raises LogDirectoryLockedError: if it is held by another all that time.
    """
    deadline = time.monotonic() + timeout
    with _threads_guard:
        among_threads = _threads.setdefault(os.path.realpath(root), threading.Lock())
    if not among_threads.acquire(timeout=timeout):
        raise _locked(root, timeout)
    try:
        descriptor = os.open(os.path.join(root, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            while not _try_lock(descriptor):
                if time.monotonic() >= deadline:
                    raise _locked(root, timeout)
                time.sleep(_RETRY_SECONDS)
            yield
        finally:
            os.close(descriptor)
    finally:
        among_threads.release()


def check_unlocked(root: str) -> None:
    """Refuse a log directory that another holds now, so that a job fails before it has done any work.

    :raises LogDirectoryLockedError: if a broker, or another writer for more than a moment, holds the lock.
    """
    if os.path.exists(os.path.join(root, LOCK_FILE)):
        with directory_lock(root, timeout=CHECK_SECONDS):
            pass


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX allows both
        return False
    return True


def _locked(root: str, timeout: float) -> LogDirectoryLockedError:
    return LogDirectoryLockedError(
        f"The log directory is in use: another process held its lock for all of {timeout:g} s",
        file=os.path.join(root, LOCK_FILE),
        hint="A running broker holds it until it stops, another "
        "writer of this package only while it publishes.",
    )
