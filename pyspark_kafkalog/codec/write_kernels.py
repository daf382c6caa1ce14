"""Compiled writing: plan and fill v2 record batches, stamp their headers, hash keys.

The rows of an Arrow batch are written in two passes over the same arrays: the
first finds the size of each batch and record, the second fills a buffer of exactly
that size. Nothing is raised or allocated here (see :mod:`.kernel`).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy import int64, uint32

from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_V2,
    BASE_SEQUENCE_V2,
    BASE_TIMESTAMP_V2,
    COUNT_V2,
    DELETE_HORIZON_BIT,
    LAST_OFFSET_DELTA_V2,
    LEADER_EPOCH_V2,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP_V2,
    OFFSET,
    PRODUCER_EPOCH_V2,
    PRODUCER_ID_V2,
    RECORDS_V2,
    SIZE,
)
from pyspark_kafkalog.codec.kernel import copy_bytes, inlined, kernel
from pyspark_kafkalog.codec.signature import (
    BYTES,
    INT32S,
    INT64,
    INT64S,
    OUT_BYTES,
    OUT_INT32,
    OUT_INT64,
)

ColumnBuffers: TypeAlias = tuple[np.ndarray, ...]

_BINARY = (INT32S, BYTES, BYTES)
"""An Arrow binary column: offsets, validity bits (empty: nothing is null), bytes."""
_LIST = (INT32S, BYTES)
"""An Arrow list column: offsets, validity bits."""
_COLUMNS = (_BINARY, _BINARY, _LIST, _BINARY, _BINARY, INT64S)
"""key, value, headers, the headers' keys, their values, timestamps."""

OK, NO_SUCH_ROW, BAD_TIMESTAMP, RECORD_TOO_LARGE = range(4)
"""Results of :func:`plan`; all but the first are about the row where it stopped."""

_MAX_RECORD_SIZE = (1 << 31) - 1 - 128
"""A batch's size is an int32; this leaves room for its header and the record's own length."""
MAX_HEAD = 5 + 1 + 10 + 5 + 5
"""The most bytes of a record before its key: length, attributes, timestamp, offset, size of the key."""
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995


@inlined
def _is_null(validity: np.ndarray, i: Any) -> Any:
    return validity.size != 0 and (validity[i >> 3] >> (i & 7)) & 1 == 0


@inlined
def _varint_size(value: Any) -> Any:
    """Bytes of the zig-zag varint, or varlong, of an int64."""
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest & ~0x7F:
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


@inlined
def _binary_size(column: ColumnBuffers, i: Any) -> Any:
    offsets, validity, _ = column
    if _is_null(validity, i):
        return 1
    length = int64(offsets[i + 1]) - int64(offsets[i])
    return _varint_size(length) + length


@inlined
def _put_varint(out: np.ndarray, position: Any, value: Any) -> Any:
    rest = (value << 1) ^ (value >> 63)
    while rest & ~0x7F:
        out[position] = (rest & 0x7F) | 0x80
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
        position += 1
    out[position] = rest
    return position + 1


@inlined
def _put_binary(out: np.ndarray, position: Any, column: ColumnBuffers, i: Any) -> Any:
    offsets, validity, data = column
    if _is_null(validity, i):
        return _put_varint(out, position, int64(-1))
    start = int64(offsets[i])
    length = int64(offsets[i + 1]) - start
    position = _put_varint(out, position, length)
    copy_bytes(out, position, data, start, length)
    return position + length


@inlined
def _put_int(out: np.ndarray, position: Any, value: Any, size: int) -> None:
    for i in range(size):
        out[position + i] = (value >> (8 * (size - 1 - i))) & 0xFF


