"""Compiled text: JSON strings and base64 of binary columns, decimal numbers, and rows of such columns.

A binary column comes as :func:`.buffers.binary_column` gives it. Text is measured first, then written.
"""

from __future__ import annotations

import numpy as np
from numpy import int64, uint8, uint64

from pyspark_kafkalog.codec.kernel import Integer, copy_bytes, inlined, kernel
from pyspark_kafkalog.codec.signature import BYTES, INT32S, INT64, INT64S, OUT_BYTES, OUT_INT64

NULL, PLAIN, ESCAPED, BASE64 = range(4)
"""The forms of a row in JSON: ``null``, in quotes as it is, with escapes, an object with its base64."""

OPENING = b'{"base64":"'
CLOSING = b'"}'
"""The JSON around base64."""

JAVA_ADDS = 7
"""``-inf`` becomes ``"-Infinity"``."""

_QUOTE, _BACKSLASH, _MINUS, _POINT = 0x22, 0x5C, 0x2D, 0x2E
_LETTERS = np.zeros(256, np.uint8)
_ADDED = np.zeros(256, np.uint8)
"""The letter of a byte's escape in JSON, behind the backslash, and the bytes that the escape adds."""
_LETTERS[:0x20], _ADDED[:0x20] = ord("u"), 5
for _byte, _letter in zip(b'\b\t\n\f\r"\\', b'btnfr"\\', strict=True):
    _LETTERS[_byte], _ADDED[_byte] = _letter, 1
_POWERS_OF_TEN = np.array([10**_digits for _digits in range(19)], np.uint64)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_NULL = np.frombuffer(b"null", np.uint8)
_NAN = np.frombuffer(b"NaN", np.uint8)
_INFINITY = np.frombuffer(b"Infinity", np.uint8)
_OPENING = np.frombuffer(OPENING, np.uint8)
_CLOSING = np.frombuffer(CLOSING, np.uint8)


@inlined
def _is_null(validity: np.ndarray, row: Integer) -> bool:
    return validity.size > 0 and (validity[row >> 3] >> (row & 7)) & 1 == 0


@inlined
def _is_text(data: np.ndarray, at: Integer, end: Integer) -> bool:
    """Whether the bytes are UTF-8, as Python and RFC 3629 have it."""
    while at < end:
        first = data[at]
        at += 1
        if first < 0x80:
            continue
        least, most = 0x80, 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                least = 0xA0
            elif first == 0xED:
                most = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                least = 0x90
            elif first == 0xF4:
                most = 0x8F
        else:
            return False
        if at + more > end or not least <= data[at] <= most:
            return False
        for i in range(1, more):
            if not 0x80 <= data[at + i] <= 0xBF:
                return False
        at += more
    return True


@inlined
def _base64_size(size: Integer) -> Integer:
    return (size + 2) // 3 * 4


@inlined
def _fill_base64(data: np.ndarray, at: Integer, end: Integer, out: np.ndarray, to: Integer) -> Integer:
    while at < end:
        left = end - at
        group = int64(data[at]) << 16
        if left > 1:
            group |= int64(data[at + 1]) << 8
        if left > 2:
            group |= int64(data[at + 2])
        out[to] = _BASE64[group >> 18]
        out[to + 1] = _BASE64[(group >> 12) & 63]
        out[to + 2] = _BASE64[(group >> 6) & 63] if left > 1 else uint8(0x3D)
        out[to + 3] = _BASE64[group & 63] if left > 2 else uint8(0x3D)
        at += 3
        to += 4
    return to


@inlined
def _fill_escaped(
    data: np.ndarray, at: Integer, end: Integer, digits: np.ndarray, out: np.ndarray, to: Integer
) -> None:
    put, one = uint64(to), uint64(1)  # unsigned indices are not looked at for being negative: twice as fast
    for i in range(uint64(at), uint64(end)):
        byte = data[i]
        if _ADDED[byte] == 0:
            out[put] = byte
            put += one
            continue
        out[put] = _BACKSLASH
        out[put + one] = _LETTERS[byte]
        if _ADDED[byte] == 5:
            out[put + uint64(2)] = 0x30
            out[put + uint64(3)] = 0x30
            out[put + uint64(4)] = digits[byte >> 4]
            out[put + uint64(5)] = digits[byte & 15]
        put += one + uint64(_ADDED[byte])


