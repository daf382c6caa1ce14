"""Functions for ``transform``, ``segment.serializer`` and ``segment.deserializer``, right and wrong ones."""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog import MessageSegment, in_arrow
from tests.extensions.large_messages.records import Record, segment

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


def _broken(kind: pa.DataType, offsets: list[int]) -> pa.Array:
    return pa.Array.from_buffers(
        kind, len(offsets) - 1, [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"\xff" * 9)]
    )


def gives_negative_sizes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Only the values: their offsets fall."""
    if not rows.num_rows:
        return rows.select(["value"])
    return pa.RecordBatch.from_arrays([_broken(pa.binary(), [0, 9, 4])], ["value"])


def gives_sizes_beyond_the_bytes(rows: pa.RecordBatch) -> pa.RecordBatch:
    if not rows.num_rows:
        return rows.select(["value"])
    return pa.RecordBatch.from_arrays([_broken(pa.binary(), [0, 1 << 30, 9])], ["value"])


def gives_text_that_is_none(rows: pa.RecordBatch) -> pa.RecordBatch:
    if not rows.num_rows:
        return pa.RecordBatch.from_arrays([pa.array([], pa.string())], ["value"])
    return pa.RecordBatch.from_arrays([_broken(pa.string(), [0, 4, 9])], ["value"])


def gives_partitions_too_large(rows: pa.RecordBatch) -> pa.RecordBatch:
    numbers = pa.array([1 << 40] * rows.num_rows, pa.int64())
    return rows.select(["value"]).append_column("partition", numbers)


def gives_unsigned_numbers(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([1] * rows.num_rows, pa.uint64())], ["n"])


def prefix(topic: str, piece: MessageSegment) -> bytes:
    """The value that LinkedIn's producer makes, from the description of its format."""
    high, low = struct.unpack(">QQ", piece.message_id)
    head = (0, (high + low) % 2**32, high, low, piece.number, piece.count, piece.length)
    return struct.pack(">bIQQiii", *head) + piece.slice


def from_prefix(topic: str, value: bytes) -> MessageSegment | None:
    found = segment(Record(None, value, [], 0))
    return found and MessageSegment(found.id, found.number, found.count, found.length, found.slice)


@in_arrow
def prefixes(topic: str, segments: pa.RecordBatch) -> pa.Array:
    rows = [MessageSegment(**row) for row in segments.to_pylist()]
    return pa.array([prefix(topic, row) for row in rows], pa.large_binary())


@in_arrow
def from_prefixes(topic: str, values: pa.Array) -> pa.RecordBatch | None:
    found = [from_prefix(topic, value) for value in values.to_pylist()]
    kinds = {
        "count": pa.int64(),
        "length": pa.uint32(),
        "number": pa.int16(),
        "slice": pa.large_binary(),
        "message_id": pa.binary(16),
        "more": pa.string(),
    }
    columns = {
        name: pa.array([piece and getattr(piece, name, None) for piece in found], kind)
        for name, kind in kinds.items()
    }
    return pa.RecordBatch.from_pydict(columns) if any(found) else None


MAGIC = b"own:"


def own(topic: str, piece: MessageSegment) -> bytes:
    """Small values as they are, and pieces of others in a format with the topic in it and the slice first."""
    if piece.count == 1:
        return piece.slice
    head = struct.pack(">16siii", piece.message_id, piece.number, piece.count, piece.length)
    return MAGIC + struct.pack(">i", len(piece.slice)) + piece.slice + head + topic.encode()


def from_own(topic: str, value: bytes) -> MessageSegment | None:
    if not value.startswith(MAGIC):
        return None
    (size,) = struct.unpack(">i", value[4:8])
    assert value[8 + size + 28 :] == topic.encode()
    return MessageSegment(
        *struct.unpack(">16siii", value[8 + size : 36 + size]), memoryview(value)[8 : 8 + size]
    )


def raises(topic: str, value: Any) -> Any:
    if b"bad" in getattr(value, "slice", value):
        raise ValueError("these bytes are bad")
    return from_own(topic, value) if isinstance(value, bytes) else own(topic, value)


