"""Compress and decompress record batches by libraries, capped: no bytes can fill the memory.

Kafka's own framing around the algorithms: snappy comes raw or in the blocks of
Java's SnappyOutputStream (xerial); lz4 is an LZ4 frame, whose header checksum
is over the wrong bytes in magic 0 (KAFKA-3160, KIP-57), and whose blocks must
not depend on each other (KafkaLZ4BlockInputStream). The Java producer and
librdkafka leave out how large the content of lz4 and zstd is.

What producers usually write is decompressed at once, by the fastest library for it. Anything else goes
through :class:`Content`: larger than expected, in several frames, of unusual form, or invalid.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

import cramjam
import numpy as np
import pyarrow as pa
import zstandard

from pyspark_kafkalog.codec import lz4
from pyspark_kafkalog.codec.buffers import Stage, as_array
from pyspark_kafkalog.codec.format import COMPRESSION_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from pyspark_kafkalog.errors import CorruptRecordError

_LEVELS = {GZIP: 6, ZSTD: 3}
"""Kafka's defaults (KIP-390); pyarrow's are 9 and 1."""

_STREAM_FAILURES = (pa.ArrowException, OSError, ValueError)
"""The exceptions of pyarrow for bytes that it cannot decompress."""
_FAILURES_AT_ONCE = (cramjam.DecompressionError, zstandard.ZstdError, ValueError)

_GZIP_WINDOW = 31
"""zlib's name for gzip with the largest window."""

_LIKELY_RATIO = 32
"""Few batches decompress to more than this many times their size."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_CHECKSUM_BIT, _ZSTD_REPEATED = 0x04, 1
"""Bit of a frame's descriptor; type of a block that is one byte, whatever the size."""

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = struct.Struct(">8sii")
_SNAPPY_START = _XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)
_XERIAL_BLOCK = 32 * 1024
_MOST_OF_SNAPPY = 32
"""No byte of snappy gives more: an element of 3 bytes gives 64."""


class LargerError(Exception):
    """Compressed bytes have more content than there is room for."""


def decompress(
    compression: int, data: np.ndarray, *, magic: int, max_bytes: int, stage: Stage | None = None
) -> np.ndarray:
    """The decompressed bytes of ``data``, appended to ``stage``.

    :param compression: the id in a batch's attributes, see :data:`.format.COMPRESSION_NAMES`.
    :param magic: format of the batch; zstd exists since 2, and lz4 was framed wrongly in 0.
    :raises LargerError: if they give more than ``max_bytes``; nothing is staged then.
    :raises CorruptRecordError: without a place, if the bytes or the compression are invalid.
    """
    stage = Stage() if stage is None else stage
    start = stage.size
    if compression == NONE:
        stage.append(data)
        return stage.data[start:]
    data = readable(compression, data, magic)
    if compression != SNAPPY and _is_decompressed_at_once(compression, data, stage, max_bytes):
        return stage.data[start:]
    try:
        if compression == SNAPPY:
            for block in _snappy_blocks(data):
                _decompress_block(block, stage, start + max_bytes - stage.size)
        else:
            with Content(compression, data, max_block=max_bytes) as content:
                content.fill(stage, max_bytes + 1)
        if stage.size - start > max_bytes:
            raise LargerError
    except LargerError:
        stage.size = start
        raise
    return stage.data[start:]


def readable(compression: int, data: np.ndarray, magic: int) -> np.ndarray:
    """Compressed bytes of a batch of this format as today's libraries take them.

    :raises CorruptRecordError: without a place, if the format has no such compression.
    """
    if compression not in (GZIP, SNAPPY, LZ4) and (compression != ZSTD or magic < 2):
        raise CorruptRecordError(f"Compression {compression} is unknown in magic {magic}")
    return lz4.with_right_header_checksum(data) if compression == LZ4 and magic == 0 else data


class Content:
    """The decompressed content of :func:`readable` bytes, as much at a time as the caller wants.

    :param max_block: the most that one block of snappy may hold, which can only be had whole.
    """

    def __init__(self, compression: int, data: np.ndarray, *, max_block: int) -> None:
        self._name = _name(compression)
        self._max_block = max_block
        self._stream: pa.NativeFile | None = None
        if compression == SNAPPY:
            self._blocks = _snappy_blocks(data)
        else:
            self._stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), self._name)

    def __enter__(self) -> Content:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def fill(self, stage: Stage, size: int) -> bool:
        """Stage about the next ``size`` bytes, or fewer at the end; whether there may be more.

        :raises LargerError: at a block of snappy that is too large.
        :raises CorruptRecordError: without a place, if the bytes are invalid.
        """
        wanted = stage.size + size
        if self._stream is not None:
            try:
                stage.fill(self._stream, size)
            except _STREAM_FAILURES as e:
                raise CorruptRecordError(f"Cannot decompress {self._name}: {e}") from e
            return stage.size >= wanted
        for block in self._blocks:
            _decompress_block(block, stage, self._max_block)
            if stage.size >= wanted:
                return True
        return False


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
        if start < end:  # compaction leaves no bytes to decompress where it has removed all records
            decompress(compression, data[start:end], magic=2, max_bytes=max_bytes, stage=stage)
        yield stage.size


