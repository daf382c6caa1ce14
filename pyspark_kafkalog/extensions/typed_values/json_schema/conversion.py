"""Values of a type from what JSON is read as, column by column, and back: Kafka Connect's forms in JSON.

| type | in JSON |
|---|---|
| binary | base64 (RFC 4648, with padding) |
| decimal | the same of its unscaled value, in two's complement, big-endian |
| date | days since 1970 |
| timestamp | milliseconds since 1970 |
| map whose keys aren't strings | an array of objects with ``key`` and ``value`` |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import list_column, valid_rows
from pyspark_kafkalog.codec.rows import MAX_TIMESTAMP

_SIXES = np.full(256, 64, np.uint8)
"""The six bits of each character of base64; 64 for any other."""
_SIXES[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = range(
    64
)
_PADDING = ord("=")
_WIDTH = 16
"""Bytes of a decimal."""


@dataclass
class Faults:
    """The rows with values that have no such type, each with the first reason.

    :ivar reasons: the path of the field and the reason, by row.
    """

    reasons: dict[int, tuple[str, str]] = field(default_factory=dict)

    def add(self, rows: np.ndarray, path: str, why: str) -> None:
        for row in rows.tolist():
            self.reasons.setdefault(row, (path, why))


_Rows = Callable[[np.ndarray], np.ndarray]
"""The rows of the batch that elements of a column belong to."""


def converted(column: pa.Array, kind: pa.DataType, faults: Faults) -> pa.Array:
    """A column as values of type ``kind``; what has no such value is null, and in ``faults``."""
    return _converted(column, kind, "", lambda rows: rows, faults)


def _converted(column: pa.Array, kind: pa.DataType, path: str, rows: _Rows, faults: Faults) -> pa.Array:
    read_as = column.type
    if read_as == kind:
        return column
    if pa.types.is_struct(kind):
        parts = [
            _converted(column.field(number), each.type, f"{path}.{each.name}", rows, faults)
            for number, each in enumerate(kind)
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_list(read_as) or pa.types.is_map(read_as):
        return _of_items(column, kind, path, rows, faults)
    if kind == pa.date32():
        return column.cast(kind)
    if pa.types.is_timestamp(kind):
        ms = column.fill_null(0).to_numpy()
        fine = (ms <= MAX_TIMESTAMP) & (ms >= -MAX_TIMESTAMP)
        found = pa.array(np.where(fine, ms, 0) * 1000).cast(kind)
        why = "expected milliseconds since 1970 that a timestamp has room for"
    else:
        binary, fine = _from_base64(column)
        found, why = binary, "expected base64"
        if pa.types.is_decimal(kind):
            found, is_small = _decimals(binary, kind)
            fine &= is_small
            why = f"expected base64 of a number that fits into decimal({kind.precision},{kind.scale})"
    wrong = ~fine & valid_rows(column)
    if wrong.any():
        faults.add(rows(np.flatnonzero(wrong)), path.removeprefix("."), why)
    is_there = valid_rows(column) & fine
    return found if is_there.all() else pc.if_else(pa.array(is_there), found, pa.scalar(None, kind))


def _of_items(column: pa.Array, kind: pa.DataType, path: str, rows: _Rows, faults: Faults) -> pa.Array:
    offsets, _ = list_column(column)

    def above(items: np.ndarray) -> np.ndarray:
        inside = items[(items >= offsets[0]) & (items < offsets[-1])]
        return rows(np.searchsorted(offsets, inside, side="right") - 1)

    validity, starts = column.buffers()[:2]
    if pa.types.is_list(kind):
        inner = _converted(column.values, kind.value_type, f"{path}.element", above, faults)
    else:
        is_map = pa.types.is_map(column.type)
        keys, items = (
            (column.keys, column.items) if is_map else (column.values.field(0), column.values.field(1))
        )
        keys = _converted(keys, kind.key_type, f"{path}.key", above, faults)
        if keys.null_count:  # a map has none
            lost = np.flatnonzero(~valid_rows(keys))
            faults.add(above(lost), f"{path}.key".removeprefix("."), "expected a key that is not null")
            keys = keys.fill_null(_least(kind.key_type))
        items = _converted(items, kind.item_type, f"{path}.value", above, faults)
        inner = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(
        kind, len(column), [validity, starts], offset=column.offset, children=[inner]
    )


def _least(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar("" if pa.types.is_string(kind) else b"" if pa.types.is_binary(kind) else 0).cast(kind)


def _compact(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of a column, with nothing between them, and the end of each value, behind a 0."""
    column = column.fill_null("") if column.null_count else column
    offsets = np.frombuffer(column.buffers()[1] or bytes(4), np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def _from_base64(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The bytes of each string, and which strings are base64; the others have no bytes."""
    fine = np.ones(len(column), bool)
    while True:
        data, ends = _compact(column)
        begins, ends = ends[:-1], ends[1:]
        is_empty = begins == ends
        padded = np.zeros(len(column), np.int64)
        last = data[np.maximum(ends - 1, 0)] == _PADDING if data.size else np.zeros(len(column), bool)
        before = data[np.maximum(ends - 2, 0)] == _PADDING if data.size else np.zeros(len(column), bool)
        padded = np.where(is_empty, 0, np.where(last, 1 + before, 0))
        sixes = _SIXES[data]
        is_end = np.zeros(data.size, bool)
        is_end[ends[padded > 0] - 1] = True
        is_end[ends[padded > 1] - 2] = True
        sixes[is_end] = 0
        wrong = np.flatnonzero(sixes == 64)
        bad = (ends - begins) % 4 != 0
        bad[np.searchsorted(ends, wrong, side="right")] = True
        if not bad.any():
            break
        fine &= ~bad
        column = pc.if_else(pa.array(~bad), column, pa.scalar("", column.type))
    quads = sixes.reshape(-1, 4).astype(np.uint32)
    words = quads[:, 0] << 18 | quads[:, 1] << 12 | quads[:, 2] << 6 | quads[:, 3]
    out = np.stack([words >> 16, words >> 8, words], axis=1).astype(np.uint8).reshape(-1)
    full = ends // 4 * 3
    keep = np.ones(out.size, bool)
    keep[full[padded > 0] - 1] = False
    keep[full[padded > 1] - 2] = False
    sizes = np.diff(full, prepend=0) - padded
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out[keep])]
    return pa.Array.from_buffers(pa.binary(), len(column), buffers), fine


def _decimals(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    """The numbers of bytes in two's complement, big-endian, and which fit; the others are 0."""
    offsets, data = np.frombuffer(column.buffers()[1], np.int32), np.frombuffer(column.buffers()[2], np.uint8)
    sizes = np.diff(offsets)
    fine = (sizes > 0) & (sizes <= _WIDTH)
    wide = np.zeros((len(column), _WIDTH), np.uint8)
    some = np.flatnonzero(fine)
    wide[some[data[offsets[some]] >= 128]] = 255
    for size in np.unique(sizes[some]).tolist():
        those = some[sizes[some] == size]
        wide[those, _WIDTH - size :] = data[offsets[those][:, None] + np.arange(size)]
    words = np.ascontiguousarray(wide[:, ::-1]).view(np.uint64)
    low, high = words[:, 0].copy(), words[:, 1].view(np.int64).copy()
    is_negative = high < 0
    size_low = np.where(is_negative, ~low + np.uint64(1), low)
    size_high = np.where(is_negative, ~high + (low == 0), high)
    most_high, most_low = divmod(10**kind.precision, 1 << 64)
    fine &= (size_high >= 0) & (
        (size_high < most_high) | ((size_high == most_high) & (size_low < np.uint64(most_low)))
    )
    words[~fine] = 0
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(words)]), fine


