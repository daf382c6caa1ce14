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
from secrets import token_bytes

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

JOINABLE = {LZ4: lz4, ZSTD: zstd}
"""The compressions whose frames can be joined, and what joins them."""
_MARK = 16
"""Bytes of a mark between frames that are joined."""

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

    def room(self, size: int) -> np.ndarray:
        """The next ``size`` bytes, to be written to; they are not staged thereby."""
        self.reserve(size)
        return self._array[self.size : self.size + size]

    def append(self, data: np.ndarray | pa.Buffer) -> None:
        """Stage a copy of bytes that are not compressed."""
        self.room(data.size)[:] = data
        self.size += data.size

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
    stage: Stage,
) -> Iterator[int]:
    """:func:`decompress` each ``data[start:end]`` of v2 batches; yields what ``stage`` then holds."""
    for compression, start, end in zip(compressions.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if start < end:  # compaction leaves no bytes to decompress where it removed all records
            decompress(compression, data[start:end], magic=2, max_bytes=max_bytes, stage=stage)
        yield stage.size


def decompress_joined(
    compression: int,
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    *,
    max_bytes: int,
    enough: int,
    scratch: Stage,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The frames ``data[start:end]``, or the first of them, decompressed in one call.

    A call for each batch of 16 KiB, and a copy of what it gave, cost as much as decompressing it.
    So all become one, and behind each comes a mark that nobody could foresee:
    where it comes out in its place, each frame gave just the bytes that it had to.

    :param compression: one of :data:`JOINABLE`.
    :param enough: no more frames are taken once these decompress to so much.
    :returns: what all gave, and where in it that of each starts and ends; None if any of them must
        be looked at alone, as it is invalid, too large or of an unusual form.
    """
    sizes = np.empty(starts.size, np.int64)
    frames = JOINABLE[compression]
    count = frames.frame_sizes(data, starts, ends, max_bytes, enough, sizes)
    if count == 0:
        return None
    starts, ends, sizes = starts[:count], ends[:count], sizes[:count]
    mark = np.frombuffer(token_bytes(_MARK), np.uint8)
    joined = scratch.room(frames.JOINED + int((ends - starts).sum()) + count * (frames.MARKED + _MARK))
    size = frames.join_frames(data, starts, ends, mark, joined)
    if size == UNKNOWN:
        return None
    bounds = np.cumsum(sizes + _MARK)
    ends = bounds - _MARK
    try:
        plain = np.frombuffer(
            _decompress_whole(_name(compression), pa.py_buffer(joined[:size]), int(bounds[-1])), np.uint8
        )
    except CorruptRecordError:
        return None
    if (plain[ends[:, np.newaxis] + np.arange(_MARK)] != mark).any():
        return None
    return plain, ends - sizes, ends


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