@kernel(*_COLUMNS, INT64S, INT64, OUT_INT64, OUT_INT64, OUT_INT64, results=2)
def plan(
    key: ColumnBuffers,
    value: ColumnBuffers,
    headers: ColumnBuffers,
    header_key: ColumnBuffers,
    header_value: ColumnBuffers,
    timestamps: np.ndarray,
    rows: np.ndarray,
    batch_size: int,
    record_sizes: np.ndarray,
    batch_starts: np.ndarray,
    batch_sizes: np.ndarray,
) -> tuple[int, int]:
    """Divide ``rows`` into batches of at most ``batch_size`` bytes, or of one record.

    Fills for each row the size of its record (without the length field), and for each
    batch the index into ``rows`` where it starts, and its whole size.

    :return: (:data:`OK`, number of batches), or (what is wrong, index into ``rows``).
    """
    list_offsets, list_validity = headers
    batches = 0
    size = 0
    count = 0
    base_timestamp = int64(0)
    for i in range(rows.size):
        row = rows[i]
        if row < 0 or row >= timestamps.size:
            return NO_SUCH_ROW, i
        timestamp = timestamps[row]
        if timestamp < -1:
            return BAD_TIMESTAMP, i
        body = 1 + _binary_size(key, row) + _binary_size(value, row)
        if _is_null(list_validity, row):
            body += 1
        else:
            first, last = int64(list_offsets[row]), int64(list_offsets[row + 1])
            body += _varint_size(last - first)
            for header in range(first, last):
                body += _binary_size(header_key, header) + _binary_size(header_value, header)
        if body > _MAX_RECORD_SIZE:
            return RECORD_TOO_LARGE, i
        if count > 0:
            record = body + _varint_size(timestamp - base_timestamp) + _varint_size(count)
            whole = _varint_size(record) + record
            if size + whole <= batch_size:
                record_sizes[i] = record
                size += whole
                count += 1
                continue
            batch_sizes[batches] = size
            batches += 1
        batch_starts[batches] = i
        base_timestamp = timestamp
        record = body + 2
        record_sizes[i] = record
        size = RECORDS_V2 + _varint_size(record) + record
        count = 1
    if count > 0:
        batch_sizes[batches] = size
        batches += 1
    return OK, batches


@kernel(*_COLUMNS, INT64S, INT64S, INT64S, INT64S, INT64, INT64, INT64, INT64, OUT_BYTES)
def fill(
    key: ColumnBuffers,
    value: ColumnBuffers,
    headers: ColumnBuffers,
    header_key: ColumnBuffers,
    header_value: ColumnBuffers,
    timestamps: np.ndarray,
    rows: np.ndarray,
    record_sizes: np.ndarray,
    batch_starts: np.ndarray,
    batch_sizes: np.ndarray,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    out: np.ndarray,
) -> None:
    """Write the batches that :func:`plan` found, except for their CRCs, one after another.

    Base offsets count from 0, leader epochs are -1 (Kafka's NO_PARTITION_LEADER_EPOCH).
    """
    list_offsets, list_validity = headers
    position = int64(0)
    for batch in range(batch_starts.size):
        first = batch_starts[batch]
        last = batch_starts[batch + 1] if batch + 1 < batch_starts.size else rows.size
        base_timestamp = timestamps[rows[first]]
        max_timestamp = int64(-1)
        start = position
        position += RECORDS_V2
        for i in range(first, last):
            row = rows[i]
            timestamp = timestamps[row]
            max_timestamp = max(max_timestamp, timestamp)
            position = _put_varint(out, position, record_sizes[i])
            out[position] = 0
            position = _put_varint(out, position + 1, timestamp - base_timestamp)
            position = _put_varint(out, position, i - first)
            position = _put_binary(out, position, key, row)
            position = _put_binary(out, position, value, row)
            if _is_null(list_validity, row):
                position = _put_varint(out, position, int64(0))
                continue
            position = _put_varint(out, position, int64(list_offsets[row + 1]) - int64(list_offsets[row]))
            for header in range(list_offsets[row], list_offsets[row + 1]):
                position = _put_binary(out, position, header_key, header)
                position = _put_binary(out, position, header_value, header)
        sequence = (base_sequence + first) & 0x7FFFFFFF if base_sequence >= 0 else base_sequence
        _put_int(out, start + OFFSET, first, 8)
        _put_int(out, start + SIZE, batch_sizes[batch] - LOG_OVERHEAD, 4)
        _put_int(out, start + LEADER_EPOCH_V2, int64(-1), 4)
        out[start + MAGIC] = 2
        _put_int(out, start + ATTRIBUTES_V2, attributes, 2)
        _put_int(out, start + LAST_OFFSET_DELTA_V2, last - first - 1, 4)
        _put_int(out, start + BASE_TIMESTAMP_V2, base_timestamp, 8)
        _put_int(out, start + MAX_TIMESTAMP_V2, max_timestamp, 8)
        _put_int(out, start + PRODUCER_ID_V2, producer_id, 8)
        _put_int(out, start + PRODUCER_EPOCH_V2, producer_epoch, 2)
        _put_int(out, start + BASE_SEQUENCE_V2, sequence, 4)
        _put_int(out, start + COUNT_V2, last - first, 4)


