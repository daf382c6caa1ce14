"""Compiled decoding: a program for each row (:mod:`.resolution`), and the parts of encoding.

The program is trusted, the rows are not. Each read is checked against the end of its message, which is
within that of its row, and positions only rise. Nothing calls itself: messages in one another are on a stack,
whose size bounds them.

A message lies in a program as a row for it, and behind it one for each of its fields that are wanted, in the
order of their numbers.
"""

from __future__ import annotations

import numpy as np
from numpy import int64

from pyspark_kafkalog.codec.kernel import Integer, Integers, copy_bytes, inlined, kernel
from pyspark_kafkalog.codec.signature import (
    BYTES,
    INT64,
    INT64S,
    OUT_BYTES,
    OUT_INT32,
    OUT_INT64,
    OUT_TABLE,
    TABLE,
)
from pyspark_kafkalog.extensions.typed_values.table import COUNT, POSITION, SIZES, VALIDITY, VALUES

# Columns of a program, one row a field.
NUMBER, WIRE, CHANGE, STORE, COLUMN, ITEMS, VALID, NONZERO, MESSAGE, ONEOF, FIRST, LAST, PLAIN = range(13)
"""
The field's number. Its wire type; -1 for a message of its own, CORRUPT. What is done to the number. What is
stored, in which column. The column of the list or map that gets an item, or -1. The column whose validity is
set, or -1; only where the value is not zero, if NONZERO. The row of the message that it is. The number of its
oneof, or -1. Where the numbers of a closed enum begin and end; the end is 0 for any other. Whether nothing
is counted for it.
"""
PROGRAM_COLUMNS = 13
# Of a message's own row.
FIELDS, ACTION, ACTION_COLUMN = range(3)
"""The number of fields that follow; what is done at its end, in which column."""

NO_ACTION, PUT_TIME, FAIL, PUT_BYTES = range(4)
"""PUT_BYTES adds those of a group, as MORE_BYTES does those of a field with a length."""

VARINT, FIXED64, SIZED, GROUP, END_GROUP, FIXED32 = range(6)
"""Wire types."""

# What is done to a number: nothing, cut it to 32 bits with its sign, or without, and so on.
AS_IT_IS, INT32, UINT32, ZIGZAG32, ZIGZAG64, BOOL, FLOAT_TO_DOUBLE = range(7)

(
    NOTHING,
    ONE_BYTE,
    FOUR_BYTES,
    EIGHT_BYTES,
    UNSIGNED_DECIMAL,
    ALL_BYTES,
    UTF8,
    MORE_BYTES,
    SUBMESSAGE,
    SECONDS,
    NANOS,
) = range(11)
"""Ways of storing. MORE_BYTES adds to those of the same field. UTF8 is checked."""

# Columns of a table of faults, one row a row: why it is corrupt or 0, the row of the program, the byte.
CAUSE, FAILED_AT, BYTE = range(3)
FAULT_COLUMNS = 3

(FINE, SHORT, TAG, WIRE_TYPE, LONG, TEXT, ENDS, TIME, DEPTH, LARGE, FRAMING, JSON, AGAIN, FOREIGN) = range(14)
"""The causes of a corrupt row. AGAIN: it has two members of a oneof, so it has to be rewritten first.
FOREIGN: its schema is not one that the reader's can read."""

# Columns of the table of states, one row a column or oneof: the position that it is of, and what was there.
AT, WAS, MORE = range(3)
STATE_COLUMNS = 3

# Columns of the stack, one row a message around: its row, its end, the number of its group or 0.
STACK_COLUMNS = 3
STACK = 101
"""One more than the most messages within a row's own, as in Java."""
MOST = 0x7FFFFFFF
"""The most bytes or items of a column, since Arrow's offsets are int32."""
MOST_SECONDS = 9223372036853
"""The most seconds whose microseconds fit into 64 bits, with any nanoseconds."""
NOWHERE = -2
ABSENT = -1


@inlined
def place(columns: np.ndarray, counts: np.ndarray, column: Integer, part: Integer) -> Integer:
    """The index of a part of a column at its position. As uint64, since numba checks for negative indexes."""
    return np.uint64(columns[column, part] + counts[np.uint64(columns[column, POSITION])])


