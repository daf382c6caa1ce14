"""Writing so that a crash leaves the old bytes or the new: write all, flush, replace; and its errors.

For local files. :meth:`.folder.Folder.replace` works on any file system.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.sharing import open_new

_WRITTEN_AT_ONCE = 1 << 20
"""Bytes; for a larger write Linux may look for larger pages, which takes long where memory is fragmented."""
_CANNOT_FLUSH = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS)


def write_all(descriptor: int, data: Any, position: int) -> None:
    """Write all of ``data`` (bytes or a uint8 array) at ``position`` of the file."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view[:_WRITTEN_AT_ONCE], position)
        view, position = view[written:], position + written


def begin_flush(descriptor: int, position: int, size: int) -> None:
    """Let the system begin to write this range to disk, so that a flush waits less, and forget it then."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_DONTNEED)


def write_new(path: str, data: bytes) -> None:
    """Create a file with ``data``, or overwrite it, and flush it. Not atomic."""
    descriptor = open_new(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        with naming(path):
            write_all(descriptor, data, 0)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cut(path: str, size: int) -> None:
    """Cut off what follows the first ``size`` bytes of a file, and flush it; a link is not followed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        with naming(path):
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: str) -> None:
    """Flush a file, even if another process has written it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: str, data: bytes, temporary: str | None = None) -> None:
    """Put a new file with ``data`` in place of ``path``.

    :param temporary: its path before, in the same folder; None for Kafka's, which has ``.tmp`` at its end.
    """
    temporary = temporary or path + ".tmp"
    write_new(temporary, data)
    os.replace(temporary, path)
    sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    """Flush the folder, so that creations, renames and removals in it last.

    Some mounts of file servers and object stores flush no folders, and see to that themselves.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    except OSError as e:
        if e.errno not in _CANNOT_FLUSH:
            raise
    finally:
        os.close(descriptor)


def sync_parents(path: str) -> None:
    """Flush the folders above ``path``, as far as they are on its disk and can be opened, so that it lasts.

    The process that created them may not have flushed them, and there is no way to tell.
    """
    folder, device = os.path.realpath(path), os.stat(path).st_dev
    while (parent := os.path.dirname(folder)) != folder:
        try:
            if os.stat(parent).st_dev != device:
                return
            sync_folder(parent)
        except PermissionError:
            return
        folder = parent


_REMEDIES = {
    errno.ENOSPC: "Free space on the disk",
    errno.EDQUOT: "Free space, or raise the quota",
    errno.EFBIG: "Raise the largest size of a file (ulimit -f)",
    errno.EMFILE: "Raise the limit of files that the process may open (ulimit -n)",
    errno.ENFILE: "Raise the limit of files that the system may open",
    errno.ENOMEM: "Give the process more memory",
    errno.EACCES: "Let the user of this process (with Spark, of driver and workers) read and write it",
    errno.EPERM: "Let the user of this process (with Spark, of driver and workers) read and write it",
    errno.EROFS: "Mount it for writing",
    errno.EIO: "Check the disk and its mount",
    errno.ESTALE: "Mount it again: the server no longer knows it",
    errno.ENOLCK: "Mount it with POSIX locks",
    errno.EOPNOTSUPP: "Mount it where POSIX locks work",
    errno.ELOOP: "Replace the link by its target: a writer does not follow links",
    errno.EEXIST: "A file is in its place: give a folder, or move it away",
    errno.ENOTDIR: "Move away the file that is in the place of a folder",
    errno.ENOENT: "See that the folder can be made, and that nothing else writes to it",
}


@contextmanager
def disk_errors(action: str, path: str, more: str = "") -> Iterator[None]:
    """Turn errors of the operating system into ours.

    :param action: what failed, such as ``Could not append``.
    :param path: named if the system names no file.
    :param more: a full sentence that follows the remedy.
    :raises LogDirectoryError: for any OSError.
    """
    try:
        yield
    except OSError as e:
        remedy = _REMEDIES.get(e.errno or 0)
        sentences = [*([f"{remedy}."] if remedy else []), *([more] if more else [])]
        raise LogDirectoryError(
            f"{action}: {e.strerror or e}", file=e.filename or path, hint=" ".join(sentences) or None
        ) from e


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Add the file's name to errors of calls on its descriptor, where the system gives none."""
    try:
        yield
    except OSError as e:
        if e.filename is None:
            e.filename = path
        raise
