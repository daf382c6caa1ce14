"""Columns as JSON by a schema, and schemas that are made of columns."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import InvalidRecordError, SchemaError
from pyspark_kafkalog.extensions.typed_values.ddl import parse_ddl
from pyspark_kafkalog.extensions.typed_values.json_schema.types import json_type, shape_of
from pyspark_kafkalog.extensions.typed_values.json_schema.writing import (
    JsonSchemaEncoder,
    check_fits,
    schema_of,
)
from tests.extensions.typed_values.json_schema.oracle import decode

UTC = datetime.timezone.utc
MANY = parse_ddl(
    "flag boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, d double, s string, b binary,"
    " day date, at timestamp, price decimal(12,3), inner struct<x: int, y: string>, items array<binary>,"
    " counts map<string, bigint>, by_number map<int, struct<z: date>>, deep array<map<string, array<double>>>"
)
ROWS: list[dict[str, Any]] = [
    {
        "flag": True,
        "i8": -128,
        "i16": 1,
        "i32": 2,
        "i64": 2**63 - 1,
        "f": 0.5,
        "d": 1e300,
        "s": 'é"',
        "b": b"\0\xff",
        "day": datetime.date(1969, 12, 31),
        "at": datetime.datetime(2024, 5, 1, 12, 0, 0, 123456, UTC),
        "price": decimal.Decimal("-1.500"),
        "inner": {"x": 1, "y": None},
        "items": [b"", None, b"abc"],
        "counts": [("k", 1), ("", None)],
        "by_number": [(1, {"z": datetime.date(2024, 1, 1)}), (2, None)],
        "deep": [[("a", [1.0, None])], None, []],
    },
    dict.fromkeys(MANY.names),
    {**dict.fromkeys(MANY.names), "items": [], "counts": [], "by_number": [], "deep": []},
]


def encode(described: Any, column: pa.Array, **options: Any) -> list[bytes | None]:
    text = described if isinstance(described, str) else json.dumps(described)
    shape = shape_of(text)
    check_fits(shape, column.type, "value")
    found: list[bytes | None] = JsonSchemaEncoder(shape, "value", **options).encode(column).to_pylist()
    return found


def test_a_schema_of_a_type() -> None:
    """It has the type, and the values written by it are valid, and are the same when they are read."""
    text = schema_of(MANY, "Order")
    described = json.loads(text)
    assert (described["$schema"], described["title"]) == ("http://json-schema.org/draft-07/schema#", "Order")
    assert json_type(text).type == MANY
    column = pa.array([*ROWS, None], MANY)
    for part in (column, column.slice(1)):
        written = encode(text, part)
        assert written[-1] is None
        for value in written[:-1]:
            jsonschema.validate(json.loads(value or b""), described)
        assert decode(json_type(text), [*written]).array.equals(part)


def test_what_must_be_there() -> None:
    fields = [
        pa.field("a", pa.int32(), nullable=False),
        pa.field("b", pa.list_(pa.field("element", pa.string(), nullable=False))),
    ]
    text = schema_of(pa.struct(fields), "R")
    assert json.loads(text)["required"] == ["a"]
    kind = parse_ddl("a int, b array<string>")
    assert encode(text, pa.array([{"a": 1, "b": ["x"]}, None], kind)) == [b'{"a":1,"b":["x"]}', None]
    with pytest.raises(InvalidRecordError, match=r"value.a: a row has null, which its schema does not allow"):
        encode(text, pa.array([{"a": 1}, {"a": None}], kind))
    with pytest.raises(InvalidRecordError, match=r"value.b.element: a row has null"):
        encode(text, pa.array([{"a": 1, "b": ["x", None]}], kind))


def test_nulls() -> None:
    """A field that must be there is written with null if it may be null; any other is left out."""
    described = {
        "properties": {"a": {"type": ["null", "integer"]}, "b": {"type": "string"}, "c": {"type": "string"}},
        "required": ["a"],
    }
    column = pa.array(
        [{"a": None, "b": None, "c": "x"}, {"a": 1, "b": "y"}], parse_ddl("a int, b string, c string")
    )
    assert encode(described, column) == [b'{"a":null,"c":"x"}', b'{"a":1,"b":"y"}']
    assert encode(described, column, prefix=b"\0\0\0\0\7")[1] == b'\0\0\0\0\7{"a":1,"b":"y"}'


def test_forms_of_connect() -> None:
    """Bytes of a decimal, days, milliseconds: as the schema says, and as they are read."""
    connect = "org.apache.kafka.connect.data."
    described = {
        "properties": {
            "p": {
                "type": "string",
                "connect.type": "bytes",
                "title": f"{connect}Decimal",
                "connect.parameters": {"scale": "2"},
            },
            "d": {"type": "integer", "connect.type": "int32", "title": f"{connect}Date"},
            "t": {"type": "integer", "connect.type": "int64", "title": f"{connect}Timestamp"},
        }
    }
    kind = parse_ddl("p decimal(10,2), d date, t timestamp")
    row = {
        "p": decimal.Decimal("-1.29"),
        "d": datetime.date(1970, 1, 3),
        "t": datetime.datetime(1970, 1, 1, 0, 0, 0, 1500, UTC),
    }
    (written,) = encode(described, pa.array([row], kind))
    assert written == b'{"p":"/38=","d":2,"t":1}'
    found = decode(json_type(json.dumps(described)), [written]).array.to_pylist()
    assert found == [{**row, "t": datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)}]


def test_other_fields() -> None:
    column = pa.array(
        [{"a": 1, "more": datetime.datetime(2024, 1, 1, 0, 0, 0, 1)}], parse_ddl("a int, more timestamp_ntz")
    )
    described: dict[str, Any] = {"properties": {"a": {"type": "integer"}}}
    assert encode(described, column) == [b'{"a":1,"more":"2024-01-01T00:00:00.000001"}']
    with pytest.raises(SchemaError, match=r"value.more: the schema has no such field, and allows no others"):
        encode({**described, "additionalProperties": False}, column)
    with pytest.raises(SchemaError, match=r"value.more: expected bigint, got timestamp_ntz"):
        encode({**described, "additionalProperties": {"type": "integer"}}, column)


@pytest.mark.parametrize(
    ("described", "kind", "message"),
    [
        ({"type": "integer"}, "string", "expected bigint, got string"),
        ({"type": "integer"}, "double", "expected bigint, got double"),
        ({"type": "integer", "connect.type": "int16"}, "int", "expected smallint, got int"),
        ({"type": "string"}, "int", "expected string, got int"),
        ({"type": "boolean"}, "string", "expected boolean, got string"),
        ({"type": "string", "format": "date"}, "timestamp", "expected date, got timestamp"),
        ({"type": "array", "items": {"type": "integer"}}, "array<string>", "a.element: expected bigint"),
        ({"type": "array"}, "struct<x: int>", "expected an array, got struct<`x`: int>"),
        ({"properties": {"x": {"type": "string"}}}, "map<string, string>", "expected a struct, got map"),
        ({"properties": {"x": {}}, "required": ["y", "x"]}, "struct<x: int>", "a.y: the schema needs"),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            "map<string, int>",
            "a.value: expected",
        ),
        ({"type": "string", "connect.type": "bytes"}, "string", "expected binary, got string"),
        ({"type": "null"}, "string", "expected null, got string"),
    ],
)
def test_what_does_not_fit(described: Any, kind: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check_fits(shape_of(json.dumps({"properties": {"a": described}})), parse_ddl(f"a {kind}"), "value")
    assert message in caught.value.message


def test_a_type_that_does_not_fit_comes_with_a_cast() -> None:
    shape = shape_of(json.dumps({"properties": {"a": {"type": "integer"}}}))
    with pytest.raises(SchemaError, match=r"got string\. .*: CAST\(a AS bigint\) AS a\.$"):
        check_fits(shape, parse_ddl("a string"), "value")


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        ({"type": "number"}, "int"),
        ({"type": "number"}, "decimal(20,2)"),
        ({"type": "number"}, "float"),
        ({"type": "integer"}, "tinyint"),
        ({"type": "integer", "maximum": 2**64}, "decimal(20,0)"),
        ({"type": "string", "format": "date-time"}, "string"),
        ({"type": "string"}, "timestamp_ntz"),
        ({}, "struct<x: array<int>>"),
        ({"type": ["string", "integer"]}, "int"),
        ({"type": ["null", "integer"]}, "void"),
    ],
)
def test_what_fits(described: Any, kind: str) -> None:
    check_fits(shape_of(json.dumps({"properties": {"a": described}})), parse_ddl(f"a {kind}"), "value")


def test_types_without_a_schema() -> None:
    with pytest.raises(SchemaError, match=r"value.a.element: JSON Schema has no type for void"):
        schema_of(parse_ddl("a array<void>"), "value")
    with pytest.raises(SchemaError, match="value: the struct has two fields of one name"):
        schema_of(pa.struct([("a", pa.int32()), ("a", pa.int32())]), "value")
