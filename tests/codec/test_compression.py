from __future__ import annotations

import gzip
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from kafka import codec as peer

from pyspark_kafkalog.codec.compression import LargerError, Stage, compress, decompress, decompress_each
from pyspark_kafkalog.codec.format import GZIP, LZ4, NONE, SNAPPY, ZSTD
from pyspark_kafkalog.errors import CorruptRecordError

ALL = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
COMPRESSED = ALL[1:]
NO_LIMIT = 1 << 30


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def text(size: int) -> np.ndarray:
    """Bytes that compress to about half."""
    return np.random.default_rng(7).integers(97, 113, size, dtype=np.uint8)


def decompressed(compression: int, data: bytes, *, magic: int = 2, max_bytes: int = NO_LIMIT) -> bytes:
    return decompress(compression, array(data), magic=magic, max_bytes=max_bytes).tobytes()


@pytest.mark.parametrize("compression", ALL)
@pytest.mark.parametrize("size", [0, 1, 1000, 32 * 1024 + 1, 64 * 1024, 64 * 1024 + 1, 3_000_000])
def test_what_was_compressed_comes_back(compression: int, size: int) -> None:
    half = text(size)
    half[: size // 2] = np.random.default_rng(1).integers(0, 256, size // 2, dtype=np.uint8)
    assert decompressed(compression, compress(compression, half)) == half.tobytes()


PEERS = {
    GZIP: (peer.has_gzip, peer.gzip_decode),
    SNAPPY: (peer.has_snappy, peer.snappy_decode),
    LZ4: (peer.has_lz4, peer.lz4_decode),
    ZSTD: (peer.has_zstd, peer.zstd_decode),
}


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("size", [1, 1000, 200_000])
def test_kafka_python_reads_what_was_compressed(compression: int, size: int) -> None:
    has, decode = PEERS[compression]
    if not has():
        pytest.skip("kafka-python needs another package for this")
    assert bytes(decode(compress(compression, text(size)))) == text(size).tobytes()


@pytest.mark.parametrize(
    ("compression", "levels"), [(GZIP, (1, 6, 9)), (LZ4, (9, 1, 2, 3, 12, 17)), (ZSTD, (-131072, 1, 3, 22))]
)
def test_a_higher_level_takes_fewer_bytes(compression: int, levels: tuple[int, ...]) -> None:
    """In the order of Kafka's levels, except for the 9 of lz4, which is its fast compressor."""
    words = np.random.default_rng(3).choice([b"order", b"item", b"price", b"a", b"the"], 40_000)
    plain = array(b" ".join(words.tolist()))
    sizes = []
    for level in levels:
        data = compress(compression, plain, level)
        assert decompressed(compression, data) == plain.tobytes()
        sizes.append(len(data))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    usual = {GZIP: 6, LZ4: 9, ZSTD: 3}[compression]
    assert compress(compression, plain) == compress(compression, plain, usual)


def test_snappy_is_written_as_java_frames_it() -> None:
    data = compress(SNAPPY, text(100_000))
    assert data[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    position, blocks = 16, 0
    while position < len(data):
        position += 4 + int.from_bytes(data[position : position + 4], "big")
        blocks += 1
    assert (position, blocks) == (len(data), 4)


def test_lz4_blocks_do_not_depend_on_each_other_as_java_demands() -> None:
    random = np.random.default_rng(1).integers(0, 256, 100_000, dtype=np.uint8)
    plain = np.concatenate([random, np.zeros(100_000, np.uint8)]).tobytes()
    data = compress(LZ4, array(plain))
    assert data[:14] == b"\x04\x22\x4d\x18\x68\x40" + len(plain).to_bytes(8, "little")
    position, got, stored = 15, b"", []
    while size := int.from_bytes(data[position : position + 4], "little"):
        block = data[position + 4 :][: size & 0x7FFFFFFF]
        position += 4 + len(block)
        stored.append(size > 0x7FFFFFFF)
        size = min(64 * 1024, len(plain) - len(got))
        got += block if stored[-1] else pa.Codec("lz4_raw").decompress(block, size, asbytes=True)
    assert got == plain
    assert stored == [True, False, False, False]
    assert position + 4 == len(data)


@pytest.mark.parametrize("compression", COMPRESSED)
def test_no_more_than_the_limit_is_decompressed(compression: int) -> None:
    data = compress(compression, text(100_000))
    assert len(decompressed(compression, data, max_bytes=100_000)) == 100_000
    with pytest.raises(LargerError):
        decompressed(compression, data, max_bytes=99_999)


@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_bomb_stops_at_the_limit(compression: int) -> None:
    bomb = compress(compression, np.zeros(64 << 20, np.uint8))
    before = pa.total_allocated_bytes()
    with pytest.raises(LargerError):
        decompressed(compression, bomb, max_bytes=1 << 20)
    assert pa.total_allocated_bytes() - before < 8 << 20


def test_many_small_frames_count_together() -> None:
    frames = compress(ZSTD, text(1000)) * 100
    assert len(decompressed(ZSTD, frames)) == 100_000
    with pytest.raises(LargerError):
        decompressed(ZSTD, frames, max_bytes=50_000)


def test_members_of_gzip_are_one_stream() -> None:
    assert decompressed(GZIP, gzip.compress(b"ab") + gzip.compress(b"c")) == b"abc"


def each(compressions: list[int], parts: list[bytes]) -> Iterator[bytes]:
    """The staged bytes of each of ``parts``, which lie between other bytes."""
    bounds = np.cumsum([3, *(size for part in parts for size in (len(part), 3))])
    stage, before = Stage(), 0
    for size in decompress_each(
        np.array(compressions),
        array(b"abc" + b"".join(part + b"abc" for part in parts)),
        bounds[:-1:2].copy(),
        bounds[1::2].copy(),
        max_bytes=100_000,
        stage=stage,
    ):
        yield stage.data[before:size].tobytes()
        before = size


def test_batches_of_all_compressions_are_decompressed_one_after_another() -> None:
    compressions = [LZ4, NONE, GZIP, LZ4, SNAPPY, ZSTD, LZ4, LZ4]
    texts = [text(size) for size in (100_000, 10, 99_999, 0, 1, 1000, 100_000, 7)]
    parts = [compress(*pair) for pair in zip(compressions, texts, strict=True)]
    assert list(each([5, *compressions], [b"", *parts])) == [b"", *(t.tobytes() for t in texts)]


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("hurt", ["large", "cut"])
def test_the_batches_before_an_invalid_one_are_staged(compression: int, hurt: str) -> None:
    good = compress(compression, text(1000))
    bad = compress(compression, text(100_001)) if hurt == "large" else good[:-20]
    found = each([compression] * 3, [good, bad, good])
    assert next(found) == text(1000).tobytes()
    with pytest.raises(LargerError if hurt == "large" else CorruptRecordError):
        next(found)


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("change", ["cut", "flip", "none", "empty"])
def test_bytes_that_cannot_be_decompressed_are_corrupt(compression: int, change: str) -> None:
    good = compress(compression, text(1000))
    data = {
        "cut": good[:-20],
        "flip": bytes([good[0] ^ 0x55]) + good[1:],
        "none": b"\xff" * 40,
        "empty": b"",
    }[change]
    if change == "empty" and compression != SNAPPY:
        assert decompressed(compression, data) == b""
        return
    with pytest.raises(CorruptRecordError):
        decompressed(compression, data)


@pytest.mark.parametrize(
    "tail", [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\5abcd", b"\0\0", b"\x7f\xff\xff\xff"]
)
def test_snappy_blocks_of_impossible_sizes_are_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompressed(SNAPPY, compress(SNAPPY, text(10)) + tail)


def test_snappy_is_read_raw_and_whatever_versions_its_frame_has() -> None:
    raw = pa.compress(b"abc", codec="snappy", asbytes=True)
    assert decompressed(SNAPPY, raw) == b"abc"
    framed = b"\x82SNAPPY\0" + b"\1\0\0\0" * 2 + len(raw).to_bytes(4, "big") + raw
    assert decompressed(SNAPPY, framed) == b"abc"


def test_a_claimed_size_is_not_believed() -> None:
    with pytest.raises(CorruptRecordError, match="claim to hold"):
        decompressed(SNAPPY, b"\xff\xff\xff\xff\x0f" + b"a", max_bytes=1000)


@pytest.mark.parametrize("content_size", [False, True])
def test_the_header_checksum_of_lz4_counts_from_magic_1_on(content_size: bool) -> None:
    frame = bytearray(compress(LZ4, text(100)))
    at = 14
    if not content_size:
        frame[4:15] = b"\x60\x40\x82"
        at = 6
    frame[at] ^= 0x10
    assert decompressed(LZ4, bytes(frame), magic=0) == text(100).tobytes()
    for magic in (1, 2):
        with pytest.raises(CorruptRecordError):
            decompressed(LZ4, bytes(frame), magic=magic)
    for size in range(at + 1):
        with pytest.raises(CorruptRecordError):
            assert decompressed(LZ4, bytes(frame[:size]), magic=0)


def test_compressions_that_a_format_lacks_are_corrupt() -> None:
    data = compress(ZSTD, text(10))
    assert decompressed(ZSTD, data, magic=2)
    for compression, magic in [(ZSTD, 0), (ZSTD, 1), (5, 2), (6, 2), (7, 1)]:
        with pytest.raises(CorruptRecordError, match=r"Compression .* is unknown"):
            decompressed(compression, data, magic=magic)