@kernel(BYTES, *(INT64S,) * 4, BYTES, *(INT64S,) * 5, OUT_BYTES, OUT_INT64)
def rebuild(
    data: np.ndarray,
    positions: np.ndarray,
    ends: np.ndarray,
    horizons: np.ndarray,
    base_timestamps: np.ndarray,
    source: np.ndarray,
    offsets: np.ndarray,
    timestamps: np.ndarray,
    key_at: np.ndarray,
    key_sizes: np.ndarray,
    record_ends: np.ndarray,
    out: np.ndarray,
    sizes: np.ndarray,
) -> None:
    """Write record batches again with some of their records, except for their CRCs, one after another.

    Kafka's ``MemoryRecords.filterTo``: the header stays except size, number of records, and timestamps.

    :param data: has the headers of the batches at ``positions``.
    :param ends: for each batch the number of records in it and in those before it.
    :param horizons: the delete horizon (ms) of each batch; -1 without one.
    :param base_timestamps: what the timestamps of records are stored against.
    :param source: has the records, which are as in an index of :mod:`.read_kernels`.
    :param out: room for :data:`MAX_HEAD` bytes beyond a record's key, value and headers, and for the headers.
    :param sizes: becomes the whole size of each batch.
    """
    position = int64(0)
    first = int64(0)
    for batch in range(positions.size):
        start = position
        copy_bytes(out, start, data, positions[batch], RECORDS_V2)
        position += RECORDS_V2
        base_offset = int64(0)
        for i in range(8):
            base_offset = (base_offset << 8) | int64(out[start + i])
        attributes = (int64(out[start + ATTRIBUTES_V2]) << 8) | int64(out[start + ATTRIBUTES_V2 + 1])
        base_timestamp = base_timestamps[batch]
        max_timestamp = int64(-1)
        for row in range(first, ends[batch]):
            max_timestamp = max(max_timestamp, timestamps[row])
            delta = timestamps[row] - base_timestamp
            offset_delta = offsets[row] - base_offset
            rest = record_ends[row] - key_at[row]
            size = 1 + _varint_size(delta) + _varint_size(offset_delta) + _varint_size(key_sizes[row]) + rest
            position = _put_varint(out, position, size)
            out[position] = 0
            position = _put_varint(out, position + 1, delta)
            position = _put_varint(out, position, offset_delta)
            position = _put_varint(out, position, key_sizes[row])
            copy_bytes(out, position, source, key_at[row], rest)
            position += rest
        attributes &= ~DELETE_HORIZON_BIT
        if horizons[batch] >= 0:
            attributes |= DELETE_HORIZON_BIT
        sizes[batch] = position - start
        _put_int(out, start + SIZE, sizes[batch] - LOG_OVERHEAD, 4)
        _put_int(out, start + ATTRIBUTES_V2, attributes, 2)
        _put_int(out, start + BASE_TIMESTAMP_V2, base_timestamp, 8)
        if attributes & LOG_APPEND_TIME_BIT == 0:
            _put_int(out, start + MAX_TIMESTAMP_V2, max_timestamp, 8)
        _put_int(out, start + COUNT_V2, ends[batch] - first, 4)
        first = ends[batch]