def gives_text(topic: str, value: Any) -> Any:
    return "text"


def gives_nothing(topic: str, piece: MessageSegment) -> Any:
    return None


GOOD = MessageSegment(bytes(16), 0, 1, 9, b"abc")
WRONG = {
    "short_id": replace(GOOD, message_id=b"short"),
    "text_as_id": replace(GOOD, message_id="0123456789abcdef"),
    "no_id": replace(GOOD, message_id=None),
    "negative_number": replace(GOOD, number=-1),
    "number_outside": replace(GOOD, number=1),
    "no_segments": replace(GOOD, count=0),
    "negative_count": replace(GOOD, count=-3),
    "too_many": replace(GOOD, count=2**31),
    "fraction": replace(GOOD, count=1.5),
    "negative_length": replace(GOOD, length=-9),
    "slice_too_long": replace(GOOD, length=2),
    "text_as_slice": replace(GOOD, slice="abc"),
}


def wrong(topic: str, value: bytes) -> Any:
    """What the value names; the value itself of others."""
    return WRONG.get(value.decode()) or from_own(topic, value)


def _batch(values: pa.Array, **changed: pa.Array) -> pa.RecordBatch:
    count = len(values)
    columns = {
        "message_id": pa.array([bytes(16)] * count, pa.binary()),
        "number": pa.array([0] * count, pa.int32()),
        "count": pa.array([1] * count, pa.int32()),
        "length": pa.array([9] * count, pa.int32()),
        "slice": pa.array([b"abc"] * count, pa.binary()),
    }
    return pa.RecordBatch.from_pydict({**columns, **changed})


@in_arrow
def table_of_segments(topic: str, values: pa.Array) -> Any:
    return pa.Table.from_batches([_batch(values)])


@in_arrow
def too_few_segments(topic: str, values: pa.Array) -> Any:
    return _batch(values).slice(1)


@in_arrow
def segments_without_slices(topic: str, values: pa.Array) -> Any:
    return _batch(values).drop_columns(["slice"])


@in_arrow
def segments_with_text(topic: str, values: pa.Array) -> Any:
    return _batch(values, slice=pa.array(["abc"] * len(values), pa.string()))


@in_arrow
def segments_with_fractions(topic: str, values: pa.Array) -> Any:
    return _batch(values, number=pa.array([0.0] * len(values), pa.float64()))


@in_arrow
def segments_with_large_numbers(topic: str, values: pa.Array) -> Any:
    return _batch(values, length=pa.array([1 << 40] * len(values), pa.int64()))


@in_arrow
def segments_with_nulls(topic: str, values: pa.Array) -> Any:
    return _batch(values, count=pa.array([None] * len(values), pa.int32()))


@in_arrow
def segments_with_negative_sizes(topic: str, values: pa.Array) -> Any:
    return _batch(values, slice=_broken(pa.binary(), [0, *[9, 4] * len(values)][: len(values) + 1]))


@in_arrow
def segments_with_negative_lengths(topic: str, values: pa.Array) -> Any:
    return _batch(values, length=pa.array([9] * (len(values) - 1) + [-1], pa.int32()))


@in_arrow
def a_list_of_values(topic: str, segments: pa.RecordBatch) -> Any:
    return segments.column("slice").to_pylist()


@in_arrow
def values_of_text(topic: str, segments: pa.RecordBatch) -> Any:
    return pa.array(["abc"] * segments.num_rows)


@in_arrow
def too_many_values(topic: str, segments: pa.RecordBatch) -> Any:
    return pa.array([b"abc"] * (segments.num_rows + 1))


@in_arrow
def null_values(topic: str, segments: pa.RecordBatch) -> Any:
    return pa.array([b"abc"] * (segments.num_rows - 1) + [None], pa.binary())


@in_arrow
def values_of_negative_sizes(topic: str, segments: pa.RecordBatch) -> Any:
    return _broken(pa.binary(), [0, *[9, 4] * segments.num_rows][: segments.num_rows + 1])


def fields_of_value(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The fields of a decoded value."""
    return pa.RecordBatch.from_struct_array(rows.column("value"))
