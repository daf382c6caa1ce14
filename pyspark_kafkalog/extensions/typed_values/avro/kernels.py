"""Compiled decoding: a program for each row (:mod:`.resolution`), and what lists of entries repeat.

The program is trusted, the rows are not. Each read is checked against the end of its row, and positions only
rise. A loop has a count that its row's bytes bound, or :data:`MOST_EMPTY`. Nothing calls itself: loops and
calls share one stack, whose size bounds them.
"""

from __future__ import annotations

import numpy as np
from numpy import int64

from pyspark_kafkalog.codec.kernel import Integer, Integers, copy_bytes, inlined, kernel
from pyspark_kafkalog.codec.signature import (
    BYTES,
    INT32S,
    INT64,
    INT64S,
    OUT_BYTES,
    OUT_INT32,
    OUT_INT64,
    OUT_TABLE,
    TABLE,
)
from pyspark_kafkalog.extensions.typed_values.table import COUNT, POSITION, SIZES, VALIDITY, VALUES

# Operations. Those up to LAST_LENGTH read a length and as many bytes, up to LAST_VARINT a varint, then up to
# LAST_SIZED as many bytes as their parameter A says.
(
    SKIP_BYTES,
    PUT_BYTES,
    PUT_DECIMAL,
    SKIP_NUMBER,
    PUT_INT32,
    PUT_INT64,
    PUT_AS_FLOAT,
    PUT_AS_DOUBLE,
    PUT_MILLIS,
    CHOOSE,
    BLOCK,
    SKIP,
    PUT_FIXED,
    PUT_FIXED_DECIMAL,
    PUT_BOOLEAN,
    PUT_FLOAT,
    PUT_DOUBLE,
    PUT_FLOAT_AS_DOUBLE,
    PUT_ITEM,
    REPEAT,
    CALL,
    RETURN,
    GO_ON,
    SET_BOOLEAN,
    SET_INT32,
    SET_INT64,
    SET_INT128,
    SET_BYTES,
    FAIL,
    END,
) = range(30)
LAST_LENGTH, LAST_VARINT, LAST_SIZED = PUT_DECIMAL, BLOCK, PUT_FLOAT_AS_DOUBLE

# Columns of a program, one row an operation: what it does, the row that follows, its column, its parameters.
OPERATION, NEXT, COLUMN, A, B, VALID = range(6)
OPERATION_COLUMNS = 6
"""
VALID is 1 if the column is not null at its position, besides what the operation does.
CHOOSE takes the row A + a number below B; COLUMN is the cause if it isn't.
BLOCK begins items: NEXT; row A, if there are no more; row A + 1, if a length in bytes comes first. B: items
take no bytes.
REPEAT takes row A while the block has more items, and then NEXT, its BLOCK.
CALL takes NEXT until RETURN, and then row A. FAIL gives the cause A.
SET_... put A, or A and B, or B bytes of the constants from A on. Numbers have a 1 as A if they are ints.
"""

# Columns of the table of columns behind those of table.py: the least decimal that is too large.
LIMIT_HIGH, LIMIT_LOW = range(5, 7)
COLUMN_COLUMNS = 7

# Columns of the table of columns that have bytes.
TEXT_VALUES, TEXT_SIZES, TEXT_ORIGINS, TEXT_OUT = range(4)
TEXT_COLUMNS = 4
AT_ONCE = 64
"""Values of a column that are copied before those of the next one."""

# Columns of a table of faults, one row a row: why it is corrupt or 0, the row of the program, the byte.
CAUSE, FAILED_AT, BYTE = range(3)
FAULT_COLUMNS = 3

(
    FINE,
    SHORT,
    TRAILING,
    VARINT,
    INT,
    LENGTH,
    BRANCH,
    SYMBOL,
    BOOLEAN,
    TIMESTAMP,
    DECIMAL,
    NO_BRANCH,
    NO_SYMBOL,
    EMPTY_ITEMS,
    DEPTH,
    LARGE,
    FRAMING,
    FOREIGN,
) = range(18)
"""The causes of a corrupt row. FOREIGN: its schema is not one that the reader's can read."""

