"""Files that only their owner may read (mode 0600, in folders of mode 0700), and whom it shares the folder
above with by :mod:`.sharing`: rows on their way.

Object stores have no modes: there the rules of the bucket decide.
"""

from __future__ import annotations

import os
from contextlib import suppress
from types import TracebackType
from typing import IO, Any

from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.machine import make_private
from pyspark_kafkalog.filesystem.sharing import open_new

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class NewFile:
    """A new file, written from its beginning to its end. A context manager: an error removes the file.

    :raises OSError: if it can't be made, written or closed.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._stream: IO[bytes] | Any
        if folder.is_local:
            path = os.path.join(folder.path, name)
            self._stream = os.fdopen(open_new(path, _NEW, 0o600), "wb", buffering=0)
        else:
            self._stream = folder.filesystem.open_output_stream(f"{folder.path}/{name}")

    def write(self, data: Any) -> None:
        """Append bytes, or any buffer of them."""
        view = memoryview(data).cast("B")
        while view:
            view = view[self._stream.write(view) :]

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(keep=error is None)

    def close(self, *, keep: bool) -> None:
        """Close the file, and remove it unless it is to be kept and is whole."""
        is_whole = False
        try:
            self._stream.close()  # here a network mount or a store may report a full disk
            is_whole = True
        finally:
            if not (keep and is_whole):
                remove_file(self._folder, self._name)


def make_folder(folder: Folder) -> None:
    """Make a folder and those above it that are missing, all of them for their owner alone.

    :raises OSError: if one can't be made.
    """
    if not folder.is_local:
        folder.filesystem.create_dir(folder.path, recursive=True)
    else:
        make_private(folder.path)


def remove_file(folder: Folder, name: str) -> None:
    """Remove a file; no error if it is gone, or can't be removed."""
    with suppress(OSError):
        folder.filesystem.delete_file(f"{folder.path}/{name}")


def remove_folder(folder: Folder) -> None:
    """Remove a folder with all that is in it; no error if it is gone, or can't be removed."""
    with suppress(OSError):
        folder.filesystem.delete_dir(folder.path)
