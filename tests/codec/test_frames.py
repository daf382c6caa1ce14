"""Frames of gzip, lz4 and zstd, of every form: they give what pyarrow's stream gives, or both refuse them."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.buffers import Stage
from pyspark_kafkalog.codec.compression import LargerError, compress, decompress
from pyspark_kafkalog.codec.format import COMPRESSION_NAMES, GZIP, LZ4, ZSTD
from pyspark_kafkalog.codec.lz4 import compress_frame, decompress_frame, header_checksum
from pyspark_kafkalog.errors import CorruptRecordError
from tests.codec import strategies
from tests.codec.strategies import plain

MOST = 1 << 20
EACH = pytest.mark.parametrize("compression", [GZIP, LZ4, ZSTD])
SKIPPABLE = b"\x50\x2a\x4d\x18\x02\0\0\0ab"
WORDS = b"some words " * 1000
RANDOM = np.random.default_rng(1).integers(0, 256, 200_000, dtype=np.uint8).tobytes()


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def with_size(compression: int, content: bytes) -> bytes:
    """A frame that states the size of its content, like kafka-python's and ours; gzip always does."""
    return compress(compression, array(content))


def without_size(compression: int, content: bytes) -> bytes:
    """A frame as Java's producer and librdkafka write it."""
    if compression == LZ4:
        frame = with_size(LZ4, content)
        return frame[:4] + b"\x60\x40\x82" + frame[15:]
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, COMPRESSION_NAMES[compression]) as stream:
        stream.write(content)
        stream.flush()
    return sink.getvalue().to_pybytes()


FORMS = (with_size, without_size)


def decompressed(compression: int, data: bytes, max_bytes: int = MOST) -> bytes:
    return decompress(compression, array(data), magic=2, max_bytes=max_bytes).tobytes()


def streamed(compression: int, data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), COMPRESSION_NAMES[compression]) as stream:
        return stream.read()


@EACH
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_536, 65_792, 200_000])
@pytest.mark.parametrize("source", [RANDOM, bytes(200_000), WORDS * 20])
def test_every_size_and_kind_of_block(compression: int, form: object, size: int, source: bytes) -> None:
    assert decompressed(compression, form(compression, source[:size])) == source[:size]


