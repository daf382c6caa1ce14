"""Columns as text: JSON strings, hexadecimal digits, base64, and lines. Nothing is done row by row in Python.

Results are columns of large binary, because text takes up to six times the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec import text_kernels as kernels
from pyspark_kafkalog.codec.buffers import allocate, as_array, binary_column, int64_column, validity_of

TEXT = pa.large_binary()
_PLAIN_SCALE = 6
"""The most digits behind the point with which Java and Arrow write no exponent."""
_HEX_PAIRS = np.array([int.from_bytes(b"%02x" % byte, "little") for byte in range(256)], "<u2")


_LOWER, _UPPER = (np.frombuffer(digits, np.uint8) for digits in (b"0123456789abcdef", b"0123456789ABCDEF"))


def json_strings(column: pa.Array, *, upper_case: bool = False) -> pa.LargeBinaryArray:
    """Each row as JSON: a string, ``{"base64":"..."}`` if it is not UTF-8, or null. No row is null.

    :param upper_case: whether escapes of control characters have such digits, as Jackson's.
    """
    offsets, validity, data = binary_column(column)
    forms, ends = np.empty(len(column), np.uint8), allocate(len(column) + 1, np.int64)
    kernels.measure_json(offsets, validity, data, forms, ends)
    out = allocate(int(ends[-1]))
    kernels.fill_json(offsets, data, forms, ends, _UPPER if upper_case else _LOWER, out)
    return _text(len(column), ends, out, None)


def rows_of_bytes(column: pa.Array) -> np.ndarray:
    """The numbers of the rows that are not UTF-8."""
    offsets, validity, data = binary_column(column)
    forms, ends = np.empty(len(column), np.uint8), allocate(len(column) + 1, np.int64)
    kernels.measure_json(offsets, validity, data, forms, ends)
    return np.flatnonzero(forms == kernels.BASE64)


def java_numbers(column: pa.StringArray) -> pa.LargeBinaryArray:
    """Numbers as Java's ``Double.toString`` writes them, if they have its digits; nulls stay.

    NaN and infinities are in quotes.

    :param column: as Arrow casts floating-point numbers to text; an exponent may have a large E.
    """
    offsets, validity, data = binary_column(column)
    ends = allocate(len(column) + 1, np.int64)
    out = allocate(int(offsets[-1]) - int(offsets[0]) + kernels.JAVA_ADDS * len(column))
    kernels.put_java_numbers(offsets, data, ends, out)
    return _text(len(column), ends, out, validity)


def base64_strings(column: pa.Array) -> pa.LargeBinaryArray:
    """Each row in base64, with padding (RFC 4648); nulls stay."""
    offsets, validity, data = binary_column(column)
    ends = _ends((np.diff(offsets.astype(np.int64)) + 2) // 3 * 4)
    out = allocate(int(ends[-1]))
    kernels.fill_base64(offsets, data, ends, out)
    return _text(len(column), ends, out, validity)


def hex_strings(column: pa.Array) -> pa.LargeBinaryArray:
    """Each row as pairs of hexadecimal digits; nulls stay."""
    offsets, validity, data = binary_column(column)
    out = _HEX_PAIRS[data[offsets[0] : offsets[-1]]].view(np.uint8)
    return _text(len(column), _ends(2 * np.diff(offsets.astype(np.int64))), out, validity)


class Part(Protocol):
    """A part of each row."""

    def measure(self, sizes: np.ndarray) -> None:
        """Add to each row's size (int64) the bytes of its part."""

    def put(self, at: np.ndarray, out: np.ndarray) -> None:
        """Write each row's part into ``out`` at ``at`` (int64), which moves behind it."""


class _Constant:
    def __init__(self, text: bytes) -> None:
        self._text = as_array(text)

    def measure(self, sizes: np.ndarray) -> None:
        sizes += self._text.size

    def put(self, at: np.ndarray, out: np.ndarray) -> None:
        kernels.put_constant(self._text, at, out)


class Decimals:
    """Numbers in decimal digits, as a part of each row; null is empty.

    :param unscaled: as int64.
    :param scale: digits behind the point.
    :param validity: a bitmap of the rows that are not null; empty if none is.
    """

    def __init__(self, unscaled: np.ndarray, scale: int, validity: np.ndarray) -> None:
        self._numbers = unscaled, scale, validity

    @classmethod
    def of(cls, column: pa.Array) -> Decimals | None:
        """The numbers of a column of integers, or of decimals that fit; None for any other.

        A decimal fits if it has at most :data:`_PLAIN_SCALE` digits behind the point, and 64 bits.
        """
        if pa.types.is_integer(column.type) and column.type != pa.uint64():
            return cls(int64_column(column.cast(pa.int64())), 0, validity_of(column))
        if not (pa.types.is_decimal128(column.type) and 0 <= column.type.scale <= _PLAIN_SCALE):
            return None
        words = np.frombuffer(column.buffers()[1] or b"", np.int64).reshape(-1, 2)
        low, high = words[column.offset :][: len(column)].T
        low = np.ascontiguousarray(low)
        fits = (high == low >> 63).all()
        return cls(low, column.type.scale, validity_of(column)) if fits else None

    def measure(self, sizes: np.ndarray) -> None:
        """See :meth:`Part.measure`."""
        kernels.measure_decimals(*self._numbers, sizes)

    def put(self, at: np.ndarray, out: np.ndarray) -> None:
        """See :meth:`Part.put`."""
        kernels.put_decimals(*self._numbers, at, out)


