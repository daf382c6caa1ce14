"""Compiled: find message segments among values and headers, and copy slices of values.

No byte is trusted, and nothing is raised (see :mod:`pyspark_kafkalog.codec.kernel`).
"""

from __future__ import annotations

import numpy as np
from numpy import int64, uint32

from pyspark_kafkalog.codec.kernel import Integer, copy_bytes, kernel
from pyspark_kafkalog.codec.signature import BYTES, INT32S, INT64S, OUT_BYTES, OUT_INT64
from pyspark_kafkalog.extensions.large_messages.format import LM_HEADER, PREFIX_SIZE

_LM = tuple(LM_HEADER.encode())


@kernel(BYTES, INT32S, OUT_INT64, results=1)
def find_prefixes(data: np.ndarray, offsets: np.ndarray, found: np.ndarray) -> Integer:
    """Put the values with the version and check value of scheme P into ``found``; returns how many."""
    count = int64(0)
    for row in range(offsets.size - 1):
        at = int64(offsets[row])
        end = int64(offsets[row + 1])
        if at < 0 or end > data.size or end - at < PREFIX_SIZE or 0 < data[at] < 128:
            continue
        check = uint32(0)
        total = uint32(0)
        carried = uint32(0)
        for i in range(4):
            check = check << 8 | data[at + 1 + i]
            total = total << 8 | data[at + 9 + i]
            carried = carried << 8 | data[at + 17 + i]
        if check == uint32(total + carried):
            found[count] = row
            count += 1
    return count


@kernel(BYTES, INT32S, OUT_INT64, results=1)
def find_lm(names: np.ndarray, offsets: np.ndarray, found: np.ndarray) -> Integer:
    """Put the strings that equal ``_lm`` into ``found``; returns how many."""
    count = int64(0)
    for i in range(offsets.size - 1):
        at = int64(offsets[i])
        if int64(offsets[i + 1]) - at != len(LM_HEADER) or at < 0 or at + len(LM_HEADER) > names.size:
            continue
        if names[at] == _LM[0] and names[at + 1] == _LM[1] and names[at + 2] == _LM[2]:
            found[count] = i
            count += 1
    return count


@kernel(BYTES, INT64S, INT64S, BYTES, INT64S, OUT_BYTES, results=1)
def copy_slices(
    data: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    prefixes: np.ndarray,
    number_of_prefix: np.ndarray,
    out: np.ndarray,
) -> int:
    """Put all slices into ``out`` one after another, each after its prefix, if any (-1: none).

    :return: how many were put; fewer than all if the next does not lie within the arrays.
    """
    position = int64(0)
    for i in range(starts.size):
        number, start, length = number_of_prefix[i], starts[i], lengths[i]
        if start < 0 or length < 0 or start + length > data.size:
            return i
        if number >= 0:
            if (number + 1) * PREFIX_SIZE > prefixes.size or position + PREFIX_SIZE > out.size:
                return i
            copy_bytes(out, position, prefixes, number * PREFIX_SIZE, int64(PREFIX_SIZE))
            position += PREFIX_SIZE
        if position + length > out.size:
            return i
        copy_bytes(out, position, data, start, length)
        position += length
    return starts.size