@kernel(INT32S, BYTES, BYTES, OUT_BYTES, OUT_INT64)
def measure_json(
    offsets: np.ndarray, validity: np.ndarray, data: np.ndarray, forms: np.ndarray, ends: np.ndarray
) -> None:
    """Fill ``forms`` with each row's form, and ``ends``, one element longer, with the bounds of its JSON."""
    total = int64(0)
    ends[0] = 0
    for row in range(offsets.size - 1):
        at, end = int64(offsets[row]), int64(offsets[row + 1])
        added, ones = int64(0), uint8(0)
        for i in range(uint64(at), uint64(end)):
            added += _ADDED[data[i]]
            ones |= data[i]
        if _is_null(validity, row):
            forms[row] = NULL
            total += _NULL.size
        elif ones < 0x80 or _is_text(data, at, end):
            forms[row] = ESCAPED if added else PLAIN
            total += end - at + added + 2
        else:
            forms[row] = BASE64
            total += _OPENING.size + _base64_size(end - at) + _CLOSING.size
        ends[row + 1] = total


@kernel(INT32S, BYTES, BYTES, INT64S, BYTES, OUT_BYTES)
def fill_json(
    offsets: np.ndarray,
    data: np.ndarray,
    forms: np.ndarray,
    ends: np.ndarray,
    digits: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write what :func:`measure_json` has measured.

    :param digits: the 16 hexadecimal ones, for the escapes of control characters.
    """
    for row in range(forms.size):
        at, end, to = int64(offsets[row]), int64(offsets[row + 1]), ends[row]
        form = forms[row]
        if form == NULL:
            copy_bytes(out, to, _NULL, int64(0), int64(_NULL.size))
        elif form == BASE64:
            copy_bytes(out, to, _OPENING, int64(0), int64(_OPENING.size))
            to = _fill_base64(data, at, end, out, to + _OPENING.size)
            copy_bytes(out, to, _CLOSING, int64(0), int64(_CLOSING.size))
        else:
            out[to] = _QUOTE
            to += 1
            if form == PLAIN:
                copy_bytes(out, to, data, at, end - at)
            else:
                _fill_escaped(data, at, end, digits, out, to)
            out[ends[row + 1] - 1] = _QUOTE


@kernel(INT32S, BYTES, INT64S, OUT_BYTES)
def fill_base64(offsets: np.ndarray, data: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
    """Write the base64 of each row where ``ends`` says that it begins."""
    for row in range(offsets.size - 1):
        _fill_base64(data, int64(offsets[row]), int64(offsets[row + 1]), out, ends[row])


@inlined
def _magnitude(value: Integer) -> Integer:
    return uint64(-(value + 1)) + uint64(1) if value < 0 else uint64(value)


@inlined
def _decimal_size(value: Integer, scale: Integer) -> Integer:
    magnitude, digits = _magnitude(value), 1
    while digits < _POWERS_OF_TEN.size and magnitude >= _POWERS_OF_TEN[digits]:
        digits += 1
    return int64(max(digits, scale + 1) + (scale > 0) + (value < 0))


@kernel(INT64S, INT64, BYTES, OUT_INT64)
def measure_decimals(values: np.ndarray, scale: Integer, validity: np.ndarray, sizes: np.ndarray) -> None:
    """Add to each row's size that of its number in decimal digits, with its sign if it is negative.

    :param scale: digits behind the point; without any there is no point.
    """
    for row in range(values.size):
        if not _is_null(validity, row):
            sizes[row] += _decimal_size(values[row], scale)


@kernel(INT64S, INT64, BYTES, OUT_INT64, OUT_BYTES)
def put_decimals(
    values: np.ndarray, scale: Integer, validity: np.ndarray, at: np.ndarray, out: np.ndarray
) -> None:
    """Write each row's number at ``at``, which moves behind it."""
    for row in range(values.size):
        if _is_null(validity, row):
            continue
        value = values[row]
        end = at[row] + _decimal_size(value, scale)
        rest, to = _magnitude(value), uint64(end)
        for _ in range(scale):
            to -= uint64(1)
            out[to] = uint8(0x30 + rest % uint64(10))
            rest //= uint64(10)
        if scale:
            to -= uint64(1)
            out[to] = _POINT
        while rest >= 10:
            to -= uint64(1)
            out[to] = uint8(0x30 + rest % uint64(10))
            rest //= uint64(10)
        out[to - uint64(1)] = uint8(0x30 + rest)
        if value < 0:
            out[at[row]] = _MINUS
        at[row] = end


@inlined
def _put_number(out: np.ndarray, to: Integer, value: Integer) -> Integer:
    """Write an integer of up to three digits."""
    if value < 0:
        out[to] = _MINUS
        to += 1
        value = -value
    if value >= 100:
        out[to] = 0x30 + value // 100
        to += 1
    if value >= 10:
        out[to] = 0x30 + value // 10 % 10
        to += 1
    out[to] = 0x30 + value % 10
    return to + 1


@kernel(INT32S, BYTES, OUT_INT64, OUT_BYTES)
def put_java_numbers(offsets: np.ndarray, data: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
    """Write numbers as Java's ``Double.toString`` does; ``ends`` says where each begins and ends.

    They come with their shortest digits, such as ``123``, ``1.5e+20``, ``-0``, ``nan`` and ``-inf``, and take
    up to :data:`JAVA_ADDS` more bytes each. NaN and infinities get quotes.
    """
    to = int64(0)
    ends[0] = 0
    for row in range(offsets.size - 1):
        at, end = int64(offsets[row]), int64(offsets[row + 1])
        begin = at
        is_negative = at < end and data[at] == _MINUS
        at += is_negative
        if at < end and data[at] > 0x39:  # a letter
            word = _NAN if data[at] == 0x6E else _INFINITY
            out[to] = _QUOTE
            to += 1
            if is_negative:
                out[to] = _MINUS
                to += 1
            copy_bytes(out, to, word, int64(0), int64(word.size))
            to += word.size
            out[to] = _QUOTE
            to += 1
            ends[row + 1] = to
            continue
        first: Integer = int64(-1)  # where the first digit is that is not 0, and so on
        last: Integer = int64(-1)
        point: Integer = int64(-1)
        exponent: Integer = int64(0)
        is_exponent_negative = False
        stop: Integer = end
        for i in range(at, end):
            if data[i] == _POINT:
                point = i
            elif data[i] | 0x20 == 0x65:
                stop = i
                for k in range(i + 1, end):
                    if data[k] == _MINUS:
                        is_exponent_negative = True
                    elif data[k] != 0x2B and exponent < 1000:
                        exponent = exponent * 10 + data[k] - 0x30
                break
            elif data[i] != 0x30:
                first = i if first < 0 else first
                last = i
        has_point = point >= 0
        point = point if has_point else stop
        power: Integer = -exponent if is_exponent_negative else exponent
        power += point - first - (1 if point > first else 0)  # that of the first digit
        if first < 0 or (stop == end and -3 <= power < 7):
            copy_bytes(out, to, data, begin, end - begin)
            to += end - begin
            if not has_point and end > begin:
                out[to] = _POINT
                out[to + 1] = 0x30
                to += 2
        else:
            if is_negative:
                out[to] = _MINUS
                to += 1
            out[to] = data[first]
            out[to + 1] = _POINT
            to += 2
            if first == last:
                out[to] = 0x30
                to += 1
            for i in range(first + 1, last + 1):
                if data[i] != _POINT:
                    out[to] = data[i]
                    to += 1
            out[to] = 0x45
            to = _put_number(out, to + 1, power)
        ends[row + 1] = to


@kernel(BYTES, OUT_INT64, OUT_BYTES)
def put_constant(text: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
    """Write the same text in each row at ``at``, which moves behind it."""
    for row in range(at.size):
        copy_bytes(out, at[row], text, int64(0), int64(text.size))
        at[row] += text.size


@kernel(INT64S, BYTES, OUT_INT64, OUT_BYTES)
def put_texts(offsets: np.ndarray, data: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
    """Write each row's text at ``at``, which moves behind it."""
    for row in range(at.size):
        size = offsets[row + 1] - offsets[row]
        copy_bytes(out, at[row], data, offsets[row], size)
        at[row] += size


@kernel(BYTES, INT64S, OUT_INT64)
def measure_choices(numbers: np.ndarray, offsets: np.ndarray, sizes: np.ndarray) -> None:
    """Add to each row's size that of the text with its number."""
    for row in range(numbers.size):
        number = numbers[row]
        sizes[row] += offsets[number + 1] - offsets[number]


@kernel(BYTES, INT64S, BYTES, OUT_INT64, OUT_BYTES)
def put_choices(
    numbers: np.ndarray, offsets: np.ndarray, data: np.ndarray, at: np.ndarray, out: np.ndarray
) -> None:
    """Write in each row the text with its number at ``at``, which moves behind it."""
    for row in range(numbers.size):
        number = numbers[row]
        size = offsets[number + 1] - offsets[number]
        copy_bytes(out, at[row], data, offsets[number], size)
        at[row] += size
