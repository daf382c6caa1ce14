"""Frames that are decompressed in one call give what each of them gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.compression import JOINABLE, compress, decompress
from pyspark_kafkalog.codec.lz4 import UNKNOWN
from tests.codec import strategies
from tests.codec.joining import MOST, consecutive, joined
from tests.codec.strategies import plain

each_compression = pytest.mark.parametrize("compression", JOINABLE)


def frame(compression: int, runs: list[tuple[bytes, int]]) -> bytes:
    return compress(compression, plain(runs))


@each_compression
@given(st.lists(strategies.runs, min_size=1, max_size=8))
def test_whole_frames(compression: int, contents: list[list[tuple[bytes, int]]]) -> None:
    frames = [frame(compression, runs) for runs in contents]
    assert joined(compression, frames) == [plain(runs).tobytes() for runs in contents]


@each_compression
def test_frames_of_several_blocks_are_joined_and_large_ones_end_the_join(compression: int) -> None:
    random = np.random.default_rng(1).integers(0, 256, 200_000, dtype=np.uint8)
    contents = [np.zeros(150_000, np.uint8), random, random[:7]]
    frames = [compress(compression, content) for content in contents]
    assert joined(compression, frames) == [content.tobytes() for content in contents]
    assert joined(compression, frames, enough=150_001) == [content.tobytes() for content in contents[:2]]
    assert joined(compression, frames, most=199_999) == [contents[0].tobytes()]
    assert joined(compression, frames, most=149_999) is None


@each_compression
def test_frames_that_are_not_in_the_data_are_not_looked_at(compression: int) -> None:
    codec = JOINABLE[compression]
    data, *whole = consecutive([compress(compression, np.arange(250, dtype=np.uint8))])
    sizes, room = np.zeros(1, np.int64), np.zeros(data.size + 100, np.uint8)
    assert codec.frame_sizes(data, *whole, MOST, MOST, sizes) == 1
    needed = codec.JOINED + data.size + codec.MARKED + 16
    assert 0 < codec.join_frames(data, *whole, data[:16], room[:needed]) <= needed
    assert codec.join_frames(data, *whole, data[:16], room[: data.size]) == UNKNOWN
    for start, end in ((-1, data.size), (0, data.size + 1), (20, 10)):
        bounds = np.array([start]), np.array([end])
        assert codec.frame_sizes(data, *bounds, MOST, MOST, sizes) == 0
        assert codec.join_frames(data, *bounds, data[:16], room) == UNKNOWN


@each_compression
@given(st.data())
@settings(max_examples=300)
def test_hurt_frames(compression: int, chance: st.DataObject) -> None:
    frames = [frame(compression, chance.draw(strategies.runs)) for _ in range(3)]
    hurt = bytearray(frames[chance.draw(st.integers(0, 2))])
    for _ in range(chance.draw(st.integers(1, 3))):
        hurt[chance.draw(st.integers(0, len(hurt) - 1))] = chance.draw(st.integers(0, 255))
    frames.insert(chance.draw(st.integers(0, 3)), bytes(hurt))
    found = joined(compression, frames, most=1 << 20)
    for each, content in zip(frames, found or (), strict=False):
        alone = np.frombuffer(each, np.uint8)
        assert decompress(compression, alone, magic=2, max_bytes=1 << 20).tobytes() == content
