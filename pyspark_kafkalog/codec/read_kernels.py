"""Compiled reading: walk batches, index records, fill Arrow buffers.

No byte is trusted. A length is used only after a check of ``0 <= n <= end - position``
in int64. Positions strictly advance, and nothing is raised (see :mod:`.kernel`).
"""

from __future__ import annotations

import numpy as np
from numpy import int64

from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_LEGACY,
    ATTRIBUTES_V2,
    BASE_SEQUENCE_V2,
    BASE_TIMESTAMP_V2,
    COMPRESSION_MASK,
    COUNT_V2,
    CRC_LEGACY,
    CRC_V2,
    HEADER_SIZE_UP_TO_MAGIC,
    KEY_SIZE_V0,
    KEY_SIZE_V1,
    LAST_OFFSET_DELTA_V2,
    LEADER_EPOCH_V2,
    LOG_OVERHEAD,
    MAX_HEADERS,
    MAX_TIMESTAMP_V2,
    MIN_SIZE_V0,
    MIN_SIZE_V1,
    NO_TIMESTAMP,
    PRODUCER_EPOCH_V2,
    PRODUCER_ID_V2,
    RECORDS_V2,
    SIZE,
    TIMESTAMP_V1,
)
from pyspark_kafkalog.codec.format import MAGIC as MAGIC_AT
from pyspark_kafkalog.codec.kernel import Integer, Integers, copy_bytes, inlined, kernel
from pyspark_kafkalog.codec.signature import (
    BYTES,
    INT64,
    INT64S,
    OUT_BYTES,
    OUT_INT32,
    OUT_TABLE,
    TABLE,
)

# Columns of the table that walk_batches fills, one row a batch.
(
    POSITION,
    WHOLE_SIZE,
    BASE_OFFSET,
    LAST_OFFSET,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    MAGIC,
    ATTRIBUTES,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    COUNT,
    LEADER_EPOCH,
    CRC,
) = range(14)
BATCH_COLUMNS = 14

# Columns of a table of regions: stretches of uncompressed v2 records, one row a batch.
(
    BODY,
    BODY_END,
    RECORDS,
    REGION_OFFSET,
    LAST_OFFSET_DELTA,
    REGION_TIMESTAMP,
    DELTA_FACTOR,
) = range(7)
REGION_COLUMNS = 7
"""A record's timestamp is REGION_TIMESTAMP + its delta * DELTA_FACTOR, which is 0 for LogAppendTime."""

# Columns of a table of uncompressed v0 and v1 messages.
MESSAGE, MESSAGE_SIZE, MESSAGE_MAGIC, MESSAGE_OFFSET, MESSAGE_TIMESTAMP = range(5)
MESSAGE_COLUMNS = 5

# Columns of an index: where each record's parts lie in the bytes that were indexed.
OFFSET, TIMESTAMP, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT, HEADERS_END, HEADERS = range(9)
INDEX_COLUMNS = 9
"""A negative size is a null."""

# Columns of an index of record headers.
HEADER_KEY_AT, HEADER_KEY_SIZE, HEADER_VALUE_AT, HEADER_VALUE_SIZE = range(4)
HEADER_COLUMNS = 4

END, INCOMPLETE, INVALID = range(3)
"""The reasons why a walk ended: the end of the buffer, a partial batch, bytes that are not a batch."""
FULL = 3
"""The third reason why indexing ended, besides END and INVALID: the index is full."""

MAX_INT64 = 0x7FFFFFFFFFFFFFFF


@inlined
def unsigned(data: np.ndarray, at: Integer, size: Integer) -> Integer:
    """The big-endian integer in ``size`` bytes; 8 bytes come out signed."""
    value = int64(0)
    for i in range(size):
        value = (value << 8) | int64(data[at + i])
    return value


@inlined
def signed(data: np.ndarray, at: Integer, size: Integer) -> Integer:
    """The big-endian two's complement integer in ``size`` < 8 bytes."""
    top = int64(1) << (8 * size - 1)
    return (unsigned(data, at, size) ^ top) - top


