"""Errors of the operating system as ours, with the file and the remedy."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_kafkalog.errors import LogDirectoryError

_REMEDIES = {
    errno.ENOSPC: "Free space on the disk",
    errno.EDQUOT: "Free space, or raise the quota",
    errno.EFBIG: "Raise the largest size of a file (ulimit -f)",
    errno.EMFILE: "Raise the limit of files that the process may open (ulimit -n)",
    errno.ENFILE: "Raise the limit of files that the system may open",
    errno.ENOMEM: "Give the process more memory",
    errno.EACCES: "Let the user that runs Spark's driver and workers read and write it",
    errno.EPERM: "Let the user that runs Spark's driver and workers read and write it",
    errno.EROFS: "Mount it for writing",
    errno.EIO: "Check the disk and its mount",
    errno.ESTALE: "Mount it again: the server no longer knows it",
    errno.ENOLCK: "Mount it with POSIX locks",
    errno.EOPNOTSUPP: "Mount it where POSIX locks work",
    errno.ELOOP: "Replace the link by its target: a writer does not follow links",
    errno.ENOTDIR: "Move away the file that is in the place of a folder",
    errno.ENOENT: "Let nothing else write to the log directory",
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