def unconverted(column: pa.Array, read_as: pa.DataType) -> pa.Array:
    """A scalar column in the form that :func:`converted` reads; bytes stay bytes, which become base64."""
    kind = column.type
    if kind == pa.date32():
        return column.cast(read_as)
    if pa.types.is_timestamp(kind):
        ms = column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64()).fill_null(0).to_numpy() // 1000
        return pa.array(ms, mask=~valid_rows(column)) if column.null_count else pa.array(ms)
    return _two_s_complement(column) if pa.types.is_decimal(kind) else column


def _two_s_complement(column: pa.Array) -> pa.Array:
    """The unscaled value of each decimal in the fewest bytes, big-endian."""
    data = np.frombuffer(column.buffers()[1], np.uint8)[_WIDTH * column.offset :][: _WIDTH * len(column)]
    wide = data.reshape(-1, _WIDTH)[:, ::-1]
    sign = np.where(wide[:, :1] >= 128, 255, 0).astype(np.uint8)
    # The first byte that is not the sign's, or the one before it if that has another sign's bit.
    differs = np.argmax(np.concatenate([wide != sign, np.ones((len(column), 1), bool)], axis=1), axis=1)
    first = np.minimum(differs, _WIDTH - 1)
    has_other_sign = (wide[np.arange(len(column)), first] >= 128) != (sign[:, 0] == 255)
    first = np.where(has_other_sign & (differs < _WIDTH), first - 1, first)
    keep = np.arange(_WIDTH) >= first[:, None]
    offsets = np.concatenate([[0], np.cumsum(_WIDTH - first)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(wide[keep]))]
    found = pa.Array.from_buffers(pa.binary(), len(column), buffers)
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.binary())) if column.null_count else found