def compress(compression: int, data: np.ndarray, level: int | None = None) -> bytes:
    """``data`` compressed in the form in which the Java producer writes it to a v2 batch.

    :param level: of gzip, lz4 or zstd, as Kafka counts it; None: Kafka's default.
    """
    if compression == NONE:
        return data.tobytes()
    if compression == SNAPPY:
        return _compress_snappy(data)
    if compression == LZ4:
        return lz4.compress_frame(data, level)
    codec = pa.Codec(_name(compression), compression_level=_LEVELS[compression] if level is None else level)
    compressed: bytes = codec.compress(pa.py_buffer(data), asbytes=True)
    return compressed


def compress_pieces(compression: int, pieces: Iterable[np.ndarray]) -> Iterator[bytes]:
    """Compress ``pieces`` as one content, part by part; lz4 and zstd frames do not state its size."""
    if compression == NONE:
        yield from (piece.tobytes() for piece in pieces)
    elif compression == LZ4:
        yield from lz4.frame_of_pieces(pieces)
    elif compression == SNAPPY:
        yield _SNAPPY_START
        for piece in pieces:
            yield from _snappy_of(piece)
    else:
        level = _LEVELS[compression]
        stream = (
            zlib.compressobj(level, wbits=_GZIP_WINDOW)
            if compression == GZIP
            else zstandard.ZstdCompressor(level=level).compressobj()
        )
        for piece in pieces:
            yield stream.compress(piece.data)
        yield stream.flush()


def _name(compression: int) -> str:
    return COMPRESSION_NAMES[compression]


def _is_decompressed_at_once(compression: int, data: np.ndarray, stage: Stage, max_bytes: int) -> bool:
    """Whether ``data`` could be decompressed by one call; if not, nothing is staged."""
    start = stage.size
    try:
        _decompress_at_once(compression, data, stage, max_bytes)
    except _FAILURES_AT_ONCE:
        stage.size = start
        return False
    return True


def _decompress_at_once(compression: int, data: np.ndarray, stage: Stage, max_bytes: int) -> None:
    """Raises one of _FAILURES_AT_ONCE if the data must be streamed; some of it may be staged then."""
    limit = min(_LIKELY_RATIO * data.size, max_bytes)
    if compression == LZ4:
        lz4.decompress_frame(data, stage, max_bytes)
    elif compression == GZIP:
        stage.size += cramjam.gzip.decompress_into(data, stage.room(limit))
    else:
        _check_zstd_frame(data, limit)
        stage.append(as_array(stage.zstd.decompress(data, max_output_size=limit)))


def _check_zstd_frame(data: np.ndarray, limit: int) -> None:
    """Refuse with ValueError what zstandard does not check (RFC 8878).

    It allocates as much as a frame claims to hold, believes one that claims 0, and
    ignores what follows. Each block has a header of 3 bytes: last, type, size.
    """
    size = zstandard.frame_content_size(data)
    if size == 0 or size > limit:
        raise ValueError("Empty or too large")
    view, position, header = memoryview(data), zstandard.frame_header_size(data), 0  # type: ignore[arg-type]
    while not header & 1 and position < len(view):
        header = int.from_bytes(view[position : position + 3], "little")
        position += 3 + (1 if (header >> 1) & 3 == _ZSTD_REPEATED else header >> 3)
    position += 4 if view[4] & _ZSTD_CHECKSUM_BIT else 0
    if not header & 1 or position != len(view) or view[:4] != _ZSTD_MAGIC:
        raise ValueError("Not one whole frame")


def _decompress_block(block: np.ndarray, stage: Stage, max_bytes: int) -> None:
    """Stage the content of raw snappy."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _MOST_OF_SNAPPY * block.size:
            raise CorruptRecordError(f"{block.size} bytes of snappy claim to hold {size}")
        if size > max_bytes:
            raise LargerError
        stage.size += cramjam.snappy.decompress_raw_into(block, stage.room(size))
    except cramjam.DecompressionError as e:
        raise CorruptRecordError(f"Cannot decompress snappy: {e}") from e


def _snappy_blocks(data: np.ndarray) -> Iterator[np.ndarray]:
    """The data, if it is raw snappy; or the blocks after xerial's header: int32 size, raw snappy."""
    view = memoryview(data)  # type: ignore[arg-type]
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield data
        return
    position = _XERIAL_HEADER.size
    if len(view) < position:
        raise CorruptRecordError("The snappy header is cut short")
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if not 0 < size <= len(view) - position:
            raise CorruptRecordError(f"A snappy block of {size} bytes does not fit into its batch")
        yield data[position : position + size]
        position += size


def _compress_snappy(data: np.ndarray) -> bytes:
    return b"".join([_SNAPPY_START, *_snappy_of(data)])


def _snappy_of(data: np.ndarray) -> Iterator[bytes]:
    """xerial's blocks, each after its size."""
    codec = pa.Codec("snappy")
    for position in range(0, data.size, _XERIAL_BLOCK):
        block = codec.compress(pa.py_buffer(data[position : position + _XERIAL_BLOCK]), asbytes=True)
        yield len(block).to_bytes(4, "big")
        yield block
