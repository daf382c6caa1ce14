"""Compress and decompress record batches by libraries, capped: no bytes can fill the memory.

Kafka's own framing around the algorithms: snappy comes raw or in the blocks of
Java's SnappyOutputStream (xerial); lz4 is an LZ4 frame, whose header checksum
is over the wrong bytes in magic 0 (KAFKA-3160, KIP-57), and whose blocks must
not depend on each other (KafkaLZ4BlockInputStream). The Java producer and
librdkafka leave out how large the content of lz4 and zstd is.

What producers usually write is decompressed at once, by the fastest library for it. Anything else goes
through pyarrow's stream: larger than expected, in several frames, of unusual form, or invalid.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

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
"""What pyarrow raises for bytes that it cannot decompress."""
_FAILURES_AT_ONCE = (cramjam.DecompressionError, zstandard.ZstdError, ValueError)

_LIKELY_RATIO = 32
"""Few batches decompress to more than this many times their size."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_CHECKSUM_BIT, _ZSTD_REPEATED = 0x04, 1
"""Bit of a frame's descriptor; type of a block that is one byte, whatever the size."""

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_BLOCK = 32 * 1024


def decompress(
    compression: int, data: np.ndarray, *, magic: int, max_bytes: int, stage: Stage | None = None
) -> np.ndarray:
    """The decompressed bytes of ``data``, appended to ``stage``.

    :param compression: the id in a batch's attributes, see :data:`.format.COMPRESSION_NAMES`.
    :param magic: format of the batch; zstd exists since 2, and lz4 was framed wrongly in 0.
    :raises CorruptRecordError: without a place, if the bytes or the compression are
        invalid, or give more than ``max_bytes``.
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
        _decompress_frames(compression, data, stage, max_bytes)
    else:
        raise CorruptRecordError(f"Compression {compression} is unknown in magic {magic}")
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


def _name(compression: int) -> str:
    return COMPRESSION_NAMES[compression]


def _too_large(max_bytes: int) -> CorruptRecordError:
    return CorruptRecordError(f"A batch decompresses to more than {max_bytes} bytes")


def _decompress_frames(compression: int, data: np.ndarray, stage: Stage, max_bytes: int) -> None:
    start = stage.size
    try:
        _decompress_at_once(compression, data, stage, max_bytes)
        return
    except _FAILURES_AT_ONCE:
        stage.size = start
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), _name(compression)) as stream:
            stage.fill(stream, max_bytes + 1)
    except _STREAM_FAILURES as e:
        raise CorruptRecordError(f"Cannot decompress {_name(compression)}: {e}") from e
    if stage.size - start > max_bytes:
        raise _too_large(max_bytes)


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


def _decompress_snappy(data: np.ndarray, stage: Stage, max_bytes: int) -> None:
    limit = stage.size + max_bytes
    for block in _snappy_blocks(data):
        try:
            size = cramjam.snappy.decompress_raw_len(block)
            if size > limit - stage.size:
                raise _too_large(max_bytes)
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
    codec = pa.Codec("snappy")
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for position in range(0, data.size, _XERIAL_BLOCK):
        block = codec.compress(pa.py_buffer(data[position : position + _XERIAL_BLOCK]), asbytes=True)
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)
