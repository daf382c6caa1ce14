"""Zstandard frames, measured (RFC 8878).

Layout: magic, descriptor, maybe the size of a window and a dictionary id, maybe the
content size, then blocks behind their headers (3 bytes, little-endian: last, type, size)
up to the last, and maybe a checksum of the content.
"""

from __future__ import annotations

import numpy as np
from numba import int64

from pyspark_kafkalog.codec.jit import BYTES, Integer, kernel, little_endian
from pyspark_kafkalog.codec.lz4 import UNKNOWN

_MAGIC = 0xFD2FB528
_SINGLE_SEGMENT_BIT, _CHECKSUM_BIT = 0x20, 0x04
_REPEATED = 1
"""Type of a block that is one byte, whatever its size."""
_MAX_RATIO = 1 << 15
"""Bytes that one byte of a frame can stand for: 4 are a block of 128 KiB."""


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
