"""The encoder's batches, field by field, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.format import MAX_HEADERS
from pyspark_kafkalog.codec.walk import Batches, check_batch, walk
from pyspark_kafkalog.errors import InvalidRecordError, RecordTooLargeError
from pyspark_kafkalog.model import Encoded, EncodeSettings, OffsetRange, TopicPartition
from tests.codec.strategies import COMPRESSIONS, HEADERS, Row, arrow_batch

HERE = TopicPartition("here", 3)
COLUMNS = pa.schema({"offset": pa.int64(), "headers": HEADERS})


def encoded(rows: list[Row], chosen: list[int] | None = None, **settings: object) -> tuple[Encoded, Batches]:
    numbers = None if chosen is None else np.array(chosen, np.int64)
    result = encode(arrow_batch(rows), numbers, EncodeSettings(**settings), topic_partition=HERE)
    batches = walk(result.data)
    assert batches.end == result.data.size
    assert len(batches) == len(result.sizes)
    assert all(check_batch(result.data, position) for position in batches.position.tolist())
    return result, batches


def plain(count: int, size: int = 10) -> list[Row]:
    return [Row(None, b"v" * size, None, 1000 + i) for i in range(count)]


def test_header_fields():
    rows = [Row(b"k", b"v", None, t) for t in (5000, 7000, 6000)]
    result, batches = encoded(rows)
    assert (result.records, len(result.sizes)) == (3, 1)
    assert batches.base_offset.tolist() == [0]
    assert batches.last_offset.tolist() == [2]
    assert batches.base_timestamp.tolist() == [5000]
    assert batches.max_timestamp.tolist() == [7000]
    assert batches.magic.tolist() == [2]
    assert batches.attributes.tolist() == [0]
    assert batches.count.tolist() == [3]
    assert (batches.producer_id[0], batches.producer_epoch[0], batches.base_sequence[0]) == (-1, -1, -1)
    assert batches.leader_epoch.tolist() == [-1]


def test_bytes_are_those_of_kafka_python():
    rows = [
        Row(b"key", b"value", [("a", b"1"), ("a", None), ("", b"")], 1_600_000_000_000),
        Row(None, b"x" * 1000, None, 1_599_999_999_000),
        Row(b"", None, [], 1_600_000_000_001),
    ]
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for offset, row in enumerate(rows):
        builder.append(offset, row.timestamp, row.key, row.value, row.headers or [])
    theirs = bytearray(builder.build())
    theirs[12:16] = (-1).to_bytes(4, "big", signed=True)  # leader epoch: they write 0, Java -1
    assert encoded(rows)[0].data.tobytes() == bytes(theirs)


def test_batches_are_as_full_as_batch_size_allows():
    result, batches = encoded(plain(1000), batch_size=500)
    assert (batches.size <= 500).all()
    one_more = batches.size[0] // batches.count[0]
    assert (batches.size[:-1] + one_more > 500 - 2).all()
    assert batches.base_offset.tolist() == (np.cumsum(batches.count) - batches.count).tolist()
    assert batches.count.sum() == result.records == 1000


def test_record_larger_than_batch_size_has_its_own_batch():
    rows = [*plain(2), Row(None, b"l" * 5000, None, 1), *plain(2)]
    _, batches = encoded(rows, batch_size=200)
    assert batches.count.tolist() == [2, 1, 2]
    assert batches.max_timestamp.tolist() == [1001, 1, 1001]


def test_chosen_rows_in_their_order():
    rows = [Row(None, b"%d" % i, None, i) for i in range(10)]
    result, _ = encoded(rows, [7, 2, 2, 9])
    records = [r.value for batch in kafka_python_batches(result) for r in batch]
    assert records == [b"7", b"2", b"2", b"9"]


def kafka_python_batches(result: Encoded):
    records = MemoryRecords(result.data.tobytes())
    while (batch := records.next_batch()) is not None:
        yield batch


@pytest.mark.parametrize("chosen", [[], None])
def test_no_rows(chosen):
    for compression in COMPRESSIONS:
        result, _ = encoded([], chosen, compression=compression)
        assert (result.data.size, result.records, len(result.sizes)) == (0, 0, 0)


def test_only_value_and_timestamp_are_needed():
    records = pa.RecordBatch.from_pydict({"timestamp": pa.array([7]), "value": pa.array(["text"])})
    result = encode(records, None, EncodeSettings(), topic_partition=HERE)
    (batch,) = kafka_python_batches(result)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in batch] == [(None, b"text", [], 7)]


@pytest.mark.parametrize("start", [0, 1, 3, 8, 9])
def test_slices_of_longer_columns(start):
    rows = [
        Row(
            None if i % 3 == 0 else b"k%d" % i,
            None if i % 4 == 0 else b"v%d" % i,
            None if i % 5 == 0 else [(f"h{j}", None if j % 2 else b"%d" % i) for j in range(i % 4)],
            i,
        )
        for i in range(20)
    ]
    sliced = arrow_batch(rows).slice(start, 9)
    ours = encode(sliced, None, EncodeSettings(), topic_partition=HERE)
    whole = encode(arrow_batch(rows[start : start + 9]), None, EncodeSettings(), topic_partition=HERE)
    assert ours.data.tobytes() == whole.data.tobytes()


def test_producer_fields_and_sequence_wrap():
    _, batches = encoded(
        plain(3), batch_size=0, producer_id=77, producer_epoch=5, base_sequence=2**31 - 2, transactional=True
    )
    assert batches.producer_id.tolist() == [77] * 3
    assert batches.producer_epoch.tolist() == [5] * 3
    assert batches.base_sequence.tolist() == [2**31 - 2, 2**31 - 1, 0]
    assert batches.is_transactional.all()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compression_is_in_the_attributes_and_pays(compression):
    result, batches = encoded(plain(1000, 100), compression=compression, batch_size=16384)
    assert batches.compression.tolist() == [COMPRESSIONS.index(compression)] * len(result.sizes)
    if compression != "none":
        assert result.data.size < 50_000


@pytest.mark.parametrize("timestamp", [-2, -(2**63)])
def test_negative_timestamp(timestamp):
    with pytest.raises(InvalidRecordError, match=r"Timestamp -.* is negative.*here-3"):
        encoded([*plain(1), Row(None, b"", None, timestamp)])


def test_null_timestamp():
    records = pa.RecordBatch.from_pydict({"timestamp": pa.array([None], pa.int64()), "value": [b"v"]})
    with pytest.raises(InvalidRecordError, match="null timestamp"):
        encode(records, None, EncodeSettings(), topic_partition=HERE)


@pytest.mark.parametrize("headers", [[{"key": None, "value": b"v"}], [{"key": "k", "value": b""}, None]])
def test_null_header(headers):
    records = pa.RecordBatch.from_pydict(
        {"timestamp": [1], "value": [b"v"], "headers": pa.array([headers], HEADERS)}
    )
    with pytest.raises(InvalidRecordError, match="header that is null"):
        encode(records, None, EncodeSettings(), topic_partition=HERE)


def test_batch_over_max_message_bytes():
    largest = encoded([Row(None, b"v" * 1000, None, 1)])[0].data.size
    encoded([Row(None, b"v" * 1000, None, 1)], max_message_bytes=largest)
    with pytest.raises(
        RecordTooLargeError, match=rf"{largest} bytes.*max.message.bytes = {largest - 1}.*here-3"
    ):
        encoded([Row(None, b"v" * 1000, None, 1)], max_message_bytes=largest - 1)
    encoded([Row(None, b"v" * 1000, None, 1)], max_message_bytes=largest - 1, compression="zstd")


def test_the_row_that_is_too_large_is_named():
    rows = [Row(b"a", b"v", None, 1), Row(b"large", b"v" * 1000, None, 1), Row(None, b"v" * 2000, None, 1)]
    with pytest.raises(RecordTooLargeError, match=r"largest record has 1\d{3} bytes and the key b'large'"):
        encoded(rows[:2], max_message_bytes=900)
    with pytest.raises(RecordTooLargeError, match=r"2\d{3} bytes and no key, as row 2 of 3"):
        encoded(rows, max_message_bytes=900, batch_size=500)


@pytest.mark.parametrize(
    ("rows", "hint"),
    [
        ([Row(None, b"v" * 2000, None, 1)], r"Raise the option max\.message\.bytes\.$"),
        (plain(3, 900), "Raise the option max.message.bytes, or lower batch.size "),
    ],
)
def test_a_smaller_batch_helps_no_single_record(rows: list[Row], hint: str) -> None:
    with pytest.raises(RecordTooLargeError) as raised:
        encoded(rows, max_message_bytes=1500)
    assert re.match(hint, raised.value.hint or "")


def test_more_headers_than_readers_take_are_refused() -> None:
    keys = pa.repeat("k", MAX_HEADERS + 2)
    values = pa.nulls(len(keys), pa.binary())
    fields = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
    headers = pa.StructArray.from_arrays([keys, values], fields=fields)
    for ends, is_refused in (([1, MAX_HEADERS + 1], False), ([0, MAX_HEADERS + 1], True)):
        records = pa.record_batch(
            {
                "value": pa.array([b"a", b"b"], pa.binary()),
                "headers": pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), headers),
                "timestamp": pa.array([1, 1]),
            }
        )
        settings = EncodeSettings(max_message_bytes=1 << 30)
        if is_refused:
            with pytest.raises(InvalidRecordError, match=rf"{MAX_HEADERS + 1} headers.*here-3"):
                encode(records, None, settings, topic_partition=HERE)
        else:
            data = encode(records, None, settings, topic_partition=HERE).data
            rows = decode(data, topic_partition=HERE, offsets=OffsetRange(0, 2), visible=None, schema=COLUMNS)
            assert sum(found.arrow_batch.num_rows for found in rows) == 2


@pytest.mark.parametrize("row", [-1, 2])
def test_row_that_does_not_exist(row):
    with pytest.raises(IndexError):
        encoded(plain(2), [0, row])


def test_columns_of_other_types():
    records = pa.RecordBatch.from_pydict({"timestamp": pa.array([1]), "value": pa.array([1])})
    with pytest.raises(TypeError, match="binary"):
        encode(records, None, EncodeSettings(), topic_partition=HERE)
