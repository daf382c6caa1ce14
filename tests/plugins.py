"""Functions for ``transform``, right and wrong ones."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NUMBERS = pa.schema([("topic", pa.string()), ("offset", pa.int64()), ("number", pa.int64())])
ORDER = pa.struct([("item", pa.string()), ("price", pa.float64())])


def same(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def evens(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows whose value is an even number."""
    if not rows.num_rows:
        return rows
    numbers = pc.cast(pc.cast(rows.column("value"), pa.string()), pa.int64())
    return rows.filter(pc.equal(pc.bit_wise_and(numbers, 1), 0))


def twice(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.take(np.repeat(np.arange(rows.num_rows), 2))


def numbers(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The values as numbers, in columns of other names and order."""
    value = pc.cast(pc.cast(rows.column("value"), pa.string()), pa.int64())
    return pa.RecordBatch.from_arrays([rows.column("topic"), rows.column("offset"), value], schema=NUMBERS)


def shifted(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, whose column ``offset`` is no longer where their records are."""
    at = rows.schema.get_field_index("offset")
    return rows.set_column(at, "offset", pc.add(rows.column("offset"), 1000))


def orders(rows: pa.RecordBatch) -> pa.RecordBatch:
    """JSON of a struct as such, with types that Spark writes otherwise."""
    found = [json.loads(value) for value in rows.column("value").to_pylist()]
    times = pa.array([1_500_000_000_123_456_789] * rows.num_rows, pa.timestamp("ns", "UTC"))
    names = pa.array([order["item"] for order in found], pa.large_string())
    return pa.RecordBatch.from_pydict({"order": pa.array(found, ORDER), "name": names, "at": times})


def nested(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Types whose fields Spark names, or declares, otherwise than Arrow does by default."""
    count = rows.num_rows
    columns = {
        "few": pa.array([[1, None]] * count, pa.list_(pa.int32())),
        "many": pa.array([["a"]] * count, pa.large_list(pa.large_string())),
        "structs": pa.array([[{"a": 1.5}]] * count, pa.list_(pa.struct([("a", pa.float32())]))),
        "pairs": pa.array([[("k", 1)]] * count, pa.map_(pa.string(), pa.int64())),
        "sure": pa.array([{"b": None}] * count, pa.struct([pa.field("b", pa.int8(), nullable=False)])),
        "day": pa.array([20000] * count, pa.date32()),
        "amount": pa.array([None] * count, pa.decimal128(10, 2)),
        "naive": pa.array([1_000] * count, pa.timestamp("ms")),
        "flag": pa.array([True] * count, pa.bool_()),
    }
    return pa.RecordBatch.from_pydict(columns)


def gives_long_decimals(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"d": pa.array([None] * rows.num_rows, pa.decimal256(60, 10))})


def sizes(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"size": pc.binary_length(rows.column("value"))})


def to_json(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Any columns as JSON, with their types, without rows that have an odd ``id``."""
    types = {field.name: str(field.type) for field in rows.schema}
    found = [json.dumps([types, row], default=str) for row in rows.to_pylist() if row["id"] % 2 == 0]
    return pa.RecordBatch.from_pydict({"value": pa.array(found, pa.string())})


def with_topic(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.append_column("topic", pa.array(["chosen"] * rows.num_rows, pa.string()))


def fails_at_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    if rows.num_rows:
        raise ValueError("these rows are wrong")
    return rows


def fails_at_three(rows: pa.RecordBatch) -> pa.RecordBatch:
    if {"3", b"3"} & {*rows.column("value").to_pylist()}:
        raise ValueError("three")
    return rows


def fails_at_once(rows: pa.RecordBatch) -> pa.RecordBatch:
    raise KeyError("no such column")


def fails_without_words(rows: pa.RecordBatch) -> pa.RecordBatch:
    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    raise SpeechlessError


def ends_the_process(rows: pa.RecordBatch) -> pa.RecordBatch:
    sys.exit(3)


def gives_a_table(rows: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows])


def gives_no_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select([])


def gives_a_column_twice(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([rows.column(0), rows.column(0)], ["value", "value"])


def gives_no_type(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": rows.column("value").to_pylist()})


def yields(rows: pa.RecordBatch) -> Any:
    yield rows


def changes_its_mind(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["value"]) if rows.num_rows else rows


def forgets_to_return(rows: pa.RecordBatch) -> Any:
    return None if rows.num_rows else rows


def broken(kind: pa.DataType, offsets: list[int]) -> pa.Array:
    """An array of texts or bytes whose offsets are wrong."""
    return pa.Array.from_buffers(
        kind, len(offsets) - 1, [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"\xff" * 9)]
    )


def gives_negative_sizes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Only the values: their offsets fall."""
    if not rows.num_rows:
        return rows.select(["value"])
    return pa.RecordBatch.from_arrays([broken(pa.binary(), [0, 9, 4])], ["value"])


def gives_sizes_beyond_the_bytes(rows: pa.RecordBatch) -> pa.RecordBatch:
    if not rows.num_rows:
        return rows.select(["value"])
    return pa.RecordBatch.from_arrays([broken(pa.binary(), [0, 1 << 30, 9])], ["value"])


def gives_text_that_is_none(rows: pa.RecordBatch) -> pa.RecordBatch:
    if not rows.num_rows:
        return pa.RecordBatch.from_arrays([pa.array([], pa.string())], ["value"])
    return pa.RecordBatch.from_arrays([broken(pa.string(), [0, 4, 9])], ["value"])


def gives_partitions_too_large(rows: pa.RecordBatch) -> pa.RecordBatch:
    numbers = pa.array([1 << 40] * rows.num_rows, pa.int64())
    return rows.select(["value"]).append_column("partition", numbers)


def gives_unsigned_numbers(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([1] * rows.num_rows, pa.uint64())], ["n"])


def fields_of_value(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The fields of a decoded value."""
    return pa.RecordBatch.from_struct_array(rows.column("value"))
