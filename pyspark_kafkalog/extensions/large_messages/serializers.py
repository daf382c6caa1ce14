"""Message segments as the user's own functions write and read them, one by one or as Arrow arrays.

Source: the interfaces ``SegmentSerializer`` and ``SegmentDeserializer`` of li-apache-kafka-clients. What a
function returns is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import binary_column, int64_column
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.extensions.large_messages.format import ID_SIZE, INT32_MAX
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.plugins import PlugIn

_Function = TypeVar("_Function", bound=Callable[..., Any])
_BYTES = (bytes, bytearray, memoryview)


@dataclass(frozen=True, slots=True)
class MessageSegment:
    """A piece of a large message, for the options ``segment.serializer`` and ``segment.deserializer.class``.

    A serializer is called as ``function(topic, segment)``, and returns the value of the record as bytes. A
    deserializer is called as ``function(topic, value)``, with a value that is not null, and returns its
    segment, or None for an ordinary value. With :func:`in_arrow` they take and return many at a time. ::

        import json

        from pyspark_kafkalog import MessageSegment

        def serialize(topic: str, segment: MessageSegment) -> bytes:
            head = json.dumps([segment.message_id.hex(), segment.number, segment.count, segment.length])
            return b"S" + head.encode() + b"\\n" + segment.slice

        def deserialize(topic: str, value: bytes) -> MessageSegment | None:
            if not value.startswith(b"S["):
                return None
            head, _, piece = value[1:].partition(b"\\n")
            message_id, number, count, length = json.loads(head)
            return MessageSegment(bytes.fromhex(message_id), number, count, length, piece)
    """

    message_id: bytes
    """16 bytes, the same in all segments of a message."""
    number: int
    """The number of the segment, from 0, below ``count``."""
    count: int
    """The number of segments of the message."""
    length: int
    """The bytes of the whole message."""
    slice: bytes
    """The bytes of the message that are in this segment."""


SEGMENTS = pa.schema(
    [
        pa.field("message_id", pa.binary()),
        pa.field("number", pa.int32()),
        pa.field("count", pa.int32()),
        pa.field("length", pa.int32()),
        pa.field("slice", pa.binary()),
    ]
)
"""The Arrow columns of many message segments."""


def in_arrow(function: _Function) -> _Function:
    """Mark a serializer or deserializer of :class:`MessageSegment` as one that takes Arrow, which is quicker.

    A serializer then gets the topic and a ``pyarrow.RecordBatch`` of segments, with the fields of
    :class:`MessageSegment` as columns, and returns a binary ``pyarrow.Array`` with a value for each. A
    deserializer gets the topic and a binary array of values without nulls. It returns a batch with a row for
    each, whose ``message_id`` is null where the value is not a segment, or None if no value is one.
    """
    function.in_arrow = True  # type: ignore[attr-defined]
    return function


class SegmentSerializer:
    """Makes values of message segments by the function at an import path.

    :raises OptionError: if it can't be imported.
    """

    def __init__(self, path: str) -> None:
        self._function = PlugIn("segment serializer", path)

    def __call__(self, partition: TopicPartition, segments: pa.RecordBatch) -> pa.Array:
        """The value of each segment.

        :param segments: with the columns of :data:`SEGMENTS`.
        :raises KafkaLogError: if the function raises anything, or returns something else.
        """
        if _takes_arrow(self._function):
            found = self._function(partition.topic, segments, topic_partition=partition)
        else:
            columns = (column.to_pylist() for column in segments.columns)
            values = [
                self._value(partition, MessageSegment(*fields)) for fields in zip(*columns, strict=True)
            ]
            found = pa.array(values, pa.binary())
        return self._checked(found, segments.num_rows, partition)

    def _value(self, partition: TopicPartition, segment: MessageSegment) -> bytes:
        value = self._function(partition.topic, segment, topic_partition=partition)
        if not isinstance(value, _BYTES):
            raise self._function.error(
                f"returned {type(value).__name__}, expected bytes", topic_partition=partition
            )
        return bytes(value)

    def _checked(self, found: object, count: int, partition: TopicPartition) -> pa.Array:
        wrong = None
        if not isinstance(found, pa.Array) or not _is_binary(found.type):
            kind = found.type if isinstance(found, pa.Array) else type(found).__name__
            wrong = f"returned {kind}, expected a pyarrow.Array of binary"
        elif len(found) != count:
            wrong = f"returned {len(found)} values for {count} message segments"
        elif found.null_count:
            wrong = "returned a null, expected a value for each message segment"
        if wrong is not None:
            raise self._function.error(wrong, topic_partition=partition)
        try:
            return _valid(found, pa.binary())
        except pa.ArrowException as e:
            raise self._function.error(f"returned broken values: {e}", topic_partition=partition) from None


@dataclass(frozen=True, slots=True)
class Deserialized:
    """The message segments among some values: the columns of ``fields`` are segments.

    Slice i is ``data[starts[i]:starts[i + 1]]``.
    """

    fields: np.ndarray
    """Lines for the numbers of rows, the halves of ids, number, count and length."""
    starts: np.ndarray
    data: np.ndarray


class SegmentDeserializer:
    """Finds message segments among values by the function at an import path.

    :raises OptionError: if it can't be imported.
    """

    def __init__(self, path: str) -> None:
        self._function = PlugIn("segment deserializer", path)

    def __call__(self, partition: TopicPartition, rows: pa.RecordBatch, chosen: np.ndarray) -> Deserialized:
        """The message segments among the values of the rows ``chosen``, which are not null.

        :raises KafkaLogError: if the function raises anything, or what it returns is not a message segment:
            a number outside of the message, a negative length, a slice longer than the message.
        """
        values, offsets = rows.column("value"), int64_column(rows.column("offset"))
        if chosen.size < rows.num_rows:
            values, offsets = values.take(pa.array(chosen)), offsets[chosen]
        if not chosen.size:
            found = None
        elif _takes_arrow(self._function):
            found = self._function(partition.topic, values, topic_partition=partition, offset=int(offsets[0]))
        else:
            found = self._one_by_one(partition, values, offsets)
        if found is None:
            found = pa.RecordBatch.from_pylist([], SEGMENTS)
            chosen, offsets = chosen[:0], offsets[:0]
        return self._checked(found, partition, chosen, offsets)

    def _one_by_one(
        self, partition: TopicPartition, values: pa.Array, offsets: np.ndarray
    ) -> pa.RecordBatch | None:
        found: list[tuple[Any, ...] | None] = []
        size = 0
        for value, offset in zip(values.to_pylist(), offsets.tolist(), strict=True):
            segment = self._function(partition.topic, value, topic_partition=partition, offset=offset)
            if segment is None:
                found.append(None)
                continue
            wrong = _wrong_in(segment)
            if wrong is None:
                piece = bytes(segment.slice)
                size += len(piece)
                if size > INT32_MAX:
                    wrong = "slices of more than 2 GiB for the values of a batch"
            if wrong is not None:
                raise self._error(f"returned {wrong}", partition, offset)
            message_id = bytes(segment.message_id)
            found.append((message_id, segment.number, segment.count, segment.length, piece))
        if not any(found):
            return None
        columns = [
            pa.array([fields and fields[at] for fields in found], field.type)
            for at, field in enumerate(SEGMENTS)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SEGMENTS)

    def _checked(
        self, found: Any, partition: TopicPartition, chosen: np.ndarray, offsets: np.ndarray
    ) -> Deserialized:
        first = int(offsets[0]) if offsets.size else None
        if not isinstance(found, pa.RecordBatch):
            got = type(found).__name__
            raise self._error(f"returned {got}, expected a pyarrow.RecordBatch or None", partition, first)
        for name in SEGMENTS.names:
            if found.schema.names.count(name) != 1:
                raise self._error(f"returned a batch without one column {name!r}", partition, first)
        if found.num_rows != chosen.size:
            raise self._error(f"returned {found.num_rows} rows for {chosen.size} values", partition, first)
        try:
            columns = [_valid(found.column(field.name), field.type) for field in SEGMENTS]
        except pa.ArrowException as e:
            raise self._error(f"returned broken columns: {e}", partition, first) from None
        is_segment = columns[0].is_valid()
        is_chosen = is_segment.to_numpy(zero_copy_only=False)
        columns = [column.filter(is_segment) for column in columns]
        rows, offsets = chosen[is_chosen], offsets[is_chosen]
        self._check_fields(columns, partition, offsets)
        id_offsets, _, id_data = binary_column(columns[0])
        at = id_offsets[:-1].astype(np.int64)[:, None] + np.arange(ID_SIZE)
        halves = id_data[at].reshape(-1).view(">i8").reshape(-1, 2).astype(np.int64)
        starts, _, data = binary_column(columns[4])
        number, count, length = (column.to_numpy().astype(np.int64) for column in columns[1:4])
        return Deserialized(np.stack([rows, *halves.T, number, count, length]), starts, data)

    def _check_fields(self, columns: list[pa.Array], partition: TopicPartition, offsets: np.ndarray) -> None:
        message_id, number, count, length, piece = columns
        for column, name in zip(columns, SEGMENTS.names, strict=True):
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            self._check(~nulls, f"no {name}", partition, offsets)
        id_sizes = pc.binary_length(message_id).to_numpy()
        self._check(id_sizes == ID_SIZE, f"a message_id of other than {ID_SIZE} bytes", partition, offsets)
        numbers, counts, lengths = (column.to_numpy() for column in (number, count, length))
        self._check(counts > 0, "a count below 1", partition, offsets)
        self._check(
            (numbers >= 0) & (numbers < counts), "a number outside of 0 to count - 1", partition, offsets
        )
        self._check(lengths >= 0, "a negative length", partition, offsets)
        sizes = pc.binary_length(piece).to_numpy()
        self._check(sizes <= lengths, "a slice longer than its message", partition, offsets)

    def _check(self, good: np.ndarray, wrong: str, partition: TopicPartition, offsets: np.ndarray) -> None:
        if not good.all():
            raise self._error(
                f"returned a message segment with {wrong}", partition, int(offsets[np.argmin(good)])
            )

    def _error(self, did: str, partition: TopicPartition, offset: int | None) -> KafkaLogError:
        return self._function.error(
            did,
            topic_partition=partition,
            offset=offset,
            hint="It returns None for a value that is not a message segment.",
        )


def _takes_arrow(function: PlugIn) -> bool:
    return bool(getattr(function.function, "in_arrow", False))


def _wrong_in(segment: object) -> str | None:
    """The fault in the types of what should be a :class:`MessageSegment`; None if there is none."""
    if not isinstance(segment, MessageSegment):
        return f"{type(segment).__name__}, expected a MessageSegment or None"
    for name in SEGMENTS.names:
        value = getattr(segment, name)
        if name in ("message_id", "slice"):
            if not isinstance(value, _BYTES):
                return f"{type(value).__name__} as {name}, expected bytes"
        elif not isinstance(value, (int, np.integer)) or not -INT32_MAX <= value <= INT32_MAX:
            got = value if isinstance(value, (int, np.integer)) else type(value).__name__
            return f"{got} as {name}, expected a whole number of 32 bits"
    return None


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def _valid(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """``column`` as ``kind``, its buffers checked.

    :raises pa.ArrowException: if they are broken, or the type can't be cast without loss.
    """
    column.validate(full=True)
    if kind == pa.binary() and not _is_binary(column.type):
        raise pa.ArrowTypeError(f"expected binary, got {column.type}")
    if kind != pa.binary() and not pa.types.is_integer(column.type):
        raise pa.ArrowTypeError(f"expected {kind}, got {column.type}")
    return column if column.type == kind else column.cast(kind)
