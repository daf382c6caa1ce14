"""Compiled respelling of JSON: rows as :func:`.kernels.decode` wants them, which read the same."""

from __future__ import annotations

import numpy as np
from numpy import int64, uint64

from pyspark_kafkalog.codec.kernel import Integer, Integers, copy_bytes, inlined, kernel
from pyspark_kafkalog.codec.signature import BYTES, INT64S, OUT_BYTES, OUT_INT64

LARGEST_GROWTH = 3
"""A row has at most that many times its bytes afterwards."""

_QUOTE, _APOSTROPHE, _BACKSLASH, _SPACE, _U = 34, 39, 92, 32, 117
_ESCAPED = tuple(b"\"'\\/bfnrt")
"""The letters behind a backslash, but u."""


@inlined
def character_at(data: np.ndarray, at: Integer, end: Integer) -> Integers:
    """A character beyond ASCII: the place behind it, and whether it is not UTF-8. Then the place is behind
    all that Java's decoder has one U+FFFD for: as many bytes as a character may begin with, or half of a
    surrogate pair.
    """
    first = data[at]
    more = 0 if first < 0xC2 or first > 0xF4 else 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    least = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    most = 0x8F if first == 0xF4 else 0xBF
    at += 1
    is_surrogate = first == 0xED and at < end and data[at] > 0x9F
    while more > 0 and at < end and least <= data[at] <= most:
        at += 1
        more -= 1
        least = 0x80
        most = 0xBF
    return at, first < 0xC2 or first > 0xF4 or more > 0 or is_surrogate


@inlined
def behind_escape(data: np.ndarray, at: Integer, end: Integer) -> Integer:
    """The place behind an escape, whose backslash is at ``at``; -1 if JSON has no such one."""
    if end - at < 2:
        return int64(-1)
    at += 2
    if data[at - 1] in _ESCAPED:
        return at
    if data[at - 1] != _U or end - at < 4:
        return int64(-1)
    for i in range(at, at + 4):
        if not (48 <= data[i] <= 57 or 97 <= (data[i] | 32) <= 102):
            return int64(-1)
    return at + 4


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
            at, is_malformed = character_at(data, begin, end)
            if is_malformed:
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
            behind = behind_escape(data, begin, end)
            has_fault |= behind < 0
            at = max(at, behind)
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
