"""Encode rows of an Arrow batch as v2 record batches (Kafka's ``DefaultRecordBatch``)."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec import write_kernels as kernels
from pyspark_kafkalog.codec.buffers import allocate, binary_column, int64_column, list_column
from pyspark_kafkalog.codec.checksums import crc32c
from pyspark_kafkalog.codec.compression import compress
from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_V2,
    COMPRESSION_NAMES,
    CRC_V2,
    LOG_OVERHEAD,
    MAX_HEADERS,
    NO_TIMESTAMP,
    NONE,
    RECORDS_V2,
    SIZE,
    TRANSACTIONAL_BIT,
)
from pyspark_kafkalog.errors import InvalidRecordError, RecordTooLargeError
from pyspark_kafkalog.model import Encoded, EncodeSettings, TopicPartition

_Columns: TypeAlias = tuple[Any, Any, Any, Any, Any, Any]
_NO_HEADERS = (binary_column(pa.nulls(0, pa.binary())),) * 2
_SHOWN_BYTES = 50
"""The bytes of a key that an error shows."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def encode(
    records: pa.RecordBatch,
    rows: np.ndarray | None,
    settings: EncodeSettings,
    *,
    topic_partition: TopicPartition,
) -> Encoded:
    """Encode the given rows, in the given order, as record batches.

    :param records: columns ``timestamp`` (int64, milliseconds, -1 for none), ``value`` and
        optionally ``key`` (binary or string), and optionally ``headers``
        (list<struct<key: string, value: binary>>). Other columns are ignored.
    :param rows: int64 row numbers; None stands for all rows.
    :param topic_partition: where the records go, only named in errors.
    :return: batches whose base offsets count from 0; baseOffset and partitionLeaderEpoch
        lie outside the CRC, so that the append can set them.
    :raises InvalidRecordError: for a null or negative timestamp, or one that the topic does not take, a null
        header or header key, more headers than readers take, and a null key if it is needed.
    :raises RecordTooLargeError: for a batch over ``max_message_bytes``.
    """
    columns = _columns(records, topic_partition)
    if rows is None:
        rows = np.arange(records.num_rows, dtype=np.int64)
    if settings.needs_keys:
        _check_keys(records, rows, topic_partition)
    if settings.timestamps is not None:
        _check_timestamps(records, rows, *settings.timestamps, topic_partition)
    record_sizes, starts, sizes = (np.empty(rows.size, np.int64) for _ in range(3))
    _check_headers(columns[2], rows, topic_partition)
    status, count = kernels.plan(*columns, rows, settings.batch_size, record_sizes, starts, sizes)
    if status != kernels.OK:
        raise _refused(status, int(rows[count]), records, topic_partition)
    starts, sizes = starts[:count], sizes[:count]
    compression = COMPRESSION_NAMES.index(settings.compression)

    def check_sizes() -> None:
        if count and sizes.max() > settings.max_message_bytes:
            batch, ends = int(sizes.argmax()), [*starts[1:], rows.size]
            of_records = record_sizes[starts[batch] : ends[batch]]
            largest = int(rows[starts[batch] + of_records.argmax()])
            raise RecordTooLargeError(
                f"A record batch of {sizes.max()} bytes exceeds {settings.limit} ="
                f" {settings.max_message_bytes}: its largest record has {of_records.max()} bytes"
                f" and {_key_of(records, largest)}",
                topic_partition=topic_partition,
                hint=f"Raise {settings.limit}"
                + ("." if of_records.size == 1 else ", or lower batch.size (brokers: kafka.batch.size)."),
            )

    if compression == NONE:
        check_sizes()
    attributes = compression | (TRANSACTIONAL_BIT if settings.transactional else 0)
    data = allocate(int(sizes.sum()))
    kernels.fill(
        *columns,
        rows,
        record_sizes,
        starts,
        sizes,
        attributes,
        settings.producer_id,
        settings.producer_epoch,
        settings.base_sequence,
        data,
    )
    plain_sizes = sizes
    if compression != NONE:
        data, sizes = _compressed(data, sizes, compression, settings.level)
        check_sizes()
    positions = np.cumsum(sizes) - sizes
    if settings.checksums:
        put_checksums(data, positions, sizes)
    else:
        kernels.put_ints(data, positions + CRC_V2, np.zeros_like(positions), 4)
    counts = np.diff(np.append(starts, rows.size))
    return Encoded(data, rows.size, positions, sizes, counts, plain_sizes)


def _key_of(records: pa.RecordBatch, row: int) -> str:
    """The name of a row in errors: its key, or at least its place."""
    key = records.column("key")[row].as_py() if "key" in records.schema.names else None
    return f"no key, as row {row} of {records.num_rows}" if key is None else f"the key {key[:_SHOWN_BYTES]!r}"


