"""Rows as encoded record batches: columns checked and cast, rows routed, record batches filled."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_kafkalog import extensions
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.errors import RecordTooLargeError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.sinks import TaskSink
from pyspark_kafkalog.options.times import in_other_unit
from pyspark_kafkalog.write.splitting import AsTheyAre, Divided, RecordSplitter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyspark_kafkalog.write.counting import CountsRows
    from pyspark_kafkalog.write.routing import Router

_LEAST_BUFFERED, _MOST_BUFFERED = 1 << 20, 32 << 20
"""Bytes of rows that a task buffers, at least and at most: it touches new memory for them."""
_MOST_ENCODED = 1 << 16
"""The most rows that are encoded at once by formats."""
_FILLS_A_BATCH = 256 << 10
"""Rows of this many bytes fill record batches by themselves."""

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
RECORD = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", _HEADERS),
        pa.field("timestamp", pa.int64()),
    ]
)
"""The columns that the encoder takes."""


def to_records(rows: pa.RecordBatch, *, now_ms: int) -> pa.RecordBatch:
    """The columns key, value, headers and timestamp (int64, ms) of ``rows``, as the encoder takes them.

    A null or missing timestamp becomes ``now_ms``; microseconds are rounded down.
    """
    columns = [
        _column(rows, name, kind) for name, kind in zip(RECORD.names[:3], RECORD.types[:3], strict=True)
    ]
    return pa.RecordBatch.from_arrays([*columns, _timestamps(rows, now_ms)], schema=RECORD)


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


def write_rows(
    arrow_batches: Iterable[pa.RecordBatch],
    router: Router,
    sink: TaskSink[object],
    *,
    splitter: RecordSplitter | None = None,
    count: CountsRows | None = None,
) -> int | None:
    """Encode all rows into ``sink``; rows of one partition keep their order.

    Some rows are buffered, so that record batches fill up even if many partitions share a task.

    :param splitter: splits large values into message segments, all of one message in one partition.
    :param count: counts the rows of each partition, before they are split.
    :return: a timestamp of a row that looks like one in another unit, if there is any.
    :raises InvalidRecordError: for a row that can't be a record.
    :raises RecordTooLargeError: for a row above the largest record batch that the sink takes.
    """
    doubtful = None
    for rows in _buffered(arrow_batches, router.bytes_that_fill):
        records = to_records(rows, now_ms=time.time_ns() // 1_000_000)
        if doubtful is None and "timestamp" in rows.schema.names:
            doubtful = _doubtful_time(records.column("timestamp").to_numpy())
        if records.column("headers").null_count < records.num_rows:
            records = extensions.without_reader_headers(records)
        split: Divided = AsTheyAre(records) if splitter is None else splitter.split(records)
        for partition, chosen in router.route(rows, records if router.has_partitioner else split.whole):
            if count is not None:
                count.attempted(partition, records, chosen)
            for part, wanted in split.of(chosen, partition):
                settings = sink.settings(partition)
                if settings.is_compacted:
                    split.check_uncut(chosen, partition)
                try:
                    encoded = encode(part, wanted, settings, topic_partition=partition)
                except RecordTooLargeError as e:
                    raise _too_large(e, partition, is_split=splitter is not None) from None
                sink.append(partition, encoded)
        sink.advance()
    return doubtful


def _doubtful_time(timestamps: NDArray[np.int64]) -> int | None:
    """The lowest or the highest timestamp, if it looks like one in another unit."""
    ends = int(timestamps.min()), int(timestamps.max())
    return next((each for each in ends if in_other_unit(each) is not None), None)


def _too_large(error: RecordTooLargeError, partition: TopicPartition, *, is_split: bool) -> Exception:
    if is_split:
        more = "Lower max.message.segment.bytes: each message segment also holds key and headers."
    else:
        more = "Or split large values: set large.message.enabled=true."
    hint = f"{error.hint} {more}" if error.hint else more
    return RecordTooLargeError(error.message, topic_partition=partition, hint=hint)


def _buffered(
    arrow_batches: Iterable[pa.RecordBatch], bytes_that_fill: Callable[[], int]
) -> Iterator[pa.RecordBatch]:
    buffered: list[pa.RecordBatch] = []
    size, enough = 0, -1
    for arrow_batch in chain.from_iterable(map(_slices, arrow_batches)):
        if enough < 0:
            enough = min(max(bytes_that_fill(), _LEAST_BUFFERED), _MOST_BUFFERED)
        if arrow_batch.nbytes > arrow_batch.num_rows * _FILLS_A_BATCH:
            if buffered:
                yield _joined(buffered)
            yield arrow_batch
            buffered, size = [], 0
            continue
        buffered.append(arrow_batch)
        size += arrow_batch.nbytes
        if size >= enough:
            yield _joined(buffered)
            buffered, size = [], 0
    if buffered:
        yield _joined(buffered)


def slices_to_encode(arrow_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in slices that stay small when formats encode them, unless a row is large.

    Escapes take up to six bytes for one, and a boolean of one bit is written with its name.
    """
    return chain.from_iterable(_slices(rows, _MOST_ENCODED) for rows in arrow_batches)


def _slices(rows: pa.RecordBatch, most: int = sys.maxsize) -> Iterator[pa.RecordBatch]:
    """``rows`` in slices of about ``_MOST_BUFFERED`` bytes at most, or of one row; none is empty.

    :param most: rows of a slice.
    """
    count = max(rows.num_rows * _MOST_BUFFERED // max(rows.nbytes, _MOST_BUFFERED), 1)
    count = min(count, most)
    for first in range(0, rows.num_rows, count):
        yield rows.slice(first, count)


def _joined(arrow_batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return arrow_batches[0] if len(arrow_batches) == 1 else pa.concat_batches(arrow_batches)
