"""LZ4 frames: measured without decompressing them, and joined to be decompressed at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.compression import decompress
from pyspark_kafkalog.codec.format import LZ4
from pyspark_kafkalog.codec.lz4 import (
    UNKNOWN,
    compress_frame,
    frame_size,
    frame_sizes,
    header_checksum,
)
from pyspark_kafkalog.errors import CorruptRecordError
from tests.codec import strategies
from tests.codec.joining import MOST, consecutive, joined
from tests.codec.strategies import plain


def without_content_size(frame: bytes) -> bytes:
    """The same frame as Java's producer makes it."""
    return frame[:4] + b"\x60\x40\x82" + frame[15:]


@given(strategies.runs)
def test_the_size_of_a_frame_is_that_of_its_content(runs: list[tuple[bytes, int]]) -> None:
    data = plain(runs)
    told = np.frombuffer(compress_frame(data), np.uint8)
    untold = np.frombuffer(without_content_size(told.tobytes()), np.uint8)
    assert frame_size(told, MOST) == data.size
    assert frame_size(untold, MOST) == (data.size if untold.size >= 15 else UNKNOWN)


@given(strategies.runs, st.data())
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
        (MOST, MOST, [1000, 5000, 300]),
        (MOST, 4999, [1000]),
        (6000, MOST, [1000, 5000]),
        (1000, MOST, [1000]),
        (0, MOST, []),
    ],
)
def test_frames_are_measured_until_it_is_enough(enough: int, most: int, expected: list[int]) -> None:
    parts = [compress_frame(np.zeros(1000, np.uint8))]
    parts += [without_content_size(compress_frame(np.zeros(size, np.uint8))) for size in (5000, 300)]
    parts += [b"\xff" * 50, parts[0]]
    sizes = np.full(5, -7)
    count = frame_sizes(*consecutive(parts), most, enough, sizes)
    assert sizes[:count].tolist() == expected
    assert (sizes[count:] == -7).all()


@given(st.lists(st.tuples(strategies.runs, st.booleans()), min_size=1, max_size=8))
def test_joined_frames_give_what_each_gives(contents: list[tuple[list[tuple[bytes, int]], bool]]) -> None:
    expected = [plain(runs).tobytes() for runs, _ in contents]
    frames = [compress_frame(plain(runs)) for runs, _ in contents]
    frames = [
        frame if told or not content else without_content_size(frame)
        for frame, content, (_, told) in zip(frames, expected, contents, strict=True)
    ]
    assert joined(LZ4, frames) == expected


def test_content_sizes_that_lie_are_noticed_even_if_their_sum_is_right() -> None:
    def lying(content: bytes, size: int) -> bytes:
        frame = bytearray(compress_frame(np.frombuffer(content, np.uint8)))
        frame[6:14] = size.to_bytes(8, "little")
        frame[14] = header_checksum(np.frombuffer(bytes(frame), np.uint8), 4, 14)
        return bytes(frame)

    assert joined(LZ4, [lying(b"a" * 100, 100), lying(b"a" * 200, 200)]) == [b"a" * 100, b"a" * 200]
    for first, second in ((101, 199), (99, 201), (200, 100), (100, 199), (100, 201), (0, 300)):
        assert joined(LZ4, [lying(b"a" * 100, first), lying(b"a" * 200, second)]) is None


@pytest.mark.parametrize("what", ["flags", "block code", "block size", "header checksum", "more", "less"])
def test_frames_of_an_unusual_form_are_not_joined(what: str) -> None:
    good = compress_frame(plain([(b"abcdefgh", 100)]))
    frame = bytearray(good)
    if what == "flags":
        frame[4] = 0x48  # dependent blocks
    elif what == "block code":
        frame[5] = 0x50  # up to 256 KiB
    elif what == "block size":
        frame[15:19] = (1 << 20).to_bytes(4, "little")
    elif what == "header checksum":
        frame[14] ^= 1
    elif what == "more":
        frame += b"\0"
    else:
        del frame[-1]
    if what in ("flags", "block code"):
        frame[14] = header_checksum(np.frombuffer(bytes(frame), np.uint8), 4, 14)
    assert joined(LZ4, [good]) is not None
    assert joined(LZ4, [good, bytes(frame)]) is None
