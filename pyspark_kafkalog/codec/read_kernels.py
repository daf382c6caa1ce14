"""Compiled reading: walk batches, index records, fill Arrow buffers.

Each function trusts no byte. A length is used only after ``0 <= n <= end - position``
held in int64; positions strictly advance; nothing is raised (see :mod:`.jit`).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import int64, types

from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_LEGACY,
    ATTRIBUTES_V2,
    BASE_SEQUENCE_V2,
    BASE_TIMESTAMP_V2,
    COMPRESSION_MASK,
    COUNT_V2,
    CRC_LEGACY,
    CRC_V2,
    HEADER_SIZE_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_V2,
    LEADER_EPOCH_V2,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_V2,
    MIN_SIZE_V0,
    MIN_SIZE_V1,
    NO_TIMESTAMP,
    PRODUCER_EPOCH_V2,
    PRODUCER_ID_V2,
    RECORDS_V2,
    SIZE,
    TIMESTAMP_V1,
)
from pyspark_kafkalog.codec.format import MAGIC as MAGIC_AT
from pyspark_kafkalog.codec.jit import BYTES, OUT_TABLE, inlined, kernel

Integer: TypeAlias = Any
Integers: TypeAlias = Any
"""A compiled int64, and a tuple of them."""

# Columns of the table that walk_batches fills, one row a batch.
(
    POSITION,
    WHOLE_SIZE,
    BASE_OFFSET,
    LAST_OFFSET,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    MAGIC,
    ATTRIBUTES,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    COUNT,
    LEADER_EPOCH,
    CRC,
) = range(14)
BATCH_COLUMNS = 14

END, INCOMPLETE, INVALID = range(3)
"""Why a walk ended: at the end of the buffer, at a batch that is not all there, at bytes that are none."""

MAX_INT64 = 0x7FFFFFFFFFFFFFFF


@inlined
def unsigned(data: np.ndarray, at: Integer, size: Integer) -> Integer:
    """The big-endian integer in ``size`` bytes; 8 bytes come out signed."""
    value = int64(0)
    for i in range(size):
        value = (value << 8) | int64(data[at + i])
    return value


@inlined
def signed(data: np.ndarray, at: Integer, size: Integer) -> Integer:
    """The big-endian two's complement integer in ``size`` < 8 bytes."""
    top = int64(1) << (8 * size - 1)
    return (unsigned(data, at, size) ^ top) - top


@inlined
def frame(data: np.ndarray, position: Integer) -> Integers:
    """Whole size and status of the batch at ``position``; END if it is all there.

    Sizes follow Kafka's ByteBufferLogInputStream and the smallest batch of each format.
    The size is 0 where it can't be read.
    """
    left = data.size - position
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return int64(0), INCOMPLETE
    size = signed(data, position + SIZE, 4) + LOG_OVERHEAD
    magic = data[position + MAGIC_AT]
    if magic == 2:
        smallest = RECORDS_V2
    elif magic == 1:
        smallest = MIN_SIZE_V1
    elif magic == 0:
        smallest = MIN_SIZE_V0
    else:
        return int64(0), INVALID
    if size < smallest or unsigned(data, position, 8) < 0:
        return int64(0), INVALID
    if size > left:
        return size, INCOMPLETE
    if magic == 2:
        delta = signed(data, position + LAST_OFFSET_DELTA_V2, 4)
        if delta < 0 or unsigned(data, position, 8) > MAX_INT64 - 1 - delta:
            return int64(0), INVALID
    elif unsigned(data, position, 8) == MAX_INT64:
        return int64(0), INVALID
    return size, END


@kernel(types.UniTuple(types.int64, 4)(BYTES, types.int64, OUT_TABLE))
def walk_batches(data: np.ndarray, position: Integer, table: np.ndarray) -> Integers:
    """Fill ``table`` with the whole batches from ``position``, as many as it has rows for.

    Returns the number of batches that there are, the position after the last,
    why the walk ended there, and the whole size of an INCOMPLETE batch if known.
    """
    row = int64(0)
    next_offset = int64(0)
    while position < data.size:
        size, status = frame(data, position)
        if status != END:
            return row, position, int64(status), size
        if row < table.shape[1]:
            table[POSITION, row] = position
            table[WHOLE_SIZE, row] = size
            offset = unsigned(data, position, 8)
            magic = int64(data[position + MAGIC_AT])
            table[MAGIC, row] = magic
            if magic == 2:
                last_offset = offset + signed(data, position + LAST_OFFSET_DELTA_V2, 4)
                table[BASE_OFFSET, row] = offset
                table[BASE_TIMESTAMP, row] = unsigned(data, position + BASE_TIMESTAMP_V2, 8)
                table[MAX_TIMESTAMP, row] = unsigned(data, position + MAX_TIMESTAMP_V2, 8)
                table[ATTRIBUTES, row] = unsigned(data, position + ATTRIBUTES_V2, 2)
                table[PRODUCER_ID, row] = unsigned(data, position + PRODUCER_ID_V2, 8)
                table[PRODUCER_EPOCH, row] = signed(data, position + PRODUCER_EPOCH_V2, 2)
                table[BASE_SEQUENCE, row] = signed(data, position + BASE_SEQUENCE_V2, 4)
                table[COUNT, row] = signed(data, position + COUNT_V2, 4)
                table[LEADER_EPOCH, row] = signed(data, position + LEADER_EPOCH_V2, 4)
                table[CRC, row] = unsigned(data, position + CRC_V2, 4)
            else:
                last_offset = offset
                attributes = int64(data[position + ATTRIBUTES_LEGACY])
                compressed = attributes & COMPRESSION_MASK != 0
                timestamp = int64(NO_TIMESTAMP)
                if magic == 1:
                    timestamp = unsigned(data, position + TIMESTAMP_V1, 8)
                table[BASE_OFFSET, row] = min(next_offset, offset) if compressed else offset
                table[BASE_TIMESTAMP, row] = timestamp
                table[MAX_TIMESTAMP, row] = timestamp
                table[ATTRIBUTES, row] = attributes
                table[PRODUCER_ID, row] = -1
                table[PRODUCER_EPOCH, row] = -1
                table[BASE_SEQUENCE, row] = -1
                table[COUNT, row] = -1 if compressed else 1
                table[LEADER_EPOCH, row] = -1
                table[CRC, row] = unsigned(data, position + CRC_LEGACY, 4)
            table[LAST_OFFSET, row] = last_offset
            next_offset = last_offset + 1
        row += 1
        position += size
    return row, position, int64(END), int64(0)


@kernel(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64, types.int64))
def next_frame(data: np.ndarray, position: Integer, stop: Integer, min_offset: Integer) -> Integers:
    """Where in ``position`` to ``stop`` a whole batch of an offset >= ``min_offset`` may begin, and its size.

    Returns -1, 0 if nowhere.
    """
    while position < min(stop, data.size - HEADER_SIZE_UP_TO_MAGIC):
        if data[position + MAGIC_AT] <= 2:
            size, status = frame(data, position)
            if status == END and unsigned(data, position, 8) >= min_offset:
                return position, size
        position += 1
    return int64(-1), int64(0)