@pytest.mark.long
@EACH
@given(st.data())
@settings(max_examples=400)
def test_hurt_frames_are_read_as_a_stream_reads_them(compression: int, chance: st.DataObject) -> None:
    form = chance.draw(st.sampled_from(FORMS))
    frame = bytearray(form(compression, plain(chance.draw(strategies.runs)).tobytes()))
    for _ in range(chance.draw(st.integers(0, 3))):
        last = chance.draw(st.sampled_from([20, len(frame)]))
        frame[chance.draw(st.integers(0, min(last, len(frame) - 1)))] = chance.draw(st.integers(0, 255))
    del frame[chance.draw(st.integers(len(frame) // 2, len(frame))) :]
    frame += chance.draw(st.sampled_from([b"", b"", b"\0", SKIPPABLE, bytes(frame)]))
    try:
        expected = streamed(compression, bytes(frame))
    except OSError:
        with pytest.raises(CorruptRecordError):
            decompressed(compression, bytes(frame))
    else:
        assert decompressed(compression, bytes(frame), len(expected)) == expected


@EACH
@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
@pytest.mark.parametrize("content", [b"", b"a", WORDS, RANDOM])
def test_frames_behind_one_another_give_all_their_contents(
    compression: int, first: object, second: object, content: bytes
) -> None:
    frames = first(compression, WORDS) + second(compression, content)
    assert decompressed(compression, frames) == WORDS + content
    assert decompressed(compression, second(compression, content) + first(compression, WORDS)) == (
        content + WORDS
    )


@pytest.mark.parametrize("compression", [LZ4, ZSTD])
@pytest.mark.parametrize("form", FORMS)
def test_skippable_frames_are_skipped(compression: int, form: object) -> None:
    frame = form(compression, WORDS)
    for parts in ([SKIPPABLE, frame], [frame, SKIPPABLE], [frame, SKIPPABLE, frame], [SKIPPABLE]):
        assert decompressed(compression, b"".join(parts)) == WORDS * parts.count(frame)


@EACH
@pytest.mark.parametrize("form", FORMS)
def test_every_cut_is_corrupt(compression: int, form: object) -> None:
    frame = form(compression, WORDS + RANDOM[:300])
    for size in range(1, len(frame)):
        with pytest.raises(CorruptRecordError, match="Cannot decompress"):
            decompressed(compression, frame[:size])


@EACH
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("content", [bytes(300_000), RANDOM, WORDS * 10])
def test_the_limit_is_exact(compression: int, form: object, content: bytes) -> None:
    frame = form(compression, content)
    assert decompressed(compression, frame, len(content)) == content
    for most in (len(content) - 1, 65_537, 65_536, 65_535, 1, 0):
        with pytest.raises(LargerError):
            decompressed(compression, frame, most)


@EACH
@pytest.mark.parametrize("form", FORMS)
def test_a_bomb_takes_no_more_memory_than_the_limit(compression: int, form: object) -> None:
    bomb = form(compression, bytes(64 << 20))
    before = pa.total_allocated_bytes()
    stage = Stage()
    with pytest.raises(LargerError):
        decompress(compression, array(bomb), magic=2, max_bytes=1 << 20, stage=stage)
    assert pa.total_allocated_bytes() - before < 5 << 20


@pytest.mark.parametrize("size", [1 << 28, 1 << 40, (1 << 64) - 1])
def test_memory_is_not_allocated_for_a_size_that_is_only_stated(size: int) -> None:
    last_block_of_a_byte = b"\x09\0\0a"
    frame = b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + last_block_of_a_byte
    with pytest.raises(CorruptRecordError):
        decompressed(ZSTD, frame, max_bytes=1 << 30)
    descriptor = b"\x68\x40" + size.to_bytes(8, "little")
    frame = (
        b"\x04\x22\x4d\x18" + descriptor + bytes([header_checksum(descriptor)]) + b"\1\0\0\x80a" + bytes(4)
    )
    with pytest.raises(CorruptRecordError):
        decompressed(LZ4, frame, max_bytes=1 << 30)


@pytest.mark.parametrize("change", [-250, -100, -1, 1, 5])
def test_stated_sizes_that_are_lies_are_corrupt(change: int) -> None:
    zstd = bytearray(with_size(ZSTD, bytes(range(250))))
    assert zstd[5] == 250
    zstd[5] += change
    lz4 = bytearray(with_size(LZ4, bytes(range(250))))
    lz4[6] += change
    lz4[14] = header_checksum(bytes(lz4[4:14]))
    with pytest.raises(CorruptRecordError, match="Cannot decompress zstd"):
        decompressed(ZSTD, bytes(zstd))
    if lz4[6] == 0:  # which is unknown in lz4
        assert decompressed(LZ4, bytes(lz4)) == bytes(range(250))
        return
    with pytest.raises(CorruptRecordError, match="Cannot decompress lz4"):
        decompressed(LZ4, bytes(lz4))


def test_what_was_staged_stays_before_a_frame_that_is_streamed() -> None:
    """Some of it is staged at first, as only the end of the frame shows that more follows."""
    stage = Stage()
    for content in (WORDS, RANDOM, WORDS):
        frames = without_size(LZ4, content) * 2
        decompress(LZ4, array(frames), magic=2, max_bytes=MOST, stage=stage)
    assert stage.data.tobytes() == WORDS * 2 + RANDOM * 2 + WORDS * 2


@pytest.mark.parametrize(
    ("at", "byte"), [(4, 0x40), (4, 0x64), (4, 0x70), (5, 0x50), (5, 0x70)], ids=lambda value: hex(value)
)
def test_lz4_in_forms_that_no_producer_writes(at: int, byte: int) -> None:
    """Dependent blocks, checksums of content and blocks, larger blocks: the stream reads or refuses them."""
    frame = bytearray(without_size(LZ4, WORDS))
    frame[at] = byte
    frame[6] = header_checksum(bytes(frame[4:6]))
    with pytest.raises(ValueError, match="producers"):
        decompress_frame(array(bytes(frame)), Stage(), MOST)
    try:
        expected = streamed(LZ4, bytes(frame))
    except OSError:
        with pytest.raises(CorruptRecordError):
            decompressed(LZ4, bytes(frame))
    else:
        assert decompressed(LZ4, bytes(frame)) == expected == WORDS


@pytest.mark.parametrize("form", FORMS)
def test_lz4_as_producers_make_it_is_not_streamed(form: object) -> None:
    stage = Stage()
    decompress_frame(array(form(LZ4, WORDS + RANDOM)), stage, MOST)
    assert stage.data.tobytes() == WORDS + RANDOM


@pytest.mark.parametrize("size", [0, -1, 4 + (1 << 16), 1 << 30])
def test_lz4_blocks_of_impossible_sizes_are_corrupt(size: int) -> None:
    for stored in (0, 0x80000000):
        block = struct.pack("<I", (size & 0x7FFFFFFF) | stored)
        frame = b"\x04\x22\x4d\x18\x60\x40\x82" + block + b"abcd" + bytes(4)
        with pytest.raises(CorruptRecordError):
            decompressed(LZ4, frame)


@given(st.binary(max_size=15))
def test_the_checksum_of_lz4_headers_is_that_of_xxhash(descriptor: bytes) -> None:
    assert header_checksum(descriptor) == xxhash.xxh32(descriptor).intdigest() >> 8 & 0xFF


def test_our_lz4_frames_decompress_elsewhere() -> None:
    for content in (b"", b"a", WORDS, RANDOM):
        assert streamed(LZ4, compress_frame(array(content))) == content
