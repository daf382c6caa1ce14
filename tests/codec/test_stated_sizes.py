"""What compressed batches state about their size, by every producer's form of each compression."""

from __future__ import annotations

import gzip
import struct

import cramjam
import numpy as np
import pytest
import zstandard

from pyspark_kafkalog.codec.compression import compress
from pyspark_kafkalog.codec.format import COMPRESSION_NAMES, GZIP, LZ4, RECORDS_V2, SNAPPY, ZSTD
from pyspark_kafkalog.codec.size_kernels import UNKNOWN, stated_sizes
from pyspark_kafkalog.codec.walk import walk
from tests.codec.raw import batch, message, wrapper

CONTENTS = [b"", b"x", b"abc" * 50, bytes(100_000), b"0123456789" * 30_000]
SIZES = [len(content) for content in CONTENTS]


def stated(*bodies: bytes, compression: int) -> list[int]:
    """What batches with these compressed records state, without their headers; UNKNOWN as it is."""
    stored = [batch([], body=body, compression=compression, last_offset_delta=0) for body in bodies]
    return sizes_of(b"".join(stored), RECORDS_V2)


def sizes_of(stored: bytes, header: int = 0) -> list[int]:
    data = np.frombuffer(stored, np.uint8)
    walked = walk(data)
    assert walked.end == data.size
    sizes = np.empty(len(walked), np.int64)
    stated_sizes(data, walked.table, sizes)
    return [size - header if size != UNKNOWN else size for size in sizes.tolist()]


def lz4_frame(content: bytes, *, with_size: bool) -> bytes:
    """The header of a frame, whose size is all that is looked at, and some bytes."""
    flags = 0x68 if with_size else 0x60
    return b"\x04\x22\x4d\x18" + bytes([flags, 0x40]) + struct.pack("<Q", len(content)) * with_size + bytes(9)


def test_gzip_and_snappy_always_do() -> None:
    arrays = [np.frombuffer(content, np.uint8) for content in CONTENTS]
    for compression in (GZIP, SNAPPY):
        assert stated(*(compress(compression, a) for a in arrays), compression=compression) == SIZES
    assert stated(*map(gzip.compress, CONTENTS), compression=GZIP) == SIZES
    raw = [bytes(cramjam.snappy.compress_raw(content)) for content in CONTENTS]
    assert stated(*raw, compression=SNAPPY) == SIZES


def test_zstd_and_lz4_if_the_producer_does() -> None:
    for content in CONTENTS[1:]:
        one_shot = zstandard.ZstdCompressor().compress(content)
        streamed = zstandard.ZstdCompressor(write_content_size=False).compress(content)
        assert stated(one_shot, streamed, compression=ZSTD) == [len(content), UNKNOWN]
        frames = (lz4_frame(content, with_size=with_size) for with_size in (True, False))
        assert stated(*frames, compression=LZ4) == [len(content), UNKNOWN]


@pytest.mark.parametrize("compression", [GZIP, SNAPPY, LZ4, ZSTD, 5], ids=[*COMPRESSION_NAMES[1:], "unknown"])
def test_bytes_cut_short_or_lying_state_nothing(compression: int) -> None:
    body = {
        SNAPPY: compress(SNAPPY, np.zeros(70_000, np.uint8))[:-1],
        ZSTD: b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8,
        LZ4: b"\x04\x22\x4d\x18\x68\x40" + b"\xff" * 7 + b"\x7f" + bytes(9),
        GZIP: bytes(14) + b"\xff" * 4,
    }.get(compression, b"123")
    assert stated(body, compression=compression) == [UNKNOWN]
    for size in (1, 4, 5):
        if compression != SNAPPY:
            assert stated(body[:size], compression=compression) == [UNKNOWN]
    assert stated(b"", compression=compression) == [0], "compaction leaves no records"


def test_old_messages() -> None:
    plain = message(b"value")
    packed = wrapper([message(b"value")], offset=1)
    assert sizes_of(plain + packed) == [len(plain), UNKNOWN]
