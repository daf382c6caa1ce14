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


def plain(runs: list[tuple[bytes, int]]) -> np.ndarray:
    return np.frombuffer(b"".join(piece * times for piece, times in runs), np.uint8)


@given(RUNS)
@settings(deadline=None)
def test_the_size_of_a_frame_is_that_of_its_content(runs: list[tuple[bytes, int]]) -> None:
    data = plain(runs)
    ours = np.frombuffer(compress_frame(data), np.uint8)
    arrows = np.frombuffer(pa.Codec("lz4").compress(pa.py_buffer(data), asbytes=True), np.uint8)
    assert frame_size(ours, MOST) == data.size
    assert frame_size(arrows, MOST) in (data.size, UNKNOWN)


@given(RUNS, st.data())
@settings(deadline=None, max_examples=300)
def test_of_a_hurt_frame_the_content_is_as_pyarrow_streams_it_or_refused(
    runs: list[tuple[bytes, int]], chance: st.DataObject
) -> None:
    frame = np.frombuffer(compress_frame(plain(runs)), np.uint8).copy()
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
    assert frame_size(frame, 1000) > 1000
    with pytest.raises(CorruptRecordError, match="more than 1000 bytes"):
        decompress(LZ4, frame, magic=2, max_bytes=1000)
