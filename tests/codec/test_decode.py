from __future__ import annotations

import struct
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.compression import compress
from pyspark_kafkalog.codec.decode import Decoded, DecodeLimits, decode, first_record_at
from pyspark_kafkalog.codec.format import LZ4
from pyspark_kafkalog.codec.isolation import Visibility
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.errors import CorruptRecordError, OptionError
from pyspark_kafkalog.model import AbortedTransaction, OffsetRange, Origin, TopicPartition
from tests.codec.decoding import ALL_COLUMNS, FOREVER, WITHOUT_TIMESTAMP, rows
from tests.codec.raw import batch, marker, message, record, values, varint

PARTITION = TopicPartition("topic", 3)
OFFSETS = pa.schema([("offset", pa.int64())])


def decoded(buffer: Any, offsets: OffsetRange = FOREVER, **options: Any) -> list[Decoded]:
    options = {"visible": None, "schema": OFFSETS, **options}
    return list(decode(buffer, topic_partition=PARTITION, offsets=offsets, **options))


def offsets_of(batches: list[Decoded]) -> list[list[int]]:
    return [d.arrow_batch.column("offset").to_pylist() for d in batches]


def flat(batches: list[Decoded]) -> list[int]:
    return [offset for offsets in offsets_of(batches) for offset in offsets]


def test_a_row_has_what_the_record_has() -> None:
    headers = [(b"a", b"1"), (b"", None), (b"a", b"")]
    data = batch(
        [
            record(b"v", key=b"k", timestamp_delta=7, headers=headers),
            record(None, key=b"", delta=2, timestamp_delta=-1),
            record(b"", delta=3),
        ],
        base_offset=40,
        base_timestamp=1000,
        last_offset_delta=9,
    )
    common = {"topic": "topic", "partition": 3, "timestampType": 0}
    assert rows(data, PARTITION) == [
        {
            **common,
            "key": b"k",
            "value": b"v",
            "offset": 40,
            "timestamp": datetime.fromtimestamp(1.007, timezone.utc),
            "headers": [
                {"key": "a", "value": b"1"},
                {"key": "", "value": None},
                {"key": "a", "value": b""},
            ],
        },
        {
            **common,
            "key": b"",
            "value": None,
            "offset": 42,
            "timestamp": datetime.fromtimestamp(0.999, timezone.utc),
            "headers": None,
        },
        {
            **common,
            "key": None,
            "value": b"",
            "offset": 43,
            "timestamp": datetime.fromtimestamp(1, timezone.utc),
            "headers": None,
        },
    ]


@pytest.mark.parametrize("buffer", [bytes, memoryview, pa.py_buffer, bytearray])
def test_any_buffer_is_read(buffer: Any) -> None:
    assert offsets_of(decoded(buffer(values(3)))) == [[0, 1, 2]]


@pytest.mark.parametrize(
    "columns", [["value"], ["headers", "offset"], ["timestampType", "key", "topic"], list(ROW_TYPES)[::-1]]
)
def test_the_columns_asked_for_are_built_in_their_order(columns: list[str]) -> None:
    schema = pa.schema([pa.field(name, ROW_TYPES[name], nullable=name != "offset") for name in columns])
    data = values(3, base_offset=5) + values(2, base_offset=8, compression=3)
    (found,) = decoded(data, schema=schema)
    assert found.arrow_batch.schema.equals(schema, check_metadata=True)
    found.arrow_batch.validate(full=True)
    whole = decoded(data, schema=ALL_COLUMNS)[0].arrow_batch
    assert all(found.arrow_batch.column(name).equals(whole.column(name)) for name in columns)


def test_a_column_that_cannot_be_built_is_refused() -> None:
    for field in (pa.field("value", pa.large_binary()), pa.field("other", pa.binary())):
        with pytest.raises(OptionError, match=field.name):
            decoded(values(1), schema=pa.schema([field]))


