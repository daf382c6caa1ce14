"""Compress and decompress record batches over pyarrow, streamed and capped: no bytes can fill the memory.

Kafka's own framing around the algorithms: snappy comes raw or in the blocks of
Java's SnappyOutputStream (xerial); lz4 is an LZ4 frame, whose header checksum
is over the wrong bytes in magic 0 (KAFKA-3160, KIP-57), and whose blocks must
not depend on each other (KafkaLZ4BlockInputStream).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec import lz4, zstd
from pyspark_kafkalog.codec.buffers import allocate
from pyspark_kafkalog.codec.format import COMPRESSION_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from pyspark_kafkalog.codec.lz4 import UNKNOWN
from pyspark_kafkalog.errors import CorruptRecordError

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
"""Kafka's defaults (KIP-390); pyarrow's are 9 and 1."""

_FAILURES = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises for bytes that it cannot decompress."""

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_BLOCK = 32 * 1024


class Stage:
    """Decompressed bytes of several batches one after another, in one array that grows and is used again."""

    def __init__(self) -> None:
        self._array = allocate(1 << 20)
        self.size = 0

    @property
    def data(self) -> np.ndarray:
        """What was staged. It moves when more is added, so ask again."""
        return self._array[: self.size]

    def clear(self) -> None:
        """Forget what was staged."""
        self.size = 0

    def reserve(self, size: int) -> None:
        """Have room for ``size`` bytes more."""
        if self._array.size - self.size < size:
            array = allocate(max(2 * self._array.size, self.size + size))
            array[: self.size] = self.data
            self._array = array

    def append(self, data: np.ndarray | pa.Buffer) -> None:
        """Stage a copy of bytes that are not compressed."""
        self.reserve(data.size)
        end = self.size + data.size
        self._array[self.size : end] = data
        self.size = end

    def fill(self, stream: pa.NativeFile, max_bytes: int) -> None:
        """Stage all of ``stream``; :class:`CorruptRecordError` if that is more than ``max_bytes``."""
        limit = self.size + max_bytes
        while True:
            self.reserve(1)
            got = stream.readinto(self._array[self.size : limit + 1])
            if not got:
                return
            self.size += got
            if self.size > limit:
                raise _too_large(max_bytes)


def decompress(
    compression: int, data: np.ndarray, *, magic: int, max_bytes: int, stage: Stage | None = None
) -> np.ndarray:
    """The decompressed bytes of ``data``, appended to ``stage``.

    :param compression: id in a batch's attributes, see :data:`.format.COMPRESSION_NAMES`.
    :param magic: format of the batch; zstd exists since 2, and lz4 was framed wrongly in 0.
    :raises CorruptRecordError: without a place, if the bytes or the compression are not
        valid, or give more than ``max_bytes``.
    """
    stage = Stage() if stage is None else stage
    start = stage.size
    if compression == NONE:
        stage.append(data)
    elif compression == SNAPPY:
        _decompress_snappy(data, stage, max_bytes)
    elif compression in (GZIP, LZ4) or (compression == ZSTD and magic == 2):
        if compression == LZ4 and magic == 0:
            data = lz4.with_right_header_checksum(data)
        size = _frame_size(compression, data, max_bytes)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if size == UNKNOWN:
            _decompress_stream(_name(compression), pa.py_buffer(data), stage, max_bytes)
        else:
            stage.append(_decompress_whole(_name(compression), pa.py_buffer(data), size))
    else:
        raise CorruptRecordError(f"Unknown compression {compression} for magic {magic}")
    return stage.data[start:]


