"""The locks of a log directory: one that brokers hold while they run, and one for writers; and of files.

A broker locks ``.lock`` in each of its log directories for as long as it runs
(Kafka's ``LogManager.lockLogDirs``: ``FileChannel.tryLock``, a POSIX record lock
on Linux and macOS). A writer of ours locks ``.kafkalog-lock`` first, and then
``.lock``. If the first one is held, its holder is a writer, which will end. If only
``.lock`` is held, its holder is a broker. The system drops both when the holder dies.

``.kafkalog-lock`` names its holder, which touches the file as it makes progress.
Others only check whether it changes, so that clocks need not agree. The files stay
when the locks are released.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import KafkaLogError, LogDirectoryLockedError
from pyspark_kafkalog.filesystem.durable import disk_errors, naming, sync_parents, write_all
from pyspark_kafkalog.filesystem.sharing import open_new
from pyspark_kafkalog.log.layout import BACKUP_FILE, LOCK_FILE

WRITER_LOCK_FILE = ".kafkalog-lock"
_PARTITION_LOCK_PREFIX = ".kafkalog-lock-"
"""Begins the names of files by which the tasks of a job exclude each other; the driver holds the root."""
_MAX_NAME = 255
"""Bytes of a file's name, on most file systems."""
_DIGEST_SIZE = 64
CHECK_SECONDS = 5
"""Seconds for which :func:`check_unlocked` waits for a broker, which may be about to stop."""
PATIENCE_SECONDS = 600
"""Seconds for which the holder may make no progress: it may be flushing one large file to a slow disk."""
_RETRY_SECONDS = 0.02
_PROGRESS_SECONDS = 1
_REPORT_SECONDS = 60

_log = logging.getLogger("pyspark_kafkalog")


@dataclass(slots=True)
class _Threads:
    """Excludes the threads of this process, and shows them the progress of the one that holds the directory.

    POSIX locks belong to the process, and closing any descriptor of the file releases them: threads of
    a process must exclude each other before they open it.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    progress: int = 0


_threads: dict[str, _Threads] = {}
_threads_guard = threading.Lock()


@contextmanager
def directory_lock(
    root: str, timeout: float, *, patience: float | None = None, create: bool = True
) -> Iterator[Callable[[], None]]:
    """Hold the locks of the log directory ``root``, which must exist.

    It also waits for tasks of a job that has held a backup, and was killed. Yields a function to call,
    from any thread, whenever there is progress: others wait as long as there is.

    :param timeout: seconds to wait for a broker.
    :param patience: seconds that a writer may hold it without progress; while it makes progress, this
        waits for it. None: ``timeout`` is for writers, too.
    :param create: whether to create lock files that are missing; else only those that exist are held.
    :raises LogDirectoryLockedError: if another holds it all that time.
    :raises LogDirectoryError: if it isn't a log directory, which is checked before its first lock.
    :raises OSError: if a lock file can't be opened, or locked.
    """
    threads = _threads_of(root)
    wait = _Wait(root, timeout, patience)
    while not threads.lock.acquire(timeout=_RETRY_SECONDS):
        wait.on_writer(f"thread of this process {os.getpid()}", threads.progress)
    descriptors: list[int] = []
    try:
        writer = None
        path = os.path.join(root, WRITER_LOCK_FILE)
        if create and not os.path.exists(path):
            _check_root(root)
            sync_parents(root)  # where the file exists, they have been flushed
        if create or os.path.exists(path):
            descriptors.append(writer := _open(path))
            while not _try_lock(writer, path):
                status = os.fstat(writer)
                wait.on_writer(_holder(writer), (status.st_mtime_ns, status.st_size))
                time.sleep(_RETRY_SECONDS)
            _introduce(writer)
        path = os.path.join(root, LOCK_FILE)
        if create or os.path.exists(path):
            descriptors.append(broker := _open(path))
            while not _try_lock(broker, path):
                wait.on_broker()
                time.sleep(_RETRY_SECONDS)
        if writer is not None and os.path.exists(os.path.join(root, BACKUP_FILE)):
            for name in sorted(filter(None, locked_partitions(root))):
                with partition_lock(root, name, timeout):
                    pass  # no task is left that writes, of a job whose driver was killed
        yield _Progress(threads, writer)
    finally:
        for descriptor in reversed(descriptors):
            with suppress(OSError):  # what was done under the lock is done
                os.close(descriptor)
        threads.lock.release()


@contextmanager
def file_lock(path: str, what: str) -> Iterator[None]:
    """Hold a file that does not belong to a log, without waiting, by a lock on a file beside it.

    :param what: begins the error, such as ``The file of the restore``.
    :raises KafkaLogError: if another process or thread holds it.
    :raises OSError: if the file beside it can't be opened, or locked.
    """

    def in_use(holder: str) -> KafkaLogError:
        hint = "Wait for it, or end it: this releases its lock."
        return KafkaLogError(f"{what} is in use by {holder}", file=path, hint=hint)

    beside = path + LOCK_FILE
    threads = _threads_of(beside)
    if not threads.lock.acquire(blocking=False):
        raise in_use(f"a thread of this process {os.getpid()}")
    try:
        descriptor = _open(beside)
        try:
            if not _try_lock(descriptor, beside):
                raise in_use(_holder(descriptor))
            _introduce(descriptor)
            yield
        finally:
            os.close(descriptor)
    finally:
        threads.lock.release()


@contextmanager
def partition_lock(root: str, name: str, timeout: float) -> Iterator[None]:
    """Hold one partition of a root whose other locks the driver of this task's job holds.

    :param name: the partition's folder.
    :param timeout: seconds to wait for another attempt at the task.
    :raises LogDirectoryLockedError: if it holds the partition all that time.
    """
    path = partition_lock_file(root, name)
    descriptor = _open(path)
    try:
        write_all(descriptor, name.encode(), 0)
        deadline = time.monotonic() + timeout
        while not _try_lock(descriptor, path):
            if time.monotonic() > deadline:
                raise LogDirectoryLockedError(
                    f"The partition is in use: another task wrote to it for all of {timeout:g} s",
                    file=path,
                    hint="Wait for that task, or end its worker; this releases its lock.",
                )
            time.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(descriptor)


def partition_lock_file(root: str, name: str) -> str:
    """The file that :func:`partition_lock` locks, and that holds ``name``; a digest stands for a long one."""
    file = _PARTITION_LOCK_PREFIX + name
    if len(file) > _MAX_NAME:
        file = _PARTITION_LOCK_PREFIX + hashlib.sha256(name.encode()).hexdigest()
    return os.path.join(root, file)


def locked_partitions(root: str) -> set[str]:
    """The names of the partitions that have such a file, whether it is held or not."""
    files = [name for name in os.listdir(root) if name.startswith(_PARTITION_LOCK_PREFIX)]
    names = {name.removeprefix(_PARTITION_LOCK_PREFIX) for name in files}
    for name in [name for name in names if len(name) == _DIGEST_SIZE]:
        from pyspark_kafkalog.filesystem.locate import local_folder

        names.add((local_folder(root).read(_PARTITION_LOCK_PREFIX + name) or b"").decode())
    return names


def check_unlocked(root: str) -> None:
    """Refuse a log directory that a broker holds, and a folder that isn't a log directory, so that a job
    fails before it has done any work.

    A writer that holds it does not matter until there is something to publish.

    :raises LogDirectoryLockedError: if a broker holds the lock for more than a moment.
    :raises LogDirectoryError: if the lock files can't be opened, or locked; if the folder holds other things.
    """
    if os.path.isdir(root) and not os.path.exists(os.path.join(root, WRITER_LOCK_FILE)):
        _check_root(root)
    if not os.path.exists(os.path.join(root, LOCK_FILE)):
        return
    with (
        disk_errors("Could not lock the log directory", root),
        suppress(_HeldByWriterError),
        directory_lock(root, CHECK_SECONDS, patience=0),
    ):
        pass


def _check_root(root: str) -> None:
    """:raises LogDirectoryError: if the folder holds something, and isn't a log root."""
    from pyspark_kafkalog.filesystem.locate import open_folder
    from pyspark_kafkalog.log.read.root import LogRoot

    LogRoot(open_folder(root)).check()


