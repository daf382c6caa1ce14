"""Memory: foreign bytes and Arrow columns as plain arrays, and arrays of our own."""

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
        """A zstd decompressor for one thread at a time; to make one takes as long as decompressing 16 KiB."""
        return zstandard.ZstdDecompressor()

    @property
    def data(self) -> np.ndarray:
        """The staged bytes. They move when more are added, so ask again."""
        return self._array[: self.size]

    def clear(self) -> None:
        """Forget the staged bytes."""
        self.size = 0

    def drop(self, size: int) -> None:
        """Forget the first ``size`` bytes, and move the others to the front."""
        rest = self._array[size : self.size]
        self.size -= size
        self._array[: self.size] = rest

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


def binary_column(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, validity and bytes of a binary or string column, as the write kernels take them.

    As with every column here, element i of each array belongs to row i, even if the column is a slice
    of a longer one. An empty validity array means that nothing is null.
    """
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        raise TypeError(f"Expected a binary or string column, got {column.type}")
    data = column.buffers()[2]
    return _offsets(column), validity_of(column), np.frombuffer(data or b"", np.uint8)


def value_bounds(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bytes of a binary column, and as int64 where each value begins there, and its size: -1 for null."""
    offsets, validity, data = binary_column(column)
    starts, sizes = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    if validity.size:
        sizes[~valid_rows(column)] = -1
    return data, starts, sizes


def list_column(column: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (into ``column.values``) and validity of a list column."""
    return _offsets(column), validity_of(column)


def int64_column(column: pa.Array) -> np.ndarray:
    """Values of an int64 column; those of null are any."""
    if not pa.types.is_int64(column.type):
        raise TypeError(f"Expected an int64 column, got {column.type}")
    return np.frombuffer(column.buffers()[1] or b"", np.int64)[column.offset :][: len(column)]


def valid_rows(column: pa.Array) -> np.ndarray:
    """Whether each row is not null, as bools."""
    if column.null_count in (0, len(column)):  # a column of type null has no bitmap
        return np.full(len(column), column.null_count == 0)
    return np.unpackbits(validity_of(column), count=len(column), bitorder="little").view(bool)


def _offsets(column: pa.Array) -> np.ndarray:
    offsets = np.frombuffer(column.buffers()[1] or b"", np.int32)
    if offsets.size == 0:
        return np.zeros(1, np.int32)  # the format allows an empty array to have no offsets at all
    return offsets[column.offset : column.offset + len(column) + 1]


def validity_of(column: pa.Array) -> np.ndarray:
    """A bitmap of the rows that are not null; empty if none is."""
    if column.null_count == 0:
        return np.empty(0, np.uint8)
    bits = np.frombuffer(column.buffers()[0], np.uint8)[column.offset // 8 :]
    skipped = column.offset % 8
    if skipped == 0:
        return bits
    valid = np.unpackbits(bits, count=skipped + len(column), bitorder="little")[skipped:]
    return np.packbits(valid, bitorder="little")
