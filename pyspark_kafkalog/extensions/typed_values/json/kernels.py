"""Compiled decoding of what is common in JSON: each row is walked once, straight into Arrow's buffers.

A row with anything else in it, or with a fault, is marked as rare: :mod:`.rows` decides it, and nothing of
it stays. So this has no rules of its own: it reads a subset of what that reads.

The table of columns is trusted, the rows are not. Each read is checked against the end of its row, each
write against what its column has room for, and positions only rise. Nothing calls itself.
"""

from __future__ import annotations

import numpy as np
from numpy import int64, uint64

from pyspark_kafkalog.codec.kernel import Integer, Integers, copy_bytes, inlined, kernel
from pyspark_kafkalog.codec.signature import (
    BYTES,
    INT64,
    INT64S,
    OUT_BYTES,
    OUT_INT32,
    OUT_INT64,
    TABLE,
)
from pyspark_kafkalog.extensions.typed_values.table import COUNT, POSITION, SIZES, VALIDITY, VALUES

# What a column is. Those from BOOLEAN on have fixed sizes.
(
    STRUCT,
    LIST,
    MAP,
    STRING,
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64_,
    FLOAT,
    DOUBLE,
    DECIMAL,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
) = range(15)

# Columns of the table of columns behind those of table.py, one row a column: what it is; where its
# name lies in the names, and its bytes; the scale of a decimal, and the least that is too large, or 0 if all
# of 18 digits fit; where the numbers of its fields begin, and how many there are, or its key's and its
# item's; where its slots begin, and how many there are but one; which field of its struct it is.
KIND, NAME_AT, NAME_SIZE, SCALE, LIMIT, CHILDREN, FIELDS, SLOTS, MASK, ORDINAL = range(5, 15)
COLUMN_COLUMNS = 15

FINE, RARE = range(2)
"""What a row is."""
NO_ZONE = 1 << 40
"""In place of seconds, for a region, which has no one offset: times without a zone are :data:`LOCAL`."""
_VALID, LOCAL = 1, 2
"""Of validities: the second is that of a timestamp in microseconds since 1970 by the clocks of the region."""

_BEGUN, _NEXT, _VALUE, _AFTER = range(4)
"""What comes in an object or array: its end or a first part, a part, a value, or what is behind one."""
_QUOTE, _BACKSLASH, _SPACE, _COMMA, _COLON, _MINUS, _PLUS, _POINT = 34, 92, 32, 44, 58, 45, 43, 46
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 123, 125, 91, 93
_ZERO, _NINE, _E, _N, _T, _F, _U, _Z, _UPPER_T, _UPPER_Z = 48, 57, 101, 110, 116, 102, 117, 122, 84, 90
_MOST_SKIPPED_DEPTH = 60
"""Objects and arrays in one another that are skipped here: their kinds are bits of an int64."""
_LONGEST_NUMBER = 300
"""Characters; Jackson has a bound of 1000 digits."""
_LONGEST_STRING = 20_000_000
"""Bytes, of which each character of Java's has at least one; Jackson has a bound of as many characters."""
_LONGEST_NAME = 10_000
"""Bytes; Jackson has a bound of 50,000 characters."""
_MOST_OFFSET = 18 * 60
"""Minutes of Java's time zones."""
_LEAST_POWER, _MOST_POWER = -342, 308
"""Of ten, in the table of powers."""
_NO_DAY = -(1 << 40)
_MOST_DIGITS = 999_999_999_999_999_999
"""Of a decimal here: 18 of them."""
_DAY = 86_400
_MICROS = 1_000_000
_ROUNDED = 9
"""Bits of a product below those of a double's mantissa, and one that rounds: 64 - 52 - 3."""


