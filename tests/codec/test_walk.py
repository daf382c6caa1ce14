from __future__ import annotations

import struct
import time

import pytest

from pyspark_kafkalog.codec.walk import WalkStatus, check_batch, find_batch, walk
from pyspark_kafkalog.errors import CorruptRecordError
from tests.codec.raw import batch, message, values, wrapper


def test_an_empty_buffer_has_no_batches() -> None:
    batches = walk(b"")
    assert (len(batches), batches.end, batches.status) == (0, 0, WalkStatus.END)


@pytest.mark.parametrize("cut", range(1, 2 * 83))
def test_a_partial_batch_is_left_unread(cut: int) -> None:
    single = values(2)
    whole, part = divmod(2 * len(single) - cut, len(single))
    batches = walk((single + values(2, base_offset=2))[:-cut])
    assert (len(batches), batches.end) == (whole, whole * len(single))
    assert batches.status == (WalkStatus.INCOMPLETE if part else WalkStatus.END)
    assert batches.needed == (len(single) if part >= 17 else 0)


def with_bytes(data: bytes, position: int, new: bytes) -> bytes:
    return data[:position] + new + data[position + len(new) :]


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 13, 48])
def test_sizes_that_no_batch_has_are_invalid(size: int) -> None:
    batches = walk(with_bytes(values(3), 8, struct.pack(">i", size)))
    assert (len(batches), batches.end, batches.status) == (0, 0, WalkStatus.INVALID)


def test_a_size_beyond_the_buffer_is_incomplete_and_tells_what_is_needed() -> None:
    batches = walk(with_bytes(values(3), 8, struct.pack(">i", 2**31 - 1)))
    assert (batches.status, batches.needed) == (WalkStatus.INCOMPLETE, 2**31 + 11)


@pytest.mark.parametrize("magic", [3, 7, 127, 128, 255])
def test_unknown_magic_is_invalid(magic: int) -> None:
    assert walk(with_bytes(values(3), 16, bytes([magic]))).status == WalkStatus.INVALID


@pytest.mark.parametrize(
    ("base_offset", "last_offset_delta"), [(-1, 0), (-(2**63), 0), (2**63 - 1, 0), (2**63 - 5, 7), (5, -1)]
)
def test_offsets_never_wrap(base_offset: int, last_offset_delta: int) -> None:
    data = batch([], base_offset=base_offset, last_offset_delta=last_offset_delta)
    assert walk(data).status == WalkStatus.INVALID


def test_zeros_are_invalid_and_few_of_them_incomplete() -> None:
    assert walk(bytes(16)).status == WalkStatus.INCOMPLETE
    assert walk(bytes(17)).status == WalkStatus.INVALID


def test_message_sets_walk_with_what_their_headers_tell() -> None:
    inner = [message(b"a", offset=0), message(b"b", offset=1)]
    data = (
        message(b"v0", offset=3, magic=0)
        + wrapper(inner, offset=6, timestamp=7)
        + message(b"v1", offset=9, attributes=8)
    )
    batches = walk(data)
    assert batches.base_offset.tolist() == [3, 4, 9]
    assert batches.last_offset.tolist() == [3, 6, 9]
    assert batches.count.tolist() == [1, -1, 1]
    assert batches.max_timestamp.tolist() == [-1, 7, 1_500_000_000_000]
    assert batches.timestamp_type.tolist() == [-1, 0, 1]
    assert batches.compression.tolist() == [0, 1, 0]


def test_find_batch_passes_over_garbage_bad_checksums_and_low_offsets() -> None:
    bad = bytearray(values(3, base_offset=10))
    bad[-1] ^= 1
    low, wanted = values(2, base_offset=4), values(2, base_offset=13)
    data = b"garbage" + bytes(bad) + low + wanted
    assert find_batch(data, 0) == 7 + len(bad)
    assert find_batch(data, 0, min_offset=5) == 7 + len(bad) + len(low)
    assert find_batch(data, 0, min_offset=14) is None
    assert find_batch(data, len(data)) is None


def test_find_batch_finds_old_formats() -> None:
    for data in (message(b"x", magic=0), message(b"x"), wrapper([message(b"x")], offset=0)):
        assert find_batch(b"\2\1\0" + data, 0) == 3


def test_check_batch_looks_at_one_place_only() -> None:
    data = b"." + values(1)
    assert not check_batch(data, 0)
    assert check_batch(data, 1)
    assert not check_batch(data[:-1], 1)
    assert not check_batch(data, len(data))


def test_the_search_gives_up_on_bytes_made_to_waste_time() -> None:
    header, valid = batch([], last_offset_delta=0), values(1)
    rest = 40_000 * len(header) + len(valid)
    lies = [struct.pack(">i", rest - at * len(header) - 12) for at in range(40_000)]
    data = b"".join(with_bytes(header, 8, lie) for lie in lies) + valid
    assert find_batch(data, 39_000 * len(header)) == 40_000 * len(header)
    assert find_batch(data, 0) is None
    with pytest.raises(CorruptRecordError, match="Gave up the search for a valid record batch") as caught:
        find_batch(data, 0, strict=True)
    assert 0 < (caught.value.position or 0) < len(data)


def test_small_batches_with_wrong_checksums_cost_more_than_their_bytes() -> None:
    bad = message(b"x", magic=0)[:-1] + b"y"
    data = bad * (4_000_000 // len(bad))
    begun = time.process_time()
    assert find_batch(data + values(1), 0) is None
    assert time.process_time() - begun < 1.5


def test_bytes_that_only_begin_like_messages_are_passed_over_fast() -> None:
    """Every sixth position looks like a v0 message of 60 bytes, except for its content."""
    data = bytes.fromhex("00003020ff00") * (2 << 20)
    begun = time.process_time()
    assert find_batch(data + values(1), 0, strict=True) == len(data)
    assert time.process_time() - begun < 1
