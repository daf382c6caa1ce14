"""Compiled: how large compressed record batches were before compression, where their bytes say so.

Only headers are read, and nothing is decompressed. What a producer left out stays unknown: the Java
producer and librdkafka state no size in lz4, and the Java producer none in zstd.

Sources: RFC 1952 (gzip), RFC 8878 (zstd), the LZ4 frame format, and snappy's format with xerial's blocks.
"""

from __future__ import annotations

import numpy as np
from numpy import int64

from pyspark_kafkalog.codec.format import COMPRESSION_MASK, GZIP, LZ4, NONE, RECORDS_V2, SNAPPY, ZSTD
from pyspark_kafkalog.codec.kernel import Integer, Integers, inlined, kernel
from pyspark_kafkalog.codec.read_kernels import ATTRIBUTES, MAGIC, POSITION, WHOLE_SIZE
from pyspark_kafkalog.codec.signature import BYTES, OUT_INT64, TABLE

UNKNOWN = -1
"""The size of a batch whose bytes do not state it."""

_LARGEST = 0x7FFFFFFF
"""Bytes that a Java client can decompress. What claims more is not believed."""
_GZIP_SMALLEST = 18
"""Bytes of the header and the trailer, which ends in the size (modulo 2 to the 32nd)."""
_LZ4_MAGIC, _LZ4_CONTENT_SIZE_BIT = 0x184D2204, 0x08
_ZSTD_MAGIC = 0xFD2FB528
_XERIAL_MAGIC = 0x595050414E5382
"""``\\x82SNAPPY\\0``, little-endian."""
_XERIAL_HEADER = 16


@inlined
def little(data: np.ndarray, at: Integer, size: Integer) -> Integer:
    """The little-endian integer in ``size`` bytes; 8 bytes come out signed."""
    value = int64(0)
    for i in range(size):
        value |= int64(data[at + i]) << (8 * i)
    return value


@inlined
def snappy_size(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """The content size in front of raw snappy: a varint of at most 5 bytes."""
    value = int64(0)
    for i in range(min(5, end - at)):
        value |= int64(data[at + i] & 127) << (7 * i)
        if data[at + i] < 128:
            return value
    return int64(UNKNOWN)


@inlined
def blocks_size(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The content size of xerial's blocks, each raw snappy after its size, a big-endian int32."""
    total = int64(0)
    while at < end:
        if end - at < 4:
            return int64(UNKNOWN)
        size = int64(0)
        for i in range(4):
            size = (size << 8) | int64(data[at + i])
        at += 4
        if size == 0 or size > end - at:
            return int64(UNKNOWN)
        content = snappy_size(data, at, at + size)
        if content < 0:
            return int64(UNKNOWN)
        total += content
        at += size
    return total


@inlined
def zstd_size(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The content size in the header of a zstd frame."""
    if end - at < 5 or little(data, at, 4) != _ZSTD_MAGIC:
        return int64(UNKNOWN)
    descriptor = int64(data[at + 4])
    flag, is_single, dictionary = descriptor >> 6, (descriptor >> 5) & 1, descriptor & 3
    size = int64(1) << flag
    if flag == 0 and is_single == 0:
        return int64(UNKNOWN)
    field = at + 5 + (1 - is_single) + (4 if dictionary == 3 else dictionary)
    if end - field < size:
        return int64(UNKNOWN)
    value = little(data, field, size)
    return value + 256 if size == 2 else value


@inlined
def lz4_size(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The content size in the header of an LZ4 frame."""
    if end - at < 14 or little(data, at, 4) != _LZ4_MAGIC or data[at + 4] & _LZ4_CONTENT_SIZE_BIT == 0:
        return int64(UNKNOWN)
    return little(data, at + 6, 8)


@kernel(BYTES, TABLE, OUT_INT64)
def stated_sizes(data: np.ndarray, headers: np.ndarray, sizes: np.ndarray) -> None:
    """Bytes of each whole batch before compression, its header included; UNKNOWN where nothing says so.

    ``headers`` are those of whole batches of ``data``, as ``walk_batches`` fills them. Compressed messages of
    magic 0 and 1 are UNKNOWN.
    """
    for row in range(headers.shape[1]):
        compression = headers[ATTRIBUTES, row] & COMPRESSION_MASK
        at = headers[POSITION, row] + RECORDS_V2
        end = headers[POSITION, row] + headers[WHOLE_SIZE, row]
        content = int64(UNKNOWN)
        if compression == NONE:
            content = headers[WHOLE_SIZE, row] - RECORDS_V2
        elif headers[MAGIC, row] == 2:
            if at == end:
                content = int64(0)
            elif compression == GZIP and end - at >= _GZIP_SMALLEST:
                content = little(data, end - 4, 4)
            elif compression == SNAPPY:
                if end - at >= _XERIAL_HEADER and little(data, at, 8) == _XERIAL_MAGIC:
                    content = blocks_size(data, at + _XERIAL_HEADER, end)
                else:
                    content = snappy_size(data, at, end)
            elif compression == LZ4:
                content = lz4_size(data, at, end)
            elif compression == ZSTD:
                content = zstd_size(data, at, end)
        known = compression == NONE or 0 <= content <= _LARGEST
        sizes[row] = content + RECORDS_V2 if known else int64(UNKNOWN)
