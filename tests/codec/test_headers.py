"""Records with more headers than any memory holds: a few KB can be made to decompress to them."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import DecodeLimits, decode
from pyspark_kafkalog.codec.format import MAX_HEADERS, ZSTD
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import TopicPartition
from tests.codec.decoding import ALL_COLUMNS, FOREVER, rows
from tests.codec.raw import batch, record, varint

_HEADERS = pa.schema([("headers", ROW_TYPES["headers"])])


def record_of(headers: int, *, delta: int = 0) -> bytes:
    """A record of ``count`` empty headers, 2 bytes each."""
    body = b"\0\0" + varint(delta) + b"\1\1" + varint(headers) + bytes(2 * headers)
    return varint(len(body)) + body


@pytest.mark.parametrize("schema", [ALL_COLUMNS, pa.schema([("offset", pa.int64())])])
def test_a_record_has_a_million_headers_at_most(schema: pa.Schema) -> None:
    (row,) = rows(batch([record_of(MAX_HEADERS)], compression=ZSTD), schema=schema)
    assert len(row.get("headers", range(MAX_HEADERS))) == MAX_HEADERS
    bomb = batch([record(b"before"), record_of(MAX_HEADERS + 1, delta=1)], compression=ZSTD)
    left_out: list[CorruptRecordError] = []
    after = batch([record(b"after")], base_offset=2)
    (row,) = rows(bomb + after, schema=schema, on_corrupt=left_out.append)
    assert row["offset"] == 2
    assert [error.offset for error in left_out] == [0]
    with pytest.raises(CorruptRecordError, match=r"Record 1 .* has more than 1048576 headers"):
        rows(bomb, schema=schema)


def test_arrow_batches_are_cut_by_headers_too() -> None:
    data = batch([record_of(MAX_HEADERS // 2, delta=delta) for delta in range(5)], compression=ZSTD)
    decoded = decode(
        data,
        topic_partition=TopicPartition("t", 0),
        offsets=FOREVER,
        visible=None,
        schema=_HEADERS,
        limits=DecodeLimits(max_bytes=1 << 30),
    )
    assert [arrow_batch.num_rows for arrow_batch, _ in decoded] == [2, 2, 1]


_SCRIPT = """
import resource, sys
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.codec.format import MAX_HEADERS, ZSTD
from tests.codec.decoding import ALL_COLUMNS, FOREVER
from tests.codec.raw import batch
from tests.codec.test_headers import record_of
from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.model import TopicPartition

many = int(sys.argv[1])
data = batch([record_of(many, delta=d) for d in range(120_000_000 // many)], compression=ZSTD)
assert len(data) < 1_000_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = 0
try:
    for arrow_batch, _ in decode(
        data, topic_partition=TopicPartition("t", 0), offsets=FOREVER, visible=None, schema=ALL_COLUMNS
    ):
        found += arrow_batch.num_rows
except CorruptRecordError:
    pass
assert (found == 0) == (many > MAX_HEADERS)
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("many", [120_000_000, 1_000_000, 1000])
def test_what_some_kilobytes_can_fill_is_bounded(many: int) -> None:
    """120 million headers in 240 MB, in a batch of 8 to 500 KB."""
    command = [sys.executable, "-c", _SCRIPT, str(many)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    _, most = map(int, run.stdout.split())
    assert most < 1_000_000  # KiB, of which making the batch took 0.6 GB