REST = -1
"""The size that stands for all bytes left of the row."""
MOST_EMPTY = 1024
"""The most items of a row in arrays whose items take no bytes."""
STACK = 1000
MOST_MILLIS = 9223372036854775
"""The most milliseconds that fit into microseconds."""
MOST = 0x7FFFFFFF
"""The most bytes or items of a column, since Arrow's offsets are int32."""
LOWEST = -0x8000000000000000
NO_BYTE = -1
"""Stands for a branch that is not written."""


@inlined
def place(columns: np.ndarray, counts: np.ndarray, column: Integer, part: Integer) -> Integer:
    """The index of a part of a column at its position. As uint64, since numba checks for negative indexes."""
    return np.uint64(columns[column, part] + counts[np.uint64(columns[column, POSITION])])


@inlined
def is_below(left: Integer, right: Integer) -> Integer:
    """Whether ``left < right`` as unsigned integers."""
    return (left ^ int64(LOWEST)) < (right ^ int64(LOWEST))


@inlined
def decimal(data: np.ndarray, at: Integer, size: Integer, high: Integer, low: Integer) -> Integers:
    """The integer in ``size`` bytes, two's complement, as two words; whether it is within ``(high, low)``."""
    if size == 0:
        return int64(0), int64(0), False
    sign = int64(-1) if data[at] >= 128 else int64(0)
    upper = sign
    lower = sign
    for i in range(at, at + size):
        if upper >> 55 != sign:
            return int64(0), int64(0), False
        upper = (upper << 8) | ((lower >> 56) & 255)
        lower = (lower << 8) | int64(data[i])
    if sign == 0:
        return upper, lower, upper < high or (upper == high and is_below(lower, low))
    absolute_low = -lower
    absolute_high = ~upper + (1 if lower == 0 else 0)
    return (
        upper,
        lower,
        is_below(absolute_high, high) or (absolute_high == high and is_below(absolute_low, low)),
    )


