"""Binary columns as text: JSON strings, hexadecimal digits, base64. Nothing is done row by row in Python.

Results are columns of large binary, because text takes up to six times the bytes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec import text_kernels as kernels
from pyspark_kafkalog.codec.buffers import allocate, binary_column

TEXT = pa.large_binary()
_HEX_PAIRS = np.array([int.from_bytes(b"%02x" % byte, "little") for byte in range(256)], "<u2")


def json_strings(column: pa.Array) -> pa.LargeBinaryArray:
    """Each row as JSON: a string, ``{"base64":"..."}`` if it is not UTF-8, or null. No row is null."""
    offsets, validity, data = binary_column(column)
    forms, ends = np.empty(len(column), np.uint8), allocate(len(column) + 1, np.int64)
    kernels.measure_json(offsets, validity, data, forms, ends)
    out = allocate(int(ends[-1]))
    kernels.fill_json(offsets, data, forms, ends, out)
    return _text(len(column), ends, out, None)


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


def _ends(sizes: np.ndarray) -> np.ndarray:
    ends = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def _text(rows: int, ends: np.ndarray, out: np.ndarray, validity: np.ndarray | None) -> pa.LargeBinaryArray:
    nulls = None if validity is None or not validity.size else pa.py_buffer(validity)
    return pa.Array.from_buffers(TEXT, rows, [nulls, pa.py_buffer(ends), pa.py_buffer(out)])
