"""Zstandard frames, measured and joined (RFC 8878).

Layout: magic, descriptor, maybe the size of a window and a dictionary id, maybe the
content size, then blocks behind their headers (3 bytes, little-endian: last, type, size)
up to the last, and maybe a checksum of the content.
"""

from __future__ import annotations

import numpy as np
from numba import int64

from pyspark_kafkalog.codec.jit import (
    BYTES,
    INT64S,
    OUT_BYTES,
    OUT_INT64,
    Integer,
    copy_bytes,
    inlined,
    kernel,
    little_endian,
    put_uint32,
)
from pyspark_kafkalog.codec.lz4 import UNKNOWN, sizes_until_enough

_MAGIC = 0xFD2FB528
_SINGLE_SEGMENT_BIT, _CHECKSUM_BIT = 0x20, 0x04
_STORED, _REPEATED = 0, 1
"""Types of blocks: as they are; one byte, whatever the size."""
_MAX_RATIO = 1 << 15
"""Bytes that one byte of a frame can stand for: 4 are a block of 128 KiB."""

JOINED = 0
"""Bytes of joined frames besides them and their marks."""
MARKED = 9
"""Bytes of a mark besides itself, which is a frame of under 256 bytes."""


@kernel(int64(BYTES))
def frame_size(data: np.ndarray) -> Integer:
    """What a frame says it decompresses to, in bytes; UNKNOWN if it doesn't, or if it is not all there is.

    Those of Java's producer don't. Where a size is known, the decompressor verifies it.
    """
    if data.size < 6 or little_endian(data, 0, 4) != _MAGIC:
        return UNKNOWN
    descriptor = int64(data[4])
    single_segment = int64(descriptor & _SINGLE_SEGMENT_BIT != 0)
    position = 6 - single_segment + ((1 << (descriptor & 3)) >> 1)
    width = 1 << (descriptor >> 6) if descriptor >> 6 else single_segment
    if width == 0 or data.size - position < width:
        return UNKNOWN
    size = little_endian(data, position, width) + (256 if width == 2 else 0)
    position += width
    last = int64(0)
    while not last:
        if data.size - position < 3:
            return UNKNOWN
        block = little_endian(data, position, 3)
        last = block & 1
        position += 3 + (1 if (block >> 1) & 3 == _REPEATED else block >> 3)
    position += 4 if descriptor & _CHECKSUM_BIT else 0
    return size if position == data.size and 0 <= size <= _MAX_RATIO * data.size else UNKNOWN


@inlined
def _size_of(data: np.ndarray, _most: Integer) -> Integer:
    return frame_size(data)


@kernel(int64(BYTES, INT64S, INT64S, int64, int64, OUT_INT64))
def frame_sizes(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, most: int, enough: int, sizes: np.ndarray
) -> Integer:
    """As :func:`.lz4.frame_sizes`."""
    return sizes_until_enough(_size_of, data, starts, ends, most, enough, sizes)


@kernel(int64(BYTES, INT64S, INT64S, BYTES, OUT_BYTES))
def join_frames(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, mark: np.ndarray, joined: np.ndarray
) -> Integer:
    """Put the frames ``data[start:end]`` behind one another, each followed by ``mark`` as a frame, stored.

    Returns their size; UNKNOWN if a frame is not in the data, or ``joined`` has no room.
    It needs :data:`JOINED` bytes, and of each frame the mark and :data:`MARKED` more than the frame itself.
    """
    if not 0 < mark.size < 256:
        return UNKNOWN
    at = int64(0)
    for frame in range(starts.size):
        start, end = starts[frame], ends[frame]
        if not 0 <= start <= end <= data.size:
            return UNKNOWN
        size = end - start
        if size + MARKED + mark.size > joined.size - at:
            return UNKNOWN
        copy_bytes(joined, at, data, start, size)
        at += size
        put_uint32(joined, at, _MAGIC)
        joined[at + 4] = _SINGLE_SEGMENT_BIT
        joined[at + 5] = mark.size
        # The header of the last block has 3 bytes; the mark overwrites the fourth.
        put_uint32(joined, at + 6, mark.size << 3 | _STORED << 1 | 1)
        copy_bytes(joined, at + MARKED, mark, 0, mark.size)
        at += MARKED + mark.size
    return at
