"""A temporary file for slices of incomplete messages that memory has no room for.

It has no name, and its task alone can read it. What is not in it is read again from the log.
"""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import suppress
from typing import Any

import numpy as np

from pyspark_kafkalog.codec.buffers import allocate

_log = logging.getLogger("pyspark_kafkalog")


class SliceFile:
    """Keeps slices of up to ``most_bytes`` in all, where Spark or the system has temporary files.

    A context manager: its end removes the file.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._file: Any = None
        self._end = 0
        self._free: dict[int, list[int]] = {}
        """Positions of slices that are not needed any more, by their sizes."""

    def __enter__(self) -> SliceFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, data: np.ndarray) -> int | None:
        """The position at which ``data`` is kept from now on; None if there is no room."""
        free = self._free.get(data.size)
        position = free.pop() if free else self._end
        if position + data.size > self._most_bytes:
            return None
        try:
            if self._file is None:
                folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
                self._file = tempfile.TemporaryFile(buffering=0, dir=folders[0] or None)  # noqa: SIM115
            self._file.seek(position)
            view = data.data
            while view:
                view = view[self._file.write(view) :]
        except OSError as e:
            _log.warning("Slices of large messages are read again, as no temporary file takes them: %s", e)
            self._most_bytes = 0
            return None
        self._end = max(self._end, position + data.size)
        return position

    def take(self, position: int, size: int) -> np.ndarray | None:
        """The slice of this size that is kept there, for the last time; None if it can't be read."""
        self.discard(position, size)
        data = allocate(size)
        with suppress(OSError):
            self._file.seek(position)
            view = data.data
            while view and (count := self._file.readinto(view)):
                view = view[count:]
            if not view:
                return data
        return None

    def discard(self, position: int, size: int) -> None:
        """Let others have the room of a slice."""
        self._free.setdefault(size, []).append(position)