@inlined
def frame(data: np.ndarray, position: Integer) -> Integers:
    """Whole size and status of the batch at ``position``; END if it is whole.

    Sizes follow Kafka's ByteBufferLogInputStream and the smallest batch of each format.
    The size is 0 if it can't be read.
    """
    left = data.size - position
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return int64(0), INCOMPLETE
    size = signed(data, position + SIZE, 4) + LOG_OVERHEAD
    magic = data[position + MAGIC_AT]
    if magic == 2:
        smallest = RECORDS_V2
    elif magic == 1:
        smallest = MIN_SIZE_V1
    elif magic == 0:
        smallest = MIN_SIZE_V0
    else:
        return int64(0), INVALID
    if size < smallest or unsigned(data, position, 8) < 0:
        return int64(0), INVALID
    if size > left:
        return size, INCOMPLETE
    if magic == 2:
        delta = signed(data, position + LAST_OFFSET_DELTA_V2, 4)
        if delta < 0 or unsigned(data, position, 8) > MAX_INT64 - 1 - delta:
            return int64(0), INVALID
    elif unsigned(data, position, 8) == MAX_INT64:
        return int64(0), INVALID
    return size, END


@kernel(BYTES, INT64, OUT_TABLE, results=4)
def walk_batches(data: np.ndarray, position: Integer, table: np.ndarray) -> Integers:
    """Fill the rows of ``table`` with the whole batches from ``position`` on.

    Returns the number of all these batches, the position after the last, why
    the walk ended there, and the whole size of an INCOMPLETE batch if known.
    """
    row = int64(0)
    next_offset = int64(0)
    while position < data.size:
        size, status = frame(data, position)
        if status != END:
            return row, position, int64(status), size
        if row < table.shape[1]:
            table[POSITION, row] = position
            table[WHOLE_SIZE, row] = size
            offset = unsigned(data, position, 8)
            magic = int64(data[position + MAGIC_AT])
            table[MAGIC, row] = magic
            if magic == 2:
                last_offset = offset + signed(data, position + LAST_OFFSET_DELTA_V2, 4)
                table[BASE_OFFSET, row] = offset
                table[BASE_TIMESTAMP, row] = unsigned(data, position + BASE_TIMESTAMP_V2, 8)
                table[MAX_TIMESTAMP, row] = unsigned(data, position + MAX_TIMESTAMP_V2, 8)
                table[ATTRIBUTES, row] = unsigned(data, position + ATTRIBUTES_V2, 2)
                table[PRODUCER_ID, row] = unsigned(data, position + PRODUCER_ID_V2, 8)
                table[PRODUCER_EPOCH, row] = signed(data, position + PRODUCER_EPOCH_V2, 2)
                table[BASE_SEQUENCE, row] = signed(data, position + BASE_SEQUENCE_V2, 4)
                table[COUNT, row] = signed(data, position + COUNT_V2, 4)
                table[LEADER_EPOCH, row] = signed(data, position + LEADER_EPOCH_V2, 4)
                table[CRC, row] = unsigned(data, position + CRC_V2, 4)
            else:
                last_offset = offset
                attributes = int64(data[position + ATTRIBUTES_LEGACY])
                compressed = attributes & COMPRESSION_MASK != 0
                timestamp = int64(NO_TIMESTAMP)
                if magic == 1:
                    timestamp = unsigned(data, position + TIMESTAMP_V1, 8)
                table[BASE_OFFSET, row] = min(next_offset, offset) if compressed else offset
                table[BASE_TIMESTAMP, row] = timestamp
                table[MAX_TIMESTAMP, row] = timestamp
                table[ATTRIBUTES, row] = attributes
                table[PRODUCER_ID, row] = -1
                table[PRODUCER_EPOCH, row] = -1
                table[BASE_SEQUENCE, row] = -1
                table[COUNT, row] = -1 if compressed else 1
                table[LEADER_EPOCH, row] = -1
                table[CRC, row] = unsigned(data, position + CRC_LEGACY, 4)
            table[LAST_OFFSET, row] = last_offset
            next_offset = last_offset + 1
        row += 1
        position += size
    return row, position, int64(END), int64(0)


@inlined
def message_value(data: np.ndarray, message: Integer, size: Integer, magic: Integer) -> Integer:
    """Position of the value's size in a v0 or v1 message; -1 unless key and value exactly fill it."""
    end = message + size
    key = message + (KEY_SIZE_V0 if magic == 0 else KEY_SIZE_V1)
    value = key + 4 + max(signed(data, key, 4), 0)
    if value > end - 4 or value + 4 + max(signed(data, value, 4), 0) != end:
        return int64(-1)
    return value


@kernel(BYTES, INT64, INT64, INT64, results=2)
def next_frame(data: np.ndarray, position: Integer, stop: Integer, min_offset: Integer) -> Integers:
    """The next position below ``stop`` where a batch of ``min_offset`` or later may begin, and its size.

    Returns -1 and 0 if there is none.
    """
    while position < min(stop, data.size - HEADER_SIZE_UP_TO_MAGIC):
        magic = data[position + MAGIC_AT]
        if magic <= 2:
            size, status = frame(data, position)
            if status == END and unsigned(data, position, 8) >= min_offset:
                if magic == 2:
                    fits = signed(data, position + COUNT_V2, 4) >= 0
                else:
                    fits = message_value(data, position, size, int64(magic)) >= 0
                if fits:
                    return position, size
        position += 1
    return int64(-1), int64(0)