def put_checksums(data: np.ndarray, positions: np.ndarray, sizes: np.ndarray) -> None:
    """Compute and store the CRC of each v2 batch, given where they begin in ``data`` and their sizes."""
    crcs = [
        crc32c(data[position + ATTRIBUTES_V2 : position + size])
        for position, size in zip(positions.tolist(), sizes.tolist(), strict=True)
    ]
    kernels.put_ints(data, positions + CRC_V2, np.array(crcs, np.int64), 4)


def _compressed(
    data: np.ndarray, sizes: np.ndarray, compression: int, level: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The batches with compressed records, and their new sizes."""
    parts: list[np.ndarray] = []
    new_sizes = np.empty_like(sizes)
    position = 0
    for i, size in enumerate(sizes.tolist()):
        records = np.frombuffer(
            compress(compression, data[position + RECORDS_V2 : position + size], level), np.uint8
        )
        parts += (data[position : position + RECORDS_V2], records)
        new_sizes[i] = RECORDS_V2 + records.size
        position += size
    joined = np.concatenate(parts) if parts else data
    positions = np.cumsum(new_sizes) - new_sizes
    kernels.put_ints(joined, positions + SIZE, new_sizes - LOG_OVERHEAD, 4)
    return joined, new_sizes


def _columns(records: pa.RecordBatch, topic_partition: TopicPartition) -> _Columns:
    """``records`` as the first arguments of the kernels."""
    names = records.schema.names
    timestamps = records.column("timestamp")
    if timestamps.null_count:
        raise InvalidRecordError("A row has a null timestamp", topic_partition=topic_partition)
    key = records.column("key") if "key" in names else pa.nulls(records.num_rows, pa.binary())
    headers = records.column("headers") if "headers" in names else pa.nulls(records.num_rows, _HEADERS)
    return (
        binary_column(key),
        binary_column(records.column("value")),
        list_column(headers),
        *_header_columns(headers, topic_partition),
        int64_column(timestamps),
    )


def _check_headers(lists: Any, rows: np.ndarray, topic_partition: TopicPartition) -> None:
    """Refuse a record with more headers than readers take."""
    ends = lists[0]
    if ends[-1] - ends[0] <= MAX_HEADERS:
        return
    counts = np.diff(ends)[rows]
    if counts.size and counts.max() > MAX_HEADERS:
        raise InvalidRecordError(
            f"A row has {counts.max()} headers, and a reader takes at most {MAX_HEADERS}",
            topic_partition=topic_partition,
            hint="Put them into the value.",
        )


def _check_keys(records: pa.RecordBatch, rows: np.ndarray, topic_partition: TopicPartition) -> None:
    """Refuse records without a key, as Kafka's LogValidator does: compaction would drop them."""
    if "key" not in records.schema.names or records.column("key").take(pa.array(rows)).null_count:
        raise InvalidRecordError(
            "A row has no key, but cleanup.policy is compact",
            topic_partition=topic_partition,
            hint="Give each row a key, or take compact out of the topic's cleanup.policy, or the option's.",
        )


def _check_timestamps(
    records: pa.RecordBatch, rows: np.ndarray, least: int, greatest: int, topic_partition: TopicPartition
) -> None:
    """Refuse records that are too old or too new, as Kafka's LogValidator does; -1 stands for none."""
    found = int64_column(records.column("timestamp"))[rows]
    outside = found[((found < least) | (found > greatest)) & (found != NO_TIMESTAMP)]
    if outside.size:
        side = "before" if outside[0] < least else "after"
        raise InvalidRecordError(
            f"Timestamp {outside[0]} is outside of {least} to {greatest}, which the topic takes now",
            topic_partition=topic_partition,
            hint=f"Correct it, or raise the topic's message.timestamp.{side}.max.ms.",
        )


def _header_columns(headers: pa.ListArray, topic_partition: TopicPartition) -> tuple[Any, Any]:
    """Keys and values of the headers of all records."""
    if headers.null_count == len(headers):
        return _NO_HEADERS
    used = headers.flatten()
    if used.null_count or used.field("key").null_count:
        raise InvalidRecordError(
            "A row has a header that is null or whose key is null",
            topic_partition=topic_partition,
            hint="Give it a key, or leave it out: in Spark with filter(headers, h -> h.key IS NOT NULL).",
        )
    return binary_column(headers.values.field("key")), binary_column(headers.values.field("value"))


def _refused(status: int, row: int, records: pa.RecordBatch, topic_partition: TopicPartition) -> Exception:
    if status == kernels.BAD_TIMESTAMP:
        timestamp = records.column("timestamp")[row].as_py()
        return InvalidRecordError(
            f"Timestamp {timestamp} is negative",
            topic_partition=topic_partition,
            hint="Give milliseconds since 1970, or -1 for none.",
        )
    if status == kernels.RECORD_TOO_LARGE:
        return RecordTooLargeError("A record is larger than 2 GiB", topic_partition=topic_partition)
    return IndexError(f"Expected a row number below {records.num_rows}, got {row}")
