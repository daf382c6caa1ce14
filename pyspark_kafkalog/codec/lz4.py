"""LZ4 frames: written as Java reads them, mended where magic 0 wrote them wrong, and measured.

Layout: magic, descriptor (flags, block size, maybe content size and dictionary id), a
byte of checksum, then blocks behind their sizes (uint32, little-endian) up to a size of
0, and maybe a checksum of the content. A block is a chain of literals and matches.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
from numba import int64

from pyspark_kafkalog.codec.jit import BYTES, INT64S, OUT_INT64, Integer, Integers, inlined, kernel
from pyspark_kafkalog.errors import CorruptRecordError

_MAGIC = b"\x04\x22\x4d\x18"
_BLOCK = 64 * 1024
_DESCRIPTOR = b"\x68\x40"
"""Version 1, independent blocks of at most 64 KiB, no checksums, the content size to follow."""
_MAX_RATIO = 255
"""Bytes that one byte of a block can stand for."""
_STORED = 0x80000000
"""Bit of a block's size that says the block is not compressed."""
_CONTENT_SIZE_BIT, _DICTIONARY_BIT = 0x08, 0x01
_BLOCK_CHECKSUM_BIT, _CONTENT_CHECKSUM_BIT = 0x10, 0x04

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

    A content size is taken for true, for the decompressor verifies it; else lengths are added up.
    pyarrow's stream costs 8 microseconds for each small frame, more than decompressing one of
    16 KiB does; with the size known, that is all it costs.
    """
    if data.size < 15 or data[4] & _DICTIONARY_BIT:
        return UNKNOWN
    size = int64(0)
    if data[4] & _CONTENT_SIZE_BIT:
        for i in range(8):
            size |= int64(data[6 + i]) << (8 * i)
        return size if 0 <= size <= _MAX_RATIO * data.size else UNKNOWN
    checksum = 4 if data[4] & _BLOCK_CHECKSUM_BIT else 0
    position = int64(7)
    while size <= most:
        if data.size - position < 4:
            return UNKNOWN
        block = int64(0)
        for i in range(4):
            block |= int64(data[position + i]) << (8 * i)
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


@kernel(int64(BYTES, INT64S, INT64S, int64, int64, OUT_INT64))
def frame_sizes(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, most: int, enough: int, sizes: np.ndarray
) -> Integer:
    """Put the :func:`frame_size` of each ``data[start:end]`` into ``sizes``, UNKNOWN if over ``most``.

    Returns their sum. Once that is ``enough``, the sizes of the others are left as they are.
    """
    total = int64(0)
    for i in range(sizes.size):
        if total >= enough:
            break
        size = int64(UNKNOWN)
        if 0 <= starts[i] <= ends[i] <= data.size:
            size = frame_size(data[starts[i] : ends[i]], most)
        sizes[i] = size if size <= most else UNKNOWN
        total += max(sizes[i], 0)
    return total


def compress_frame(data: np.ndarray) -> bytes:
    """An LZ4 frame of our own making, as pyarrow's over 64 KiB have dependent blocks, which Java refuses."""
    codec = pa.Codec("lz4_raw")
    descriptor = _DESCRIPTOR + data.size.to_bytes(8, "little")
    parts = [_MAGIC, descriptor, _header_checksum(descriptor)]
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
    fixed[at : at + 1] = np.frombuffer(_header_checksum(frame[4:at].tobytes()), np.uint8)
    return fixed


def _header_checksum(descriptor: bytes) -> bytes:
    """The second byte of the descriptor's XXH32, as the LZ4 frame format has it, for under 16 bytes."""
    prime2, prime3, prime4, prime5 = 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    whole = len(descriptor) // 4 * 4
    value = prime5 + len(descriptor)
    for (word,) in struct.iter_unpack("<I", descriptor[:whole]):
        value = (value + word * prime3) & mask
        value = (((value << 17) | (value >> 15)) * prime4) & mask
    for byte in descriptor[whole:]:
        value = (value + byte * prime5) & mask
        value = (((value << 11) | (value >> 21)) * 2654435761) & mask
    value = ((value ^ (value >> 15)) * prime2) & mask
    value = ((value ^ (value >> 13)) * prime3) & mask
    return bytes([((value ^ (value >> 16)) >> 8) & 0xFF])