@kernel(
    *(BYTES, INT64S, INT64S, INT64S, TABLE, TABLE, INT64),
    *(OUT_INT64, OUT_INT64, OUT_INT64, OUT_BYTES, OUT_INT32, OUT_INT64, OUT_INT64, OUT_TABLE),
)
def decode(
    data: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    entries: np.ndarray,
    program: np.ndarray,
    columns: np.ndarray,
    fill: Integer,
    counts: np.ndarray,
    saved: np.ndarray,
    stack: np.ndarray,
    out: np.ndarray,
    out32: np.ndarray,
    out64: np.ndarray,
    origins: np.ndarray,
    faults: np.ndarray,
) -> None:
    """Decode ``data[start:start + size]`` of each row by the program from its entry on; null if size is -1.

    It writes ``faults[column, row]`` and ``counts``: how far each position is, and how many bytes each column
    has, as ``columns`` numbers them. Positions begin at -1 and bytes at 0; ``counts[0]`` is the row, and
    there are as many positions as ``saved`` has elements. With ``fill``, it writes what a row holds to
    ``out``, which two more views share, and where its bytes begin to ``origins``, for :func:`gather`. Rows
    that have a fault already are passed over. Validity, sizes and fixed-size values are zeroed before.
    """
    for row in range(starts.size):
        if sizes[row] < 0 or (fill and faults[CAUSE, row] != FINE):
            continue
        for i in range(saved.size):
            saved[i] = counts[i]
        counts[0] = row
        at = starts[row]
        end = at + sizes[row]
        step = entries[row]
        depth = int64(0)
        empty = int64(0)
        cause = int64(FINE)
        while True:
            here = np.uint64(step)
            operation = program[here, OPERATION]
            if operation == CHOOSE and at < end:
                # Nearly all branches are one byte.
                byte = int64(data[np.uint64(at)])
                if byte & 0x81 == 0 and byte >> 1 < program[here, B]:
                    at += 1
                    step = program[here, A] + (byte >> 1)
                    here = np.uint64(step)
                    operation = program[here, OPERATION]
            column = np.uint64(program[here, COLUMN])
            value = int64(0)
            begin = at
            if operation <= LAST_VARINT:
                shift = int64(0)
                while True:
                    if at == end:
                        cause = int64(SHORT)
                        break
                    byte = int64(data[np.uint64(at)])
                    at += 1
                    value |= (byte & 127) << shift
                    if byte < 128:
                        if shift == 63 and byte > 1:
                            cause = int64(VARINT)
                        break
                    shift += 7
                    if shift > 63:
                        cause = int64(VARINT)
                        break
                if cause != FINE:
                    break
                value = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
                is_number = SKIP_NUMBER <= operation <= PUT_MILLIS
                is_int = operation == CHOOSE or (is_number and program[here, A] == 1)
                if is_int and (at - begin > 5 or value != int64(np.int32(value))):
                    cause = int64(INT)
                    break
            if operation <= LAST_LENGTH or LAST_VARINT < operation <= LAST_SIZED:
                if operation > LAST_LENGTH:
                    value = program[here, A]
                    if value == REST:
                        value = end - at
                if value < 0:
                    cause = int64(LENGTH)
                    break
                if value > end - at:
                    cause = int64(SHORT)
                    break
                begin = at
                at += value

            if fill and program[here, VALID]:
                out[place(columns, counts, column, VALIDITY)] = 1
            if operation in (PUT_BYTES, PUT_FIXED, SET_BYTES):
                origin = begin
                if operation == SET_BYTES:
                    value = program[here, B]
                    origin = ~program[here, A]
                count = np.uint64(columns[column, COUNT])
                if value > MOST - counts[count]:
                    cause = int64(LARGE)
                    break
                counts[count] += value
                if fill:
                    out32[place(columns, counts, column, SIZES)] = value
                    origins[place(columns, counts, column, VALUES)] = origin
            elif operation == PUT_INT32:
                if fill:
                    out32[place(columns, counts, column, VALUES)] = value
            elif operation == PUT_INT64:
                if fill:
                    out64[place(columns, counts, column, VALUES)] = value
            elif operation == CHOOSE:
                if value < 0 or value >= program[here, B]:
                    cause = int64(column)
                    break
                step = program[here, A] + value
                continue
            elif operation == PUT_DOUBLE:
                if fill:
                    to = place(columns, counts, column, VALUES)
                    copy_bytes(out, 8 * int64(to), data, begin, 8)
            elif operation == PUT_FLOAT:
                if fill:
                    to = place(columns, counts, column, VALUES)
                    copy_bytes(out, 4 * int64(to), data, begin, 4)
            elif operation == PUT_BOOLEAN:
                if data[begin] > 1:
                    cause = int64(BOOLEAN)
                    break
                if fill:
                    out[place(columns, counts, column, VALUES)] = data[begin]
            elif operation == PUT_MILLIS:
                if value > MOST_MILLIS or value < -MOST_MILLIS:
                    cause = int64(TIMESTAMP)
                    break
                if fill:
                    out64[place(columns, counts, column, VALUES)] = value * 1000
            elif operation == PUT_ITEM:
                count = np.uint64(columns[column, COUNT])
                if counts[count] == MOST:
                    cause = int64(LARGE)
                    break
                counts[count] += 1
                if fill:
                    out32[place(columns, counts, column, SIZES)] += 1
            elif operation == BLOCK:
                if value == 0:
                    step = program[here, A]
                    continue
                if value == LOWEST:
                    cause = int64(LENGTH)
                    break
                items = abs(value)
                if program[here, B]:
                    if items > MOST_EMPTY - empty:
                        cause = int64(EMPTY_ITEMS)
                        break
                    empty += items
                elif items > end - at:
                    cause = int64(SHORT)
                    break
                if depth == stack.size:
                    cause = int64(DEPTH)
                    break
                stack[depth] = items
                depth += 1
                if value < 0:
                    step = program[here, A] + 1
                    continue
            elif operation == REPEAT:
                stack[depth - 1] -= 1
                if stack[depth - 1] > 0:
                    step = program[here, A]
                    continue
                depth -= 1
            elif operation in (PUT_DECIMAL, PUT_FIXED_DECIMAL):
                upper, lower, is_within = decimal(
                    data, begin, value, columns[column, LIMIT_HIGH], columns[column, LIMIT_LOW]
                )
                if not is_within:
                    cause = int64(DECIMAL)
                    break
                if fill:
                    to = np.uint64(2 * int64(place(columns, counts, column, VALUES)))
                    out64[to] = lower
                    out64[to + np.uint64(1)] = upper
            elif operation == PUT_AS_DOUBLE:
                if fill:
                    to = place(columns, counts, column, VALUES)
                    out64[to] = np.float64(value).view(np.int64)
            elif operation == PUT_AS_FLOAT:
                if fill:
                    to = place(columns, counts, column, VALUES)
                    out32[to] = np.float32(value).view(np.int32)
            elif operation == PUT_FLOAT_AS_DOUBLE:
                if fill:
                    bits = np.int32(0)
                    for i in range(4):
                        bits |= np.int32(data[begin + i]) << np.int32(8 * i)
                    to = place(columns, counts, column, VALUES)
                    out64[to] = np.float64(np.int32(bits).view(np.float32)).view(np.int64)
            elif operation == SET_BOOLEAN:
                if fill:
                    out[place(columns, counts, column, VALUES)] = program[here, A]
            elif operation == SET_INT32:
                if fill:
                    out32[place(columns, counts, column, VALUES)] = program[here, A]
            elif operation == SET_INT64:
                if fill:
                    out64[place(columns, counts, column, VALUES)] = program[here, A]
            elif operation == SET_INT128:
                if fill:
                    to = np.uint64(2 * int64(place(columns, counts, column, VALUES)))
                    out64[to] = program[here, A]
                    out64[to + np.uint64(1)] = program[here, B]
            elif operation == CALL:
                if depth == stack.size:
                    cause = int64(DEPTH)
                    break
                stack[depth] = program[here, A]
                depth += 1
            elif operation == RETURN:
                depth -= 1
                step = stack[depth]
                continue
            elif operation == FAIL:
                cause = program[here, A]
                break
            elif operation == END:
                if at != end:
                    cause = int64(TRAILING)
                break
            step = program[here, NEXT]
        if cause != FINE:
            faults[CAUSE, row] = cause
            faults[FAILED_AT, row] = step
            faults[BYTE, row] = begin - starts[row]
            for i in range(saved.size):
                counts[i] = saved[i]