@inlined
def varint(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """The number at ``at``, and where it ends: -1 if that is behind ``end``, or behind ten bytes."""
    value = int64(0)
    shift = int64(0)
    while at < end:
        byte = int64(data[np.uint64(at)])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            break
    return int64(0), int64(-1)


@inlined
def is_utf8(data: np.ndarray, at: Integer, size: Integer) -> Integer:
    """Whether bytes are UTF-8, as Java and Arrow see it."""
    end = at + size
    while at < end:
        first = int64(data[np.uint64(at)])
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else (2 if first < 0xF0 else 3)
        if more > end - at:
            return False
        second = int64(data[np.uint64(at)])
        least = 0xA0 if first == 0xE0 else (0x90 if first == 0xF0 else 0x80)
        most = 0x9F if first == 0xED else (0x8F if first == 0xF4 else 0xBF)
        if second < least or second > most:
            return False
        for i in range(1, more):
            if data[np.uint64(at + i)] & 0xC0 != 0x80:
                return False
        at += more
    return True


@inlined
def find(program: np.ndarray, message: Integer, number: Integer) -> Integer:
    """The row of the field of a message with this number, or -1."""
    low = message + 1
    high = low + program[np.uint64(message), FIELDS]
    while low < high:
        middle = (low + high) >> 1
        found = program[np.uint64(middle), NUMBER]
        if found == number:
            return middle
        if found < number:
            low = middle + 1
        else:
            high = middle
    return int64(-1)


@inlined
def has(numbers: np.ndarray, first: Integer, last: Integer, number: Integer) -> Integer:
    """Whether a number is among sorted ones."""
    low = first
    high = last
    while low < high:
        middle = (low + high) >> 1
        if numbers[np.uint64(middle)] == number:
            return True
        if numbers[np.uint64(middle)] < number:
            low = middle + 1
        else:
            high = middle
    return False


@inlined
def add_bytes(
    data: np.ndarray,
    at: Integer,
    size: Integer,
    columns: np.ndarray,
    column: Integer,
    fill: Integer,
    counts: np.ndarray,
    peaks: np.ndarray,
    out: np.ndarray,
    out32: np.ndarray,
) -> None:
    """Add bytes to those of a column at its position."""
    count = np.uint64(columns[column, COUNT])
    if fill:
        out32[place(columns, counts, column, SIZES)] += size
        copy_bytes(out, columns[column, VALUES] + counts[count], data, at, size)
    counts[count] += size
    peaks[count] = max(peaks[count], counts[count])


@kernel(
    *(BYTES, INT64S, INT64S, INT64S, TABLE, TABLE, INT64S, INT64),
    *(OUT_INT64, OUT_INT64, OUT_INT64, OUT_TABLE, OUT_TABLE, OUT_BYTES, OUT_INT32, OUT_INT64, OUT_TABLE),
)
def decode(
    data: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    entries: np.ndarray,
    program: np.ndarray,
    columns: np.ndarray,
    numbers: np.ndarray,
    fill: Integer,
    counts: np.ndarray,
    peaks: np.ndarray,
    saved: np.ndarray,
    states: np.ndarray,
    stack: np.ndarray,
    out: np.ndarray,
    out32: np.ndarray,
    out64: np.ndarray,
    faults: np.ndarray,
) -> None:
    """Decode ``data[start:start + size]`` of each row by the message at its entry; null if size is -1.

    Without ``fill``, it writes ``faults[column, row]`` and ``counts``: how far each position is, and how many
    bytes each column has, as ``columns`` numbers them. Positions begin at -1 and bytes at 0; ``counts[0]`` is
    the row. With ``fill``, it writes what rows without a fault hold to ``out``, which two more views share,
    and counts from the beginning again. Validity, sizes and fixed-size values are zeroed before.

    ``states`` begin at :data:`NOWHERE`. A value that comes again replaces the one before, which is the last
    one of its column, since positions only rise. So ``peaks`` are how many bytes each column had at most.
    """
    for row in range(starts.size):
        if sizes[row] < 0 or faults[CAUSE, row] != FINE:
            continue
        for i in range(counts.size):
            saved[i] = counts[i]
        counts[0] = row
        at = starts[row]
        limit = at + sizes[row]
        message = entries[row]
        guess = message + 1
        group = int64(0)
        depth = int64(0)
        begin = at
        step = message
        is_packed = False
        cause = int64(FINE)
        if program[np.uint64(message), ACTION] == FAIL:
            cause = program[np.uint64(message), ACTION_COLUMN]
        while cause == FINE:
            if at == limit and (is_packed or group == 0):
                if is_packed:
                    is_packed = False
                    limit = stack[np.uint64(depth), 1]
                    continue
                if program[np.uint64(message), ACTION] == PUT_TIME:
                    step = message
                    column = np.uint64(program[np.uint64(message), ACTION_COLUMN])
                    seconds = states[column, WAS]
                    if seconds > MOST_SECONDS or seconds < -MOST_SECONDS:
                        cause = int64(TIME)
                        break
                    if fill:
                        nanos = states[column, MORE]
                        micros = nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
                        out64[place(columns, counts, column, VALUES)] = seconds * 1000000 + micros
                elif program[np.uint64(message), ACTION] == PUT_BYTES:
                    column = np.uint64(program[np.uint64(message), ACTION_COLUMN])
                    value = begin - states[column, MORE]  # up to the tag that ends it
                    add_bytes(
                        data, states[column, MORE], value, columns, column, fill, counts, peaks, out, out32
                    )
                if depth == 0:
                    break
                depth -= 1
                message = stack[np.uint64(depth), 0]
                limit = stack[np.uint64(depth), 1]
                group = stack[np.uint64(depth), 2]
                guess = message + 1
                continue
            begin = at
            if is_packed:
                wire = program[np.uint64(step), WIRE]
            else:
                if at == limit:
                    cause = int64(SHORT)
                    break
                step = message
                tag = int64(data[np.uint64(at)])
                if tag < 128:
                    at += 1
                else:
                    tag, at = varint(data, at, min(limit, at + 5))
                    if at < 0:
                        cause = int64(TAG)
                        break
                wire = tag & 7
                number = tag >> 3
                if number == 0 or tag > 0xFFFFFFFF:
                    cause = int64(TAG)
                    break
                if wire > FIXED32:
                    cause = int64(WIRE_TYPE)
                    break
                if wire == END_GROUP:
                    if number != group:
                        cause = int64(ENDS)
                        break
                    # The group ends here, as a message ends where its length says.
                    group = int64(0)
                    limit = at
                    continue
                step = guess
                last = message + program[np.uint64(message), FIELDS]
                if step > last or program[np.uint64(step), NUMBER] != number:
                    step = find(program, message, number)
                if step >= 0:
                    expected = program[np.uint64(step), WIRE]
                    if wire != expected:
                        is_list = program[np.uint64(step), ITEMS] >= 0
                        can_be_packed = is_list and expected != SIZED and expected != GROUP
                        if wire == SIZED and can_be_packed:
                            value, at = varint(data, at, limit)
                            if at < 0 or value < 0 or value > limit - at:
                                cause = int64(SHORT)
                                break
                            is_packed = True
                            stack[np.uint64(depth), 1] = limit
                            limit = at + value
                            guess = step + 1
                            continue
                        step = int64(-1)
                    else:
                        guess = step if program[np.uint64(step), ITEMS] >= 0 else step + 1
            value = int64(0)
            if wire == VARINT:
                if at < limit and data[np.uint64(at)] < 128:
                    value = int64(data[np.uint64(at)])
                    at += 1
                else:
                    is_short = limit - at < 10
                    value, at = varint(data, at, limit)
                    if at < 0:
                        cause = int64(SHORT) if is_short else int64(LONG)
                        break
            elif wire == SIZED:
                value, at = varint(data, at, limit)
                if at < 0 or value < 0 or value > limit - at:
                    cause = int64(SHORT)
                    break
                begin = at
                at += value
            elif wire == FIXED64:
                if limit - at < 8:
                    cause = int64(SHORT)
                    break
                for i in range(8):
                    value |= int64(data[np.uint64(at + i)]) << (8 * i)
                at += 8
            elif wire == FIXED32:
                if limit - at < 4:
                    cause = int64(SHORT)
                    break
                for i in range(4):
                    value |= int64(data[np.uint64(at + i)]) << (8 * i)
                at += 4

            if step < 0:
                if wire == GROUP:
                    if depth + 1 >= STACK:
                        cause = int64(DEPTH)
                        break
                    stack[np.uint64(depth), 0] = message
                    stack[np.uint64(depth), 1] = limit
                    stack[np.uint64(depth), 2] = group
                    depth += 1
                    message = int64(0)  # the message without fields
                    guess = int64(1)
                    group = number
                continue
            here = np.uint64(step)
            if program[here, PLAIN] and not fill:
                continue
            change = program[here, CHANGE]
            if change == INT32:
                value = int64(np.int32(value))
            elif change == UINT32:
                value &= 0xFFFFFFFF
            elif change == ZIGZAG32:
                value &= 0xFFFFFFFF
                value = int64(np.int32((value >> 1) ^ -(value & 1)))
            elif change == ZIGZAG64:
                value = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
            elif change == BOOL:
                value = int64(1) if value != 0 else int64(0)
            elif change == FLOAT_TO_DOUBLE:
                value = np.float64(np.int32(value).view(np.float32)).view(np.int64)
            is_closed = program[here, LAST] > 0
            if is_closed and not has(numbers, program[here, FIRST], program[here, LAST], value):
                continue  # an unknown field
            oneof = program[here, ONEOF]
            if oneof >= 0:
                member = program[here, NUMBER]
                position = counts[np.uint64(columns[np.uint64(oneof), POSITION])]
                if states[np.uint64(oneof), AT] != position:
                    states[np.uint64(oneof), AT] = position
                    states[np.uint64(oneof), WAS] = member
                elif states[np.uint64(oneof), WAS] != member:
                    cause = int64(AGAIN)
                    break
            items = program[here, ITEMS]
            if items >= 0:
                if fill:
                    out32[place(columns, counts, np.uint64(items), SIZES)] += 1
                counts[np.uint64(columns[np.uint64(items), COUNT])] += 1
            store = program[here, STORE]
            column = np.uint64(program[here, COLUMN])
            if fill:
                valid = program[here, VALID]
                if valid >= 0:
                    is_valid = program[here, NONZERO] == 0 or value != 0
                    out[place(columns, counts, np.uint64(valid), VALIDITY)] = 1 if is_valid else 0
            if store in (UTF8, ALL_BYTES):
                if store == UTF8 and not fill:
                    bits = np.uint8(0)
                    for i in range(value):
                        bits |= data[np.uint64(begin + i)]
                    if bits >= 128 and not is_utf8(data, begin, value):
                        cause = int64(TEXT)
                        break
                count = np.uint64(columns[column, COUNT])
                position = counts[np.uint64(columns[column, POSITION])]
                if states[column, AT] == position:
                    counts[count] -= states[column, WAS]
                states[column, AT] = position
                states[column, WAS] = value
                if fill:
                    out32[place(columns, counts, column, SIZES)] = value
                    copy_bytes(out, columns[column, VALUES] + counts[count], data, begin, value)
                counts[count] += value
                peaks[count] = max(peaks[count], counts[count])
            elif store == FOUR_BYTES:
                if fill:
                    out32[place(columns, counts, column, VALUES)] = value
            elif store == EIGHT_BYTES:
                if fill:
                    out64[place(columns, counts, column, VALUES)] = value
            elif store == ONE_BYTE:
                if fill:
                    out[place(columns, counts, column, VALUES)] = 1 if value != 0 else 0
            elif store == SUBMESSAGE:
                if depth + 1 >= STACK:
                    cause = int64(DEPTH)
                    break
                stack[np.uint64(depth), 0] = message
                stack[np.uint64(depth), 1] = limit
                stack[np.uint64(depth), 2] = group
                depth += 1
                message = program[here, MESSAGE]
                guess = message + 1
                if wire == GROUP:
                    group = program[here, NUMBER]
                else:
                    group = int64(0)
                    limit = at
                    at = begin
                if program[np.uint64(message), ACTION] == PUT_BYTES:
                    states[column, MORE] = at
                elif program[np.uint64(message), ACTION] == PUT_TIME:
                    position = counts[np.uint64(columns[column, POSITION])]
                    if states[column, AT] != position:
                        states[column, AT] = position
                        states[column, WAS] = 0
                        states[column, MORE] = 0
            elif store == SECONDS:
                states[column, WAS] = value
            elif store == NANOS:
                states[column, MORE] = value
            elif store == UNSIGNED_DECIMAL:
                if fill:
                    to = np.uint64(2 * int64(place(columns, counts, column, VALUES)))
                    out64[to] = value
                    out64[to + np.uint64(1)] = 0
            elif store == MORE_BYTES:
                add_bytes(data, begin, value, columns, column, fill, counts, peaks, out, out32)
        if cause == FINE:
            for i in range(1, counts.size):
                if counts[i] > MOST:
                    cause = int64(LARGE)
        if cause != FINE:
            faults[CAUSE, row] = cause
            faults[FAILED_AT, row] = step
            faults[BYTE, row] = begin - starts[row]
            for i in range(counts.size):
                counts[i] = saved[i]
            for i in range(states.shape[0]):
                states[i, AT] = NOWHERE


@inlined
def _is_null(validity: np.ndarray, row: Integer) -> bool:
    return validity.size > 0 and (validity[row >> 3] >> (row & 7)) & 1 == 0


@inlined
def _written(value: Integer, form: Integer) -> Integer:
    return (value << 1) ^ (value >> 63) if form == AS_ZIGZAG else value


# How a number is written.
AS_VARINT, AS_ZIGZAG, AS_FOUR_BYTES, AS_EIGHT_BYTES = range(4)


@kernel(INT64S, BYTES, INT64, INT64, OUT_INT64)
def measure_numbers(
    values: np.ndarray, validity: np.ndarray, form: Integer, tag_size: Integer, sizes: np.ndarray
) -> None:
    """Add to each row's size that of its number behind its tag.

    :param validity: a bitmap of the rows that have a number; empty if all have.
    :param tag_size: 0 for numbers without a tag.
    """
    for row in range(values.size):
        if _is_null(validity, row):
            continue
        if form == AS_FOUR_BYTES:
            sizes[row] += tag_size + 4
        elif form == AS_EIGHT_BYTES:
            sizes[row] += tag_size + 8
        else:
            rest, size = _written(values[row], form), tag_size + 1
            while rest & ~0x7F:
                rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
                size += 1
            sizes[row] += size


@kernel(INT64S, BYTES, INT64, INT64, INT64, OUT_INT64, OUT_BYTES)
def put_numbers(
    values: np.ndarray,
    validity: np.ndarray,
    form: Integer,
    tag: Integer,
    tag_size: Integer,
    at: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write what :func:`measure_numbers` has measured at ``at``, which moves behind it.

    :param tag: its bytes, the first one as the lowest.
    """
    for row in range(values.size):
        if _is_null(validity, row):
            continue
        to = at[row]
        for i in range(tag_size):
            out[to] = (tag >> (8 * i)) & 0xFF
            to += 1
        rest = _written(values[row], form)
        if form >= AS_FOUR_BYTES:
            width = 4 if form == AS_FOUR_BYTES else 8
            for i in range(width):
                out[to + i] = (rest >> (8 * i)) & 0xFF
            to += width
        else:
            while rest & ~0x7F:
                out[to] = (rest & 0x7F) | 0x80
                rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
                to += 1
            out[to] = rest
            to += 1
        at[row] = to


@kernel(BYTES, INT64S, INT64S, OUT_INT64)
def measure_names(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, found: np.ndarray) -> None:
    """Measure Apicurio's Ref at the start of each row, behind its size: its field 1 is the name of a message.
    -1 if there is none."""
    for row in range(starts.size):
        found[row] = int64(-1)
        end = starts[row] + sizes[row]
        size, at = varint(data, starts[row], min(end, starts[row] + 5))
        if at < 0 or size < 3 or size > end - at:
            continue
        end = at + size
        if data[at] != (1 << 3 | SIZED):
            continue
        size, at = varint(data, at + 1, end)
        if at < 0 or size < 1 or size != end - at:
            continue
        is_name = True
        for i in range(at, end):
            byte = data[i]
            is_letter = (byte | 0x20) >= 0x61 and (byte | 0x20) <= 0x7A
            is_name &= is_letter or (byte >= 0x30 and byte <= 0x39) or byte == 0x5F or byte == 0x2E
        if is_name:
            found[row] = end - starts[row]


@kernel(BYTES, INT64S, INT64S, OUT_INT64)
def measure_indexes(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, found: np.ndarray) -> None:
    """Measure the indexes of a message at the start of each row (a count and as many, in zigzag); -1 if they
    are not whole."""
    for row in range(starts.size):
        at = starts[row]
        end = at + sizes[row]
        count = int64(1)
        is_first = True
        while count > 0 and at >= 0:
            value, at = varint(data, at, min(end, at + 5))
            if is_first:
                is_first = False
                count = (value >> 1) ^ -(value & 1)
                if count < 0:
                    at = int64(-1)
            else:
                count -= 1
        found[row] = at - starts[row] if at >= 0 else int64(-1)
