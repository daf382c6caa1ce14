"""The indexes of a message behind the id of its schema, as Confluent's serializers write them.

They say which message of the schema a value is: its number among those of the file, then among those in that,
and so on. A count comes first, all in zigzag; a zero alone stands for the first message.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyspark_kafkalog.extensions.typed_values.protobuf import kernels
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import NotWireError, read_varint, varint

FIRST = (0,)
_MOST = 100
"""The most messages in one another."""
_WORD = 7
"""Bytes that are compared as one number, with how many there are."""


def encoded_indexes(indexes: Sequence[int]) -> bytes:
    """The bytes of the indexes of a message."""
    if tuple(indexes) == FIRST:
        return b"\0"
    return b"".join(varint(number << 1) for number in (len(indexes), *indexes))


def decoded_indexes(data: bytes) -> tuple[int, ...] | None:
    """The indexes in ``data``; None if that is not what it has."""
    try:
        count, at = _zigzag(data, 0)
        found = []
        for _ in range(count if 0 <= count <= _MOST else 0):
            number, at = _zigzag(data, at)
            found.append(number)
    except NotWireError:
        return None
    if at != len(data) or not 0 <= count <= _MOST:
        return None
    return tuple(found) or FIRST


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def take_indexes(
    data: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """The number of each row's indexes among all that there are, -1 where there are none, and these.

    ``starts`` and ``sizes`` become those behind them. Rows whose size is negative have none.
    """
    found = np.empty(starts.size, np.int64)
    kernels.measure_indexes(data, starts, sizes, found)
    has_some = found > 0
    is_first = has_some & (found == 1)
    is_first[is_first] = data[starts[is_first]] == 0
    numbers = np.where(is_first, 0, -1)
    known: dict[tuple[int, ...], int] = {FIRST: 0}
    others = np.flatnonzero(has_some & ~is_first)
    if others.size:
        at, lengths = starts[others], found[others]
        words = lengths.copy()  # with the first bytes: all of them, unless there are more than seven
        for byte in range(int(min(lengths.max(), _WORD))):
            longer = lengths > byte
            words[longer] |= data[at[longer] + byte].astype(np.int64) << (8 * byte + 8)
        long = np.flatnonzero(lengths > _WORD)
        _, first, index = np.unique(words, return_index=True, return_inverse=True)
        paths = [decoded_indexes(data[at[i] : at[i] + lengths[i]].tobytes()) for i in first]
        of_words = [-1 if path is None else known.setdefault(path, len(known)) for path in paths]
        numbers[others] = np.array(of_words, np.int64)[index]
        for i in long:
            path = decoded_indexes(data[at[i] : at[i] + lengths[i]].tobytes())
            numbers[others[i]] = -1 if path is None else known.setdefault(path, len(known))
    taken = np.where(numbers >= 0, found, 0)
    starts += taken
    sizes -= taken
    return numbers, list(known)
