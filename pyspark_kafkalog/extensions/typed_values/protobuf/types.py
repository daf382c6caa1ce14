"""The types that Spark's from_protobuf gives values of a message (SchemaConverters of spark-protobuf 4).

Each is nullable, as from_protobuf's are in PERMISSIVE mode. A google.protobuf.Struct, which from_protobuf
refuses because it contains itself, is its JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import MessageField, MessageType
from pyspark_kafkalog.extensions.typed_values.protobuf.struct_json import STRUCTS
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions

_OF_KIND = {
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    **dict.fromkeys(("int32", "uint32", "sint32", "fixed32", "sfixed32"), pa.int32()),
    **dict.fromkeys(("int64", "uint64", "sint64", "fixed64", "sfixed64"), pa.int64()),
}
_INTS = (pa.int8(), pa.int16(), pa.int32())
ENCODED_AS: Mapping[str, tuple[pa.DataType, ...]] = {
    "double": (pa.float64(), pa.float32()),
    "float": (pa.float32(),),
    "bool": (pa.bool_(),),
    "string": (pa.string(),),
    "bytes": (pa.binary(), pa.string()),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), _INTS),
    **dict.fromkeys(("uint32", "fixed32"), (*_INTS, pa.int64())),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (*_INTS, pa.int64())),
    **dict.fromkeys(("uint64", "fixed64"), (*_INTS, pa.int64(), pa.decimal128(20, 0))),
}
"""The types of columns that are written as each type."""
UNSIGNED = {"uint32": pa.int64(), "uint64": pa.decimal128(20, 0)}
TIMESTAMP, DURATION = pa.timestamp("us", tz="UTC"), pa.duration("us")
_TIMES = {"Timestamp": TIMESTAMP, "Duration": DURATION}
ANY = "google.protobuf.Any"
WRAPPED = {
    f"google.protobuf.{kind}Value": kind.lower()
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
"""The well-known messages of one value, with its type."""
DUMMY = "__dummy_field_in_empty_struct"
"""Spark's field of a message without any, which it has no structs for."""
MOST_RECURSIONS = 10
_MOST_COLUMNS = 10_000
_DEEPEST = 100
_LONGEST_NAME = 1000


AS_FROM_PROTOBUF = ProtobufOptions()


@dataclass(eq=False)
class ColumnShape:
    """The place of a value in a column: its type, and where it comes from.

    :ivar form: ``scalar``, ``enum``, ``message``, ``time``, ``json`` or ``wrapper``; ``list`` or ``map``.
    :ivar field: the field; None for the whole message.
    :ivar parts: the fields of a struct; ``element`` of a list; ``key`` and ``value`` of a map.
    """

    form: str
    type: pa.DataType
    field: MessageField | None = None
    message: MessageType | None = None
    parts: Mapping[str, ColumnShape] = dataclasses.field(default_factory=dict)


def shape_of(message: MessageType, options: ProtobufOptions = AS_FROM_PROTOBUF) -> ColumnShape:
    """The shape of a column of messages.

    :raises SchemaError: if Spark has no type for it.
    """
    return _Shapes(options).whole(message)


def arrow_type(message: MessageType, options: ProtobufOptions = AS_FROM_PROTOBUF) -> pa.DataType:
    """The type of values of ``message``: a struct.

    :raises SchemaError: if Spark has no type for it.
    """
    return shape_of(message, options).type


class _Shapes:
    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._count = 0

    def whole(self, message: MessageType) -> ColumnShape:
        found = self._struct(message, None, "", {message.name: 1}, 1)
        return found or ColumnShape("message", pa.struct([]), None, message)

    def _struct(
        self,
        message: MessageType,
        field: MessageField | None,
        path: str,
        around: Mapping[str, int],
        depth: int,
    ) -> ColumnShape | None:
        """The shape of a message; None if it has no fields."""
        if depth > _DEEPEST:
            raise _none(path, f"it has more than {_DEEPEST} messages in one another")
        parts = {}
        for each in message.fields:
            found = self._field(each, f"{path}.{each.name}", around, depth)
            if found is not None:
                parts[each.name] = found
        if not parts:
            if not self._options.keeps_empty:
                return None
            parts[DUMMY] = ColumnShape("nothing", pa.string())
        kind = pa.struct([pa.field(name, part.type) for name, part in parts.items()])
        return ColumnShape("message", kind, field, message, parts)

    def _field(
        self, field: MessageField, path: str, around: Mapping[str, int], depth: int
    ) -> ColumnShape | None:
        """The shape of a field; None if it is left out, as a message that is within itself too often."""
        self._count += 1
        if self._count > _MOST_COLUMNS:
            raise _none(path, f"it has more than {_MOST_COLUMNS} fields in one another")
        if field.is_map and field.message is not None:
            key, value = (
                self._field(part, f"{path}.{part.name}", around, depth) for part in field.message.fields
            )
            if key is None or value is None:
                return None
            kind = pa.map_(key.type, value.type)
            return ColumnShape("map", kind, field, field.message, {"key": key, "value": value})
        found = self._value(field, path, around, depth)
        if found is None or not field.is_repeated:
            return found
        return ColumnShape(
            "list", pa.list_(pa.field("element", found.type)), field, field.message, {"element": found}
        )

    def _value(
        self, field: MessageField, path: str, around: Mapping[str, int], depth: int
    ) -> ColumnShape | None:
        options, message = self._options, field.message
        if message is None:
            if field.kind == "enum":
                return ColumnShape("enum", pa.int32() if options.enums_as_ints else pa.string(), field)
            return ColumnShape("scalar", self._scalar(field.kind), field)
        kind = _TIMES.get(message.name.rpartition(".")[2])
        if kind is not None and [each.name for each in message.fields] == ["seconds", "nanos"]:
            return ColumnShape("time", kind, field, message)
        if message.name in STRUCTS or (options.any_as_json and message.name == ANY):
            return ColumnShape("json", pa.string(), field, message)
        if options.unwraps and message.name in WRAPPED:
            return ColumnShape("wrapper", self._scalar(WRAPPED[message.name]), field, message)
        times = around.get(message.name, 0)
        if times:
            if not 0 < options.max_depth <= MOST_RECURSIONS:
                raise _none(
                    path,
                    f"the {message} contains itself",
                    hint="Give how often it may, from 1 to 10, as recursive.fields.max.depth.",
                )
            if times >= options.max_depth:
                return None
        return self._struct(message, field, path, {**around, message.name: times + 1}, depth + 1)

    def _scalar(self, kind: str) -> pa.DataType:
        return (UNSIGNED.get(kind) if self._options.upcasts_unsigned else None) or _OF_KIND[kind]


def _none(path: str, why: str, hint: str | None = None) -> SchemaError:
    place = f" at {path[:_LONGEST_NAME].removeprefix('.')}" if path else ""
    return SchemaError(f"Spark has no type for a Protobuf schema{place}: {why}", hint=hint)
