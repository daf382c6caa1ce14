"""Memory: bytes of others as arrays, and arrays of our own."""

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

    It keeps pages for the next batch, where malloc gives large blocks back: decoding is three times as fast.
    """
    return np.frombuffer(pa.allocate_buffer(size * np.dtype(kind).itemsize), kind)


class Stage:
    """Decompressed bytes of several batches one after another, in one array that grows and is used again.

    :param capacity: bytes that the array has at first. Memory that is not written to costs nothing; an
        array that has to grow costs a copy, and decoding of 8 MiB in lz4 a fifth of its time.
    """

    def __init__(self, capacity: int = 1 << 20) -> None:
        self._array = allocate(capacity)
        self.size = 0

    @cached_property
    def zstd(self) -> zstandard.ZstdDecompressor:
        """For one thread at a time, as all of this. To make it takes as long as 16 KiB to decompress."""
        return zstandard.ZstdDecompressor()

    @property
    def data(self) -> np.ndarray:
        """What was staged. It moves when more is added, so ask again."""
        return self._array[: self.size]

    def clear(self) -> None:
        """Forget what was staged."""
        self.size = 0

    def reserve(self, size: int) -> None:
        """Have room for ``size`` bytes more."""
        if self._array.size - self.size < size:
            array = allocate(max(2 * self._array.size, self.size + size))
            array[: self.size] = self.data
            self._array = array

    def room(self, size: int) -> np.ndarray:
        """The next ``size`` bytes, to be written to; they are not staged thereby."""
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
            got = stream.readinto(self._array[self.size : limit])
            if not got:
                return
            self.size += got
