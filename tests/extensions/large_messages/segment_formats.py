"""Functions for ``segment.serializer`` and ``segment.deserializer.class``, right and wrong ones."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyspark_kafkalog import MessageSegment, in_arrow
from tests.extensions.large_messages.records import Record, segment
from tests.plugins import broken


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


FORMATS = __name__
"""The module, as options name it."""

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
    return _batch(values, slice=broken(pa.binary(), [0, *[9, 4] * len(values)][: len(values) + 1]))


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
    return broken(pa.binary(), [0, *[9, 4] * segments.num_rows][: segments.num_rows + 1])
