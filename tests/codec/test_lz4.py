"""Sizes of LZ4 frames, found without decompressing them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.compression import decompress
from pyspark_kafkalog.codec.format import LZ4
from pyspark_kafkalog.codec.lz4 import UNKNOWN, compress_frame, frame_size
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
