"""Sizes of LZ4 frames, found without decompressing them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.compression import decompress
from pyspark_kafkalog.codec.format import LZ4
from pyspark_kafkalog.codec.lz4 import UNKNOWN, compress_frame, frame_size, frame_sizes
from pyspark_kafkalog.errors import CorruptRecordError

MOST = 1 << 30
RUNS = st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 300)), max_size=20)


def without_content_size(frame: bytes) -> bytes:
    """The same frame as Java's producer makes it."""
    return frame[:4] + b"\x60\x40\x82" + frame[15:]


def plain(runs: list[tuple[bytes, int]]) -> np.ndarray:
    return np.frombuffer(b"".join(piece * times for piece, times in runs), np.uint8)


@given(RUNS)
def test_the_size_of_a_frame_is_that_of_its_content(runs: list[tuple[bytes, int]]) -> None:
    data = plain(runs)
    told = np.frombuffer(compress_frame(data), np.uint8)
    untold = np.frombuffer(without_content_size(told.tobytes()), np.uint8)
    assert frame_size(told, MOST) == data.size
    assert frame_size(untold, MOST) == (data.size if untold.size >= 15 else UNKNOWN)


@given(RUNS, st.data())
@settings(max_examples=300)
def test_of_a_hurt_frame_the_content_is_as_pyarrow_streams_it_or_refused(
    runs: list[tuple[bytes, int]], chance: st.DataObject
) -> None:
    frame = np.frombuffer(compress_frame(plain(runs)), np.uint8).copy()
    if chance.draw(st.booleans()):
        frame = np.frombuffer(without_content_size(frame.tobytes()), np.uint8).copy()
    for _ in range(chance.draw(st.integers(1, 3))):
        frame[chance.draw(st.integers(0, frame.size - 1))] = chance.draw(st.integers(0, 255))
    frame = frame[: chance.draw(st.integers(0, frame.size))]
    try:
        found = decompress(LZ4, frame, magic=2, max_bytes=1 << 20).tobytes()
    except CorruptRecordError:
        return
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(frame)), "lz4") as stream:
        assert stream.read() == found


def test_a_bomb_is_refused_by_its_size() -> None:
    frame = np.frombuffer(compress_frame(np.zeros(10 << 20, np.uint8)), np.uint8)
    for bomb in (frame, np.frombuffer(without_content_size(frame.tobytes()), np.uint8)):
        assert frame_size(bomb, 1000) > 1000
        with pytest.raises(CorruptRecordError, match="more than 1000 bytes"):
            decompress(LZ4, bomb, magic=2, max_bytes=1000)


@pytest.mark.parametrize(
    ("enough", "most", "expected"),
    [
        (MOST, MOST, [1000, UNKNOWN, 5000, 300]),
        (MOST, 4999, [1000, UNKNOWN, UNKNOWN, 300]),
        (6000, MOST, [1000, UNKNOWN, 5000, -7]),
        (1000, MOST, [1000, -7, -7, -7]),
        (0, MOST, [-7, -7, -7, -7]),
    ],
)
def test_frames_are_measured_until_it_is_enough(enough: int, most: int, expected: list[int]) -> None:
    parts = [compress_frame(np.zeros(1000, np.uint8)), b"\xff" * 50]
    parts += [without_content_size(compress_frame(np.zeros(size, np.uint8))) for size in (5000, 300)]
    bounds = np.cumsum([0, *map(len, parts)])
    sizes = np.full(4, -7)
    data = np.frombuffer(b"".join(parts), np.uint8)
    total = frame_sizes(data, bounds[:-1].copy(), bounds[1:].copy(), most, enough, sizes)
    assert sizes.tolist() == expected
    assert total == sum(size for size in expected if size > 0)


def test_frames_that_are_not_in_the_data_are_not_looked_at() -> None:
    data = np.frombuffer(compress_frame(np.zeros(1000, np.uint8)), np.uint8)
    starts, ends = np.array([-1, 0, 20, 0]), np.array([data.size, data.size + 1, 10, data.size])
    sizes = np.zeros(4, np.int64)
    assert frame_sizes(data, starts, ends, MOST, MOST, sizes) == 1000
    assert sizes.tolist() == [UNKNOWN, UNKNOWN, UNKNOWN, 1000]