@inlined
def long_varint(data: np.ndarray, at: Integer, end: Integer, max_bytes: Integer) -> Integers:
    """A zig-zag varint of at most ``max_bytes``, and the position after it, -1 if there is none."""
    value = np.uint64(0)
    for i in range(min(max_bytes, end - at)):
        byte = np.uint64(data[at + i])
        value |= (byte & np.uint64(127)) << np.uint64(7 * i)
        if byte < 128:
            if max_bytes == 5:
                value &= np.uint64(0xFFFFFFFF)
            return int64(value >> np.uint64(1)) ^ -int64(value & np.uint64(1)), at + i + 1
    return int64(0), int64(-1)


@inlined
def varint(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """A zig-zag int32 as Kafka's ByteUtils reads it, and the position after it, -1 if there is none."""
    if at + 1 < end:
        first = int64(data[at])
        if first < 128:
            return (first >> 1) ^ -(first & 1), at + 1
        second = int64(data[at + 1])
        if second < 128:
            first = (first & 127) | (second << 7)
            return (first >> 1) ^ -(first & 1), at + 2
    return long_varint(data, at, end, 5)


@inlined
def end_of_headers(data: np.ndarray, at: Integer, end: Integer, count: Integer) -> Integer:
    """The position after ``count`` record headers, -1 if they are not there."""
    for _ in range(count):
        size, at = varint(data, at, end)
        if at < 0 or size < 0 or size > end - at:
            return int64(-1)
        size, at = varint(data, at + size, end)
        if at < 0 or size > end - at:
            return int64(-1)
        at += max(size, 0)
    return at


@kernel(BYTES, TABLE, INT64, INT64, INT64, INT64, INT64, OUT_TABLE, results=5)
def index_records(
    data: np.ndarray,
    regions: np.ndarray,
    region: Integer,
    record: Integer,
    at: Integer,
    start: Integer,
    stop: Integer,
    index: np.ndarray,
) -> Integers:
    """Index the v2 records of ``regions`` that have offsets from ``start`` to before ``stop``.

    Strict like Kafka's DefaultRecord and DefaultRecordBatch: a record takes exactly its
    length, the records exactly their region, and offsets rise within their batch.

    Begins at ``record`` of ``region``, at the position ``at`` (not needed for a first record).
    Returns where to go on in the same form, then the rows, then END, or FULL at a record
    without room, or INVALID with the rows before the first invalid region. A region that
    would fit into an empty index is begun only if there is room for all its records.
    """
    room = index.shape[1]
    row = int64(0)
    while region < regions.shape[1]:
        count = regions[RECORDS, region]
        body_end = regions[BODY_END, region]
        first_row = row
        least = int64(-1)
        if record == 0:
            at = regions[BODY, region]
            if row > 0 and count > room - row:
                return region, record, at, row, int64(FULL)
        if count < 0:
            return region, record, at, first_row, int64(INVALID)
        while record < count:
            if row == room:
                return region, record, at, row, int64(FULL)
            size, body = varint(data, at, body_end)
            if body < 0 or size < 0 or size > body_end - body:
                return region, record, at, first_row, int64(INVALID)
            end = body + size
            timestamp, field = long_varint(data, body + 1, end, 10)
            if field < 0:
                return region, record, at, first_row, int64(INVALID)
            delta, field = varint(data, field, end)
            if field < 0 or delta <= least or delta > regions[LAST_OFFSET_DELTA, region]:
                return region, record, at, first_row, int64(INVALID)
            key_size, key_at = varint(data, field, end)
            if key_at < 0 or key_size > end - key_at:
                return region, record, at, first_row, int64(INVALID)
            value_size, value_at = varint(data, key_at + max(key_size, 0), end)
            if value_at < 0 or value_size > end - value_at:
                return region, record, at, first_row, int64(INVALID)
            headers, headers_at = varint(data, value_at + max(value_size, 0), end)
            if headers_at < 0 or headers < 0 or headers > min(end - headers_at, MAX_HEADERS):
                return region, record, at, first_row, int64(INVALID)
            if end_of_headers(data, headers_at, end, headers) != end:
                return region, record, at, first_row, int64(INVALID)
            offset = regions[REGION_OFFSET, region] + delta
            if start <= offset < stop:
                index[OFFSET, row] = offset
                index[TIMESTAMP, row] = (
                    regions[REGION_TIMESTAMP, region] + timestamp * regions[DELTA_FACTOR, region]
                )
                index[KEY_AT, row] = key_at
                index[KEY_SIZE, row] = key_size
                index[VALUE_AT, row] = value_at
                index[VALUE_SIZE, row] = value_size
                index[HEADERS_AT, row] = headers_at
                index[HEADERS_END, row] = end
                index[HEADERS, row] = headers
                row += 1
            at = end
            least = delta
            record += 1
        if at != body_end:
            return region, record, at, first_row, int64(INVALID)
        region += 1
        record = int64(0)
    return region, record, at, row, int64(END)


@kernel(BYTES, INT64, results=4)
def whole_records(data: np.ndarray, count: Integer) -> Integers:
    """The number of whole records among ``count`` v2 records, by their lengths alone, and where they end.

    Then END; or INCOMPLETE, with the whole size of the next record, 0 if it isn't known; or INVALID at a
    length that can't be.
    """
    at = int64(0)
    for record in range(count):
        size, body = varint(data, at, data.size)
        if body < 0 and data.size - at < 5:
            return record, at, int64(INCOMPLETE), int64(0)
        if body < 0 or size < 0:
            return record, at, int64(INVALID), int64(0)
        if size > data.size - body:
            return record, at, int64(INCOMPLETE), body - at + size
        at = body + size
    return max(count, int64(0)), at, int64(END), int64(0)


@kernel(BYTES, TABLE, INT64, OUT_TABLE, results=1)
def index_messages(data: np.ndarray, messages: np.ndarray, first: Integer, index: np.ndarray) -> Integer:
    """Index uncompressed v0 and v1 messages, from ``first`` on until the index is full.

    The messages are whole. Returns the rows before the first invalid one: key and value must
    fit, and the value must end where the message does.
    """
    rows = min(index.shape[1], messages.shape[1] - first)
    for row in range(rows):
        message = first + row
        at, magic = messages[MESSAGE, message], messages[MESSAGE_MAGIC, message]
        end = at + messages[MESSAGE_SIZE, message]
        key = at + (KEY_SIZE_V0 if magic == 0 else KEY_SIZE_V1)
        value = message_value(data, at, messages[MESSAGE_SIZE, message], magic)
        if value < 0:
            return int64(row)
        index[OFFSET, row] = messages[MESSAGE_OFFSET, message]
        index[TIMESTAMP, row] = messages[MESSAGE_TIMESTAMP, message]
        index[KEY_AT, row] = key + 4
        index[KEY_SIZE, row] = signed(data, key, 4)
        index[VALUE_AT, row] = value + 4
        index[VALUE_SIZE, row] = signed(data, value, 4)
        index[HEADERS_AT, row] = end
        index[HEADERS_END, row] = end
        index[HEADERS, row] = 0
    return rows


@kernel(INT64S, OUT_INT32, OUT_BYTES, results=2)
def fill_offsets(sizes: np.ndarray, offsets: np.ndarray, validity: np.ndarray) -> Integers:
    """Fill Arrow's offsets and zeroed validity bits of a binary column; returns its bytes and its nulls."""
    total = int64(0)
    nulls = int64(0)
    offsets[0] = 0
    for row in range(sizes.size):
        if sizes[row] < 0:
            nulls += 1
        else:
            total += sizes[row]
            validity[row >> 3] |= np.uint8(1 << (row & 7))
        offsets[row + 1] = total
    return total, nulls


@kernel(BYTES, INT64S, OUT_INT32, OUT_BYTES)
def gather(data: np.ndarray, positions: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """Copy the bytes of a binary column, whose offsets are filled, to ``out``."""
    for row in range(positions.size):
        copy_bytes(
            out, int64(offsets[row]), data, positions[row], int64(offsets[row + 1]) - int64(offsets[row])
        )


@kernel(BYTES, INT64S, INT64S, INT64S, OUT_TABLE)
def index_headers(
    data: np.ndarray, positions: np.ndarray, ends: np.ndarray, counts: np.ndarray, index: np.ndarray
) -> None:
    """Index the headers of validated records."""
    header = 0
    for row in range(counts.size):
        at = positions[row]
        for _ in range(counts[row]):
            size, at = varint(data, at, ends[row])
            index[HEADER_KEY_AT, header] = at
            index[HEADER_KEY_SIZE, header] = size
            size, at = varint(data, at + size, ends[row])
            index[HEADER_VALUE_AT, header] = at
            index[HEADER_VALUE_SIZE, header] = size
            at += max(size, 0)
            header += 1
