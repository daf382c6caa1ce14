"""What is encoded is decoded to the same rows, by this package and by kafka-python."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.model import Encoded, EncodeSettings, OffsetRange, TopicPartition
from tests.codec.strategies import COMPRESSIONS, HEADERS, Row, arrow_batch, as_stored, rows

HERE = TopicPartition("here", 0)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("offset", pa.int64()),
        ("timestampType", pa.int32()),
    ]
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def decoded(result: Encoded) -> tuple[list[Row], int]:
    """All rows, their offsets checked, and the next offset."""
    found: list[Row] = []
    next_offset = 0
    offsets = OffsetRange(0, 2**62)
    for arrow, following in decode(
        result.data, topic_partition=HERE, offsets=offsets, visible=None, schema=SCHEMA
    ):
        for row in arrow.to_pylist():
            assert row["offset"] == len(found)
            assert row["timestampType"] == 0
            headers = row["headers"] and [(h["key"], h["value"]) for h in row["headers"]]
            millis = (row["timestamp"] - EPOCH) // datetime.timedelta(milliseconds=1)
            found.append(Row(row["key"], row["value"], headers, millis))
        next_offset = following
    return found, next_offset


def read_by_kafka_python(result: Encoded) -> list[Row]:
    records = MemoryRecords(result.data.tobytes())
    found = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [Row(r.key, r.value, r.headers or None, r.timestamp) for r in batch]
    return found


@given(st.data())
def test_round_trip(data):
    given_rows = data.draw(st.lists(rows, max_size=30))
    numbers = st.integers(0, len(given_rows) - 1)
    chosen = data.draw(st.none() | st.lists(numbers, max_size=40)) if given_rows else None
    batch_size = data.draw(st.sampled_from([0, 100, 300, 16384]))
    settings = EncodeSettings(data.draw(st.sampled_from(COMPRESSIONS)), batch_size)
    result = encode(
        arrow_batch(given_rows),
        None if chosen is None else np.array(chosen, np.int64),
        settings,
        topic_partition=HERE,
    )
    expected = [as_stored(given_rows[i]) for i in (range(len(given_rows)) if chosen is None else chosen)]
    assert result.records == len(expected)
    assert decoded(result) == (expected, len(expected))
    assert read_by_kafka_python(result) == expected
    if settings.compression == "none":
        batches = walk(result.data)
        assert ((batches.size <= batch_size) | (batches.count == 1)).all()


def test_many_rows_of_many_sizes():
    random = np.random.default_rng(7)
    expected = [
        Row(random.bytes(random.integers(0, 40)), random.bytes(size), None, int(random.integers(0, 2**41)))
        for size in random.integers(0, 3000, 3000)
    ]
    for compression in COMPRESSIONS:
        result = encode(arrow_batch(expected), None, EncodeSettings(compression), topic_partition=HERE)
        assert decoded(result) == (expected, len(expected))
