"""Columns as JSON that a JSON Schema describes, and a schema for a type.

Values are checked only as far as the types and nulls go: not against patterns, ranges or lists of values, as
Confluent's serializer doesn't by default.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import list_column, valid_rows
from pyspark_kafkalog.codec.text import TEXT, joined_texts
from pyspark_kafkalog.errors import InvalidRecordError, SchemaError, listed
from pyspark_kafkalog.extensions.typed_values.ddl import ddl, way_to_convert
from pyspark_kafkalog.extensions.typed_values.encoding import ColumnToEncode
from pyspark_kafkalog.extensions.typed_values.json_schema.conversion import unconverted
from pyspark_kafkalog.extensions.typed_values.json_schema.shapes import (
    Anything,
    ArrayShape,
    Mixed,
    NoValue,
    ObjectShape,
    Scalar,
    Shape,
)
from pyspark_kafkalog.extensions.typed_values.json_schema.types import CONNECT, shape_of
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat, WrittenValueOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from pyspark_kafkalog.extensions.typed_values.subjects import written_schema
from pyspark_kafkalog.extensions.typed_values.to_json import WITH_NULL, to_json

_DRAFT = "http://json-schema.org/draft-07/schema#"
"""The draft that Confluent's serializers use by default."""
_TIMES = pa.timestamp("us", tz="UTC")
_KINDS: dict[pa.DataType, dict[str, Any]] = {
    pa.bool_(): {"type": "boolean"},
    **{
        kind: {"type": "integer", "connect.type": f"int{kind.bit_width}"}
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
    pa.float32(): {"type": "number", "connect.type": "float32"},
    pa.float64(): {"type": "number", "connect.type": "float64"},
    pa.string(): {"type": "string"},
    pa.binary(): {"type": "string", "connect.type": "bytes"},
    pa.date32(): {"type": "string", "format": "date"},
}


def schema_of(kind: pa.DataType, name: str) -> str:
    """A JSON Schema for values of this type, with ``name`` as title.

    What JSON Schema has no types for, Kafka Connect's hints say. A timestamp without a zone is a string.

    :raises SchemaError: if JSON has none; it names the field.
    """
    return json.dumps({"$schema": _DRAFT, "title": name, **_schema_of(kind, name)})


def _schema_of(kind: pa.DataType, path: str) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if len({*names}) < len(names):
            raise SchemaError(f"{path}: the struct has two fields of one name")
        properties = {
            field.name: {**_of_field(field, f"{path}.{field.name}"), "connect.index": number}
            for number, field in enumerate(kind)
        }
        required = [field.name for field in kind if not field.nullable]
        made = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**made, "required": required} if required else made
    if pa.types.is_list(kind):
        return {"type": "array", "items": _of_field(kind.value_field, f"{path}.element")}
    if pa.types.is_map(kind):
        value = _of_field(kind.item_field, f"{path}.value")
        if kind.key_type == pa.string():
            return {"type": "object", "connect.type": "map", "additionalProperties": value}
        entry = {"key": {**_schema_of(kind.key_type, f"{path}.key"), "connect.index": 0}}
        entry["value"] = {**value, "connect.index": 1}
        return {"type": "array", "connect.type": "map", "items": {"type": "object", "properties": entry}}
    if pa.types.is_decimal(kind):
        return {
            "type": "number",
            "title": f"{CONNECT}Decimal",
            "connect.type": "bytes",
            "connect.version": 1,
            "connect.parameters": {
                "scale": str(kind.scale),
                "connect.decimal.precision": str(kind.precision),
            },
        }
    if pa.types.is_timestamp(kind):
        return {"type": "string"} if kind.tz is None else {"type": "string", "format": "date-time"}
    if kind not in _KINDS:
        raise SchemaError(
            f"{path}: JSON Schema has no type for {ddl(kind)}",
            hint="Convert it, for example with CAST(... AS string).",
        )
    return dict(_KINDS[kind])


def _of_field(field: pa.Field, path: str) -> dict[str, Any]:
    found = _schema_of(field.type, path)
    return {"oneOf": [{"type": "null"}, found]} if field.nullable else found