@inlined
def behind_space(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The next place that is not white space."""
    while at < end:
        byte = data[uint64(at)]
        if byte > _SPACE or (byte != 32 and byte != 10 and byte != 13 and byte != 9):
            break
        at += 1
    return at


@inlined
def behind_word(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The place behind true, false or null; -1 if it is something else."""
    if end - at < 4:
        return int64(-1)
    first = data[at]
    if first == _T:
        if data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101:
            return at + 4
    elif first == _N:
        if data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108:
            return at + 4
    elif (
        first == _F
        and end - at > 4
        and data[at + 1] == 97
        and data[at + 2] == 108
        and data[at + 3] == 115
        and data[at + 4] == 101
    ):
        return at + 5
    return int64(-1)


@inlined
def is_digit(byte: Integer) -> Integer:
    return _ZERO <= byte <= _NINE


@inlined
def hexadecimal(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The number of four hexadecimal digits; -1 if they are not that."""
    if end - at < 4:
        return int64(-1)
    value = int64(0)
    for i in range(at, at + 4):
        byte = int64(data[i])
        if is_digit(byte):
            digit = byte - _ZERO
        elif 97 <= (byte | 32) <= 102:
            digit = (byte | 32) - 87
        else:
            return int64(-1)
        value = value * 16 + digit
    return value


@inlined
def behind_string(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The place behind the quote that ends a string, whose first character is at ``at``; -1 if it is odd."""
    while at < end:
        byte = data[uint64(at)]
        at += 1
        if byte == _QUOTE:
            return at
        if byte < _SPACE:
            return int64(-1)
        if byte == _BACKSLASH:
            if at == end:
                return int64(-1)
            byte = data[uint64(at)]
            at += 1
            if byte == _U:
                if hexadecimal(data, at, end) < 0:
                    return int64(-1)
                at += 4
            elif unescaped(byte) < 0:
                return int64(-1)
    return int64(-1)


@inlined
def unescaped(byte: Integer) -> Integer:
    """What stands behind a backslash for something else; -1 if it does not."""
    if byte in (_QUOTE, _BACKSLASH, 47):
        return int64(byte)
    if byte == _N:
        return int64(10)
    if byte == _T:
        return int64(9)
    if byte == 114:
        return int64(13)
    if byte == 98:
        return int64(8)
    if byte == _F:
        return int64(12)
    return int64(-1)


@inlined
def behind_number(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The place behind a number; -1 if it is odd."""
    begin = at
    if data[at] == _MINUS:
        at += 1
    if at == end or not is_digit(data[at]):
        return int64(-1)
    is_zero = data[at] == _ZERO
    at += 1
    while at < end and is_digit(data[uint64(at)]):
        if is_zero:
            return int64(-1)
        at += 1
    if at < end and data[at] == _POINT:
        at += 1
        if at == end or not is_digit(data[at]):
            return int64(-1)
        while at < end and is_digit(data[uint64(at)]):
            at += 1
    if at < end and (data[at] | 32) == _E:
        at += 1
        if at < end and (data[at] == _MINUS or data[at] == _PLUS):
            at += 1
        if at == end or not is_digit(data[at]):
            return int64(-1)
        while at < end and is_digit(data[uint64(at)]):
            at += 1
    return at if at - begin <= _LONGEST_NUMBER else int64(-1)


@inlined
def behind_name(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The place behind a name that nothing wants, from its quote on, and its colon; -1 if it is odd."""
    at = behind_space(data, at, end)
    if at == end or data[at] != _QUOTE:
        return int64(-1)
    begin = at
    at = behind_string(data, at + 1, end)
    if at < 0 or at - begin > _LONGEST_NAME:
        return int64(-1)
    at = behind_space(data, at, end)
    if at == end or data[at] != _COLON:
        return int64(-1)
    return at + 1


@inlined
def behind_value(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The place behind a value that nothing wants; -1 if it is odd."""
    depth = int64(0)
    objects = int64(0)
    while True:
        at = behind_space(data, at, end)
        if at == end:
            return int64(-1)
        byte = data[at]
        if byte == _QUOTE:
            at = behind_string(data, at + 1, end)
        elif byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            if depth == _MOST_SKIPPED_DEPTH:
                return int64(-1)
            is_object = int64(byte == _OPEN_OBJECT)
            inside = behind_space(data, at + 1, end)
            if inside == end:
                return int64(-1)
            if data[inside] == byte + 2:
                at = inside + 1
            else:
                depth += 1
                objects = objects << 1 | is_object
                at = inside
                if is_object:
                    at = behind_name(data, at, end)
                    if at < 0:
                        return int64(-1)
                continue
        elif byte == _MINUS or is_digit(byte):
            at = behind_number(data, at, end)
        else:
            at = behind_word(data, at, end)
        if at < 0:
            return int64(-1)
        while depth > 0:
            at = behind_space(data, at, end)
            if at == end:
                return int64(-1)
            byte = data[at]
            at += 1
            if byte == _COMMA:
                if objects & 1:
                    at = behind_name(data, at, end)
                    if at < 0:
                        return int64(-1)
                break
            if byte != (_CLOSE_OBJECT if objects & 1 else _CLOSE_ARRAY):
                return int64(-1)
            depth -= 1
            objects >>= 1
        if depth == 0:
            return at


@inlined
def digits_of(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """A number: the place behind it, or -1 if it is odd; its digits as one whole number of 64 bits without
    sign, the power of ten by which they are too large, how many there are in the fraction, or -1 without one.
    """
    begin = at
    stop = behind_number(data, at, end)
    if stop < 0:
        return int64(-1), int64(0), int64(0), int64(0)
    if data[at] == _MINUS:
        at += 1
    digits = int64(0)
    count = int64(0)
    fraction = int64(-1)
    power = int64(0)
    while at < stop:
        byte = int64(data[uint64(at)])
        at += 1
        if is_digit(byte):
            if digits != 0 or byte != _ZERO:
                count += 1
            digits = digits * 10 + (byte - _ZERO)
            if fraction >= 0:
                fraction += 1
        elif byte == _POINT:
            fraction = int64(0)
        else:
            is_negative = data[at] == _MINUS
            if is_negative or data[at] == _PLUS:
                at += 1
            while at < stop:
                power = min(power * 10 + (int64(data[at]) - _ZERO), int64(100_000))
                at += 1
            if is_negative:
                power = -power
            fraction = max(fraction, int64(0))
    if count > 19:
        return int64(-1), begin, int64(0), int64(0)
    return stop, digits, max(fraction, int64(0)) - power, fraction


@inlined
def double_of(digits: Integer, power: Integer, powers: np.ndarray) -> Integer:
    """The bits of the double that is nearest to ``digits * 10 ** power``; -1 for one that is not normal.

    The algorithm of Eisel and Lemire, "Number Parsing at a Gigabyte per Second" (2021). ``powers`` holds the
    upper 128 bits of powers of five, from that of -342 on.
    """
    if digits == 0:
        return int64(0)
    if power < _LEAST_POWER or power > _MOST_POWER:
        return int64(-1)
    number = uint64(digits)
    zeros = int64(0)
    while number >> uint64(63) == uint64(0):
        number <<= uint64(1)
        zeros += 1
    row = uint64(power - _LEAST_POWER)
    mask = uint64(0xFFFFFFFF)
    half = uint64(32)
    low = uint64(0)
    high = uint64(0)
    for part in range(2):
        factor = uint64(powers[row, part])
        bottom = (number & mask) * (factor & mask)
        left = (number >> half) * (factor & mask)
        right = (number & mask) * (factor >> half)
        middle = (bottom >> half) + (left & mask) + (right & mask)
        below = (bottom & mask) | (middle << half)
        above = (number >> half) * (factor >> half) + (left >> half) + (right >> half) + (middle >> half)
        if part == 0:
            low = below
            high = above
            if (high & uint64(0x1FF)) != uint64(0x1FF):
                break
        else:
            low += above
            if low < above:
                high += uint64(1)
    if low == ~uint64(0) and (power < -27 or power > 55):
        return int64(-1)
    top = high >> uint64(63)
    mantissa = high >> (top + uint64(_ROUNDED))
    exponent = (((152170 + 65536) * power) >> 16) + 63 + int64(top) - zeros + 1023
    if exponent <= 0:
        return int64(-1)
    if (
        low <= uint64(1)
        and -4 <= power <= 23
        and (mantissa & uint64(3)) == uint64(1)
        and mantissa << (top + uint64(_ROUNDED)) == high
    ):
        mantissa &= ~uint64(1)
    mantissa = (mantissa + (mantissa & uint64(1))) >> uint64(1)
    if mantissa >= uint64(1) << uint64(53):
        mantissa >>= uint64(1)
        exponent += 1
    if exponent >= 2047:
        return int64(-1)
    return int64(mantissa & ((uint64(1) << uint64(52)) - uint64(1))) | exponent << 52


@inlined
def two_digits(data: np.ndarray, at: Integer) -> Integer:
    """The number of two digits; large if they are not that."""
    first = int64(data[at]) - _ZERO
    second = int64(data[at + 1]) - _ZERO
    if first < 0 or first > 9 or second < 0 or second > 9:
        return int64(1_000_000)
    return 10 * first + second


@inlined
def days_of(data: np.ndarray, at: Integer) -> Integer:
    """Days since 1970 of ten characters as 2024-12-31; _NO_DAY if they are not that."""
    if data[at + 4] != _MINUS or data[at + 7] != _MINUS:
        return int64(_NO_DAY)
    year = 100 * two_digits(data, at) + two_digits(data, at + 2)
    month = two_digits(data, at + 5)
    day = two_digits(data, at + 8)
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1 or day > 31:
        return int64(_NO_DAY)
    if day > 28:
        if month == 2:
            is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
            if day > 29 or not is_leap:
                return int64(_NO_DAY)
        elif day > 30 and (month == 4 or month == 6 or month == 9 or month == 11):
            return int64(_NO_DAY)
    since_march = year - (1 if month <= 2 else 0)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * since_march + since_march // 4 - since_march // 100 + since_march // 400 + of_year - 719_468


@inlined
def micros_of(data: np.ndarray, at: Integer, end: Integer, zone: Integer, has_zone: Integer) -> Integers:
    """A timestamp as 2024-12-31T23:59:59.123456+01:00: the place behind its quote, or -1 if it is odd;
    microseconds since 1970; and what it is, as validities say. ``zone`` is that of one without, in seconds or
    :data:`NO_ZONE`; if not ``has_zone`` none has one.
    """
    if end - at < 20:
        return int64(-1), int64(0), int64(0)
    days = days_of(data, at)
    hours = two_digits(data, at + 11)
    minutes = two_digits(data, at + 14)
    seconds = two_digits(data, at + 17)
    if (
        days == _NO_DAY
        or (data[at + 10] != _UPPER_T and data[at + 10] != _SPACE)
        or data[at + 13] != _COLON
        or data[at + 16] != _COLON
        or hours > 23
        or minutes > 59
        or seconds > 59
    ):
        return int64(-1), int64(0), int64(0)
    at += 19
    micros = int64(0)
    if data[at] == _POINT:
        at += 1
        scale = int64(100_000)
        while at < end and is_digit(data[at]):
            micros += scale * (int64(data[at]) - _ZERO)
            scale //= 10
            at += 1
        if at == end:
            return int64(-1), int64(0), int64(0)
    east = zone
    if data[at] != _QUOTE:
        if not has_zone:
            return int64(-1), int64(0), int64(0)
        if data[at] == _UPPER_Z:
            east = int64(0)
            at += 1
        else:
            sign = data[at]
            if (sign != _PLUS and sign != _MINUS) or end - at < 7 or data[at + 3] != _COLON:
                return int64(-1), int64(0), int64(0)
            of_hour = two_digits(data, at + 4)
            offset = 60 * two_digits(data, at + 1) + of_hour
            if of_hour > 59 or offset > _MOST_OFFSET:
                return int64(-1), int64(0), int64(0)
            east = 60 * (offset if sign == _PLUS else -offset)
            at += 6
        if at == end or data[at] != _QUOTE:
            return int64(-1), int64(0), int64(0)
    what = int64(_VALID)
    if east == NO_ZONE:
        east = int64(0)
        what = int64(LOCAL)
    local = _DAY * days + 3600 * hours + 60 * minutes + seconds
    return at + 1, _MICROS * (local - east) + micros, what


@inlined
def utf8_size(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """Bytes of the character at ``at``, which is not ASCII; 0 if it is not UTF-8."""
    first = data[at]
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first < 0xC2 or first > 0xF4 or end - at < size:
        return int64(0)
    for i in range(at + 1, at + size):
        if (data[i] & 0xC0) != 0x80:
            return int64(0)
    second = data[at + 1]
    if (
        (first == 0xE0 and second < 0xA0)
        or (first == 0xED and second > 0x9F)
        or (first == 0xF0 and second < 0x90)
        or (first == 0xF4 and second > 0x8F)
    ):
        return int64(0)
    return int64(size)


@inlined
def put_utf8(out: np.ndarray, to: Integer, char: Integer) -> Integer:
    """Write a character; the place behind it."""
    if char < 0x80:
        out[to] = char
        return to + 1
    if char < 0x800:
        out[to] = 0xC0 | char >> 6
        out[to + 1] = 0x80 | (char & 63)
        return to + 2
    if char < 0x10000:
        out[to] = 0xE0 | char >> 12
        out[to + 1] = 0x80 | (char >> 6 & 63)
        out[to + 2] = 0x80 | (char & 63)
        return to + 3
    out[to] = 0xF0 | char >> 18
    out[to + 1] = 0x80 | (char >> 12 & 63)
    out[to + 2] = 0x80 | (char >> 6 & 63)
    out[to + 3] = 0x80 | (char & 63)
    return to + 4


@inlined
def put_string(data: np.ndarray, at: Integer, end: Integer, out: np.ndarray, to: Integer) -> Integers:
    """Write a string, whose first character is at ``at``: the place behind its quote, or -1 if it is odd,
    and that behind what was written. It takes no more bytes than are left of the row."""
    begin = at
    while at < end:
        byte = data[uint64(at)]
        if byte == _QUOTE:
            copy_bytes(out, to, data, begin, at - begin)
            return at + 1, to + at - begin
        if byte < _SPACE:
            return int64(-1), to
        if byte < 0x80 and byte != _BACKSLASH:
            at += 1
            continue
        if byte != _BACKSLASH:
            size = utf8_size(data, at, end)
            if size == 0:
                return int64(-1), to
            at += size
            continue
        copy_bytes(out, to, data, begin, at - begin)
        to += at - begin
        if end - at < 2:
            return int64(-1), to
        at += 2
        char = unescaped(data[at - 1])
        if data[at - 1] == _U:
            char = hexadecimal(data, at, end)
            at += 4
            if 0xD800 <= char < 0xE000:
                if char >= 0xDC00 or end - at < 6 or data[at] != _BACKSLASH or data[at + 1] != _U:
                    return int64(-1), to
                other = hexadecimal(data, at + 2, end)
                if other < 0xDC00 or other >= 0xE000:
                    return int64(-1), to
                char = 0x10000 + ((char - 0xD800) << 10) + (other - 0xDC00)
                at += 6
        if char < 0:
            return int64(-1), to
        to = put_utf8(out, to, char)
        begin = at
    return int64(-1), to


@inlined
def bytes_of(data: np.ndarray, at: Integer, end: Integer, left: Integer) -> Integer:
    """How many bytes a string, whose first character is at ``at``, takes at most; -1 if it is odd.

    Its end is looked for only if what is left of the row is more than there is place for.
    """
    if end - at <= left:
        return end - at
    stop = behind_string(data, at, end)
    return stop if stop < 0 else stop - at


@inlined
def field_of(
    data: np.ndarray,
    at: Integer,
    size: Integer,
    columns: np.ndarray,
    column: Integer,
    children: np.ndarray,
    slots: np.ndarray,
    names: np.ndarray,
) -> Integer:
    """Which field of a struct has the name of ``size`` bytes at ``at``; -1 if there is none."""
    digest = size
    for i in range(at, at + size):
        digest = (digest * 31 + int64(data[uint64(i)])) & 0x7FFFFFFF
    mask = columns[column, MASK]
    slot = digest & mask
    while True:
        field = slots[columns[column, SLOTS] + slot]
        if field < 0:
            return int64(-1)
        child = children[columns[column, CHILDREN] + field]
        if columns[child, NAME_SIZE] == size and is_same(data, at, names, columns[child, NAME_AT], size):
            return field
        slot = (slot + 1) & mask


@inlined
def is_same(left: np.ndarray, at: Integer, right: np.ndarray, other: Integer, size: Integer) -> Integer:
    """Whether the same ``size`` bytes are in two places."""
    same = int64(0)
    while same < size and left[uint64(at + same)] == right[uint64(other + same)]:
        same += 1
    return same == size


@inlined
def undo(
    columns: np.ndarray,
    counts: np.ndarray,
    saved: np.ndarray,
    row: Integer,
    out: np.ndarray,
    out32: np.ndarray,
) -> None:
    """Have nothing of a row be there."""
    for column in range(columns.shape[0]):
        position = columns[column, POSITION]
        begin = saved[position] + 1 if position > 0 else row
        stop = counts[position] + 1 if position > 0 else row + 1
        for i in range(begin, stop):
            out[columns[column, VALIDITY] + i] = 0
            if columns[column, KIND] <= STRING and columns[column, KIND] != STRUCT:
                out32[columns[column, SIZES] + i] = 0
    for i in range(counts.size):
        counts[i] = saved[i]


@kernel(
    *(BYTES, INT64S, INT64S, INT64, INT64, TABLE, INT64S, INT64S, BYTES, TABLE, INT64S),
    *(OUT_INT64, OUT_INT64, OUT_INT64, OUT_INT64, OUT_BYTES, OUT_INT32, OUT_INT64, OUT_INT64),
    results=3,
)
def decode(
    data: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    first: Integer,
    zone: Integer,
    columns: np.ndarray,
    children: np.ndarray,
    slots: np.ndarray,
    names: np.ndarray,
    powers: np.ndarray,
    room: np.ndarray,
    counts: np.ndarray,
    saved: np.ndarray,
    stack: np.ndarray,
    seen: np.ndarray,
    out: np.ndarray,
    out32: np.ndarray,
    out64: np.ndarray,
    marks: np.ndarray,
) -> Integers:
    """Decode ``data[start:start + size]`` of each row from ``first`` on; null if size is -1.

    It writes what each row is to ``marks``, and ``counts``: how far each position is, which begin at -1, and
    how many bytes each column has, as ``columns`` numbers them; ``counts[0]`` is the row. What is written to
    lies in ``out``, which two more views share, and was zeroed but for bytes.

    :param zone: of times without one, in seconds east of UTC, or :data:`NO_ZONE`.
    :param room: how many elements or bytes there is place for, for each of the ``counts``.
    :param stack: an element for each column. ``seen`` has two, zeroed: the last object that it was in, and
        that it was.
    :returns: the row to go on with, which count has too little room, and how much it needs; or the number of
        rows and -1.
    """
    stamp = int64(0)
    for row in range(first, starts.size):
        if sizes[row] < 0:
            continue
        for i in range(counts.size):
            saved[i] = counts[i]
        counts[0] = row
        at = starts[row]
        end = at + sizes[row]
        lacking = int64(-1)
        needed = int64(0)
        mark = int64(RARE)
        column = int64(0)
        target = int64(0)
        depth = int64(0)
        guess = int64(0)
        stamp += 1
        own = stamp
        state = int64(_VALUE)
        at = behind_space(data, at, end)
        if at == end:
            mark = int64(FINE)
        while at < end:
            at = behind_space(data, at, end)
            if at == end:
                break
            byte = data[uint64(at)]
            if state == _VALUE:
                kind = columns[target, KIND]
                position = counts[columns[target, POSITION]]
                if byte == _N:
                    at = behind_word(data, at, end)
                    if at < 0 or (depth == 0 and target == 0):
                        break
                    state = int64(_AFTER)
                    continue
                what = int64(_VALID)
                if kind == STRING:
                    if byte != _QUOTE:
                        break
                    count = columns[target, COUNT]
                    most = bytes_of(data, at + 1, end, room[count] - counts[count])
                    if most < 0:
                        break
                    if most > room[count] - counts[count]:
                        lacking = count
                        needed = counts[count] + most
                        break
                    to = columns[target, VALUES] + counts[count]
                    at, behind = put_string(data, at + 1, end, out, to)
                    if at < 0 or behind - to > _LONGEST_STRING:
                        break
                    out32[columns[target, SIZES] + position] = behind - to
                    counts[count] += behind - to
                elif kind <= MAP:
                    if byte != (_OPEN_ARRAY if kind == LIST else _OPEN_OBJECT):
                        break
                    stack[depth] = column
                    depth += 1
                    column = target
                    at += 1
                    out[columns[target, VALIDITY] + position] = _VALID
                    guess = int64(0)
                    state = int64(_BEGUN)
                    if kind == STRUCT:
                        # A field of this one that has been seen in this object has its stamp.
                        stamp += 1
                        own = stamp
                        seen[columns.shape[0] + target] = own
                    continue
                elif kind == BOOLEAN:
                    if byte != _T and byte != _F:
                        break
                    at = behind_word(data, at, end)
                    if at < 0:
                        break
                    out[columns[target, VALUES] + position] = 1 if byte == _T else 0
                elif kind <= DECIMAL:
                    if byte != _MINUS and not is_digit(byte):
                        break
                    at, digits, divisor, fraction = digits_of(data, at, end)
                    if at < 0:
                        break
                    to = columns[target, VALUES] + position
                    is_negative = byte == _MINUS
                    if kind in (DOUBLE, FLOAT):
                        bits = double_of(digits, -divisor, powers)
                        if bits < 0:
                            break
                        if is_negative and (digits != 0 or fraction >= 0):
                            bits |= int64(-1) << 63
                        if kind == DOUBLE:
                            out64[to] = bits
                        else:
                            # Right between two floats it may have been rounded; others are not normal.
                            exponent = bits >> 52 & 2047
                            is_between = (bits & 0x1FFFFFFF) == 0x10000000
                            if digits != 0 and (is_between or exponent <= 896 or exponent > 1149):
                                break
                            out32[to] = np.float32(int64(bits).view(np.float64)).view(np.int32)
                    else:
                        if digits < 0:
                            break
                        if kind == DECIMAL:
                            shift = columns[target, SCALE] - divisor
                            if shift < 0 or shift > 18:
                                break
                            while shift > 0 and digits <= _MOST_DIGITS:
                                digits *= 10
                                shift -= 1
                            limit = columns[target, LIMIT]
                            if digits > _MOST_DIGITS or (limit != 0 and digits >= limit):
                                break
                        elif fraction >= 0:
                            break
                        number = -digits if is_negative else digits
                        if kind == DECIMAL:
                            out64[2 * to] = number
                            out64[2 * to + 1] = number >> 63
                        elif kind == INT64_:
                            out64[to] = number
                        elif kind == INT32:
                            if number != int64(np.int32(number)):
                                break
                            out32[to] = number
                        elif kind == INT16:
                            if number < -32768 or number > 32767:
                                break
                            out[2 * to] = number & 255
                            out[2 * to + 1] = number >> 8 & 255
                        else:
                            if number < -128 or number > 127:
                                break
                            out[to] = number & 255
                elif byte != _QUOTE:
                    break
                elif kind == DATE:
                    if end - at < 12 or data[at + 11] != _QUOTE:
                        break
                    days = days_of(data, at + 1)
                    if days == _NO_DAY:
                        break
                    out32[columns[target, VALUES] + position] = days
                    at += 12
                else:
                    at, micros, what = micros_of(
                        data, at + 1, end, zone if kind == TIMESTAMP else int64(0), int64(kind == TIMESTAMP)
                    )
                    if at < 0:
                        break
                    out64[columns[target, VALUES] + position] = micros
                out[columns[target, VALIDITY] + position] = what
                state = int64(_AFTER)
                continue
            kind = columns[column, KIND]
            close = _CLOSE_ARRAY if kind == LIST else _CLOSE_OBJECT
            if state == _AFTER:
                if byte == _COMMA:
                    at += 1
                    state = int64(_NEXT)
                    continue
                if byte != close:
                    break
            if byte == close and state != _NEXT:
                at += 1
                depth -= 1
                if depth == 0:
                    mark = int64(FINE)
                    break
                inner = column
                column = stack[depth]
                own = seen[columns.shape[0] + column]
                # The field behind this one is likely to follow.
                guess = columns[inner, ORDINAL] + 1
                state = int64(_AFTER)
                continue
            if kind != STRUCT:
                items = columns[column, COUNT]
                if counts[items] + 1 >= room[items]:
                    lacking = items
                    needed = counts[items] + 2
                    break
                counts[items] += 1
                out32[columns[column, SIZES] + counts[columns[column, POSITION]]] += 1
                target = children[columns[column, CHILDREN] + (1 if kind == MAP else 0)]
                if kind == LIST:
                    state = int64(_VALUE)
                    continue
            if byte != _QUOTE:
                break
            if kind == MAP:
                key = children[columns[column, CHILDREN]]
                count = columns[key, COUNT]
                most = bytes_of(data, at + 1, end, room[count] - counts[count])
                if most < 0:
                    break
                if most > room[count] - counts[count]:
                    lacking = count
                    needed = counts[count] + most
                    break
                to = columns[key, VALUES] + counts[count]
                begin = at
                at, behind = put_string(data, at + 1, end, out, to)
                if at < 0 or at - begin > _LONGEST_NAME:
                    break
                position = counts[columns[key, POSITION]]
                out32[columns[key, SIZES] + position] = behind - to
                out[columns[key, VALIDITY] + position] = 1
                counts[count] += behind - to
            else:
                target = int64(-1)
                if guess < columns[column, FIELDS]:
                    child = children[columns[column, CHILDREN] + guess]
                    size = columns[child, NAME_SIZE]
                    if (
                        end - at > size + 1
                        and data[at + 1 + size] == _QUOTE
                        and is_same(data, at + 1, names, columns[child, NAME_AT], size)
                    ):
                        target = child
                        guess += 1
                        at += size + 2
                if target < 0:
                    begin = at + 1
                    at = begin
                    while at < end:
                        byte = data[uint64(at)]
                        if byte in (_QUOTE, _BACKSLASH) or byte < _SPACE:
                            break
                        at += 1
                    if at == end or data[at] != _QUOTE or at - begin > _LONGEST_NAME:
                        break
                    field = field_of(data, begin, at - begin, columns, column, children, slots, names)
                    at += 1
                    if field >= 0:
                        target = children[columns[column, CHILDREN] + field]
                        guess = field + 1
                if target >= 0:
                    if seen[target] == own:
                        break
                    seen[target] = own
            at = behind_space(data, at, end)
            if at == end or data[at] != _COLON:
                break
            at += 1
            state = int64(_VALUE)
            if target < 0:
                at = behind_value(data, at, end)
                if at < 0:
                    break
                state = int64(_AFTER)
        if lacking < 0:
            marks[row] = mark
        if mark != FINE:
            undo(columns, counts, saved, row, out, out32)
            if lacking >= 0:
                return row, lacking, needed
    return starts.size, int64(-1), int64(0)
