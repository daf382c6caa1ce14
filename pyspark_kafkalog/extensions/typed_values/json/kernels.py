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
    TIMESTAMP,
    DATE,
    TIMESTAMP_NTZ,
) = range(15)

# Columns of the table of columns behind those of table.py, one row a column: what it is; where its
# name lies in the names, and its bytes; the scale and the precision of a decimal; where the numbers of its
# fields begin, and how many there are, or its key's and its item's; where its slots begin, and how many there
# are but one; which field of its struct it is; the number of the first column behind those within it.
KIND, NAME_AT, NAME_SIZE, SCALE, PRECISION, CHILDREN, FIELDS, SLOTS, MASK, ORDINAL, BEHIND = range(5, 16)
COLUMN_COLUMNS = 16

FINE, CORRUPT, RARE = range(3)
"""The states of a row. A corrupt one has fields of another type, which are null. From :data:`RARE` on it is
left; the excess is twice the number of the column where, and one more if it was at its value."""
NO_ZONE = 1 << 40
"""The offset that stands for a region, which has no one offset: times without a zone are :data:`LOCAL`."""
_VALID, LOCAL, IN_ZONE = range(1, 4)
"""The validities: the second is that of a timestamp in microseconds since 1970 by the region's clocks, and
the others, from the third on, by the clocks of one of the zones that times may name."""
MOST_ZONES = 256 - IN_ZONE
ZONE_BYTES = 64
"""A zone's name, and one byte before it."""

