"""This machine, and whether a local folder is one that another machine sees, too."""

from __future__ import annotations

import hashlib
import os
import platform
import uuid
from contextlib import suppress


def machine_id() -> str:
    """An id of this machine since it was started; containers on it share it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return f"{platform.node()}-{uuid.getnode():x}"


def host_id() -> str:
    """An id of this machine, or of this container on it: what has a file system of its own."""
    return f"{platform.node()}-{machine_id()}"


def leave_mark(folder: str) -> None:
    """Mark a local folder, which is made if it is missing, as one that this host sees.

    :raises OSError: if that can't be done.
    """
    path = _mark(folder, host_id())
    if not os.path.exists(path):
        make_private(folder)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))


def make_private(folder: str) -> None:
    """Make a local folder and those above it that are missing, all of them for their owner alone.

    :raises OSError: if one can't be made.
    """
    missing = []
    path = os.path.abspath(folder)
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)


def is_marked_by(folder: str, host: str) -> bool:
    """Whether the folder that this host sees is the one that ``host`` has marked."""
    return os.path.exists(_mark(folder, host))


def _mark(folder: str, host: str) -> str:
    return os.path.join(folder, f".seen-by-{hashlib.sha256(host.encode()).hexdigest()[:16]}")
