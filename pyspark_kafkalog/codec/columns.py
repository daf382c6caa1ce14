"""Arrow columns as the plain arrays that the write kernels take.

Element i of each array belongs to row i, even if the column is a slice of a
longer one. An empty validity array means that nothing is null.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def binary_column(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, validity and bytes of a binary or string column."""
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        raise TypeError(f"Expected a binary or string column, got {column.type}")
    data = column.buffers()[2]
    return _offsets(column), _validity(column), np.frombuffer(data or b"", np.uint8)


def list_column(column: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (into ``column.values``) and validity of a list column."""
    return _offsets(column), _validity(column)


def int64_column(column: pa.Array) -> np.ndarray:
    """Values of an int64 column without nulls."""
    if not pa.types.is_int64(column.type):
        raise TypeError(f"Expected an int64 column, got {column.type}")
    return np.frombuffer(column.buffers()[1] or b"", np.int64)[column.offset :][: len(column)]


def _offsets(column: pa.Array) -> np.ndarray:
    offsets = np.frombuffer(column.buffers()[1] or b"", np.int32)
    if offsets.size == 0:
        return np.zeros(1, np.int32)  # the format allows an empty array to have no offsets at all
    return offsets[column.offset : column.offset + len(column) + 1]


def _validity(column: pa.Array) -> np.ndarray:
    if column.null_count == 0:
        return np.empty(0, np.uint8)
    bits = np.frombuffer(column.buffers()[0], np.uint8)[column.offset // 8 :]
    skipped = column.offset % 8
    if skipped == 0:
        return bits
    valid = np.unpackbits(bits, count=skipped + len(column), bitorder="little")[skipped:]
    return np.packbits(valid, bitorder="little")