@kernel(BYTES, BYTES, INT32S, INT64S, OUT_TABLE, OUT_BYTES)
def gather(
    data: np.ndarray,
    constants: np.ndarray,
    sizes: np.ndarray,
    origins: np.ndarray,
    texts: np.ndarray,
    out: np.ndarray,
) -> None:
    """Copy the bytes of all columns to ``out``, each column's one after another.

    Some rows of all columns at a time: the bodies are still in the processor's cache then.

    :param origins: where values begin in ``data``, or, as ``~origin``, in ``constants``.
    :param texts: a row each column: its values, the first of ``sizes`` and of ``origins``, and where its
        bytes begin in ``out``, which moves behind them.
    """
    longest = int64(0)
    for column in range(texts.shape[0]):
        longest = max(longest, texts[column, TEXT_VALUES])
    for begin in range(0, longest, AT_ONCE):
        for column in range(texts.shape[0]):
            to = texts[column, TEXT_OUT]
            first = texts[column, TEXT_SIZES]
            first_origin = texts[column, TEXT_ORIGINS]
            for value in range(begin, min(begin + AT_ONCE, texts[column, TEXT_VALUES])):
                size = int64(sizes[np.uint64(first + value)])
                if size == 0:
                    continue
                origin = origins[np.uint64(first_origin + value)]
                if origin >= 0:
                    copy_bytes(out, to, data, origin, size)
                else:
                    copy_bytes(out, to, constants, ~origin, size)
                to += size
            texts[column, TEXT_OUT] = to


