"""Compiled respelling of JSON: rows as :func:`.kernels.decode` wants them, which read the same."""

from __future__ import annotations

import numpy as np
from numpy import int64, uint64

from pyspark_kafkalog.codec.kernel import Integer, Integers, copy_bytes, inlined, kernel
from pyspark_kafkalog.codec.signature import BYTES, INT64S, OUT_BYTES, OUT_INT64
from pyspark_kafkalog.extensions.typed_values.json.kernels import escape_at, utf8_size

LARGEST_GROWTH = 3
"""A row has at most that many times its bytes afterwards."""

_QUOTE, _APOSTROPHE, _BACKSLASH, _SPACE = 34, 39, 92, 32


@inlined
def behind_malformed(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The place behind bytes that are not UTF-8, for which Java's decoder has one U+FFFD: as many as a
    character may begin with, or those of a surrogate.
    """
    first = data[at]
    size = 0 if first < 0xC2 or first > 0xF4 else 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    begin = at
    at += 1
    while size > 0 and at < end and (data[at] & 0xC0) == 0x80:
        second = data[at]
        if at == begin + 1 and (
            (first == 0xE0 and second < 0xA0)
            or (first == 0xF0 and second < 0x90)
            or (first == 0xF4 and second > 0x8F)
        ):
            break
        at += 1
        size -= 1
    return at


@inlined
def respelled(data: np.ndarray, at: Integer, end: Integer, out: np.ndarray, to: Integer) -> Integers:
    """Write one row: the place behind it, and whether it reads the same and is spelled in another way."""
    quote = int64(0)
    is_other = False
    has_apostrophes = False
    has_fault = False
    while at < end:
        byte = data[uint64(at)]
        begin = at
        at += 1
        if byte >= 0x80:
            size = utf8_size(data, begin, end)
            at = begin + size
            if size == 0:
                at = behind_malformed(data, begin, end)
                is_other = True
                out[to] = 0xEF
                out[to + 1] = 0xBF
                out[to + 2] = 0xBD
                to += 3
                continue
        elif quote == 0:
            if byte in (_QUOTE, _APOSTROPHE):
                quote = int64(byte)
                has_apostrophes |= byte == _APOSTROPHE
                byte = _QUOTE
            out[to] = byte
            to += 1
            continue
        elif byte == quote:
            quote = int64(0)
            out[to] = _QUOTE
            to += 1
            continue
        elif byte == _QUOTE:
            out[to] = _BACKSLASH
            to += 1
        elif byte == _BACKSLASH:
            behind, char = escape_at(data, begin, end)
            if char < 0:
                has_fault = True
            else:
                at = behind
        elif byte < _SPACE:
            has_fault = True
        copy_bytes(out, to, data, begin, at - begin)
        to += at - begin
    # Jackson reads a string in apostrophes at once, and another one only when it is wanted.
    if has_apostrophes:
        return to, quote == 0 and not has_fault
    return to, is_other


@kernel(BYTES, INT64S, INT64S, OUT_BYTES, OUT_INT64)
def respell(
    data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, out: np.ndarray, out_sizes: np.ndarray
) -> None:
    """Write each row ``data[start:start + size]`` with strings in quotes that were in apostrophes, and with
    U+FFFD where it is not UTF-8, one behind the other.

    :param out: has room for :data:`LARGEST_GROWTH` times the bytes of all rows.
    :param out_sizes: gets the bytes of each row; -1 if it is spelled like that already, or if a string of it
        is broken: it takes no place then.
    """
    to = int64(0)
    for row in range(starts.size):
        begin = to
        to, is_other = respelled(data, starts[row], starts[row] + sizes[row], out, begin)
        out_sizes[row] = to - begin
        if not is_other:
            out_sizes[row] = -1
            to = begin