_BEGUN, _NEXT, _VALUE, _UNWANTED, _AFTER = range(5)
"""The next thing in an object or array: its end or a first part, a part, a value, one that nothing wants, or
the separator or end behind one."""
_FITS, _ODD, _WRONG = range(3)
"""A value is of its column's type, may not be, or is not."""
_APOSTROPHE, _DELETE = 39, 127
_QUOTE, _BACKSLASH, _SPACE, _COMMA, _COLON, _MINUS, _PLUS, _POINT = 34, 92, 32, 44, 58, 45, 43, 46
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 123, 125, 91, 93
_ZERO, _NINE, _B, _E, _F, _N, _R, _T, _U = 48, 57, 98, 101, 102, 110, 114, 116, 117
_UPPER_C, _UPPER_G, _UPPER_I, _UPPER_M, _UPPER_N, _UPPER_T, _UPPER_U, _UPPER_Z = (
    *(67, 71, 73, 77, 78, 84, 85, 90),
)
MOST_DEPTH = 1000
"""Jackson's bound of objects and arrays in one another."""
_LACKING = -2
"""The position that says that there is too little room."""
_CUT = -3
"""The position that says that the row ends too early, and not behind a name, from where Spark goes on."""
_BROKEN = -4
"""The position, less that of the character behind, that says what no string may have stands in one."""
_LONGEST_NUMBER = 300
"""Characters; Jackson has a bound of 1000 digits."""
_LONGEST_STRING = 20_000_000
"""Bytes, of which each character of Java's has at least one; Jackson has a bound of as many characters."""
_MOST_BYTES = 2**31 - 1
"""The most bytes of a column."""
LONGEST_NAME = 10_000
"""Bytes; Jackson has a bound of 50,000 characters."""
_MOST_OFFSET = 18 * 60
"""Minutes of Java's time zones."""
_LEAST_POWER, _MOST_POWER = -342, 308
"""The exponents of ten in the table of powers."""
_INFINITE = 0x7FF << 52
"""The bits of the infinite double."""
_INFINITY = int.from_bytes(b"Infinity", "little")
_MOST_SHIFT = 10_000
"""Places to the right; beyond, Java may refuse a decimal's exponent."""
_NO_DAY = -(1 << 40)
_MOST_DIGITS = 19
"""The digits of a number that fit into 64 bits without sign."""
_DAY = 86_400
_MICROS = 1_000_000
_ROUNDED = 9
"""Bits of a product below those of a double's mantissa, and one that rounds: 64 - 52 - 3."""
LEAST_ROUNDED = -27
"""The power of five from which on its inverse is rounded up, as the algorithm of Eisel and Lemire has it."""
_MOST_WRITTEN = 32
"""Bytes of a double as text, of a word, or of two escapes and a quote."""


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
def behind_infinite(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The place behind NaN, Infinity or -Infinity; -1 if it is something else."""
    if end - at > 2 and data[at] == _UPPER_N and data[at + 1] == 97 and data[at + 2] == _UPPER_N:
        return at + 3
    if data[at] == _MINUS:
        at += 1
    if (
        end - at > 7
        and data[at] == _UPPER_I
        and data[at + 1] == _N
        and data[at + 2] == _F
        and data[at + 3] == 105
        and data[at + 4] == _N
        and data[at + 5] == 105
        and data[at + 6] == _T
        and data[at + 7] == 121
    ):
        return at + 8
    return int64(-1)


@inlined
def infinite_at(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """NaN or an infinite number, as a word or as one of the strings that Spark takes for it: the place behind
    it, or -1 if it is something else; and the bits of the double.
    """
    is_quoted = data[at] == _QUOTE
    if is_quoted:
        at += 1
    if at == end:
        return int64(-1), int64(0)
    word = at
    if data[at] == _MINUS or (is_quoted and data[at] == _PLUS):
        word += 1
    stop = int64(-1)
    if word < end and data[word] != _MINUS:
        stop = behind_infinite(data, word, end)
    if (
        is_quoted
        and word > at
        and end - word > 3
        and data[word] == _UPPER_I
        and data[word + 1] == _UPPER_N
        and data[word + 2] == 70
    ):
        stop = word + 3
    is_nan = data[at] == _UPPER_N
    if stop < 0 or (stop == word + 3 and data[word] == _UPPER_N and not is_nan):
        return int64(-1), int64(0)
    if is_quoted:
        if stop == end or data[stop] != _QUOTE:
            return int64(-1), int64(0)
        stop += 1
    bits = int64(0x7FF8 if is_nan else 0x7FF0) << 48
    if data[at] == _MINUS:
        bits |= int64(-1) << 63
    return stop, bits


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
    """The place behind the quote that ends a string, whose first character is at ``at``; -1 if it is odd, or
    :data:`_CUT`, or :data:`_BROKEN` or less.
    """
    while at < end:
        byte = data[uint64(at)]
        at += 1
        if byte == _QUOTE:
            return at
        if byte < _SPACE:
            return _BROKEN - at
        if byte == _BACKSLASH:
            letter = at
            at, char = escape_at(data, at - 1, end)
            if char < 0:
                at = letter + 1
                if letter < end and data[letter] == _U:
                    while at < end and (is_digit(data[at]) or 97 <= (data[at] | 32) <= 102):
                        at += 1
                    at += 1
                # Of a character that takes several bytes Jackson reads all.
                return int64(-1) if at <= end and data[at - 1] >= 0x80 else _BROKEN - min(at, end)
    return int64(_CUT)


@inlined
def unescaped(byte: Integer) -> Integer:
    """The byte that a letter behind a backslash stands for; -1 for another letter."""
    if byte in (_QUOTE, _BACKSLASH, _APOSTROPHE, 47):
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
def escape_at(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """An escape, whose backslash is at ``at``: the place behind it, and the one of Java's characters that it
    stands for, or -1 if it is odd.
    """
    if end - at < 2:
        return at, int64(-1)
    at += 2
    char = unescaped(data[at - 1])
    if data[at - 1] == _U:
        char = hexadecimal(data, at, end)
        at += 4
    return at, char


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
def behind_value(data: np.ndarray, at: Integer, end: Integer, closing: np.ndarray, most: Integer) -> Integer:
    """The place behind a value that nothing wants; -1 if it is odd, or what :func:`behind_string` says.

    :param closing: gets what ends each object and array that is open, of which there are at most ``most``.
    """
    depth = int64(0)
    is_name = False
    while True:
        at = behind_space(data, at, end)
        if at == end:
            return int64(_CUT)
        byte = data[at]
        begin = at
        if byte == _QUOTE:
            at = behind_string(data, at + 1, end)
            if is_name and at >= 0:
                if at - begin > LONGEST_NAME:
                    return int64(-1)
                at = behind_space(data, at, end)
                if at == end or data[at] != _COLON:
                    return int64(-1)
                at = behind_space(data, at + 1, end)
                if at == end:
                    return int64(-1)
                is_name = False
                continue
        elif is_name:
            return int64(-1)
        elif byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            if depth >= most:
                return int64(-1)
            at = behind_space(data, at + 1, end)
            if at == end:
                return int64(_CUT)
            if data[at] != byte + 2:
                closing[depth] = byte + 2
                depth += 1
                is_name = byte == _OPEN_OBJECT
                continue
            at += 1
        else:
            is_number = byte == _MINUS or is_digit(byte)
            at = behind_number(data, at, end) if is_number else behind_word(data, at, end)
            if at < 0:
                at = behind_infinite(data, begin, end)
        if at < 0:
            return at
        while depth > 0:
            at = behind_space(data, at, end)
            if at == end:
                return int64(_CUT)
            byte = data[at]
            at += 1
            if byte == _COMMA:
                is_name = closing[depth - 1] == _CLOSE_OBJECT
                break
            if byte != closing[depth - 1]:
                return int64(-1)
            depth -= 1
        if depth == 0:
            return at


@inlined
def begins_no_value(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """Whether what is at ``at`` is surely no value, nor the begin of one: a word such as None, or 007."""
    byte = data[at]
    if is_digit(byte) or byte == _PLUS:
        return byte <= _ZERO and at + 1 < end and is_digit(data[at + 1])
    if byte in (_QUOTE, _APOSTROPHE, _OPEN_OBJECT, _OPEN_ARRAY, _MINUS):
        return False
    return behind_word(data, at, end) < 0 and behind_infinite(data, at, end) < 0


@inlined
def with_digit(
    byte: Integer, digits: Integer, count: Integer, fraction: Integer, left_out: Integer
) -> Integers:
    """A number with one more digit: its first 19 digits, how many there are in all, how many of the first
    are in the fraction, or -1 without one, and how many others are before the point.
    """
    if digits != 0 or byte != _ZERO:
        count += 1
    if count <= _MOST_DIGITS:
        digits = digits * 10 + (byte - _ZERO)
        if fraction >= 0:
            fraction += 1
    elif fraction < 0:
        left_out += 1
    return digits, count, fraction, left_out


@inlined
def digits_at(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """Any digits: the place behind them, and their number, or a large one."""
    number = int64(0)
    while at < end and is_digit(data[uint64(at)]):
        number = min(10 * number + int64(data[at]) - _ZERO, int64(_DAY * _MICROS))
        at += 1
    return at, number


@inlined
def digits_of(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """A number: the place behind it, or -1 if it is odd; its first 19 digits as one whole number of 64 bits
    without sign, the power of ten by which they are too large, how many of them are in the fraction, or -1
    without one, and how many there are in all, without zeros before them.
    """
    stop = behind_number(data, at, end)
    if stop < 0:
        return int64(-1), int64(0), int64(0), int64(0), int64(0)
    if data[at] == _MINUS:
        at += 1
    digits = int64(0)
    count = int64(0)
    fraction = int64(-1)
    power = int64(0)
    left_out = int64(0)
    while at < stop:
        byte = int64(data[uint64(at)])
        at += 1
        if is_digit(byte):
            digits, count, fraction, left_out = with_digit(byte, digits, count, fraction, left_out)
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
    return stop, digits, max(fraction, int64(0)) - left_out - power, fraction, count


@inlined
def quoted_digits(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """A number in a string, as BigDecimal takes it once Spark has removed commas: the place behind its quote,
    or -1 if it is odd; its digits, the power of ten by which they are too large, and how many there are, as
    :func:`digits_of` has them; and whether it is negative.
    """
    is_negative = int64(0)
    if at < end and (data[at] == _MINUS or data[at] == _PLUS):
        is_negative = int64(data[at] == _MINUS)
        at += 1
    digits = int64(0)
    count = int64(0)
    fraction = int64(-1)
    left_out = int64(0)
    power = int64(0)
    has_digits = False
    while at < end:
        byte = int64(data[uint64(at)])
        at += 1
        if is_digit(byte):
            has_digits = True
            digits, count, fraction, left_out = with_digit(byte, digits, count, fraction, left_out)
            continue
        if byte == _POINT and fraction < 0:
            fraction = int64(0)
            continue
        if byte == _COMMA:
            continue
        if (byte | 32) == _E and has_digits:
            at, power = exponent_at(data, at, end)
            byte = int64(data[at - 1]) if at > 0 else int64(0)
        if byte != _QUOTE or not has_digits:
            break
        return at, digits, max(fraction, int64(0)) - left_out - power, count, is_negative
    return int64(-1), int64(0), int64(0), int64(0), int64(0)


@inlined
def exponent_at(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """The exponent of a number in a string: the place behind the quote behind it, or -1 if it is odd or has
    more than four digits; and the exponent.
    """
    is_negative = at < end and data[at] == _MINUS
    if at < end and (is_negative or data[at] == _PLUS):
        at += 1
    begin = at
    at, power = digits_at(data, begin, end)
    if at in (begin, end) or at - begin > 4 or data[at] != _QUOTE:
        return int64(-1), int64(0)
    return at + 1, -power if is_negative else power


@inlined
def upper_product(left: Integer, right: Integer) -> Integer:
    """The upper 64 bits of a product of two numbers of 64 bits without sign."""
    mask = uint64(0xFFFFFFFF)
    half = uint64(32)
    bottom = (left & mask) * (right & mask)
    one = (left >> half) * (right & mask)
    other = (left & mask) * (right >> half)
    middle = (bottom >> half) + (one & mask) + (other & mask)
    return (left >> half) * (right >> half) + (one >> half) + (other >> half) + (middle >> half)


@inlined
def decimal_of(digits: Integer, shift: Integer, precision: Integer) -> Integers:
    """``digits * 10 ** shift``, rounded half up: whether it has at most ``precision`` digits, or -1 if that
    is not known here; and its upper and lower 64 bits.
    """
    number = uint64(digits)
    if -_MOST_SHIFT < shift < -_MOST_DIGITS:
        return int64(1), int64(0), int64(0)
    if shift <= -_MOST_DIGITS or shift > _MOST_POWER:
        return int64(-1), int64(0), int64(0)
    if shift < 0:
        divisor = uint64(1)
        for _ in range(-shift):
            divisor *= uint64(10)
        rest = number % divisor
        number //= divisor
        if rest >= divisor - rest:
            number += uint64(1)
        shift = int64(0)
    if number == uint64(0):
        return int64(1), int64(0), int64(0)
    size = shift
    left = number
    while left != uint64(0):
        left //= uint64(10)
        size += 1
    if size > precision:
        return int64(0), int64(0), int64(0)
    if shift > _MOST_DIGITS:
        return int64(-1), int64(0), int64(0)
    factor = uint64(1)
    for _ in range(shift):
        factor *= uint64(10)
    return int64(1), int64(upper_product(number, factor)), int64(number * factor)


@inlined
def wide_decimal(
    data: np.ndarray, at: Integer, stop: Integer, count: Integer, shift: Integer, precision: Integer
) -> Integers:
    """The number as :func:`decimal_of` gives it, of all the ``count`` digits from ``at`` on."""
    if shift < 0 or shift > _MOST_POWER:
        return int64(-1), int64(0), int64(0)
    if count + shift > precision:
        return int64(0), int64(0), int64(0)
    ten = uint64(10)
    high = uint64(0)
    low = uint64(0)
    more = shift
    while at < stop or more > 0:
        digit = uint64(0)
        if at < stop:
            byte = int64(data[uint64(at)])
            at += 1
            if (byte | 32) == _E:
                at = stop
            if not is_digit(byte):
                continue
            digit = uint64(byte - _ZERO)
        else:
            more -= 1
        high = high * ten + upper_product(low, ten)
        low = low * ten + digit
        if low < digit:
            high += uint64(1)
    return int64(1), int64(high), int64(low)


@inlined
def nearest_double(digits: Integer, count: Integer, power: Integer, powers: np.ndarray) -> Integer:
    """The bits as :func:`double_of` gives them, of ``count`` digits; -1 if those behind 19 decide. What is
    beyond all doubles is infinite, and what is far below the least one 0.
    """
    bits = int64(-1)
    places = min(count, int64(_MOST_DIGITS)) + power
    if digits != 0 and places > _MOST_POWER + 1:
        return int64(_INFINITE)
    if places < _LEAST_POWER:
        return int64(0)
    for more in range(1 + int64(count > _MOST_DIGITS)):
        found = double_of(digits + more, power, powers)
        if more == 1 and found != bits:
            return int64(-1)
        bits = found
    return bits


@inlined
def double_of(digits: Integer, power: Integer, powers: np.ndarray) -> Integer:
    """The bits of the double that is nearest to ``digits * 10 ** power``; -1 for one that may be subnormal.

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
    low = number * uint64(powers[row, 0])
    high = upper_product(number, uint64(powers[row, 0]))
    if (high & uint64(0x1FF)) == uint64(0x1FF):
        above = upper_product(number, uint64(powers[row, 1]))
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
        return int64(_INFINITE)
    return int64(mantissa & ((uint64(1) << uint64(52)) - uint64(1))) | exponent << 52


@inlined
def put_floating(out32: np.ndarray, out64: np.ndarray, to: Integer, bits: Integer, kind: Integer) -> None:
    """Store the bits of a double, or the float that is nearest to it."""
    if kind == DOUBLE:
        out64[to] = bits
    else:
        out32[to] = np.float32(int64(bits).view(np.float64)).view(np.int32)


@inlined
def two_digits(data: np.ndarray, at: Integer) -> Integer:
    """The number of two digits; large if they are not that."""
    first = int64(data[at]) - _ZERO
    second = int64(data[at + 1]) - _ZERO
    if first < 0 or first > 9 or second < 0 or second > 9:
        return int64(1_000_000)
    return 10 * first + second


@inlined
def behind_digits(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """One or two digits: the place behind them, or -1 if none are there, and their number."""
    if at >= end or not is_digit(data[at]):
        return int64(-1), int64(0)
    number = int64(data[at]) - _ZERO
    at += 1
    if at < end and is_digit(data[at]):
        number = 10 * number + int64(data[at]) - _ZERO
        at += 1
    return at, number


@inlined
def date_of(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """A date as 2024-12-31, 2024-1-2, 2024-12 or 2024: the place behind it, which is in the row, or -1 if it
    is odd; days since 1970; and whether the day is there.
    """
    if end - at < 5:
        return int64(-1), int64(0), int64(0)
    year = 100 * two_digits(data, at) + two_digits(data, at + 2)
    month = int64(1)
    day = int64(1)
    has_day = int64(0)
    at += 4
    if data[at] == _MINUS:
        at, month = behind_digits(data, at + 1, end)
        if at >= 0 and at < end and data[at] == _MINUS:
            at, day = behind_digits(data, at + 1, end)
            has_day = int64(1)
    days = days_of(year, month, day)
    if at < 0 or at == end or days == _NO_DAY:
        return int64(-1), int64(0), int64(0)
    return at, days, has_day


@inlined
def days_of(year: Integer, month: Integer, day: Integer) -> Integer:
    """Days since 1970; _NO_DAY if there is no such day."""
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
def zone_of(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """A zone as Z, +01:00, +0100, +01, UTC or GMT, maybe behind a space: the place behind it, or -1 if it is
    odd; and seconds east of UTC.
    """
    if data[at] == _SPACE:
        at += 1
    if end - at < 4:
        return at + 1 if at < end and data[at] == _UPPER_Z else int64(-1), int64(0)
    sign = data[at]
    if sign == _UPPER_Z:
        return at + 1, int64(0)
    if (sign == _UPPER_U and data[at + 1] == _UPPER_T and data[at + 2] == _UPPER_C) or (
        sign == _UPPER_G and data[at + 1] == _UPPER_M and data[at + 2] == _UPPER_T
    ):
        return at + 3, int64(0)
    if sign != _PLUS and sign != _MINUS:
        return int64(-1), int64(0)
    minutes = 60 * two_digits(data, at + 1)
    at += 3
    if data[at] != _QUOTE:
        if data[at] == _COLON:
            at += 1
        of_hour = two_digits(data, at) if end - at > 1 else int64(60)
        if of_hour > 59:
            return int64(-1), int64(0)
        minutes += of_hour
        at += 2
    if minutes > _MOST_OFFSET:
        return int64(-1), int64(0)
    return at, 60 * (minutes if sign == _PLUS else -minutes)


@inlined
def zone_among(data: np.ndarray, at: Integer, end: Integer, zones: np.ndarray) -> Integers:
    """A zone, maybe behind a space, that is one of ``zones``: the quote behind it, or -1 if it is another
    one; and its number.
    """
    if data[at] == _SPACE:
        at += 1
    for first in range(0, zones.size, ZONE_BYTES):
        size = int64(zones[uint64(first)])
        if size < end - at and data[uint64(at + size)] == _QUOTE:
            same = int64(0)
            while same < size and data[uint64(at + same)] == zones[uint64(first + 1 + same)]:
                same += 1
            if same == size:
                return at + size, first // ZONE_BYTES
    return int64(-1), int64(0)


@inlined
def micros_of(
    data: np.ndarray, at: Integer, end: Integer, zone: Integer, has_zone: Integer, zones: np.ndarray
) -> Integers:
    """A timestamp as 2024-12-31T23:59:59.123456+01:00, of which all behind the year may lack: the place
    behind its quote, or -1 if it is odd; microseconds since 1970; and what it is, as validities say. ``zone``
    is that of one without, in seconds or :data:`NO_ZONE`; if not ``has_zone`` none has one. It may name one
    of ``zones``, too: then the microseconds are those of its clocks.
    """
    at, days, has_day = date_of(data, at, end)
    if at < 0:
        return int64(-1), int64(0), int64(0)
    hours = int64(0)
    minutes = int64(0)
    seconds = int64(-1)
    micros = int64(0)
    if has_day and (data[at] == _UPPER_T or data[at] == _SPACE):
        at, hours = behind_digits(data, at + 1, end)
        if at >= 0 and at < end and data[at] == _COLON:
            at, minutes = behind_digits(data, at + 1, end)
            if at >= 0 and at < end and data[at] == _COLON:
                at, seconds = behind_digits(data, at + 1, end)
    if at < 0 or at == end or hours > 23 or minutes > 59 or seconds > 59:
        return int64(-1), int64(0), int64(0)
    east = zone
    what = int64(_VALID)
    if data[at] != _QUOTE:
        if seconds < 0:
            return int64(-1), int64(0), int64(0)
        if data[at] == _POINT:
            at += 1
            scale = int64(100_000)
            while at < end and is_digit(data[at]):
                micros += scale * (int64(data[at]) - _ZERO)
                scale //= 10
                at += 1
            if at == end:
                return int64(-1), int64(0), int64(0)
        if data[at] != _QUOTE:
            if not has_zone:
                return int64(-1), int64(0), int64(0)
            begin = at
            at, east = zone_of(data, begin, end)
            if at < 0 or at >= end or data[at] != _QUOTE:
                at, number = zone_among(data, begin, end, zones)
                if at < 0:
                    return int64(-1), int64(0), int64(0)
                east = int64(0)
                what = IN_ZONE + number
    if east == NO_ZONE:
        east = int64(0)
        what = int64(LOCAL)
    local = _DAY * days + 3600 * hours + 60 * minutes + max(seconds, int64(0))
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
def put_string(
    data: np.ndarray, at: Integer, end: Integer, out: np.ndarray, to: Integer, limit: Integer, lone: Integer
) -> Integers:
    """Write a string, whose first character is at ``at``: the place behind its quote, -1 if it is odd, or
    _LACKING; and that behind what was written, or has to be. It takes no more bytes than are left of the row.

    :param lone: what stands for a surrogate without its other half; -1: such a string is odd.
    """
    begin = at
    while at < end:
        byte = data[uint64(at)]
        if byte < 0x80 and byte >= _SPACE and byte != _QUOTE and byte != _BACKSLASH:
            at += 1
            continue
        if byte >= 0x80:
            size = utf8_size(data, at, end)
            if size == 0:
                return int64(-1), to
            at += size
            continue
        if byte < _SPACE:
            return int64(-1), to
        if limit - to < at - begin + 4:
            return int64(_LACKING), to + at - begin + 4
        copy_bytes(out, to, data, begin, at - begin)
        to += at - begin
        if byte == _QUOTE:
            return at + 1, to
        at, char = escape_at(data, at, end)
        if 0xD800 <= char < 0xE000:
            other = int64(0)
            behind = at
            if char < 0xDC00 and at < end and data[at] == _BACKSLASH:
                behind, other = escape_at(data, at, end)
            if 0xDC00 <= other < 0xE000:
                char = 0x10000 + ((char - 0xD800) << 10) + (other - 0xDC00)
                at = behind
            else:
                char = lone
        if char < 0:
            return int64(-1), to
        to = put_utf8(out, to, char)
        begin = at
    return int64(-1), to


@inlined
def put_escape(out: np.ndarray, to: Integer, char: Integer) -> Integer:
    """Write one of Java's characters as ``\\uXXXX``; the place behind it."""
    out[to] = _BACKSLASH
    out[to + 1] = _U
    for place in range(4):
        digit = char >> (12 - 4 * place) & 15
        out[to + 2 + place] = _ZERO + digit if digit < 10 else 55 + digit
    return to + 6


@inlined
def put_char(out: np.ndarray, to: Integer, char: Integer) -> Integer:
    """Write one of Java's characters as Jackson has it in a string of JSON; the place behind it."""
    short = int64(0)
    if char in (_QUOTE, _BACKSLASH):
        short = char
    elif char == 8:
        short = int64(_B)
    elif char == 9:
        short = int64(_T)
    elif char == 10:
        short = int64(_N)
    elif char == 12:
        short = int64(_F)
    elif char == 13:
        short = int64(_R)
    if short != 0:
        out[to] = _BACKSLASH
        out[to + 1] = short
        return to + 2
    if char < _SPACE or 0xD800 <= char < 0xE000:
        return put_escape(out, to, char)
    return put_utf8(out, to, char)


@inlined
def put_quoted(
    data: np.ndarray, at: Integer, end: Integer, out: np.ndarray, to: Integer, limit: Integer
) -> Integers:
    """Write a string, whose quote is at ``at``, as Jackson writes it to JSON; as :func:`put_string` does."""
    begin = at
    at += 1
    while at < end:
        byte = data[uint64(at)]
        if byte < 0x80 and byte >= _SPACE and byte != _QUOTE and byte != _BACKSLASH:
            at += 1
            continue
        size = int64(1)
        if byte >= 0x80:
            size = utf8_size(data, at, end)
            if size == 2 or size == 3:
                at += size
                continue
        if byte < _SPACE or size == 0:
            return int64(-1), to
        if limit - to < at - begin + _MOST_WRITTEN:
            return int64(_LACKING), to + at - begin + _MOST_WRITTEN
        copy_bytes(out, to, data, begin, at - begin)
        to += at - begin
        if byte == _QUOTE:
            out[to] = _QUOTE
            return at + 1, to + 1
        if byte == _BACKSLASH:
            at, char = escape_at(data, at, end)
            if char < 0:
                return int64(-1), to
            to = put_char(out, to, char)
        else:
            char = int64(data[at] & 7) << 18 | int64(data[at + 1] & 63) << 12
            char = (char | int64(data[at + 2] & 63) << 6 | int64(data[at + 3] & 63)) - 0x10000
            to = put_escape(out, to, 0xD800 + (char >> 10))
            to = put_escape(out, to, 0xDC00 + (char & 0x3FF))
            at += 4
        begin = at
    return int64(-1), to


@inlined
def rounded_product(high: Integer, low: Integer, factor: Integer) -> Integer:
    """A power of five's 126 bits times a factor, without the lowest 127 bits, of which the last bit tells
    whether they were not all 0."""
    middle = ((high * factor) >> uint64(1)) + upper_product(low, factor)
    mask = (uint64(1) << uint64(63)) - uint64(1)
    whole = upper_product(high, factor) + (middle >> uint64(63))
    return whole | ((middle & mask) + mask) >> uint64(63)


@inlined
def shortest_of(bits: Integer, powers: np.ndarray) -> Integers:
    """The fewest digits that a normal double above 0 is the nearest one of, of these the nearest ones, maybe
    with zeros behind; and the power of ten that they are to be multiplied with, or 1000 beyond the table.

    Schubfach, by Raffaello Giulietti, "The Schubfach way to render doubles" (2021). ``powers`` is that of
    :func:`double_of`.
    """
    fraction = bits & ((1 << 52) - 1)
    exponent = (bits >> 52) - 1075
    mantissa = fraction | 1 << 52
    is_edge = fraction == 0 and exponent > -1074
    power = (exponent * 661_971_961_083 - (274_743_187_321 if is_edge else 0)) >> 41
    if -power > _MOST_POWER:
        return int64(0), int64(1000)
    shift = uint64(exponent + ((-power * 913_124_641_741) >> 38) + 2)
    row = uint64(-power - _LEAST_POWER)
    high = uint64(powers[row, 0])
    low = uint64(powers[row, 1])
    if -power < 0 and -power >= LEAST_ROUNDED:
        low -= uint64(1)
    low = ((high & uint64(1)) << uint64(62) | low >> uint64(2)) + uint64(1)
    high >>= uint64(1)
    own = uint64(mantissa) << uint64(2)
    middle = rounded_product(high, low, own << shift)
    lower = rounded_product(high, low, (own - uint64(1 if is_edge else 2)) << shift)
    upper = rounded_product(high, low, (own + uint64(2)) << shift)
    odd = uint64(mantissa & 1)
    below = middle >> uint64(2)
    fewer = below // uint64(10) * uint64(10)
    is_down = lower + odd <= fewer << uint64(2)
    is_up = ((fewer + uint64(10)) << uint64(2)) + odd <= upper
    if is_down != is_up:
        return int64(fewer if is_down else fewer + uint64(10)), power
    above = below + uint64(1)
    is_down = lower + odd <= below << uint64(2)
    is_up = (above << uint64(2)) + odd <= upper
    if is_down == is_up:
        between = (below + above) << uint64(1)
        is_down = middle < between or (middle == between and below & uint64(1) == uint64(0))
    return int64(below if is_down else above), power


@inlined
def put_digits(out: np.ndarray, to: Integer, number: Integer, size: Integer) -> Integer:
    """Write the last ``size`` digits of a number; the place behind them."""
    for place in range(to + size - 1, to - 1, -1):
        out[place] = _ZERO + number % 10
        number //= 10
    return to + size


@inlined
def put_double(out: np.ndarray, to: Integer, digits: Integer, power: Integer) -> Integer:
    """Write ``digits * 10 ** power`` as Java's Double.toString; the place behind it."""
    while digits != 0 and digits % 10 == 0:
        digits //= 10
        power += 1
    size = int64(0)
    unit = int64(1)
    while unit <= digits:
        unit *= 10
        size += 1
    if size == 0:
        size = int64(1)
        power = int64(0)
    point = size + power
    whole = point if -2 <= point <= 7 else int64(1)
    if whole <= 0:
        to = put_digits(out, to, int64(0), int64(1))
        out[to] = _POINT
        to = put_digits(out, to + 1, int64(0), -whole)
        return put_digits(out, to, digits, size)
    while size <= whole:
        digits *= 10
        size += 1
    unit = int64(1)
    for _ in range(size - whole):
        unit *= 10
    to = put_digits(out, to, digits // unit, whole)
    out[to] = _POINT
    to = put_digits(out, to + 1, digits, size - whole)
    if whole == point:
        return to
    out[to] = 69
    to += 1
    if point < 1:
        out[to] = _MINUS
        to += 1
    exponent = abs(point - 1)
    return put_digits(out, to, exponent, int64(1 if exponent < 10 else 2 if exponent < 100 else 3))


@inlined
def put_infinite(out: np.ndarray, to: Integer, is_negative: Integer) -> Integer:
    """Write a number that is beyond all doubles as Jackson does; the place behind it."""
    out[to] = _QUOTE
    to += 1
    if is_negative:
        out[to] = _MINUS
        to += 1
    for place in range(8):
        # Infinity, as a number.
        out[to + place] = _INFINITY >> 8 * place & 255
    out[to + 8] = _QUOTE
    return to + 9


@inlined
def put_number(
    data: np.ndarray,
    at: Integer,
    end: Integer,
    out: np.ndarray,
    to: Integer,
    limit: Integer,
    powers: np.ndarray,
) -> Integers:
    """Write a number as Jackson does, one with a fraction as a double; as :func:`put_string` does."""
    stop, digits, divisor, fraction, count = digits_of(data, at, end)
    if stop < 0:
        return int64(-1), to
    if fraction < 0:
        if stop - at == 2 and data[at] == _MINUS and data[at + 1] == _ZERO:
            at += 1
        if limit - to < stop - at:
            return int64(_LACKING), to + stop - at
        copy_bytes(out, to, data, at, stop - at)
        return stop, to + stop - at
    bits = nearest_double(digits, count, -divisor, powers)
    power = int64(0)
    if bits == _INFINITE:
        return stop, put_infinite(out, to, data[at] == _MINUS)
    if bits == 0:
        digits = int64(0)
    elif bits > 0:
        digits, power = shortest_of(bits, powers)
    if bits < 0 or power > _MOST_POWER:
        return int64(-1), to
    if data[at] == _MINUS:
        out[to] = _MINUS
        to += 1
    return stop, put_double(out, to, digits, power)


@inlined
def put_text(
    data: np.ndarray,
    at: Integer,
    end: Integer,
    out: np.ndarray,
    to: Integer,
    limit: Integer,
    closing: np.ndarray,
    most: Integer,
    powers: np.ndarray,
) -> Integers:
    """Write a value as Jackson writes it to JSON, without white space; as :func:`put_string` does.

    :param closing: gets what ends each object and array that is open, of which there are at most ``most``.
    """
    depth = int64(0)
    is_name = False
    while True:
        at = behind_space(data, at, end)
        if at == end:
            return int64(-1), to
        if limit - to < _MOST_WRITTEN:
            return int64(_LACKING), to + _MOST_WRITTEN
        byte = data[at]
        begin = at
        if byte == _QUOTE:
            at, to = put_quoted(data, at, end, out, to, limit)
            if at - begin > (LONGEST_NAME if is_name else _LONGEST_STRING):
                return int64(-1), to
            if is_name and at >= 0:
                at = behind_space(data, at, end)
                if at == end or data[at] != _COLON:
                    return int64(-1), to
                out[to] = _COLON
                to += 1
                at += 1
                is_name = False
                continue
        elif is_name:
            return int64(-1), to
        elif byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            if depth >= most:
                return int64(-1), to
            out[to] = byte
            to += 1
            at = behind_space(data, at + 1, end)
            if at == end:
                return int64(-1), to
            if data[at] != byte + 2:
                closing[depth] = byte + 2
                depth += 1
                is_name = byte == _OPEN_OBJECT
                continue
            out[to] = byte + 2
            to += 1
            at += 1
        elif byte == _MINUS or is_digit(byte):
            at, to = put_number(data, at, end, out, to, limit, powers)
        else:
            at = behind_word(data, at, end)
            if at >= 0:
                copy_bytes(out, to, data, begin, at - begin)
                to += at - begin
        if at == -1 and byte != _QUOTE:
            at = behind_infinite(data, begin, end)
            if at >= 0:
                out[to] = _QUOTE
                copy_bytes(out, to + 1, data, begin, at - begin)
                to += at - begin + 2
                out[to - 1] = _QUOTE
        if at < 0:
            return at, to
        while depth > 0:
            at = behind_space(data, at, end)
            if at == end:
                return int64(-1), to
            if to == limit:
                return int64(_LACKING), to + 1
            byte = data[at]
            out[to] = byte
            to += 1
            at += 1
            if byte == _COMMA:
                is_name = closing[depth - 1] == _CLOSE_OBJECT
                break
            if byte != closing[depth - 1]:
                return int64(-1), to
            depth -= 1
        if depth == 0:
            return at, to


@inlined
def is_no_number(data: np.ndarray, at: Integer, end: Integer, kind: Integer) -> Integer:
    """Whether a string, whose first character is at ``at`` and which :func:`infinite_at` does not take, is
    surely none that a column of doubles or decimals has.
    """
    has_digits = False
    has_point = False
    while at < end:
        byte = int64(data[uint64(at)])
        at += 1
        if byte == _QUOTE:
            return kind != DECIMAL or not has_digits
        if byte == _BACKSLASH or byte >= 0x80:
            return False
        if is_digit(byte):
            has_digits = True
        elif kind == DECIMAL and byte in (_PLUS, _MINUS):
            if is_digit(data[at - 2]):
                return True
        elif kind == DECIMAL and byte == _POINT and not has_point:
            has_point = True
        elif kind == DECIMAL and (byte | 32) != _E and byte != _COMMA:
            return True
    return False


@inlined
def is_hidden(byte: Integer) -> Integer:
    """Whether a byte of a string may not be what stands there: an escape, other digits than ASCII's, or the
    begin of GMT, which Spark removes from times."""
    return byte >= 0x80 or byte in (_BACKSLASH, _UPPER_G)


@inlined
def is_end_of_time(byte: Integer) -> Integer:
    """Whether a byte of a string is its quote, or one that Spark trims."""
    return byte in (_QUOTE, _SPACE, _DELETE)


@inlined
def is_no_time(data: np.ndarray, at: Integer, end: Integer, kind: Integer) -> Integer:
    """Whether a string, whose first character is at ``at``, is surely no date or timestamp: what it begins
    with decides.
    """
    while at < end and (data[at] == _SPACE or data[at] == _DELETE):
        at += 1
    begin = at
    if at < end and (data[at] == _PLUS or data[at] == _MINUS):
        at += 1
    is_signed = at > begin
    begin = at
    at, year = digits_at(data, begin, end)
    size = at - begin
    if end - at < 2 or is_hidden(data[at]):
        return False
    byte = data[at]
    if size == 0:
        # A time of today begins with T or with an hour.
        is_today = byte == _UPPER_T and not is_signed
        return not is_today or not (is_digit(data[at + 1]) or is_hidden(data[at + 1]))
    if kind == DATE and is_end_of_time(byte):
        return year > 1 << 31
    if kind != DATE and size < 3:
        return is_signed or byte != _COLON
    if size < 4 or size > (7 if kind == DATE else 6):
        return True
    month = int64(1)
    day = int64(1)
    for is_day in range(2):
        if is_end_of_time(byte):
            return False
        if byte != _MINUS:
            return True
        begin = at + 1
        at, number = digits_at(data, begin, end)
        if at == end or is_hidden(data[at]):
            return False
        if at == begin or at - begin > 2:
            return True
        byte = data[at]
        if is_day:
            day = number
        else:
            month = number
    if not is_end_of_time(byte) and byte != _UPPER_T:
        return True
    # The calendar is the same after 400 years.
    if days_of(2000 + year % 400, month, day) == _NO_DAY:
        return True
    if kind == DATE or byte in (_QUOTE, _DELETE):
        return False
    for part in range(3):
        begin = at + 1
        at, number = digits_at(data, begin, end)
        if at == end or is_hidden(data[at]):
            return False
        byte = data[at]
        if at == begin:
            return part > 0 or not is_end_of_time(byte)
        if at - begin > 2 or number > (59 if part > 0 else 23):
            return True
        if part < 2:
            if is_end_of_time(byte):
                return False
            if byte != _COLON:
                return True
    if byte == _POINT:
        at, _ = digits_at(data, at + 1, end)
    if kind == TIMESTAMP_NTZ:
        return at < end and not (is_end_of_time(data[at]) or is_hidden(data[at]))
    if at < end and data[at] == _POINT:
        return True
    while at < end:
        byte = data[uint64(at)]
        is_letter = 97 <= (byte | 32) <= 122
        # What the names of zones have; GMT may be removed from there.
        is_fine = is_letter or _MINUS <= byte <= _COLON or byte == _PLUS or byte == 95 or byte == 126
        if is_end_of_time(byte) or byte == _BACKSLASH or byte >= 0x80:
            return False
        if not is_fine:
            return True
        at += 1
    return False


@inlined
def is_other(data: np.ndarray, at: Integer, end: Integer, kind: Integer) -> Integer:
    """Whether a value, but null, is surely not one that a column but a string may have."""
    byte = data[at]
    if byte == _OPEN_OBJECT:
        return kind != STRUCT and kind != MAP
    if byte == _OPEN_ARRAY:
        return kind != LIST
    if byte in (_T, _F):
        return kind != BOOLEAN
    if byte == _MINUS or is_digit(byte):
        return kind <= BOOLEAN or kind > TIMESTAMP
    if byte != _QUOTE:
        return False
    if kind <= INT64_:
        return True
    return is_no_number(data, at + 1, end, kind) if kind <= DECIMAL else is_no_time(data, at + 1, end, kind)


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
    """The field of a struct with the name of ``size`` bytes at ``at``; -1 if there is none."""
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
def forget(
    columns: np.ndarray,
    counts: np.ndarray,
    gone: np.ndarray,
    target: Integer,
    out: np.ndarray,
    out32: np.ndarray,
) -> None:
    """Have nothing be there of a column's last element, nor of what is in it.

    :param gone: gets how many elements are gone, for each of the ``counts``.
    """
    gone[columns[target, POSITION]] = 1
    for column in range(target, columns[target, BEHIND]):
        kind = columns[column, KIND]
        position = columns[column, POSITION]
        total = int64(0)
        for i in range(counts[position] - gone[position] + 1, counts[position] + 1):
            out[columns[column, VALIDITY] + i] = 0
            if kind <= STRING and kind != STRUCT:
                total += out32[columns[column, SIZES] + i]
                out32[columns[column, SIZES] + i] = 0
        if kind == STRING:
            counts[columns[column, COUNT]] -= total
        elif kind in (LIST, MAP):
            gone[columns[column, COUNT]] = total
    for column in range(target, columns[target, BEHIND]):
        if columns[column, KIND] in (LIST, MAP):
            counts[columns[column, COUNT]] -= gone[columns[column, COUNT]]


@kernel(
    *(BYTES, INT64S, INT64S, INT64, INT64, BYTES, TABLE, INT64S, INT64S, BYTES, TABLE, INT64S),
    *(OUT_INT64, OUT_INT64, OUT_INT64, OUT_INT64, OUT_BYTES, OUT_BYTES),
    *(OUT_BYTES, OUT_INT32, OUT_INT64, OUT_INT64),
    results=3,
)
def decode(
    data: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    first: Integer,
    zone: Integer,
    zones: np.ndarray,
    columns: np.ndarray,
    children: np.ndarray,
    slots: np.ndarray,
    names: np.ndarray,
    powers: np.ndarray,
    room: np.ndarray,
    counts: np.ndarray,
    gone: np.ndarray,
    stack: np.ndarray,
    seen: np.ndarray,
    closing: np.ndarray,
    name: np.ndarray,
    out: np.ndarray,
    out32: np.ndarray,
    out64: np.ndarray,
    marks: np.ndarray,
) -> Integers:
    """Decode ``data[start:start + size]`` of each row from ``first`` on; null if size is -1.

    It writes what each row is to ``marks``, and ``counts``: how far each position is, which begin at -1, and
    how many bytes each column has, as ``columns`` numbers them; ``counts[0]`` is the row. What is written to
    lies in ``out``, which two more views share, and was zeroed except for bytes.

    :param zone: of times without one, in seconds east of UTC, or :data:`NO_ZONE`.
    :param zones: the other zones that times may name, in :data:`ZONE_BYTES` each: the size of its name, then
        that.
    :param room: how many elements or bytes there is place for, for each of the ``counts``.
    :param gone: as large as ``counts``, ``closing`` as :data:`MOST_DEPTH`, ``name`` as :data:`LONGEST_NAME`;
        they are overwritten.
    :param stack: two elements for each column: what the one that is open is in, and where it began. ``seen``
        has two, zeroed: the last object that it was in, and that it was.
    :returns: the row to go on with, which count has too little room, and how much it needs; or the number of
        rows and -1.
    """
    stamp = int64(0)
    for row in range(first, starts.size):
        if sizes[row] < 0:
            continue
        counts[0] = row
        at = starts[row]
        end = at + sizes[row]
        lacking = int64(-1)
        needed = int64(0)
        # Where it is left, if it is.
        column = int64(0)
        target = int64(0)
        is_left = True
        is_corrupt = False
        is_again = False
        is_named = False
        depth = int64(0)
        guess = int64(0)
        stamp += 1
        own = stamp
        state = int64(_VALUE)
        at = behind_space(data, at, end)
        if at == end:
            is_left = False
        token = at
        while at < end:
            at = behind_space(data, at, end)
            token = at
            if at == end:
                break
            byte = data[uint64(at)]
            if state == _VALUE:
                is_named = False
                kind = columns[target, KIND]
                position = counts[columns[target, POSITION]]
                begin = at
                if byte == _N:
                    at = behind_word(data, at, end)
                    if at < 0 or depth == 0:
                        break
                    state = int64(_AFTER)
                    continue
                what = int64(_VALID)
                fits = int64(_FITS)
                if kind == STRING:
                    count = columns[target, COUNT]
                    base = columns[target, VALUES]
                    to = base + counts[count]
                    if byte == _QUOTE:
                        at, behind = put_string(data, at + 1, end, out, to, base + room[count], int64(63))
                        if behind - to > _LONGEST_STRING:
                            break
                    else:
                        at, behind = put_text(
                            *(data, at, end, out, to, base + room[count]),
                            *(closing, MOST_DEPTH - depth, powers),
                        )
                    # Text may be longer than it was, and Arrow has offsets of 32 bits.
                    if behind - base > _MOST_BYTES:
                        break
                    if at == _LACKING:
                        lacking = count
                        needed = behind - base
                    if at < 0:
                        break
                    out32[columns[target, SIZES] + position] = behind - to
                    counts[count] += behind - to
                elif kind <= MAP:
                    if byte == (_OPEN_ARRAY if kind == LIST else _OPEN_OBJECT):
                        stack[depth] = column
                        # One whose name was there before keeps what it had, which is gone.
                        is_lost = columns[column, KIND] == STRUCT and is_again
                        stack[columns.shape[0] + depth] = -1 if is_lost else begin
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
                    fits = int64(_ODD)
                elif kind == BOOLEAN:
                    if byte in (_T, _F):
                        at = behind_word(data, at, end)
                        if at < 0:
                            break
                        out[columns[target, VALUES] + position] = 1 if byte == _T else 0
                    else:
                        fits = int64(_ODD)
                elif kind <= TIMESTAMP and (
                    byte == _MINUS or is_digit(byte) or (kind == DECIMAL and byte == _QUOTE)
                ):
                    is_negative = int64(byte == _MINUS)
                    fraction = int64(-1)
                    if byte == _QUOTE:
                        at, digits, divisor, count, is_negative = quoted_digits(data, at + 1, end)
                    else:
                        at, digits, divisor, fraction, count = digits_of(data, at, end)
                    to = columns[target, VALUES] + position
                    if at < 0:
                        fits = int64(_ODD)
                    elif kind == DECIMAL:
                        shift = columns[target, SCALE] - divisor
                        if count <= _MOST_DIGITS:
                            known, high, low = decimal_of(digits, shift, columns[target, PRECISION])
                        else:
                            shift -= count - _MOST_DIGITS
                            known, high, low = wide_decimal(
                                data, begin, at, count, shift, columns[target, PRECISION]
                            )
                        if known < 0:
                            break
                        if is_negative:
                            low = -low
                            high = ~high + int64(low == 0)
                        out64[2 * to] = low
                        out64[2 * to + 1] = high
                        fits = int64(_FITS if known else _WRONG)
                    elif kind in (DOUBLE, FLOAT):
                        bits = nearest_double(digits, count, -divisor, powers)
                        if bits < 0:
                            break
                        if is_negative and (digits != 0 or fraction >= 0):
                            bits |= int64(-1) << 63
                        if kind == FLOAT:
                            # Right between two floats it may have been rounded; others are not normal.
                            exponent = bits >> 52 & 2047
                            is_between = (bits & 0x1FFFFFFF) == 0x10000000
                            if is_between or 873 <= exponent <= 896:
                                break
                        put_floating(out32, out64, to, bits, kind)
                    else:
                        number = -digits if is_negative else digits
                        is_least = is_negative != 0 and digits == number
                        if fraction >= 0 or count > _MOST_DIGITS or (digits < 0 and not is_least):
                            fits = int64(_WRONG)
                        elif kind == INT64_:
                            out64[to] = number
                        elif kind == TIMESTAMP:
                            out64[to] = number * _MICROS
                        elif kind == INT32:
                            out32[to] = number
                            fits = int64(_FITS if number == int64(np.int32(number)) else _WRONG)
                        elif kind == INT16:
                            out[2 * to] = number & 255
                            out[2 * to + 1] = number >> 8 & 255
                            fits = int64(_FITS if -32768 <= number <= 32767 else _WRONG)
                        else:
                            # Jackson takes bytes with and without sign.
                            out[to] = number & 255
                            fits = int64(_FITS if -128 <= number <= 255 else _WRONG)
                elif kind < TIMESTAMP or byte != _QUOTE:
                    fits = int64(_ODD)
                elif kind == DATE:
                    at, days, has_day = date_of(data, at + 1, end)
                    if at >= 0 and has_day and (data[at] == _UPPER_T or data[at] == _SPACE):
                        at = behind_string(data, at, end)
                    elif at >= 0:
                        at = at + 1 if data[at] == _QUOTE else int64(-1)
                    if at < 0:
                        # The number of its days, unless that is a year.
                        stop, number = digits_at(data, begin + 1, end)
                        size = stop - begin - 1
                        if (
                            stop < end
                            and data[stop] == _QUOTE
                            and (0 < size < 4 or size > 7)
                            and number < 1 << 31
                        ):
                            at = stop + 1
                            days = number
                    if at < 0 or at - begin > _LONGEST_STRING:
                        fits = int64(_ODD)
                    out32[columns[target, VALUES] + position] = days
                else:
                    is_with_zone = kind == TIMESTAMP
                    at, micros, what = micros_of(
                        data, at + 1, end, zone if is_with_zone else int64(0), int64(is_with_zone), zones
                    )
                    if at < 0:
                        fits = int64(_ODD)
                    out64[columns[target, VALUES] + position] = micros
                if fits == _ODD and kind in (DOUBLE, FLOAT):
                    at, bits = infinite_at(data, begin, end)
                    if at >= 0:
                        put_floating(out32, out64, columns[target, VALUES] + position, bits, kind)
                        fits = int64(_FITS)
                if fits == _FITS:
                    out[columns[target, VALIDITY] + position] = what
                    state = int64(_AFTER)
                    continue
                # from_json goes on behind a field of another type, and behind one whose items are.
                at = begin
                if depth == 0 or (fits == _ODD and not is_other(data, at, end, kind)):
                    break
                is_lost = is_again
                outer = depth
                holder = column
                null = target
                while columns[holder, KIND] != STRUCT:
                    outer -= 1
                    null = holder
                    holder = stack[outer]
                    begin = stack[columns.shape[0] + outer]
                    is_lost = begin < 0
                if is_lost:
                    break
                if outer < depth:
                    depth = outer
                    column = holder
                    target = null
                    own = seen[columns.shape[0] + column]
                    guess = columns[target, ORDINAL] + 1
                forget(columns, counts, gone, target, out, out32)
                at = token = begin
                is_corrupt = True
                state = int64(_UNWANTED)
            if state == _UNWANTED:
                is_named = False
                at = behind_value(data, at, end, closing, MOST_DEPTH - depth)
                if at < 0:
                    break
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
                    is_left = False
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
                base = columns[key, VALUES]
                to = base + counts[count]
                begin = at
                at, behind = put_string(data, at + 1, end, out, to, base + room[count], int64(63))
                if at == _LACKING and behind - to <= LONGEST_NAME:
                    lacking = count
                    needed = behind - base
                if at < 0 or at - begin > LONGEST_NAME:
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
                    if at == end or at - begin > LONGEST_NAME:
                        break
                    if data[at] == _QUOTE:
                        field = field_of(data, begin, at - begin, columns, column, children, slots, names)
                        at += 1
                    else:
                        at, behind = put_string(data, begin, end, name, int64(0), int64(name.size), int64(-1))
                        if at < 0:
                            break
                        field = field_of(name, int64(0), behind, columns, column, children, slots, names)
                    if field >= 0:
                        target = children[columns[column, CHILDREN] + field]
                        guess = field + 1
                if target >= 0:
                    # The last one of a name counts.
                    is_again = seen[target] == own
                    if is_again:
                        forget(columns, counts, gone, target, out, out32)
                    seen[target] = own
            is_named = True
            at = behind_space(data, at, end)
            if at == end or data[at] != _COLON:
                break
            at += 1
            state = int64(_VALUE if target >= 0 else _UNWANTED)
        if lacking < 0:
            is_inside = is_left and depth > 0 and at != end and not is_named and state != _AFTER
            if is_inside and (state >= _VALUE or data[token] == _QUOTE):
                at = behind_value(data, token, end, closing, MOST_DEPTH - depth)
                if state < _VALUE and at == end:
                    is_named = True
            # Without the object or its end, or between its fields, a fault leaves none of them.
            is_cut = at in (end, _CUT) and not (is_named and depth > 1)
            is_between = state == _AFTER or is_named
            if is_inside and depth == 1:
                if at <= _BROKEN:
                    # A field that is wanted is null, and from_json goes on behind what is wrong.
                    behind = behind_space(data, _BROKEN - at, end)
                    is_string = state >= _VALUE and target >= 0 and data[token] == _QUOTE
                    goes_on = behind < end and (data[behind] == _COMMA or data[behind] == _CLOSE_OBJECT)
                    is_between = not goes_on if is_string else state < _VALUE or target < 0
                elif state >= _VALUE:
                    is_between = begins_no_value(data, token, end)
            if state <= _NEXT and token < end and data[token] not in (_QUOTE, _APOSTROPHE):
                is_between = True
            is_empty = is_left and (depth == 0 or is_cut or (depth == 1 and is_between))
            marks[row] = CORRUPT if is_corrupt or is_empty else FINE
            if is_left and not is_empty:
                marks[row] = RARE + (2 * target + 1 if state == _VALUE else 2 * column)
        if is_left:
            forget(columns, counts, gone, int64(0), out, out32)
            if lacking >= 0:
                return row, lacking, needed
            if is_empty:
                out[columns[0, VALIDITY] + row] = _VALID
    return starts.size, int64(-1), int64(0)