class Choices:
    """One of a few texts, as a part of each row.

    :param texts: at most 256.
    :param numbers: that of each row's text, as uint8.
    """

    def __init__(self, texts: Sequence[bytes], numbers: np.ndarray) -> None:
        self._numbers = numbers
        self._offsets = _ends(np.array([len(text) for text in texts], np.int64))
        self._data = as_array(b"".join(texts))

    def measure(self, sizes: np.ndarray) -> None:
        """See :meth:`Part.measure`."""
        kernels.measure_choices(self._numbers, self._offsets, sizes)

    def put(self, at: np.ndarray, out: np.ndarray) -> None:
        """See :meth:`Part.put`."""
        kernels.put_choices(self._numbers, self._offsets, self._data, at, out)


class OfRows:
    """Parts that only some rows have.

    :param rows: their numbers, in rising order.
    :param parts: see :func:`joined_texts`, of these rows.
    """

    def __init__(self, rows: np.ndarray, parts: Sequence[bytes | pa.Array | Part]) -> None:
        self._rows = rows
        self._parts = [_part(part) for part in parts]

    def measure(self, sizes: np.ndarray) -> None:
        """See :meth:`Part.measure`."""
        of_rows = sizes[self._rows]
        for part in self._parts:
            part.measure(of_rows)
        sizes[self._rows] = of_rows

    def put(self, at: np.ndarray, out: np.ndarray) -> None:
        """See :meth:`Part.put`."""
        of_rows = at[self._rows]
        for part in self._parts:
            part.put(of_rows, out)
        at[self._rows] = of_rows


class _Texts:
    def __init__(self, column: pa.LargeBinaryArray) -> None:
        texts = pc.fill_null(column, b"") if column.null_count else column
        self._offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
        self._data = as_array(texts.buffers()[2] or b"")

    def measure(self, sizes: np.ndarray) -> None:
        sizes += np.diff(self._offsets)

    def put(self, at: np.ndarray, out: np.ndarray) -> None:
        kernels.put_texts(self._offsets, self._data, at, out)


def joined_rows(parts: Sequence[bytes | pa.Array | Part], rows: int) -> pa.Buffer:
    """The parts of the first row, one after another, then those of the next, and so on.

    :param parts: see :func:`joined_texts`.
    """
    return joined_texts(parts, rows).buffers()[2]


def joined_texts(parts: Sequence[bytes | pa.Array | Part], rows: int) -> pa.LargeBinaryArray:
    """The parts of each row, one after another. No row is null.

    :param parts: text that is the same in every row, columns of integers, which become decimal numbers,
        columns of :data:`TEXT`, and others that write themselves. Null is empty.
    """
    ends = np.zeros(rows + 1, np.int64)
    each_row = [_part(part) for part in parts] if rows else []
    for part in each_row:
        part.measure(ends[1:])
    np.cumsum(ends, out=ends)
    at, out = ends[:-1].copy(), allocate(int(ends[-1]))
    for part in each_row:
        part.put(at, out)
    return _text(rows, ends, out, None)


def _part(given: bytes | pa.Array | Part) -> Part:
    if isinstance(given, bytes):
        return _Constant(given)
    if not isinstance(given, pa.Array):
        return given
    if pa.types.is_integer(given.type):
        return Decimals(int64_column(given.cast(pa.int64())), 0, validity_of(given))
    return _Texts(given)


def texts_of_lists(items: pa.LargeBinaryArray, offsets: np.ndarray) -> pa.LargeBinaryArray:
    """The texts of the items of each list, one after another.

    :param items: without nulls, not a slice.
    :param offsets: where each list begins in ``items``, and the last one ends.
    """
    ends = np.frombuffer(items.buffers()[1], np.int64)[offsets]
    return _text(len(offsets) - 1, ends, as_array(items.buffers()[2] or b""), None)


def _ends(sizes: np.ndarray) -> np.ndarray:
    ends = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def _text(rows: int, ends: np.ndarray, out: np.ndarray, validity: np.ndarray | None) -> pa.LargeBinaryArray:
    nulls = None if validity is None or not validity.size else pa.py_buffer(validity)
    return pa.Array.from_buffers(TEXT, rows, [nulls, pa.py_buffer(ends), pa.py_buffer(out)])