def test_log_append_time_gives_every_record_the_greatest_timestamp() -> None:
    data = batch([record(b"", timestamp_delta=5)], attributes=8, max_timestamp=-1)
    (row,) = rows(data)
    assert (row["timestamp"].timestamp(), row["timestampType"]) == (-0.001, 1)


def test_header_keys_that_are_not_utf8_are_shown_as_java_shows_them() -> None:
    keys = [b"good", b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xed\xa0x"]
    data = batch([record(b"", headers=[(key, None) for key in keys])])
    (row,) = rows(data)
    assert [header["key"] for header in row["headers"]] == ["good", "�", "a�", "�", "�x"]


def test_progress_comes_from_headers() -> None:
    empty = batch([], base_offset=3, last_offset_delta=6, count=0, base_timestamp=-1)
    compacted = batch([record(b"", delta=1)], base_offset=20, last_offset_delta=9)
    data = values(3) + empty + compacted + marker(1, commit=True, offset=30)
    batches = decoded(data)
    assert offsets_of(batches) == [[0, 1, 2, 21], []]
    assert [d.next_offset for d in batches] == [30, 31]
    assert decoded(empty)[-1].next_offset == 10
    assert decoded(b"") == decoded(values(3)[:-1]) == []


def test_records_outside_the_range_are_dropped() -> None:
    data = values(10) + values(10, base_offset=10, compression=4) + values(10, base_offset=20)
    batches = decoded(data, OffsetRange(7, 12))
    assert offsets_of(batches) == [[7, 8, 9, 10, 11]]
    assert batches[-1].next_offset == 12
    assert offsets_of(decoded(data, OffsetRange(20, 25))) == [[20, 21, 22, 23, 24]]
    assert decoded(data, OffsetRange(30, 40)) == []


def test_batches_outside_the_range_are_not_looked_into() -> None:
    bad = bytearray(values(10))
    bad[-1] ^= 1
    data = bytes(bad) + values(10, base_offset=10) + bytes(bad)
    assert offsets_of(decoded(data, OffsetRange(10, 20))) == [list(range(10, 20))]


@pytest.mark.parametrize("compression", [0, 3])
@pytest.mark.parametrize("max_rows", [1, 3, 10, 25, 60, 1000])
def test_arrow_batches_have_at_most_max_rows(max_rows: int, compression: int) -> None:
    data = b"".join(values(20, base_offset=20 * i, compression=compression) for i in range(5))
    batches = decoded(data, limits=DecodeLimits(max_rows=max_rows))
    assert max(map(len, offsets_of(batches))) <= max_rows
    assert flat(batches) == list(range(100))
    assert [d.next_offset for d in batches] == [of[-1] + 1 for of in offsets_of(batches)]
    if max_rows >= 20:
        assert all(d.next_offset % 20 == 0 for d in batches)


@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("max_bytes", [1, 99, 1000, 2500, 100_000])
def test_arrow_batches_have_at_most_max_bytes(max_bytes: int, compression: int) -> None:
    data = b"".join(values(20, base_offset=20 * i, size=100, compression=compression) for i in range(5))
    batches = decoded(data, limits=DecodeLimits(max_bytes=max_bytes), schema=ALL_COLUMNS)
    for arrow_batch, _ in batches:
        assert arrow_batch.num_rows == 1 or 100 * arrow_batch.num_rows <= max_bytes
    assert flat(batches) == list(range(100))


def test_a_giant_record_has_a_batch_of_its_own() -> None:
    records = [record(bytes(size), delta=i) for i, size in enumerate([10, 100_000, 10])]
    batches = decoded(batch(records), limits=DecodeLimits(max_bytes=1000))
    assert offsets_of(batches) == [[0], [1], [2]]


def test_timestamps_that_spark_cannot_hold_are_an_error_where_they_are_asked_for() -> None:
    most = 9_223_372_036_854_775
    for timestamp in (most + 1, -most - 1, (1 << 63) - 1):
        first = values(2)
        data = first + batch([record(b"")], base_offset=2, base_timestamp=timestamp)
        got = []
        with pytest.raises(CorruptRecordError, match="KAFKA_MALFORMED_RECORD_TIMESTAMP") as e:
            got.extend(
                decode(data, topic_partition=PARTITION, offsets=FOREVER, visible=None, schema=ALL_COLUMNS)
            )
        assert (e.value.offset, e.value.position) == (2, len(first))
        assert len(rows(data, schema=WITHOUT_TIMESTAMP)) == 3
    for timestamp in (most, -most):
        (found,) = decoded(batch([record(b"")], base_timestamp=timestamp), schema=ALL_COLUMNS)
        assert found.arrow_batch.column("timestamp").cast(pa.int64()).to_pylist() == [timestamp * 1000]


# Bodies that Kafka's DefaultRecord and DefaultRecordBatch refuse, in batches whose CRC is right.
RANDOM = np.random.default_rng(0).integers(0, 255, 1000, dtype=np.uint8)
GOOD = record(b"value", key=b"key", headers=[(b"h", b"v")])
INVALID: dict[str, bytes] = {
    "more records than counted": batch([GOOD, record(b"", delta=1)], count=1),
    "fewer records than counted": batch([GOOD], count=2),
    "count of -1": batch([GOOD], count=-1),
    "count of 0 with bytes": batch([GOOD], count=0),
    "count of 2^31-1": batch([GOOD], count=2**31 - 1),
    "bytes after the records": batch([GOOD + b"\0"], count=1),
    "record longer than its fields": batch([varint(20) + GOOD[1:] + bytes(3)]),
    "record shorter than its fields": batch([varint(len(GOOD) - 2) + GOOD[1:]]),
    "negative record length": batch([varint(-5) + GOOD[1:]]),
    "record length beyond the batch": batch([varint(2**30) + GOOD[1:]]),
    "record length of 6 bytes": batch([b"\x80\x80\x80\x80\x80\x01" + GOOD]),
    "timestamp delta of 11 bytes": batch([varint(16) + b"\0" + b"\x80" * 10 + b"\x01" + bytes(4)]),
    "key beyond the record": batch([varint(6) + b"\0\0\0" + varint(50) + bytes(2)]),
    "value beyond the record": batch([varint(6) + b"\0\0\0\1" + varint(50) + b"\0"]),
    "key of 2^31-1": batch([varint(10) + b"\0\0\0" + varint(2**31 - 1, bits=32) + bytes(2)]),
    "negative header count": batch([varint(6) + b"\0\0\0\1\1\1"]),
    "more headers than bytes": batch([varint(6) + b"\0\0\0\1\1" + varint(9)]),
    "null header key": batch([varint(8) + b"\0\0\0\1\1\2\1\1"]),
    "header value beyond the record": batch([varint(8) + b"\0\0\0\1\1\2\0" + varint(9)]),
    "offset delta above the last": batch([record(b"", delta=1)], last_offset_delta=0),
    "negative offset delta": batch([record(b"", delta=-1)], last_offset_delta=5),
    "offsets that do not rise": batch([record(b"", delta=1)] * 2, last_offset_delta=5),
    "unknown compression": batch([], count=1, attributes=5, body=b"x"),
    "bytes that are not gzip": batch([], count=1, attributes=1, body=b"no gzip at all"),
    "a compressed batch without records that says it has none": batch([GOOD], count=0, compression=4),
    "fewer compressed records than counted": batch([GOOD], count=2, compression=2),
    "compressed records cut short": batch([], count=1, attributes=3, body=compress(LZ4, RANDOM)[:-100]),
}


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID.keys())
@pytest.mark.parametrize("max_rows", [1, 100])
def test_invalid_records_are_refused_with_their_place(data: bytes, max_rows: int) -> None:
    before, after = values(3), values(2, base_offset=20)
    data = before + struct.pack(">q", 10) + data[8:]
    got = []
    with pytest.raises(CorruptRecordError) as e:
        got.extend(
            decode(
                data + after,
                topic_partition=PARTITION,
                offsets=FOREVER,
                visible=None,
                schema=OFFSETS,
                limits=DecodeLimits(max_rows=max_rows),
                origin=Origin("file.log", 1000),
            )
        )
    assert flat(got) == [0, 1, 2]
    assert (e.value.topic_partition, e.value.offset) == ("topic-3", 3)
    assert (e.value.file, e.value.position) == ("file.log", 1000 + len(before))

    left_out: list[CorruptRecordError] = []
    batches = decoded(data + after, on_corrupt=left_out.append)
    assert flat(batches) == [0, 1, 2, 20, 21]
    assert [error.position for error in left_out] == [len(before)]
    assert f"Skipped {len(data) - len(before)} bytes" in str(left_out[0])


