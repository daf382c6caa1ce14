"""Compress and decompress record batches over pyarrow, streamed and capped: no bytes can fill the memory.

Kafka's own framing around the algorithms: snappy comes raw or in the blocks of
Java's SnappyOutputStream (xerial); lz4 is an LZ4 frame, whose header checksum
is over the wrong bytes in magic 0 (KAFKA-3160, KIP-57), and whose blocks must
not depend on each other (KafkaLZ4BlockInputStream).
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec import lz4
from pyspark_kafkalog.codec.buffers import allocate
from pyspark_kafkalog.codec.format import COMPRESSION_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from pyspark_kafkalog.errors import CorruptRecordError

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
"""Kafka's defaults (KIP-390); pyarrow's are 9 and 1."""

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

    def append(self, data: np.ndarray) -> None:
        """Stage a copy of bytes that are not compressed."""
        while self._array.size - self.size < data.size:
            self._grow()
        self._array[self.size : self.size + data.size] = data
        self.size += data.size

    def fill(self, stream: pa.NativeFile, max_bytes: int) -> None:
        """Stage all of ``stream``; :class:`CorruptRecordError` if that is more than ``max_bytes``."""
        limit = self.size + max_bytes
        while True:
            if self.size == self._array.size:
                self._grow()
            got = stream.readinto(self._array[self.size : limit + 1])
            if not got:
                return
            self.size += got
            if self.size > limit:
                raise _too_large(max_bytes)

    def _grow(self) -> None:
        array = allocate(2 * self._array.size)
        array[: self.size] = self.data
        self._array = array


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
    try:
        if compression == NONE:
            stage.append(data)
        elif compression == SNAPPY:
            _decompress_snappy(data, stage, max_bytes)
        elif compression in (GZIP, LZ4) or (compression == ZSTD and magic == 2):
            if compression == LZ4 and magic == 0:
                data = lz4.with_right_header_checksum(data)
            size = lz4.frame_size(data, max_bytes) if compression == LZ4 else lz4.UNKNOWN
            if size == lz4.UNKNOWN:
                with pa.CompressedInputStream(
                    pa.BufferReader(pa.py_buffer(data)), _name(compression)
                ) as stream:
                    stage.fill(stream, max_bytes)
            elif size > max_bytes:
                raise _too_large(max_bytes)
            else:
                stage.append(_decompress_whole("lz4", data, size))
        else:
            raise CorruptRecordError(f"Unknown compression {compression} for magic {magic}")
    except (pa.ArrowException, OSError, ValueError) as e:
        raise CorruptRecordError(f"Cannot decompress {_name(compression)}: {e}") from e
    return stage.data[start:]


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


def _decompress_snappy(data: np.ndarray, stage: Stage, max_bytes: int) -> None:
    """Raw snappy; or xerial's header, whose versions do not matter, and blocks: int32 size, raw snappy."""
    view = memoryview(data)  # type: ignore[arg-type]
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        stage.append(_decompress_snappy_block(view, max_bytes))
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
        stage.append(_decompress_snappy_block(view[position : position + size], max_bytes))
        position += size
        if stage.size - start > max_bytes:
            raise _too_large(max_bytes)


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> np.ndarray:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > max_bytes:
        raise _too_large(max_bytes)
    return _decompress_whole("snappy", block, size)


def _decompress_whole(name: str, data: memoryview | np.ndarray, size: int) -> np.ndarray:
    return np.frombuffer(pa.Codec(name).decompress(pa.py_buffer(data), size), np.uint8)


def _compress_snappy(data: np.ndarray) -> bytes:
    codec = pa.Codec("snappy")
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for position in range(0, data.size, _XERIAL_BLOCK):
        block = codec.compress(pa.py_buffer(data[position : position + _XERIAL_BLOCK]), asbytes=True)
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)
