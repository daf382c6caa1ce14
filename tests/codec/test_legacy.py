"""Message sets byte by byte; Kafka's own such tests are in AbstractLegacyRecordBatchTest."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from pyspark_kafkalog.codec import lz4
from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.codec.format import LZ4
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import CorruptRecordError, OversizedRecordError
from pyspark_kafkalog.model import OffsetRange
from tests.codec.decoding import rows
from tests.codec.raw import batch, message, record, values, wrapper
from tests.fixtures_dir import case

COMPRESSIONS = [1, 2, 3]


def inner(magic: int, *offsets: int) -> list[bytes]:
    return [
        message(b"v%d" % i, key=b"k", offset=offset, magic=magic, timestamp=1000 + i)
        for i, offset in enumerate(offsets)
    ]


def read(data: bytes, **options: object) -> list[tuple[int, int, int, bytes | None]]:
    return [
        (row["offset"], round(row["timestamp"].timestamp() * 1000), row["timestampType"], row["value"])
        for row in rows(data, **options)
    ]


def test_messages_that_are_not_compressed() -> None:
    data = (
        message(b"a", offset=3, magic=0, key=b"k")
        + message(None, offset=4, timestamp=5)
        + message(b"", offset=6, timestamp=7, attributes=8)
    )
    assert read(data) == [(3, -1, -1, b"a"), (4, 5, 0, None), (6, 7, 1, b"")]
    assert [row["key"] for row in rows(data)] == [b"k", None, None]
    assert all(row["headers"] is None for row in rows(data))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_offsets_in_a_v0_wrapper_are_the_real_ones(compression: int) -> None:
    data = wrapper(inner(0, 5, 7, 8), offset=8, magic=0, compression=compression)
    assert read(data) == [(5, -1, -1, b"v0"), (7, -1, -1, b"v1"), (8, -1, -1, b"v2")]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_offsets_in_a_v1_wrapper_are_relative(compression: int) -> None:
    data = wrapper(inner(1, 0, 2, 3), offset=108, compression=compression)
    assert read(data) == [(105, 1000, 0, b"v0"), (107, 1001, 0, b"v1"), (108, 1002, 0, b"v2")]
    assert [row[0] for row in read(data, offsets=OffsetRange(106, 108))] == [107]


def test_a_v1_wrapper_of_offset_zero_has_base_zero() -> None:
    assert [row[0] for row in read(wrapper(inner(1, 0, 1, 2), offset=0))] == [0, 1, 2]


def test_the_wrapper_decides_on_log_append_time() -> None:
    appended = wrapper(inner(1, 0, 1), offset=1, attributes=8, timestamp=77)
    assert [row[1:3] for row in read(appended)] == [(77, 1), (77, 1)]
    inside = [message(b"", offset=0, attributes=8, timestamp=5)]
    assert [row[1:3] for row in read(wrapper(inside, offset=0, timestamp=9))] == [(5, 0)]


def test_messages_of_the_other_format_inside_a_wrapper() -> None:
    """KAFKA-4298: converted wrappers held messages that were not converted."""
    assert [row[:3] for row in read(wrapper(inner(0, 0, 1), offset=9))] == [(8, -1, 0), (9, -1, 0)]
    assert [row[:3] for row in read(wrapper(inner(1, 8, 9), offset=9, magic=0))] == [
        (8, 1000, -1),
        (9, 1001, -1),
    ]


def test_wrappers_and_messages_together_within_limits() -> None:
    data = b"".join(
        wrapper(inner(1, 0, 1, 2), offset=4 * i + 2) + message(b"x", offset=4 * i + 3) for i in range(20)
    )
    for limits in (DecodeLimits(), DecodeLimits(max_rows=7), DecodeLimits(max_bytes=100)):
        assert [row[0] for row in read(data, limits=limits)] == list(range(80))


def crc_of(data: bytes) -> bytes:
    """The message with the right CRC."""
    return data[:12] + struct.pack(">I", zlib.crc32(data[16:])) + data[16:]


NESTED = wrapper([wrapper(inner(1, 0), offset=0)], offset=0)
BAD_INNER = bytearray(inner(1, 0)[0])
BAD_INNER[-1] ^= 1
INVALID = {
    "wrapper offset below its last": wrapper(inner(1, 0, 1, 2), offset=1),
    "v0 offsets above the wrapper's": wrapper(inner(0, 5, 9), offset=8, magic=0),
    "offsets that do not rise": wrapper(inner(1, 0, 0), offset=4),
    "nested": NESTED,
    "null value": message(None, attributes=1),
    "empty set": wrapper([], offset=3),
    "a set cut short": wrapper([inner(1, 0)[0][:-1]], offset=3),
    "a record batch inside": wrapper([values(1)], offset=3),
    "bad checksum inside": wrapper([bytes(BAD_INNER)], offset=3),
    "zstd": message(b"(\xb5/\xfd", attributes=4),
    "not gzip": message(b"no gzip", attributes=1),
    "bytes after the value": message(b"v", tail=b"x"),
    "key beyond the message": crc_of(message(b"v")[:26] + struct.pack(">i", 100) + message(b"v")[30:]),
    "value beyond the message": crc_of(message(b"v")[:30] + struct.pack(">i", 2) + message(b"v")[34:]),
    "key of 2^31-1": crc_of(message(b"v")[:26] + struct.pack(">i", 2**31 - 1) + message(b"v")[30:]),
    "key beyond a wrapper": crc_of(NESTED[:26] + struct.pack(">i", 1000) + NESTED[30:]),
}


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID.keys())
@pytest.mark.parametrize("max_rows", [1, 100])
def test_what_kafka_refuses_is_refused(data: bytes, max_rows: int) -> None:
    before = message(b"a", offset=0, magic=data[16])
    offset = int.from_bytes(data[:8], "big")
    shifted = struct.pack(">q", offset + 1) + data[8:] if offset == 0 else data
    left_out: list[CorruptRecordError] = []
    limits = DecodeLimits(max_rows=max_rows)
    got = read(before + shifted + message(b"z", offset=99), on_corrupt=left_out.append, limits=limits)
    assert [row[0] for row in got] == [0, 99]
    assert [error.position for error in left_out] == [len(before)]
    with pytest.raises(CorruptRecordError):
        read(before + shifted, limits=limits)


def test_offsets_in_a_wrapper_are_above_those_before_it() -> None:
    for below in (wrapper(inner(0, 4, 9), offset=9, magic=0), wrapper(inner(1, 0, 5), offset=9)):
        with pytest.raises(CorruptRecordError, match="overlap those before"):
            read(message(b"", offset=4, magic=below[16]) + below)


def test_negative_sizes_are_nulls() -> None:
    data = message(None, key=None)
    negative = crc_of(data[:26] + struct.pack(">ii", -7, -(2**31)))
    assert [(row["key"], row["value"]) for row in rows(negative)] == [(None, None)]


def test_checksums_inside_wrappers_are_verified_unless_told_otherwise() -> None:
    got = read(INVALID["bad checksum inside"], limits=DecodeLimits(check_crcs=False))
    assert [row[0] for row in got] == [3]


@pytest.mark.parametrize(
    "data",
    [wrapper([message(bytes(100_000))], offset=0), batch([record(bytes(100_000))], compression=1)],
    ids=["v1", "v2"],
)
def test_a_bomb_stops_at_the_limit(data: bytes) -> None:
    with pytest.raises(OversizedRecordError, match="more than 10000"):
        read(data, limits=DecodeLimits(max_bytes=1000, max_record_bytes=10_000))


def test_lz4_frames_of_magic_0_have_the_checksum_that_old_clients_expect() -> None:
    frame = lz4.compress_frame(np.arange(1000, dtype=np.uint8))
    old = lz4.with_header_checksum_of_magic_0(frame)
    assert old != frame
    assert lz4.with_right_header_checksum(np.frombuffer(old, np.uint8)).tobytes() == frame
    data = np.frombuffer(next((case("v0-lz4").directory).glob("*-0/*.log")).read_bytes(), np.uint8)
    (position, *_) = walk(data).position[walk(data).compression == LZ4].tolist()
    by_java = data[position : position + 100].tobytes()
    by_java = by_java[by_java.index(frame[:4]) :]
    assert lz4.header_checksum(by_java[:6]) == by_java[6]