@inlined
def _zigzag(value: Integer) -> Integer:
    return (value << 1) ^ (value >> 63)


@inlined
def _is_null(validity: np.ndarray, row: Integer) -> bool:
    return validity.size > 0 and (validity[row >> 3] >> (row & 7)) & 1 == 0


@kernel(INT64S, BYTES, INT64, INT64, OUT_INT64)
def measure_varints(
    values: np.ndarray, validity: np.ndarray, null: Integer, some: Integer, sizes: np.ndarray
) -> None:
    """Add to each row's size that of its branch, if it has one, and of its number in zigzag.

    :param validity: a bitmap of the rows that have a number; empty if all have.
    :param null: the byte of the branch of a row without a number; :data:`NO_BYTE` if it has none.
    :param some: the byte of the branch before a number; or the same.
    """
    for row in range(values.size):
        if _is_null(validity, row):
            sizes[row] += null != NO_BYTE
            continue
        rest, size = _zigzag(values[row]), 1 + (some != NO_BYTE)
        while rest & ~0x7F:
            rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
            size += 1
        sizes[row] += size


@kernel(INT64S, BYTES, INT64, INT64, OUT_INT64, OUT_BYTES)
def put_varints(
    values: np.ndarray,
    validity: np.ndarray,
    null: Integer,
    some: Integer,
    at: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write what :func:`measure_varints` has measured at ``at``, which moves behind it.

    A number is written by seven bits from the lowest on.
    """
    for row in range(values.size):
        to = at[row]
        branch = null if _is_null(validity, row) else some
        if branch != NO_BYTE:
            out[to] = branch
            to += 1
        if not _is_null(validity, row):
            rest = _zigzag(values[row])
            while rest & ~0x7F:
                out[to] = (rest & 0x7F) | 0x80
                rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
                to += 1
            out[to] = rest
            to += 1
        at[row] = to


@inlined
def _bytes_of(low: Integer, high: Integer) -> Integer:
    """The fewest bytes that hold a number of 128 bits in two's complement."""
    word, others = (low, 0) if high == low >> 63 else (high, 8)
    size = 8
    while size > 1 and word >> (8 * size - 9) == word >> 63:
        size -= 1
    return others + size


@kernel(INT64S, BYTES, INT64, OUT_INT64, results=1)
def measure_decimals(words: np.ndarray, validity: np.ndarray, fixed: Integer, sizes: np.ndarray) -> Integer:
    """Add to each row's size that of its unscaled number, and of its length in bytes.

    :param words: the lower and the upper 64 bits of each row.
    :param validity: a bitmap of the rows that have a number; empty if all have.
    :param fixed: the bytes of each number, which has no length then; 0 for as few as will do.
    :returns: how many rows have a number that needs more than ``fixed``.
    """
    larger = int64(0)
    for row in range(sizes.size):
        if not _is_null(validity, row):
            size = _bytes_of(words[2 * row], words[2 * row + 1])
            larger += fixed > 0 and size > fixed
            sizes[row] += fixed if fixed else 1 + size
    return larger


@kernel(INT64S, BYTES, INT64, OUT_INT64, OUT_BYTES)
def put_decimals(
    words: np.ndarray, validity: np.ndarray, fixed: Integer, at: np.ndarray, out: np.ndarray
) -> None:
    """Write what :func:`measure_decimals` has measured at ``at``, big-endian; that moves behind it."""
    for row in range(at.size):
        if _is_null(validity, row):
            continue
        low, high, to = words[2 * row], words[2 * row + 1], at[row]
        size = fixed
        if not fixed:
            size = _bytes_of(low, high)
            out[to] = _zigzag(size)
            to += 1
        for i in range(size):
            place = size - 1 - i
            word = low if place < 8 else (high if place < 16 else high >> 63)
            out[to + i] = (word >> (8 * (place & 7))) & 0xFF
        at[row] = to + size
