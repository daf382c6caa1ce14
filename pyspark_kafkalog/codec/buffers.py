"""Memory: foreign bytes as arrays, and arrays of our own."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import zstandard

Buffer: TypeAlias = Any
"""Anything with Python's buffer protocol: bytes, memoryview, numpy array, pyarrow.Buffer, mmap."""


def as_array(buffer: Buffer) -> np.ndarray:
    """The bytes of ``buffer`` as a uint8 array that shares its memory."""
    return np.frombuffer(buffer, np.uint8)


def allocate(size: int, kind: type[np.generic] = np.uint8) -> np.ndarray:
    """An array of ``size`` elements from Arrow's memory pool.

    The pool keeps pages for the next batch, where malloc gives large blocks back: decoding is thrice as fast.
    """
    return np.frombuffer(pa.allocate_buffer(size * np.dtype(kind).itemsize), kind)


class Stage:
    """Decompressed bytes of several batches one after another, in one array that grows and is reused.

    :param capacity: bytes of the array at first. Unused memory costs nothing; an array that has to grow
        costs a copy, which is a fifth of the time to decode 8 MiB of lz4.
    """

    def __init__(self, capacity: int = 1 << 20) -> None:
        self._array = allocate(capacity)
        self.size = 0

    @cached_property
    def zstd(self) -> zstandard.ZstdDecompressor:
        """For one thread at a time, like the stage. Making it takes as long as decompressing 16 KiB."""
        return zstandard.ZstdDecompressor()

    @property
    def data(self) -> np.ndarray:
        """The staged bytes. They move when more are added, so ask again."""
        return self._array[: self.size]

    def clear(self) -> None:
        """Forget the staged bytes."""
        self.size = 0

    def reserve(self, size: int) -> None:
        """Make room for ``size`` more bytes."""
        if self._array.size - self.size < size:
            array = allocate(max(2 * self._array.size, self.size + size))
            array[: self.size] = self.data
            self._array = array

    def room(self, size: int) -> np.ndarray:
        """The next ``size`` bytes, to write to; add to :attr:`size` what was written."""
        self.reserve(size)
        return self._array[self.size : self.size + size]

    def append(self, data: np.ndarray | pa.Buffer) -> None:
        """Stage a copy of bytes that are not compressed."""
        self.room(data.size)[:] = data
        self.size += data.size

    def fill(self, stream: pa.NativeFile, max_bytes: int) -> None:
        """Stage what ``stream`` gives, at most ``max_bytes`` of it."""
        limit = self.size + max_bytes
        while self.size < limit:
            self.reserve(1)
            count = stream.readinto(self._array[self.size : limit])
            if not count:
                return
            self.size += count