def test_checksums_are_verified_unless_told_otherwise() -> None:
    data = bytearray(values(3))
    data[-5] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        decoded(data)
    assert offsets_of(decoded(data, limits=DecodeLimits(check_crcs=False))) == [[0, 1, 2]]


def test_bytes_that_are_not_a_batch_are_refused_or_left_out() -> None:
    data = values(3) + b"\7" * 100 + values(2, base_offset=9)
    with pytest.raises(CorruptRecordError) as e:
        decoded(data)
    assert (e.value.offset, e.value.position) == (3, len(values(3)))
    assert offsets_of(decoded(data, OffsetRange(0, 3))) == [[0, 1, 2]]
    left_out: list[CorruptRecordError] = []
    assert flat(decoded(data, on_corrupt=left_out.append)) == [0, 1, 2, 9, 10]
    assert [error.position for error in left_out] == [len(values(3))]
    left_out.clear()
    assert offsets_of(decoded(values(3) + b"\7" * 100, on_corrupt=left_out.append)) == [[0, 1, 2]]
    assert len(left_out) == 1


def test_every_other_batch_may_be_left_out() -> None:
    good, bad = [values(2, base_offset=4 * i) for i in range(300)], []
    for i in range(300):
        bad.append(bytearray(values(2, base_offset=4 * i + 2)))
        bad[i][-1] ^= 1
    data = b"".join(good[i] + bad[i] for i in range(300)) + bytes(bad[0]) * 2
    left_out: list[CorruptRecordError] = []
    batches = decoded(data, on_corrupt=left_out.append)
    assert flat(batches) == [4 * i + j for i in range(300) for j in range(2)]
    size = len(good[0])
    assert [error.position for error in left_out] == [size * (2 * i + 1) for i in range(300)]
    assert f"Skipped {3 * size} bytes" in str(left_out[-1])


