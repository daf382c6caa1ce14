"""LZ4 frames: written as Java reads them, mended where magic 0 wrote them wrong, measured, and joined.

Layout: magic, descriptor (flags, block size, maybe content size and dictionary id), a
byte of checksum, then blocks behind their sizes (uint32, little-endian) up to a size of
0, and maybe a checksum of the content. A block is a chain of literals and matches.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
from numba import int64

from pyspark_kafkalog.codec.jit import (
    BYTES,
    INT64S,
    OUT_BYTES,
    OUT_INT64,
    Integer,
    Integers,
    copy_bytes,
    inlined,
    kernel,
    little_endian,
    put_uint32,
)
from pyspark_kafkalog.errors import CorruptRecordError

_MAGIC = 0x184D2204
_BLOCK = 64 * 1024
_PLAIN_FLAGS, _BLOCK_CODE = 0x60, 0x40
"""Version 1, independent blocks, no checksums, no content size; blocks of at most 64 KiB."""
_MAX_RATIO = 255
"""Bytes that one byte of a block can stand for."""
_STORED = 0x80000000
"""Bit of a block's size that says the block is not compressed."""
_CONTENT_SIZE_BIT, _DICTIONARY_BIT = 0x08, 0x01
_BLOCK_CHECKSUM_BIT, _CONTENT_CHECKSUM_BIT = 0x10, 0x04

JOINED = 11
"""Bytes of a frame besides its blocks."""
MARKED = 4
"""Bytes of a mark besides itself, which is a block."""

UNKNOWN = -1
"""The size of what is not one whole, well-formed frame; the decompressor says why."""


@inlined
def length(data: np.ndarray, position: Integer, end: Integer, nibble: Integer) -> Integers:
    """A length that begins with ``nibble`` of a token, and where it ends; past ``end`` if it is cut short."""
    size = nibble
    more = nibble == 15
    while more:
        if position >= end:
            return size, end + 1
        size += int64(data[position])
        more = data[position] == 255
        position += 1
    return size, position


@kernel(int64(BYTES, int64))
def frame_size(data: np.ndarray, most: int) -> Integer:
    """What a frame decompresses to, in bytes; UNKNOWN, or any number over ``most`` once it is over that.

    A content size is taken for true, for who decompresses verifies it; else lengths are added up.
    """
    if data.size < 15 or data[4] & _DICTIONARY_BIT:
        return UNKNOWN
    if data[4] & _CONTENT_SIZE_BIT:
        size = little_endian(data, 6, 8)
        return size if 0 <= size <= _MAX_RATIO * data.size else UNKNOWN
    checksum = 4 if data[4] & _BLOCK_CHECKSUM_BIT else 0
    position = int64(7)
    size = int64(0)
    while size <= most:
        if data.size - position < 4:
            return UNKNOWN
        block = little_endian(data, position, 4)
        position += 4
        if block == 0:
            position += 4 if data[4] & _CONTENT_CHECKSUM_BIT else 0
            return size if position == data.size else UNKNOWN
        stored = block & _STORED != 0
        block &= ~_STORED
        end = position + block
        if end + checksum > data.size:
            return UNKNOWN
        if stored:
            size += block
            position = end
        while position < end and size <= most:
            token = int64(data[position])
            literals, position = length(data, position + 1, end, token >> 4)
            size += literals
            position += literals
            if position < end:
                match, position = length(data, position + 2, end, token & 15)
                size += match + 4
        if position > end:
            return UNKNOWN
        position += checksum
    return size


@inlined
def sizes_until_enough(
    size_of: Any,
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    most: Integer,
    enough: Integer,
    sizes: np.ndarray,
) -> Integer:
    """:func:`frame_sizes` of frames that ``size_of`` measures, of the arguments of :func:`frame_size`.

    Also for :mod:`.zstd`, whose cache does not see it change.
    """
    total = count = int64(0)
    while count < sizes.size and total < enough:
        start, end = starts[count], ends[count]
        if not 0 <= start <= end <= data.size:
            break
        size = size_of(data[start:end], most)
        if size == UNKNOWN or size > most:
            break
        sizes[count] = size
        total += size
        count += 1
    return count


@kernel(int64(BYTES, INT64S, INT64S, int64, int64, OUT_INT64))
def frame_sizes(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, most: int, enough: int, sizes: np.ndarray
) -> Integer:
    """Put the :func:`frame_size` of each ``data[start:end]`` into ``sizes``, and return of how many.

    These are all frames up to the first whose size is UNKNOWN or over ``most``, or with which the
    sum of the sizes is ``enough``.
    """
    return sizes_until_enough(frame_size, data, starts, ends, most, enough, sizes)


