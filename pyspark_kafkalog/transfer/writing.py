"""From rows to encoded record batches: columns checked and cast, rows routed, record batches filled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.encode import Encoded, EncodeSettings, encode
from pyspark_kafkalog.model import TopicPartition

if TYPE_CHECKING:
    from pyspark_kafkalog.transfer.routing import Router

_LEAST_HELD, _MOST_HELD = 1 << 20, 32 << 20
"""Bytes of rows held back, so that record batches fill up even where many partitions share a task."""

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_RECORD = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", _HEADERS),
        pa.field("timestamp", pa.int64()),
    ]
)


def to_records(rows: pa.RecordBatch, *, now_ms: int) -> pa.RecordBatch:
    """Columns key, value, headers and timestamp (int64, ms) of ``rows``, as the encoder takes them.

    A null or absent timestamp becomes ``now_ms``; microseconds are rounded down.
    """
    columns = [
        _column(rows, name, kind) for name, kind in zip(_RECORD.names[:3], _RECORD.types[:3], strict=True)
    ]
    return pa.RecordBatch.from_arrays([*columns, _timestamps(rows, now_ms)], schema=_RECORD)


def _column(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, kind)
    return rows.column(name).cast(kind)


def _timestamps(rows: pa.RecordBatch, now_ms: int) -> pa.Array:
    if "timestamp" not in rows.schema.names:
        return pa.array(np.full(rows.num_rows, now_ms))
    micros = _column(rows, "timestamp", pa.int64())
    known = micros.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(np.where(known, micros.fill_null(0).to_numpy() // 1000, now_ms))


class RecordBatchSink(Protocol):
    """What takes encoded record batches: a staging file, or brokers."""

    def settings(self, partition: TopicPartition) -> EncodeSettings:
        """How to encode what is to be appended to ``partition`` next."""

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        """Take the record batches, to stand in ``partition`` in the order of the calls."""

    def advance(self) -> None:
        """Called when some rows are appended and others are to come: what can be done without waiting."""


def write_rows(
    arrow_batches: Iterable[pa.RecordBatch],
    router: Router,
    sink: RecordBatchSink,
    *,
    hold: Callable[[], int] = lambda: _MOST_HELD,
) -> None:
    """Encode all rows into ``sink``; rows of one partition keep their order.

    :param hold: how many bytes of rows to encode at a time, about; asked once there are any.
    :raises InvalidRecordError: for a row that can't be a record.
    :raises RecordTooLargeError: for one above the largest record batch that the sink takes.
    """
    for rows in _held(arrow_batches, hold):
        records = to_records(rows, now_ms=time.time_ns() // 1_000_000)
        for partition, chosen in router.route(rows, records):
            settings = sink.settings(partition)
            sink.append(partition, encode(records, chosen, settings, topic_partition=partition))
        sink.advance()


def _held(arrow_batches: Iterable[pa.RecordBatch], hold: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    size, enough = 0, -1
    for arrow_batch in arrow_batches:
        if not arrow_batch.num_rows:
            continue
        if enough < 0:
            enough = min(max(hold(), _LEAST_HELD), _MOST_HELD)
        held.append(arrow_batch)
        size += arrow_batch.nbytes
        if size >= enough:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)
