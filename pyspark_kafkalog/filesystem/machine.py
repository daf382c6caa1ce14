"""The id of this machine, and whether a local folder is one that another machine sees, too."""

from __future__ import annotations

import hashlib
import os
import platform
import uuid
from contextlib import suppress
from typing import NamedTuple

from pyspark_kafkalog.filesystem.sharing import new_folder, open_new

_MARK_PREFIX = ".kafkalog-seen-by-"
_KEPT_NS = 7 * 24 * 3600 * 1_000_000_000
_ROUNDED_NS = 2_000_000_000
"""The difference up to which two hosts may see one time of a file: some file systems round it."""


def machine_id() -> str:
    """An id of this machine since it was started; containers on it share it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return f"{platform.node()}-{uuid.getnode():x}"


def host_id() -> str:
    """An id of this machine, or of this container on it: each has a file system of its own."""
    return f"{platform.node()}-{machine_id()}"


class Mark(NamedTuple):
    """The mark that a host has left in a folder, so that another can see whether it sees the same folder."""

    host: str
    time_ns: int
    """The time by the clock that dates files there: an older copy of the folder has an older mark."""


def leave_mark(folder: str) -> Mark:
    """Mark a local folder, which is made if it is missing, as one that this host sees.

    A new mark removes those that their hosts have not left again for a week, as containers have a new name
    at each start.

    :raises OSError: if that can't be done.
    """
    path = _mark(folder, host_id())
    is_new = not os.path.exists(path)
    if is_new:
        make_private(folder)
        os.close(open_new(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
    with suppress(OSError):  # another user's, or a file system that sets no times
        os.utime(path)
    left = os.stat(path).st_mtime_ns
    if is_new:
        _remove_marks(folder, left - _KEPT_NS)
    return Mark(host_id(), left)


def is_marked_by(folder: str, mark: Mark) -> bool:
    """Whether the folder that this host sees is the one that another has marked, and no older copy of it.

    :raises OSError: if that can't be seen.
    """
    try:
        # Opening a file of a mounted folder shows its present times.
        descriptor = os.open(_mark(folder, mark.host), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except PermissionError:
        return True  # another user's, without a common group: publishing rows will show it
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return os.fstat(descriptor).st_mtime_ns >= mark.time_ns - _ROUNDED_NS
    finally:
        os.close(descriptor)


def make_private(folder: str) -> None:
    """Make a local folder and its missing parents, which only their owner can use, and the group that
    :mod:`.sharing` shares them with.

    :raises OSError: if one can't be made.
    """
    missing = []
    path = os.path.abspath(folder)
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        with suppress(FileExistsError):
            new_folder(path, 0o700)


def _mark(folder: str, host: str) -> str:
    return os.path.join(folder, _MARK_PREFIX + hashlib.sha256(host.encode()).hexdigest()[:16])


def _remove_marks(folder: str, before_ns: int) -> None:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_mark = entry.name.startswith(_MARK_PREFIX)
            if is_mark and entry.stat(follow_symlinks=False).st_mtime_ns < before_ns:
                os.unlink(entry.path)
