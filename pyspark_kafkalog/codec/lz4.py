"""LZ4 frames: read, written as Java reads them, and repaired where magic 0 wrote them wrong.

Layout: magic, descriptor (flags, block size, maybe content size and dictionary id), one
checksum byte, then blocks, each after its size (uint32, little-endian), a size of 0, and
maybe a checksum of the content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache

import cramjam
import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import Stage
from pyspark_kafkalog.errors import CorruptRecordError

_MAGIC = b"\x04\x22\x4d\x18"
_BLOCK = 64 * 1024
_PLAIN_FLAGS, _BLOCK_CODE = 0x60, 0x40
"""Version 1, independent blocks, no checksums, no content size; blocks of at most 64 KiB."""
_FAST, _LOWEST, _HIGHEST = 9, 2, 12
"""Kafka's level for the fast compressor; the levels of the other one differ from 2 to 12."""
_STORED = 0x80000000
"""Bit of a block's size that says the block is not compressed."""
_END = bytes(4)
"""The end mark of a frame, in place of the size of another block."""
_CONTENT_SIZE_BIT, _DICTIONARY_BIT = 0x08, 0x01


@lru_cache
def header_checksum(descriptor: bytes) -> int:
    """The checksum byte after a descriptor of under 16 bytes: the second byte of its XXH32."""
    words = len(descriptor) // 4
    value = 374761393 + len(descriptor)
    for word in struct.unpack_from(f"<{words}I", descriptor):
        value = (value + word * 3266489917) & 0xFFFFFFFF
        value = ((value << 17) | (value >> 15)) * 668265263 & 0xFFFFFFFF
    for byte in descriptor[4 * words :]:
        value = (value + byte * 374761393) & 0xFFFFFFFF
        value = ((value << 11) | (value >> 21)) * 2654435761 & 0xFFFFFFFF
    value = (value ^ (value >> 15)) * 2246822519 & 0xFFFFFFFF
    value = (value ^ (value >> 13)) * 3266489917 & 0xFFFFFFFF
    return ((value ^ (value >> 16)) >> 8) & 0xFF


def decompress_frame(frame: np.ndarray, stage: Stage, max_bytes: int) -> None:
    """Stage the content of a frame, block by block: twice as fast as cramjam or pyarrow for one of 16 KiB.

    :raises ValueError: or cramjam.DecompressionError, if it is not one frame as Kafka's producers make it,
        is invalid, or gives more than ``max_bytes``. Some of it may be staged then.
    """
    data = memoryview(frame)  # type: ignore[arg-type]
    if len(data) < 15 or data[:4] != _MAGIC:
        raise ValueError("Too short, or not a frame")
    flags, first = data[4], 7
    if flags & _CONTENT_SIZE_BIT:
        first = 15
    if flags & ~_CONTENT_SIZE_BIT != _PLAIN_FLAGS or data[5] != _BLOCK_CODE:
        raise ValueError("Not the flags that producers set")
    if header_checksum(bytes(data[4 : first - 1])) != data[first - 1]:
        raise ValueError("Header checksum mismatch")
    start, limit, position = stage.size, stage.size + max_bytes, first
    while header := int.from_bytes(data[position : position + 4], "little"):
        size = header & ~_STORED
        position += 4 + size
        if not 0 < size <= _BLOCK or position > len(data):
            raise ValueError("A block does not fit")
        block, room = frame[position - size : position], stage.room(min(_BLOCK, limit - stage.size))
        if header == size:
            size = cramjam.lz4.decompress_block_into(block, room, output_len=room.size)
        elif size <= room.size:
            room[:size] = block
        else:
            raise ValueError("Too large")
        stage.size += size
    if position + 4 != len(data):
        raise ValueError("More or less than one whole frame")
    if first == 15 and int.from_bytes(data[6:14], "little") != stage.size - start:
        raise ValueError("Content size mismatch")


def compress_frame(data: np.ndarray, level: int | None = None) -> bytes:
    """An LZ4 frame with independent blocks: pyarrow's over 64 KiB have dependent ones, which Java refuses.

    :param level: 1 to 17, as Kafka counts it: 9, its default, is the fast compressor, and 1 is 2 and
        17 is 12 of the other one (Lz4BlockOutputStream).
    """
    given = None if level in (None, _FAST) else min(max(level, _LOWEST), _HIGHEST)
    codec = pa.Codec("lz4_raw", compression_level=given)
    header = struct.pack("<4sBBq", _MAGIC, _PLAIN_FLAGS | _CONTENT_SIZE_BIT, _BLOCK_CODE, data.size)
    return b"".join([header, bytes([header_checksum(header[4:])]), *_blocks(codec, data), _END])


def frame_of_pieces(pieces: Iterable[np.ndarray]) -> Iterator[bytes]:
    """An lz4 frame of all of ``pieces``, part by part; it does not state its content size."""
    descriptor = bytes([_PLAIN_FLAGS, _BLOCK_CODE])
    yield _MAGIC + descriptor + bytes([header_checksum(descriptor)])
    for piece in pieces:
        yield from _blocks(pa.Codec("lz4_raw"), piece)
    yield _END


def _blocks(codec: pa.Codec, data: np.ndarray) -> Iterator[bytes]:
    """Blocks, each after its size."""
    for position in range(0, data.size, _BLOCK):
        plain = data[position : position + _BLOCK]
        block = codec.compress(pa.py_buffer(plain), asbytes=True)
        size = len(block)
        if size >= plain.size:
            block, size = plain.tobytes(), plain.size | _STORED
        yield size.to_bytes(4, "little")
        yield block


def with_right_header_checksum(frame: np.ndarray) -> np.ndarray:
    """A copy of a magic 0 LZ4 frame with the right header checksum; readers must not verify the original."""
    if frame.size < 7:
        raise CorruptRecordError("The lz4 frame is cut short")
    flags = int(frame[4])
    at = 6 + (8 if flags & _CONTENT_SIZE_BIT else 0) + (4 if flags & _DICTIONARY_BIT else 0)
    fixed = frame.copy()
    fixed[at : at + 1] = header_checksum(frame[4:at].tobytes())
    return fixed


def with_header_checksum_of_magic_0(frame: bytes) -> bytes:
    """A frame that :func:`compress_frame` made, with the checksum that clients before Kafka 0.10 expect.

    It is over the magic, too (KAFKA-3160).
    """
    at = 4 + 2 + 8
    return frame[:at] + bytes([header_checksum(frame[:at])]) + frame[at + 1 :]