def check_fits(shape: Shape, kind: pa.DataType, path: str) -> None:
    """Check that values of this type can be written by a schema of this shape.

    :param path: where the value is, for people: ``value``.
    :raises SchemaError: naming the field.
    """
    if isinstance(shape, Anything | Mixed) or (pa.types.is_null(kind) and shape.is_nullable):
        return
    if isinstance(shape, ObjectShape) and not shape.is_map and pa.types.is_struct(kind):
        _check_fields(shape, kind, path)
    elif (
        isinstance(shape, ObjectShape)
        and pa.types.is_map(kind)
        and kind.key_type == pa.string()
        and not shape.fields
    ):
        check_fits(shape.others or Anything(), kind.item_type, f"{path}.value")
    elif isinstance(shape, ArrayShape) and not shape.is_map and pa.types.is_list(kind):
        check_fits(shape.item, kind.value_type, f"{path}.element")
    elif isinstance(shape, ArrayShape) and pa.types.is_map(kind) and isinstance(shape.item, ObjectShape):
        for name, part in (("key", kind.key_type), ("value", kind.item_type)):
            check_fits(shape.item.fields.get(name, Anything()), part, f"{path}.{name}")
    elif not isinstance(shape, Scalar) or not _fits(shape, kind):
        hint = None
        if isinstance(shape, Scalar) and not pa.types.is_nested(kind):
            hint = way_to_convert(path, shape.type)
        raise SchemaError(f"{path}: expected {_wanted(shape)}, got {ddl(kind)}", hint=hint)


def _check_fields(shape: ObjectShape, kind: pa.StructType, path: str) -> None:
    names = [field.name for field in kind]
    for field in kind:
        at, others = f"{path}.{field.name}", shape.others
        if field.name not in shape.fields and isinstance(others, NoValue):
            raise SchemaError(
                f"{at}: the schema has no such field, and allows no others",
                hint=f"It has {listed(shape.fields, 20)}.",
            )
        if names.count(field.name) > 1:
            raise SchemaError(f"{at}: the struct has two such fields")
        check_fits(shape.fields.get(field.name, others or Anything()), field.type, at)
    missing = sorted(shape.required - {*names})
    if missing:
        raise SchemaError(
            f"{path}.{missing[0]}: the schema needs this field, and the struct does not have it",
            hint="Add it to the column.",
        )


def _fits(shape: Scalar, kind: pa.DataType) -> bool:
    wanted = shape.type
    if wanted != shape.read_as:
        if pa.types.is_decimal(wanted) and pa.types.is_decimal128(kind):
            return bool(kind.scale == wanted.scale and kind.precision <= wanted.precision)
        return bool(kind == wanted or (pa.types.is_timestamp(wanted) and _is_timestamp(kind)))
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_signed_integer(kind) and kind.bit_width <= wanted.bit_width)
    if pa.types.is_floating(wanted):
        is_float = pa.types.is_floating(kind) and kind.bit_width <= wanted.bit_width
        return bool(is_float or pa.types.is_signed_integer(kind) or pa.types.is_decimal128(kind))
    if pa.types.is_decimal(wanted):
        if pa.types.is_signed_integer(kind):
            return True
        return bool(pa.types.is_decimal128(kind) and kind.scale <= wanted.scale)
    if pa.types.is_timestamp(wanted):
        return bool(_is_timestamp(kind) or kind == pa.string())
    if wanted == pa.date32():
        return bool(kind in (wanted, pa.string()))
    return bool(kind == wanted or (wanted == pa.string() and kind == pa.timestamp("us")))


def _is_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _wanted(shape: Shape) -> str:
    if isinstance(shape, Scalar):
        return ddl(shape.type)
    if isinstance(shape, ArrayShape):
        return "a map" if shape.is_map else "an array"
    if isinstance(shape, ObjectShape):
        return "a struct" if shape.fields else "a map with strings as keys"
    return "null"


class JsonSchemaToEncode(ColumnToEncode):
    """A column that becomes JSON by a JSON Schema."""

    __slots__ = ()

    def encoder(self, prefix: bytes) -> Callable[[pa.Array], pa.Array]:
        """See :meth:`.encoding.ColumnToEncode.encoder`."""
        assert self.schema is not None, "it has one"
        return JsonSchemaEncoder(_shape_of(self.schema), self.name, prefix=prefix).encode


def json_schema_to_encode(
    column: ColumnFormat, field: pa.Field, values: WrittenValueOptions, topic: str | None
) -> JsonSchemaToEncode:
    """The encoding of a column; the registry is asked, or told, for its schema.

    :raises OptionError: if JSON has no such types, and for a topic that isn't known before.
    :raises SchemaError: if the column does not fit the schema; it names the field.
    :raises SchemaRegistryError: if the registry has no schema, refuses one, or does not answer.
    """
    schema = written_schema(column, field, values, topic, check_fits=_check_column, schema_of=schema_of)
    return JsonSchemaToEncode(column, field.type, schema)


def _check_column(schema: RegisteredSchema, field: pa.Field) -> None:
    check_fits(_shape_of(schema), field.type, field.name)


def _shape_of(schema: RegisteredSchema) -> Shape:
    return shape_of(schema.text, schema.named_references)


