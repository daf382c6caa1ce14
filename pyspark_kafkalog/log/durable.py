"""Writing so that a crash leaves the old bytes or the new: write all, flush, replace."""

from __future__ import annotations

import os
from typing import Any


def write_all(descriptor: int, data: Any, position: int) -> None:
    """Write all of ``data`` (bytes or a uint8 array) at ``position`` of the file."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


def write_new(path: str, data: bytes) -> None:
    """Make a file with ``data`` in it, or write it anew, and flush it. Not atomic."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
    try:
        write_all(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: str, data: bytes, temporary: str) -> None:
    """Let ``path`` hold ``data``, by way of the file ``temporary`` in the same folder."""
    write_new(temporary, data)
    os.replace(temporary, path)
    sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    """Make renamed, made and removed files of ``folder`` last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
