"""What the operating system says of a disk, told with the file and what to do."""

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
    errno.ESTALE: "Mount it again: its server has lost it",
    errno.ENOLCK: "Mount it with POSIX locks",
    errno.EOPNOTSUPP: "Mount it where POSIX locks work",
    errno.ELOOP: "Put what it links to in the place of the link: a writer follows none",
    errno.ENOTDIR: "Move the file away that stands where a folder belongs",
    errno.ENOENT: "Let nothing else write to the log directory",
}


@contextmanager
def disk_errors(what: str, path: str, more: str = "") -> Iterator[None]:
    """Tell errors of the operating system as ours.

    :param what: what could not be done, such as ``Could not append``.
    :param path: is named where the system names no file.
    :param more: a full sentence that follows the remedy.
    :raises LogDirectoryError: for any OSError.
    """
    try:
        yield
    except OSError as e:
        remedy = _REMEDIES.get(e.errno or 0)
        sentences = [*([f"{remedy}."] if remedy else []), *([more] if more else [])]
        raise LogDirectoryError(
            f"{what}: {e.strerror or e}", file=e.filename or path, hint=" ".join(sentences) or None
        ) from e


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Let errors of calls on a descriptor name its file, which the system does not."""
    try:
        yield
    except OSError as e:
        if e.filename is None:
            e.filename = path
        raise
