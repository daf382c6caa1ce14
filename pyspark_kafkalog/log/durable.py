"""Writing so that a crash leaves the old bytes or the new: write all, flush, replace.

For local files under the directory's lock. :meth:`pyspark_kafkalog.filesystem.Folder.replace` works on any
file system and does not flush.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark_kafkalog.log.disk_errors import naming


def write_all(descriptor: int, data: Any, position: int) -> None:
    """Write all of ``data`` (bytes or a uint8 array) at ``position`` of the file."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


def write_new(path: str, data: bytes) -> None:
    """Create a file with ``data``, or overwrite it, and flush it. Not atomic."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
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


def replace(path: str, data: bytes, temporary: str) -> None:
    """Put a new file with ``data`` in place of ``path``, using the file ``temporary`` in the same folder."""
    write_new(temporary, data)
    os.replace(temporary, path)
    sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    """Flush the folder, so that creations, renames and removals in it last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_parents(path: str) -> None:
    """Flush the folders above ``path``, as far as they are on its disk and can be opened, so that it lasts.

    Whoever created them may not have flushed them, and nothing shows that.
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