def decompress_each(
    compressions: np.ndarray,
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    *,
    max_bytes: int,
    enough: int,
    stage: Stage,
) -> Iterator[int]:
    """:func:`decompress` each ``data[start:end]``, records of v2 batches; yields what ``stage`` then holds.

    The lz4 frames are measured all at once, for a microsecond of each batch is as much as 20
    records cost.

    :param enough: the caller stops when this much is staged.
    """
    sizes = np.full(starts.size, UNKNOWN)
    is_lz4 = compressions == LZ4
    found = sizes[is_lz4]
    total = lz4.frame_sizes(data, starts[is_lz4], ends[is_lz4], max_bytes, enough, found)
    sizes[is_lz4] = found
    stage.reserve(min(total, 2 * enough))  # the last size that counts may be large, and a lie
    buffer = pa.py_buffer(data)
    for compression, start, end, size in zip(
        compressions.tolist(), starts.tolist(), ends.tolist(), sizes.tolist(), strict=True
    ):
        if size != UNKNOWN:
            stage.append(_decompress_whole("lz4", buffer.slice(start, end - start), size))
        elif start < end:  # compaction leaves no bytes to decompress where it removed all records
            decompress(compression, data[start:end], magic=2, max_bytes=max_bytes, stage=stage)
        yield stage.size


def compress(compression: int, data: np.ndarray) -> bytes:
    """``data`` compressed in the form in which the Java producer writes it to a v2 batch."""
    if compression == NONE:
        return data.tobytes()
    if compression == SNAPPY:
        return _compress_snappy(data)
    if compression == LZ4:
        return lz4.compress_frame(data)
    level = {GZIP: _GZIP_LEVEL, ZSTD: _ZSTD_LEVEL}[compression]
    return pa.Codec(_name(compression), compression_level=level).compress(pa.py_buffer(data), asbytes=True)


def _name(compression: int) -> str:
    return COMPRESSION_NAMES[compression]


def _too_large(max_bytes: int) -> CorruptRecordError:
    return CorruptRecordError(f"A batch decompresses to more than {max_bytes} bytes")


def _frame_size(compression: int, data: np.ndarray, most: int) -> int:
    if compression == LZ4:
        return lz4.frame_size(data, most)
    return zstd.frame_size(data) if compression == ZSTD else UNKNOWN


def _decompress_stream(name: str, data: pa.Buffer, stage: Stage, max_bytes: int) -> None:
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
            stage.fill(stream, max_bytes)
    except _FAILURES as e:
        raise CorruptRecordError(f"Cannot decompress {name}: {e}") from e


def _decompress_whole(name: str, data: pa.Buffer, size: int) -> pa.Buffer:
    try:
        return _codec(name).decompress(data, size)
    except _FAILURES as e:
        raise CorruptRecordError(f"Cannot decompress {name}: {e}") from e


_codec = cache(pa.Codec)


def _decompress_snappy(data: np.ndarray, stage: Stage, max_bytes: int) -> None:
    """Raw snappy; or xerial's header, whose versions do not matter, and blocks: int32 size, raw snappy."""
    buffer, view = pa.py_buffer(data), memoryview(data)  # type: ignore[arg-type]
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        stage.append(_decompress_snappy_block(buffer, max_bytes))
        return
    start = stage.size
    position = _XERIAL_HEADER.size
    if len(view) < position:
        raise CorruptRecordError("A snappy header is cut short")
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if not 0 < size <= len(view) - position:
            raise CorruptRecordError(f"A snappy block of {size} bytes does not fit its batch")
        stage.append(_decompress_snappy_block(buffer.slice(position, size), max_bytes))
        position += size
        if stage.size - start > max_bytes:
            raise _too_large(max_bytes)


def _decompress_snappy_block(block: pa.Buffer, max_bytes: int) -> pa.Buffer:
    size = shift = 0
    for byte in bytes(memoryview(block)[:5]):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > max_bytes:
        raise _too_large(max_bytes)
    return _decompress_whole("snappy", block, size)


def _compress_snappy(data: np.ndarray) -> bytes:
    codec = pa.Codec("snappy")
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for position in range(0, data.size, _XERIAL_BLOCK):
        block = codec.compress(pa.py_buffer(data[position : position + _XERIAL_BLOCK]), asbytes=True)
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)
