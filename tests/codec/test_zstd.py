"""Sizes of zstd frames, found without decompressing them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.compression import compress, decompress
from pyspark_kafkalog.codec.format import ZSTD
from pyspark_kafkalog.codec.lz4 import UNKNOWN
from pyspark_kafkalog.codec.zstd import frame_size
from pyspark_kafkalog.errors import CorruptRecordError
from tests.codec import strategies
from tests.codec.joining import joined
from tests.codec.strategies import plain


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def frame(data: np.ndarray) -> np.ndarray:
    return array(compress(ZSTD, data))


def streamed(data: np.ndarray) -> np.ndarray:
    """A frame as Java's producer makes it, which doesn't say its content's size."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(pa.py_buffer(data))
        stream.flush()
    return array(sink.getvalue().to_pybytes())


@given(strategies.runs)
def test_the_size_of_a_frame_is_that_of_its_content(runs: list[tuple[bytes, int]]) -> None:
    assert frame_size(frame(plain(runs))) == plain(runs).size


@pytest.mark.parametrize("size", [0, 255, 256, 65_791, 65_792, 1 << 17, 3_000_000])
@pytest.mark.parametrize("seed", [None, 1])
def test_every_width_of_the_size_and_kind_of_block_is_understood(size: int, seed: int | None) -> None:
    data = np.zeros(size, np.uint8)
    if seed is not None:
        data[:] = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    assert frame_size(frame(data)) == size


def test_what_is_not_one_frame_that_tells_its_size_is_streamed() -> None:
    data = array(b"some words " * 1000)
    told, untold = frame(data), streamed(data)
    skippable = array(b"\x50\x2a\x4d\x18\x02\0\0\0ab")
    for parts in ([untold], [told, told], [told, untold], [skippable, told], [told, skippable]):
        joined = np.concatenate(parts)
        assert frame_size(joined) == UNKNOWN
        times = sum(part is not skippable for part in parts)
        assert decompress(ZSTD, joined, magic=2, max_bytes=1 << 20).tobytes() == data.tobytes() * times


@pytest.mark.parametrize("change", [-1, 1, 200])
def test_a_size_that_is_a_lie_is_corrupt(change: int) -> None:
    data = frame(np.arange(250, dtype=np.uint8)).copy()
    assert data[5] == 250
    data[5] = (250 + change) % 256
    assert frame_size(data) == data[5]
    with pytest.raises(CorruptRecordError, match="Cannot decompress zstd"):
        decompress(ZSTD, data, magic=2, max_bytes=1 << 20)


def test_sizes_that_lie_are_noticed_even_if_their_sum_is_right() -> None:
    def lying(size: int, told: int) -> bytes:
        data = frame(np.arange(size, dtype=np.uint8)).copy()
        assert data[5] == size
        data[5] = told
        return data.tobytes()

    assert joined(ZSTD, [lying(100, 100), lying(200, 200)]) == [bytes(range(100)), bytes(range(200))]
    for first, second in ((101, 199), (99, 201), (200, 100), (100, 199), (100, 201)):
        assert joined(ZSTD, [lying(100, first), lying(200, second)]) is None


def test_frames_that_do_not_tell_their_size_end_the_join() -> None:
    told, untold = (kind(array(b"some words " * 1000)).tobytes() for kind in (frame, streamed))
    assert joined(ZSTD, [told, untold, told]) == [b"some words " * 1000]
    assert joined(ZSTD, [untold, told]) is None
    assert joined(ZSTD, [told + told, told]) is None


def test_a_size_that_no_such_frame_can_have_is_not_believed() -> None:
    content = b"\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\0\0"
    assert frame_size(array(b"\x28\xb5\x2f\xfd" + content)) == UNKNOWN


@given(strategies.runs, st.data())
@settings(max_examples=300)
def test_of_a_hurt_frame_the_content_is_as_pyarrow_streams_it_or_refused(
    runs: list[tuple[bytes, int]], chance: st.DataObject
) -> None:
    hurt = frame(plain(runs)).copy()
    for _ in range(chance.draw(st.integers(1, 3))):
        hurt[chance.draw(st.integers(0, min(20, hurt.size - 1)))] = chance.draw(st.integers(0, 255))
    hurt = hurt[: chance.draw(st.integers(0, hurt.size))]
    try:
        found = decompress(ZSTD, hurt, magic=2, max_bytes=1 << 20).tobytes()
    except CorruptRecordError:
        return
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(hurt)), "zstd") as stream:
        assert stream.read() == found
