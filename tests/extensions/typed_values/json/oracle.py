"""The slow path as the oracle of the kernel, and rows as both can be compared."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.codec.fields import text_of
from pyspark_kafkalog.extensions.typed_values.json.rows import root
from pyspark_kafkalog.extensions.typed_values.json.times import Zone


def shown(array: pa.Array) -> list[Any]:
    """Rows: times as numbers, floats as texts, so that zeros and NaN can be compared."""
    kind = array.type
    if pa.types.is_struct(kind):
        columns = {field.name: shown(array.field(number)) for number, field in enumerate(kind)}
        return [
            {name: column[row] for name, column in columns.items()} if there else None
            for row, there in enumerate(array.is_valid().to_pylist())
        ]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        if pa.types.is_map(kind):
            inner = list(zip(shown(array.keys), shown(array.items), strict=True))
        else:
            inner = shown(array.values)
        ends = array.offsets.to_pylist()
        return [
            inner[ends[row] : ends[row + 1]] if there else None
            for row, there in enumerate(array.is_valid().to_pylist())
        ]
    if pa.types.is_timestamp(kind):
        return list(array.cast(pa.int64()).to_pylist())
    if pa.types.is_date(kind):
        return list(array.cast(pa.int32()).to_pylist())
    if pa.types.is_string(kind):
        # Spark gives the bytes of a corrupt value as they are.
        return [None if text is None else text_of(text) for text in array.cast(pa.binary()).to_pylist()]
    if pa.types.is_floating(kind):
        return [None if x is None else "NaN" if math.isnan(x) else x.hex() for x in array.to_pylist()]
    return list(array.to_pylist())


def slow(values: list[bytes | None], kind: pa.StructType, zone: Zone) -> tuple[list[Any], list[bool]]:
    """What the slow path alone makes of values, with the text of corrupt ones; and which are corrupt."""
    inner = pa.struct([field for field in kind if field.name != "_corrupt_record"])
    convert = root(inner, zone)
    found = [(None, None) if value is None else convert(text_of(value)) for value in values]
    rows = shown(pa.array([fields for fields, _ in found], inner))
    if "_corrupt_record" in kind.names:
        for row, value, (_, fault) in zip(rows, values, found, strict=True):
            if row is not None and value is not None:
                row["_corrupt_record"] = None if fault is None else text_of(value)
    return rows, [fault is not None for _, fault in found]
