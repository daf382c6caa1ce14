"""The types that Spark's from_avro gives values of a schema (SchemaConverters of spark-avro 4).

Each is nullable, as from_avro's are in PERMISSIVE mode.
"""

from __future__ import annotations

import pyarrow as pa

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.avro.schema import (
    DEEPEST,
    LONGEST_NAME,
    Array,
    Map,
    Record,
    Schema,
    Union,
)

_OF_KIND = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_OF_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_WIDENED = {frozenset({"int", "long"}): pa.int64(), frozenset({"float", "double"}): pa.float64()}
"""Unions that are one number."""
_MOST_DIGITS = 38
"""The most digits of Spark's decimals."""
_MOST_COLUMNS = 10_000
_LONGEST_PATH = 4000
"""Characters of the names of fields in one another."""


def arrow_type(schema: Schema) -> pa.DataType:
    """The type of values of ``schema``: a struct for a record.

    :raises SchemaError: if Spark has no type for it.
    """
    return _Types().of(schema, "", ())


def parts(schema: Record | Union) -> list[tuple[str, Schema]]:
    """The fields of the struct that a record, or a union that is a struct, becomes."""
    if isinstance(schema, Record):
        return [(field.name, field.schema) for field in schema.fields]
    return [(f"member{number}", branch) for number, branch in enumerate(schema.others)]


class _Types:
    def __init__(self) -> None:
        self._count = 0

    def of(self, schema: Schema, path: str, around: tuple[Schema, ...]) -> pa.DataType:
        """The type of ``schema``, which stands at ``path`` in the records ``around`` it."""
        self._count += 1
        if self._count > _MOST_COLUMNS:
            raise _none(path, f"it has more than {_MOST_COLUMNS} fields in one another")
        if len(around) > DEEPEST:
            raise _none(path, f"it has more than {DEEPEST} schemas in one another")
        if len(path) > _LONGEST_PATH:
            raise _none(path, f"names of fields in one another have more than {_LONGEST_PATH} characters")
        if schema in around:
            raise _none(path, f"the {schema} contains itself")
        around = (*around, schema)
        if isinstance(schema, Array):
            return pa.list_(pa.field("element", self.of(schema.items, f"{path}.element", around)))
        if isinstance(schema, Map):
            return pa.map_(pa.string(), self.of(schema.values, f"{path}.value", around))
        if isinstance(schema, Union):
            others = schema.others
            if len(others) == 1:
                return self.of(others[0], path, around)
            widened = _WIDENED.get(frozenset(branch.kind for branch in others))
            if widened is not None:
                return widened
        if isinstance(schema, Record | Union):
            return pa.struct(
                [pa.field(name, self.of(part, f"{path}.{name}", around)) for name, part in parts(schema)]
            )
        if schema.logical == "decimal":
            if schema.precision > _MOST_DIGITS:
                raise _none(path, f"{schema} has more than {_MOST_DIGITS} digits")
            return pa.decimal128(schema.precision, schema.scale)
        return _OF_LOGICAL.get(schema.logical or "") or _OF_KIND[schema.kind]


def _none(path: str, why: str) -> SchemaError:
    place = f" at {path[:LONGEST_NAME].removeprefix('.')}" if path else ""
    return SchemaError(f"Spark has no type for an Avro schema{place}: {why}")