class _HeldByWriterError(LogDirectoryLockedError):
    """The holder is a writer of this package."""


class _Wait:
    """The wait for the locks: it ends at a timeout, and logs who holds them."""

    def __init__(self, root: str, timeout: float, patience: float | None) -> None:
        self._root = root
        self._timeout = timeout
        self._patience = patience
        self._started = self._progressed = time.monotonic()
        self._reported = self._started
        self._progress: object = None
        self._free_of_writers: float | None = None

    def on_writer(self, holder: str, progress: object) -> None:
        """:raises LogDirectoryLockedError: if the wait for the holder, a writer, has been long enough."""
        now = time.monotonic()
        if progress != self._progress:
            self._progress, self._progressed = progress, now
        if self._patience is None:
            waited, limit = now - self._started, self._timeout
        else:
            waited, limit = now - self._progressed, self._patience
        if waited >= limit:
            raise _HeldByWriterError(
                f"The log directory is in use: a writer ({holder}) held it for {limit:g} s"
                + ("" if self._patience is None else " without progress"),
                file=os.path.join(self._root, WRITER_LOCK_FILE),
                hint="If that process hangs, end it; this releases its lock.",
            )
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            _log.warning(
                "Still waiting for %s, which writes to %s, after %.0f s",
                holder,
                self._root,
                now - self._started,
            )

    def on_broker(self) -> None:
        """:raises LogDirectoryLockedError: if no writer has held it for long enough, and it is still held."""
        now = time.monotonic()
        self._free_of_writers = self._free_of_writers or now
        if now - self._free_of_writers >= self._timeout:
            raise LogDirectoryLockedError(
                f"The log directory is in use: another process held its lock for all of {self._timeout:g} s",
                file=os.path.join(self._root, LOCK_FILE),
                hint="Stop the broker that uses it, or give the broker instead of its folder.",
            )


class _Progress:
    """Shows others that the holder of the locks makes progress."""

    def __init__(self, threads: _Threads, descriptor: int | None) -> None:
        self._threads = threads
        self._descriptor = descriptor
        self._shown = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._shown >= _PROGRESS_SECONDS:
            self._shown = now
            self._threads.progress += 1
            if self._descriptor is not None:
                with suppress(OSError):
                    os.utime(self._descriptor)


def _threads_of(path: str) -> _Threads:
    with _threads_guard:
        return _threads.setdefault(os.path.realpath(path), _Threads())


def _open(path: str) -> int:
    return open_new(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)


def _try_lock(descriptor: int, path: str) -> bool:
    try:
        with naming(path):
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX allows both
        return False
    return True


def _introduce(descriptor: int) -> None:
    """Write the holder of the lock into its file."""
    with suppress(OSError):  # a full disk must not prevent a small publish
        os.ftruncate(descriptor, 0)
        write_all(descriptor, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode(), 0)


def _holder(descriptor: int) -> str:
    """The holder named in the file; out of date for a moment after the lock was taken."""
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
