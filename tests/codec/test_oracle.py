"""The same bytes through kafka-python's record classes, a reader that shares nothing with ours.

Left out is what it reads wrongly: markers that compaction emptied, and a record's attributes as a varint
(no log has any).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from kafka import codec as peer
from kafka.record import MemoryRecords

from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.codec.format import NO_TIMESTAMP, NO_TIMESTAMP_TYPE
from tests.codec.decoding import ALL_COLUMNS, FOREVER, WITHOUT_TIMESTAMP, segments, topic_partition
from tests.fixtures_dir import CASES, Case

NEEDED = {"gzip": peer.has_gzip, "snappy": peer.has_snappy, "lz4": peer.has_lz4, "zstd": peer.has_zstd}


def theirs(data: bytes, *, timestamps: bool) -> list[tuple[Any, ...]]:
    return [
        (
            record.offset,
            (NO_TIMESTAMP if record.timestamp is None else record.timestamp) if timestamps else None,
            NO_TIMESTAMP_TYPE if record.timestamp_type is None else record.timestamp_type,
            record.key,
            record.value,
            list(record.headers) or None,
        )
        for batch in MemoryRecords(data)
        if not getattr(batch, "is_control_batch", False)
        for record in batch
    ]


def ours(data: bytes, partition: str, *, timestamps: bool) -> list[tuple[Any, ...]]:
    rows = []
    for arrow_batch, _ in decode(
        data,
        topic_partition=topic_partition(partition),
        offsets=FOREVER,
        visible=None,
        schema=ALL_COLUMNS if timestamps else WITHOUT_TIMESTAMP,
    ):
        times: list[Any] = [None] * arrow_batch.num_rows
        if timestamps:
            times = [us // 1000 for us in arrow_batch.column("timestamp").cast(pa.int64()).to_pylist()]
        for row, time in zip(arrow_batch.to_pylist(), times, strict=True):
            headers = row["headers"] and [(header["key"], header["value"]) for header in row["headers"]]
            rows.append((row["offset"], time, row["timestampType"], row["key"], row["value"], headers))
    return rows


@pytest.mark.parametrize("case", [c for c in CASES if not c.damaged], ids=lambda case: case.name)
def test_kafka_python_reads_the_same(case: Case) -> None:
    for compression in case.entry["codecs"]:
        if not NEEDED.get(compression, lambda: True)():
            pytest.skip(f"kafka-python needs another package for {compression}")
    if "lz4" in case.entry["codecs"] and "v0" in case.entry["formats"] and peer.xxhash is None:
        pytest.skip("kafka-python needs xxhash for the lz4 of magic 0")
    timestamps = case.name != "v2-times"
    for partition in case.partitions:
        for segment in segments(case, partition):
            expected = theirs(segment, timestamps=timestamps)
            assert ours(segment, partition, timestamps=timestamps) == expected
