"""Columns as text: JSON strings, hexadecimal digits, base64, and lines. Nothing is done row by row in Python.

Results are columns of large binary, because text takes up to six times the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec import text_kernels as kernels
from pyspark_kafkalog.codec.buffers import allocate, as_array, binary_column, int64_column

TEXT = pa.large_binary()
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


def joined_rows(parts: Sequence[bytes | pa.Array], rows: int) -> pa.Buffer:
    """The parts of the first row, one after another, then those of the next, and so on.

    :param parts: see :func:`joined_texts`.
    """
    return joined_texts(parts, rows).buffers()[2]


def joined_texts(parts: Sequence[bytes | pa.Array], rows: int) -> pa.LargeBinaryArray:
    """The parts of each row, one after another. No row is null.

    :param parts: text that is the same in every row, columns of integers without nulls, which become decimal
        numbers, and columns of :data:`TEXT`, in which null is empty.
    """
    ends = np.zeros(rows + 1, np.int64)
    sizes = ends[1:]
    put: list[Callable[[np.ndarray, np.ndarray], None]] = []
    for part in parts if rows else ():
        if isinstance(part, bytes):
            sizes += len(part)
            put.append(partial(kernels.put_constant, as_array(part)))
        elif pa.types.is_integer(part.type):
            values = int64_column(part.cast(pa.int64()))
            kernels.measure_decimals(values, sizes)
            put.append(partial(kernels.put_decimals, values))
        else:
            texts = pc.fill_null(part, b"") if part.null_count else part
            offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: rows + 1]
            sizes += np.diff(offsets)
            put.append(partial(kernels.put_texts, offsets, as_array(texts.buffers()[2] or b"")))
    np.cumsum(ends, out=ends)
    at, out = ends[:-1].copy(), allocate(int(ends[-1]))
    for put_part in put:
        put_part(at, out)
    return _text(rows, ends, out, None)


def _ends(sizes: np.ndarray) -> np.ndarray:
    ends = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def _text(rows: int, ends: np.ndarray, out: np.ndarray, validity: np.ndarray | None) -> pa.LargeBinaryArray:
    nulls = None if validity is None or not validity.size else pa.py_buffer(validity)
    return pa.Array.from_buffers(TEXT, rows, [nulls, pa.py_buffer(ends), pa.py_buffer(out)])
