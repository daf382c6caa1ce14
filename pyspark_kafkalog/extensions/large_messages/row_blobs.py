"""Packs many rows into one binary value, which PySpark shuffles and keeps as state at the cost of one row.

PySpark hands the rows of a key to Python through pandas, about 20,000 a second. So the rows
of a partition travel as *blobs*: arrow IPC streams without ``topic`` and ``partition``, which
are columns of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import int64_column
from pyspark_kafkalog.errors import InvalidRecordError
from pyspark_kafkalog.garbage import freeze_modules
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.spark.worker import short_errors

BLOB_BYTES = 16 * 2**20
"""The most bytes of rows in a blob. A larger single row gets a blob of its own."""

_TYPES = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint", pa.binary(): "binary"}


def ddl(schema: pa.Schema) -> str:
    """``schema`` in Spark's DDL."""
    return ", ".join(f"{field.name} {_TYPES[field.type]}" for field in schema)


PACKED_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("rows", pa.binary()),
    ]
)
"""The columns of packed rows."""
PACKED = ddl(PACKED_SCHEMA)
_KEYS = ("topic", "partition")


class Blob(NamedTuple):
    """Rows of one partition in offset order, and the offsets that they span."""

    first_offset: int
    last_offset: int
    rows: bytes


@short_errors
def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut each batch of rows into blobs, each of one partition and in offset order.

    :raises InvalidRecordError: for a row without topic, partition or offset, and for a duplicate.
    """
    for batch in batches:
        found = [(partition, encoded(rows)) for partition, rows in _by_partition(_with_small_types(batch))]
        if found:
            columns = [
                [partition.topic for partition, _ in found],
                [partition.partition for partition, _ in found],
                [blob.first_offset for _, blob in found],
                [blob.last_offset for _, blob in found],
                [blob.rows for _, blob in found],
            ]
            yield pa.record_batch(
                [pa.array(values, field.type) for values, field in zip(columns, PACKED_SCHEMA, strict=True)],
                schema=PACKED_SCHEMA,
            )
    freeze_modules()


def encoded(rows: pa.RecordBatch) -> Blob:
    """``rows``, at least one, in offset order, as a blob."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return Blob(int(rows.column("offset")[0].as_py()), _last_offset(rows), sink.getvalue().to_pybytes())


def decoded(rows: bytes | pa.Buffer) -> pa.RecordBatch:
    """The rows of a blob, without a copy."""
    with pa.ipc.open_stream(pa.py_buffer(rows)) as reader:
        return reader.read_next_batch()


def in_offset_order(
    blobs: Iterable[Blob], partition: TopicPartition
) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
    """The rows of all blobs of a partition, sorted by first offset; rows of overlapping blobs are merged.

    Rows that are those of a single blob come with that blob. Only overlapping blobs are buffered.

    :raises InvalidRecordError: for a duplicate row.
    """
    buffered: tuple[pa.RecordBatch, bytes | None] | None = None
    for blob in blobs:
        rows = decoded(blob.rows)
        if buffered is not None and _last_offset(buffered[0]) < blob.first_offset:
            yield buffered
            buffered = None
        if buffered is None:
            buffered = rows, blob.rows
            continue
        merged = _sorted(pa.concat_batches([buffered[0], rows]), partition)
        ready = int(np.searchsorted(int64_column(merged.column("offset")), blob.first_offset))
        if ready:
            yield merged.slice(0, ready), None
        buffered = merged.slice(ready), None
    if buffered is not None:
        yield buffered


def pieces(rows: pa.RecordBatch, most_bytes: int = BLOB_BYTES) -> Iterator[pa.RecordBatch]:
    """``rows`` in slices of at most ``most_bytes``, or of one row."""
    if rows.num_rows < 2 or rows.nbytes <= most_bytes:
        yield rows
        return
    half = rows.num_rows // 2
    yield from pieces(rows.slice(0, half), most_bytes)
    yield from pieces(rows.slice(half), most_bytes)


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The rows of each partition, in offset order, without ``topic`` and ``partition``, cut to size."""
    if not batch.num_rows:
        return
    for name in (*_KEYS, "offset"):
        if batch.column(name).null_count:
            raise InvalidRecordError(f"A row has a null {name!r}, which reassemble needs")
    topics = batch.column("topic").dictionary_encode()
    numbers = batch.column("partition")
    rows = batch.drop_columns(list(_KEYS))
    codes = topics.indices.to_numpy().astype(np.int64) << 32 | numbers.to_numpy()
    if (codes == codes[0]).all():
        bounds = [0, rows.num_rows]
    else:
        order = np.lexsort((int64_column(rows.column("offset")), codes))
        rows = rows.take(pa.array(order))
        codes = codes[order]
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), rows.num_rows]
    for start, end in itertools.pairwise(bounds):
        code = int(codes[start])
        partition = TopicPartition(topics.dictionary[code >> 32].as_py(), code & 0xFFFFFFFF)
        for piece in pieces(_sorted(rows.slice(start, end - start), partition)):
            yield partition, piece


def _sorted(rows: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
    steps = np.diff(int64_column(rows.column("offset")))
    if (steps > 0).all():
        return rows
    rows = rows.take(pc.sort_indices(rows.column("offset")))
    offsets = int64_column(rows.column("offset"))
    twice = np.flatnonzero(np.diff(offsets) == 0)
    if twice.size:
        raise InvalidRecordError(
            "A record occurs twice in the input",
            topic_partition=partition,
            offset=int(offsets[twice[0]]),
            hint="Pass each record to reassemble once, as the source reads it.",
        )
    return rows


def _last_offset(rows: pa.RecordBatch) -> int:
    return int(rows.column("offset")[-1].as_py())


def _with_small_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with the types that it has without ``spark.sql.execution.arrow.useLargeVarTypes``."""
    small = pa.schema([(field.name, _small(field.type)) for field in batch.schema])
    return batch if small.types == batch.schema.types else batch.cast(small)


def _small(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_small(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_small(field.type)) for field in kind])
    return kind