def test_a_batch_inside_the_value_of_damaged_ones_is_not_resurrected() -> None:
    inside = values(2, base_offset=100)
    damaged = bytearray(batch([record(inside)], base_offset=3))
    damaged[-1] ^= 1
    for times in (1, 2):
        for after in (values(2, base_offset=4), b"", values(2, base_offset=4)[:30]):
            batches = decoded(values(3) + bytes(damaged) * times + after, on_corrupt=lambda _: None)
            assert flat(batches) == [0, 1, 2] + ([4, 5] if len(after) > 30 else [])


def test_damage_whose_size_reaches_past_the_end_hides_nothing_behind_it() -> None:
    damaged = [bytearray(values(2, base_offset=offset)) for offset in (0, 2, 4)]
    for each in damaged[:2]:
        each[-1] ^= 1
    struct.pack_into(">i", damaged[2], 8, 100_000)
    left_out: list[CorruptRecordError] = []
    data = b"".join(damaged) + values(2, base_offset=6)
    assert flat(decoded(data, on_corrupt=left_out.append)) == [6, 7]
    assert left_out


def test_offsets_of_batches_must_rise() -> None:
    def error(data: bytes, offsets: OffsetRange = FOREVER) -> int | None:
        with pytest.raises(CorruptRecordError, match="do not rise") as e:
            decoded(data, offsets)
        return e.value.position

    size = len(values(3))
    again = values(3) + values(3, base_offset=3) + values(3, base_offset=1)
    assert error(again) == 2 * size
    leap = values(3) + values(3, base_offset=1 << 40) + values(3, base_offset=6)
    assert error(leap) == error(leap, OffsetRange(0, 9)) == size
    kept = decoded(leap, OffsetRange(0, 9), on_corrupt=lambda _: None)
    assert flat(kept) == [0, 1, 2, 6, 7, 8]
    assert offsets_of(decoded(leap, OffsetRange(0, 3))) == [[0, 1, 2]]