@kernel(OUT_BYTES, INT64S, INT64S, INT64)
def put_ints(out: np.ndarray, positions: np.ndarray, values: np.ndarray, size: int) -> None:
    """Write each of ``values`` as a big-endian integer of ``size`` bytes at its position in ``out``."""
    for i in range(positions.size):
        _put_int(out, positions[i], values[i], size)


@kernel(_BINARY, INT64, OUT_INT32)
def murmur2_partitions(keys: ColumnBuffers, num_partitions: int, partitions: np.ndarray) -> None:
    """Partition of each key as Kafka's Utils.murmur2 and BuiltInPartitioner give it; -1 for null keys."""
    offsets, validity, data = keys
    m = uint32(_MURMUR2_M)
    for row in range(partitions.size):
        if _is_null(validity, row):
            partitions[row] = -1
            continue
        start = int64(offsets[row])
        length = int64(offsets[row + 1]) - start
        tail = start + (length & ~3)
        h = uint32(_MURMUR2_SEED) ^ uint32(length)
        for p in range(start, tail, 4):
            k = uint32(data[p] | data[p + 1] << 8 | data[p + 2] << 16 | data[p + 3] << 24)
            k = uint32(k * m)
            k ^= k >> uint32(24)
            k = uint32(k * m)
            h = uint32(h * m) ^ k
        if length & 3:
            k = uint32(data[tail])
            if length & 3 > 1:
                k ^= uint32(data[tail + 1]) << uint32(8)
            if length & 3 > 2:
                k ^= uint32(data[tail + 2]) << uint32(16)
            h = uint32((h ^ k) * m)
        h ^= h >> uint32(13)
        h = uint32(h * m)
        h ^= h >> uint32(15)
        partitions[row] = (h & uint32(0x7FFFFFFF)) % uint32(num_partitions)


@kernel(_BINARY, OUT_INT64)
def add_lengths(column: ColumnBuffers, sizes: np.ndarray) -> None:
    """Add to each of ``sizes`` the bytes of the column in that row; a null has none."""
    offsets, validity, _ = column
    for row in range(sizes.size):
        if not _is_null(validity, row):
            sizes[row] += int64(offsets[row + 1]) - int64(offsets[row])


@kernel(INT64S, INT64, INT64, INT64, INT64, OUT_INT32, results=2)
def sticky_partitions(
    sizes: np.ndarray,
    batch_size: int,
    num_partitions: int,
    partition: int,
    filled: int,
    partitions: np.ndarray,
) -> tuple[int, int]:
    """Partition of each record: from ``partition`` on, the next one after every ``batch_size`` bytes.

    :param filled: bytes that ``partition`` already has.
    :return: the partition of the next record, and the bytes that it already has.
    """
    for row in range(partitions.size):
        partitions[row] = partition
        filled += sizes[row]
        if filled >= batch_size:
            partition = (partition + filled // batch_size) % num_partitions
            filled %= batch_size
    return partition, filled


@kernel(INT32S, OUT_INT64, OUT_INT64)
def group_rows(partitions: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> None:
    """Sort row numbers by partition, stably.

    ``ends[p]``, zero at first, becomes the index in ``rows`` after the last row of partition p.
    """
    for row in range(partitions.size):
        ends[partitions[row]] += 1
    place = int64(0)
    for p in range(ends.size):
        count = ends[p]
        ends[p] = place
        place += count
    for row in range(partitions.size):
        p = partitions[row]
        rows[ends[p]] = row
        ends[p] += 1