@kernel(int64(BYTES, int64, int64))
def header_checksum(data: np.ndarray, start: Integer, end: Integer) -> Integer:
    """What stands behind a descriptor of under 16 bytes, ``data[start:end]``: a byte of its XXH32."""
    end = min(end, data.size)
    mask = int64(0xFFFFFFFF)
    prime1, prime2, prime3 = int64(2654435761), int64(2246822519), int64(3266489917)
    prime4, prime5 = int64(668265263), int64(374761393)
    value = prime5 + end - start
    while end - start >= 4:
        value = (value + little_endian(data, start, 4) * prime3) & mask
        value = ((value << 17) | (value >> 15)) * prime4 & mask
        start += 4
    while start < end:
        value = (value + int64(data[start]) * prime5) & mask
        value = ((value << 11) | (value >> 21)) * prime1 & mask
        start += 1
    value = (value ^ (value >> 15)) * prime2 & mask
    value = (value ^ (value >> 13)) * prime3 & mask
    return ((value ^ (value >> 16)) >> 8) & 0xFF


@inlined
def blocks(data: np.ndarray, start: Integer, end: Integer) -> Integer:
    """Where the blocks of the frame ``data[start:end]`` begin, which end 4 bytes before it does.

    UNKNOWN unless it is as Java's producer makes frames, maybe with a content size.
    """
    if end - start < JOINED or little_endian(data, start, 4) != _MAGIC or data[start + 5] != _BLOCK_CODE:
        return UNKNOWN
    flags = data[start + 4]
    first = start + (15 if flags & _CONTENT_SIZE_BIT else 7)
    if flags & ~_CONTENT_SIZE_BIT != _PLAIN_FLAGS or end - first < 4:
        return UNKNOWN
    if header_checksum(data, start + 4, first - 1) != data[first - 1]:
        return UNKNOWN
    position = first
    block = int64(1)
    while block != 0:
        if end - position < 4:
            return UNKNOWN
        block = little_endian(data, position, 4)
        size = block & ~_STORED
        position += 4
        if size > min(_BLOCK, end - position) or (size == 0 and block != 0):
            return UNKNOWN
        position += size
    return first if position == end else UNKNOWN


@kernel(int64(BYTES, INT64S, INT64S, BYTES, OUT_BYTES))
def join_frames(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, mark: np.ndarray, joined: np.ndarray
) -> Integer:
    """Make one frame of the blocks of each ``data[start:end]``, those of each followed by ``mark``, stored.

    Returns its size; UNKNOWN if a frame's blocks cannot be had so, or if ``joined`` has no room.
    It needs :data:`JOINED` bytes, and of each frame the mark and :data:`MARKED` more than the frame itself.
    """
    if joined.size < JOINED:
        return UNKNOWN
    put_uint32(joined, 0, _MAGIC)
    joined[4] = _PLAIN_FLAGS
    joined[5] = _BLOCK_CODE
    joined[6] = header_checksum(joined, 4, 6)
    at = int64(7)
    for frame in range(starts.size):
        start, end = starts[frame], ends[frame]
        if not 0 <= start <= end <= data.size:
            return UNKNOWN
        first = blocks(data, start, end)
        size = end - 4 - first
        if first == UNKNOWN or size + MARKED + mark.size > joined.size - 4 - at:
            return UNKNOWN
        copy_bytes(joined, at, data, first, size)
        at += size
        put_uint32(joined, at, mark.size | _STORED)
        copy_bytes(joined, at + MARKED, mark, 0, mark.size)
        at += MARKED + mark.size
    put_uint32(joined, at, 0)
    return at + 4


def compress_frame(data: np.ndarray) -> bytes:
    """An LZ4 frame of our own making, as pyarrow's over 64 KiB have dependent blocks, which Java refuses."""
    codec = pa.Codec("lz4_raw")
    header = struct.pack("<IBBq", _MAGIC, _PLAIN_FLAGS | _CONTENT_SIZE_BIT, _BLOCK_CODE, data.size)
    parts = [header, bytes([header_checksum(np.frombuffer(header, np.uint8), 4, len(header))])]
    for position in range(0, data.size, _BLOCK):
        plain = data[position : position + _BLOCK]
        block = codec.compress(pa.py_buffer(plain), asbytes=True)
        size = len(block)
        if size >= plain.size:
            block, size = plain.tobytes(), plain.size | _STORED
        parts += (size.to_bytes(4, "little"), block)
    parts.append(bytes(4))
    return b"".join(parts)


def with_right_header_checksum(frame: np.ndarray) -> np.ndarray:
    """A copy of a magic 0 LZ4 frame with the right header checksum; readers must not verify what it had."""
    if frame.size < 7:
        raise CorruptRecordError("An lz4 frame is cut short")
    flags = int(frame[4])
    at = 6 + (8 if flags & _CONTENT_SIZE_BIT else 0) + (4 if flags & _DICTIONARY_BIT else 0)
    fixed = frame.copy()
    fixed[at : at + 1] = header_checksum(frame, 4, at)
    return fixed