class JsonSchemaEncoder:
    """Encodes a column that fits a schema.

    :param shape: that of the schema, of :func:`.types.shape_of`.
    :param path: where the column is, for people: ``value``.
    :param prefix: the bytes before each value.
    """

    def __init__(self, shape: Shape, path: str, *, prefix: bytes = b"") -> None:
        self._shape = shape
        self._path = path
        self._prefix = prefix

    def encode(self, column: pa.Array) -> pa.Array:
        """The bytes of each row; nulls stay.

        :raises InvalidRecordError: for a null that the schema does not allow; it names the field.
        """
        texts = to_json(_written(self._shape, column, self._path))
        if self._prefix:
            found = joined_texts([self._prefix, texts.fill_null(pa.scalar(b"", TEXT))], len(column))
            texts = (
                pc.if_else(column.is_valid(), found, pa.scalar(None, TEXT)) if column.null_count else found
            )
        return texts.cast(pa.binary())


def _written(shape: Shape, column: pa.Array, path: str) -> pa.Array:
    """A column in the form that :func:`to_json` makes the schema's values of."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _written_struct(shape, column, path)
    if pa.types.is_list(kind):
        item = shape.item if isinstance(shape, ArrayShape) else Anything()
        values = _written_items(item, column, column.values, f"{path}.element")
        return _with_items(pa.list_(pa.field("element", values.type)), column, values)
    if pa.types.is_map(kind):
        return _written_map(shape, column, path)
    if pa.types.is_timestamp(kind) and not (isinstance(shape, Scalar) and shape.type != shape.read_as):
        return _iso_8601(column)
    return (
        unconverted(column, shape.read_as)
        if isinstance(shape, Scalar) and shape.type != shape.read_as
        else column
    )


def _written_struct(shape: Shape, column: pa.StructArray, path: str) -> pa.Array:
    known = shape.fields if isinstance(shape, ObjectShape) else {}
    others = shape.others if isinstance(shape, ObjectShape) else None
    required = shape.required if isinstance(shape, ObjectShape) else frozenset()
    parts, fields = [], []
    for number, field in enumerate(column.type):
        part, values, at = (
            known.get(field.name, others or Anything()),
            column.field(number),
            f"{path}.{field.name}",
        )
        is_required = field.name in required
        if is_required and not part.is_nullable:
            lost = pc.and_(values.is_null(), column.is_valid()) if values.null_count else None
            if lost is not None and pc.any(lost).as_py():
                raise _has_null(at)
        values = _written(part, values, at)
        parts.append(values)
        fields.append(pa.field(field.name, values.type, metadata=WITH_NULL if is_required else None))
    return pa.StructArray.from_arrays(
        parts, fields=fields, mask=column.is_null() if column.null_count else None
    )


def _written_map(shape: Shape, column: pa.MapArray, path: str) -> pa.Array:
    if isinstance(shape, ArrayShape) and isinstance(shape.item, ObjectShape):
        key, value = (shape.item.fields.get(name, Anything()) for name in ("key", "value"))
        parts = [
            _written(key, column.keys, f"{path}.key"),
            _written_items(value, column, column.items, f"{path}.value"),
        ]
        entries = pa.StructArray.from_arrays(
            parts,
            fields=[
                pa.field(name, part.type, metadata=WITH_NULL)
                for name, part in zip(("key", "value"), parts, strict=True)
            ],
        )
        return _with_items(pa.list_(pa.field("element", entries.type)), column, entries)
    value = (shape.others if isinstance(shape, ObjectShape) else None) or Anything()
    items = _written_items(value, column, column.items, f"{path}.value")
    found = pa.map_(column.type.key_type, items.type)
    entries = pa.StructArray.from_arrays([column.keys, items], fields=[found.key_field, found.item_field])
    return _with_items(found, column, entries)


def _written_items(shape: Shape, column: pa.Array, values: pa.Array, path: str) -> pa.Array:
    if not shape.is_nullable and values.null_count:
        offsets, _ = list_column(column)
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        inside = np.concatenate([[0], np.cumsum(is_null)])
        has_null = inside[offsets[1:]] > inside[offsets[:-1]]
        if (has_null & valid_rows(column)).any():
            raise _has_null(path)
    return _written(shape, values, path)


def _with_items(kind: pa.DataType, column: pa.Array, items: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(
        kind, len(column), column.buffers()[:2], offset=column.offset, children=[items]
    )


def _iso_8601(column: pa.Array) -> pa.Array:
    """Times of UTC as RFC 3339 has them; those without a zone without one."""
    kind = column.type
    there = column if kind.tz is None else column.cast(pa.timestamp(kind.unit, tz="UTC"))
    text = there.cast(pa.timestamp(kind.unit)).cast(pa.string())
    text = pc.replace_substring(text, " ", "T", max_replacements=1)
    return text if kind.tz is None else pc.binary_join_element_wise(text, "Z", "")


def _has_null(path: str) -> InvalidRecordError:
    return InvalidRecordError(f"{path}: a row has null, which its schema does not allow")