def test_a_leap_below_the_range_hides_nothing() -> None:
    leap = values(3, base_offset=1 << 40)
    rest = values(3, base_offset=6) + values(3, base_offset=9)
    for data in (leap + rest, values(3) + leap + rest):
        with pytest.raises(CorruptRecordError, match="do not rise") as e:
            decoded(data, OffsetRange(9, 12))
        assert e.value.position == data.index(leap)
        assert flat(decoded(data, OffsetRange(9, 12), on_corrupt=lambda _: None)) == [9, 10, 11]


def test_aborted_batches_and_markers_are_not_rows_for_read_committed() -> None:
    transactional = 0x10
    data = (
        values(2, base_offset=0, producer_id=1, attributes=transactional)
        + values(2, base_offset=2, producer_id=2, attributes=transactional)
        + values(2, base_offset=4)
        + marker(1, commit=False, offset=6)
        + values(2, base_offset=7, producer_id=1, attributes=transactional)
        + marker(2, commit=True, offset=9)
        + marker(1, commit=True, offset=10)
    )
    for last_offset in (6, None):
        visible = Visibility([AbortedTransaction(1, 0, last_offset)])
        batches = decoded(data, visible=visible)
        assert flat(batches) == [2, 3, 4, 5, 7, 8]
        assert batches[-1].next_offset == 11
    assert flat(decoded(data)) == [0, 1, 2, 3, 4, 5, 7, 8]


def test_an_emptied_marker_ends_its_transaction() -> None:
    transactional = 0x10
    emptied = batch([], base_offset=2, last_offset_delta=0, count=0, attributes=0x30, producer_id=1)
    data = emptied + values(2, base_offset=3, producer_id=1, attributes=transactional)
    visible = Visibility([AbortedTransaction(1, 0)])
    assert flat(decoded(data, visible=visible)) == [3, 4]


def test_formats_may_change_inside_a_buffer() -> None:
    data = (
        message(b"a", magic=0)
        + message(b"b", offset=1, attributes=8)
        + values(2, base_offset=2)
        + message(b"c", offset=9, magic=1)
    )
    assert [(row["offset"], row["timestampType"]) for row in rows(data)] == [
        (0, -1),
        (1, 1),
        (2, 0),
        (3, 0),
        (9, 0),
    ]


def test_first_record_at_looks_at_records_and_markers() -> None:
    def find(timestamp: int, min_offset: int = 0, data: bytes = b"") -> tuple[int, int] | None:
        return first_record_at(
            data or whole, timestamp=timestamp, min_offset=min_offset, topic_partition=PARTITION
        )

    records = [record(b"", delta=i, timestamp_delta=delta) for i, delta in enumerate([5, 0, 9, 7])]
    first = batch(records, base_timestamp=100, max_timestamp=109)
    second = batch(records, base_timestamp=90, max_timestamp=99, base_offset=4, compression=2)
    whole = first + second + marker(1, commit=True, offset=8)
    assert find(0) == (0, 105)
    assert find(106) == (2, 109)
    assert find(0, 1) == (1, 100)
    assert find(90, 4) == (4, 95)
    assert find(98, 4) == (6, 99)
    assert find(110) == (8, 1_700_000_000_000)
    assert find(1 << 60) is None
    damaged = first[:-1] + b"\1" + second
    with pytest.raises(CorruptRecordError, match="CRC"):
        find(100, data=damaged)
    assert find(91, 4, damaged) == (4, 95)
