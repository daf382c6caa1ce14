"""The types that JSON Schemas have, by draft and keyword, and what has none."""

from __future__ import annotations

import copy
import json
import re
from random import Random
from typing import Any

import jsonschema
import pytest

from pyspark_kafkalog.errors import OptionError, SchemaError
from pyspark_kafkalog.extensions.typed_values.ddl import ddl, parse_ddl
from pyspark_kafkalog.extensions.typed_values.json.types import check_type
from pyspark_kafkalog.extensions.typed_values.json_schema.documents import title_of
from pyspark_kafkalog.extensions.typed_values.json_schema.types import JsonType, json_type
from tests.extensions.typed_values.json_schema.oracle import DEFS, as_column, decode, schema, value_of

CONNECT = "org.apache.kafka.connect.data."
INTEGER, STRING, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}


def of(described: Any, **references: Any) -> JsonType:
    return json_type(json.dumps(described), [(name, json.dumps(each)) for name, each in references.items()])


def field(described: Any, **more: Any) -> tuple[str, str]:
    """The type of a field, and what it is read from JSON as if that is another one."""
    found = of({"type": "object", "properties": {"a": described}, **more})
    kind, read_as = found.type.field("a").type, found.read_as.field("a").type
    return ddl(kind), "" if kind == read_as else ddl(read_as)


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        (INTEGER, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        (STRING, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": ["null", "integer"]}, "bigint"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "integer", "maximum": 2**64 - 1}, "decimal(38,0)"),
        ({"type": "integer", "maximum": 10}, "bigint"),
        ({"oneOf": [NULL, INTEGER]}, "bigint"),
        ({"anyOf": [INTEGER, {"type": "number"}, NULL]}, "double"),
        ({"type": "string", "nullable": True}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"enum": [1, 2, None]}, "bigint"),
        ({"const": True}, "boolean"),
        ({"const": {"x": 1.5}}, "struct<`x`: double>"),
        ({"minimum": 0}, "double"),
        ({"type": "array", "items": INTEGER}, "array<bigint>"),
        ({"type": "array"}, "array<string>"),
        ({"items": STRING}, "array<string>"),
        ({"type": "array", "items": [INTEGER, {"type": "number"}]}, "array<double>"),
        ({"type": "array", "prefixItems": [STRING, STRING], "items": False}, "array<string>"),
        ({"type": "array", "prefixItems": [STRING, INTEGER]}, "array<string>"),
        ({"type": "object", "additionalProperties": INTEGER}, "map<string, bigint>"),
        ({"type": "object", "patternProperties": {"^a": INTEGER}}, "map<string, bigint>"),
        ({"properties": {"x": INTEGER}}, "struct<`x`: bigint>"),
        (
            {"type": "object", "properties": {"x": INTEGER}, "additionalProperties": STRING},
            "struct<`x`: bigint>",
        ),
        (
            {"allOf": [{"properties": {"x": INTEGER}}, {"properties": {"y": STRING}}]},
            "struct<`x`: bigint, `y`: string>",
        ),
        ({"allOf": [STRING, {"type": "string", "format": "date"}]}, "date"),
        ({"allOf": [{"type": "number"}, INTEGER]}, "bigint"),
        ({"oneOf": [{"type": "string", "format": "date"}, STRING]}, "string"),
        (
            {
                "oneOf": [
                    {"properties": {"k": {"const": "x"}, "x": INTEGER}},
                    {"properties": {"k": {"const": "y"}, "y": STRING}},
                ]
            },
            "struct<`k`: string, `x`: bigint, `y`: string>",
        ),
        (
            {
                "type": "object",
                "properties": {"x": INTEGER},
                "anyOf": [{"required": ["x"]}, {"properties": {"y": STRING}}],
            },
            "struct<`x`: bigint, `y`: string>",
        ),
        (
            {
                "properties": {"x": INTEGER},
                "if": {"properties": {"x": {"const": 1}}},
                "then": {"properties": {"y": STRING}},
            },
            "struct<`x`: bigint, `y`: string>",
        ),
        ({"type": "integer", "connect.type": "int8"}, "tinyint"),
        ({"type": "integer", "connect.type": "int16"}, "smallint"),
        ({"type": "integer", "connect.type": "int32"}, "int"),
        ({"type": "number", "connect.type": "float32"}, "float"),
        ({"type": "object", "connect.type": "map", "additionalProperties": {}}, "map<string, string>"),
        ({"type": "integer", "connect.type": "int32", "title": f"{CONNECT}Time"}, "int"),
    ],
)
def test_keywords(described: dict[str, Any], kind: str) -> None:
    assert field(described) == (kind, "")


@pytest.mark.parametrize(
    ("described", "kind", "read_as"),
    [
        ({"type": "string", "connect.type": "bytes"}, "binary", "string"),
        ({"type": "integer", "connect.type": "int32", "title": f"{CONNECT}Date"}, "date", "int"),
        ({"type": "integer", "connect.type": "int64", "title": f"{CONNECT}Timestamp"}, "timestamp", "bigint"),
        (
            {
                "type": "string",
                "connect.type": "bytes",
                "title": f"{CONNECT}Decimal",
                "connect.parameters": {"scale": "2"},
            },
            "decimal(38,2)",
            "string",
        ),
        (
            {
                "type": "number",
                "connect.type": "bytes",
                "title": f"{CONNECT}Decimal",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"},
            },
            "decimal(9,2)",
            "",
        ),
        (
            {
                "type": "array",
                "connect.type": "map",
                "items": {
                    "type": "object",
                    "properties": {"key": {**INTEGER, "connect.index": 0}, "value": STRING},
                },
            },
            "map<bigint, string>",
            "array<struct<`key`: bigint, `value`: string>>",
        ),
    ],
)
def test_connects_hints(described: dict[str, Any], kind: str, read_as: str) -> None:
    assert field(described) == (kind, read_as)
    assert field({"oneOf": [NULL, described], "connect.index": 0}) == (kind, read_as)


@pytest.mark.parametrize(
    ("described", "why"),
    [
        ({"type": ["string", "integer"]}, "it is a string or a number"),
        ({"oneOf": [{"properties": {"x": INTEGER}}, {"type": "array"}]}, "it is an object or an array"),
        ({}, "it may be anything"),
        (True, "it may be anything"),
        ({"type": "object"}, "it is an object whose fields are not named"),
        ({"allOf": [STRING, INTEGER]}, "it must be a string and a number"),
        ({"$ref": "#"}, "it contains itself"),
        ({"$recursiveRef": "#"}, "it contains itself"),
        ({"$ref": "http://json-schema.org/draft-07/schema#"}, "it may be anything"),
    ],
)
def test_what_stays_text(described: Any, why: str) -> None:
    found = of({"type": "object", "properties": {"a": described, "b": STRING}})
    assert found == JsonType(parse_ddl("a string, b string"), parse_ddl("a string, b string"), (("a", why),))
    values = [{"a": {"x": [1, None]}}, {"a": "text"}, {"a": 12}, {"a": None}]
    got = decode(found, values).array.field("a").to_pylist()
    assert got == ['{"x":[1,null]}', "text", "12", None]


def test_fields_have_the_order_of_connect() -> None:
    fields = {"b": {**INTEGER, "connect.index": 1}, "c": {**INTEGER, "connect.index": 2}}
    assert of({"properties": {**fields, "a": {**STRING, "connect.index": 0}}}).type.names == ["a", "b", "c"]


@pytest.mark.parametrize(
    "reference",
    [
        "#/definitions/x~1y",
        "#/definitions/x%7E1y",
        "#anchor",
        "#old",
        "other.json",
        "http://host/dir/other.json",
        "own.json",
    ],
)
def test_references_within_a_document(reference: str) -> None:
    described = {
        "$id": "http://host/dir/root.json",
        "properties": {"a": {"$ref": reference}},
        "definitions": {
            "x/y": INTEGER,
            "anchor": {"$anchor": "anchor", **INTEGER},
            "old": {"id": "#old", **INTEGER},
            "other": {"$id": "other.json", **INTEGER},
            "own": {"id": "own.json", **INTEGER},
        },
    }
    assert ddl(of(described).type) == "struct<`a`: bigint>"


def test_references_between_subjects() -> None:
    """By the name of a reference, as it is or relative to the schema's own name, and on from there."""
    inner = {"definitions": {"x": INTEGER}}
    middle = {"$id": "http://host/middle.json", "properties": {"i": {"$ref": "inner.json#/definitions/x"}}}
    outer = {"$id": "http://host/outer.json", "properties": {"m": {"$ref": "middle.json"}}}
    for name in ("inner.json", "http://host/inner.json"):
        found = of(outer, **{name: inner, "middle.json": middle})
        assert ddl(found.type) == "struct<`m`: struct<`i`: bigint>>"


def test_several_types_of_records_in_a_topic() -> None:
    """As Confluent's documentation has it: one schema that refers to those of all."""
    found = of(
        {"oneOf": [{"$ref": "customer.json"}, {"$ref": "order.json"}]},
        **{
            "customer.json": {"type": "object", "properties": {"name": STRING, "id": INTEGER}},
            "order.json": {"type": "object", "properties": {"id": STRING, "price": {"type": "number"}}},
        },
    )
    assert ddl(found.type) == "struct<`name`: string, `id`: string, `price`: double>"
    assert found.notes == (("id", "it is a number or a string"),)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"properties": {"a": {"type": "strin"}}}, "at #/properties/a/type: expected one of null, any,"),
        ({"properties": {"a/b": {"items": 3}}}, "at #/properties/a~1b/items: expected a schema, got 3"),
        ({"properties": [1]}, "at #/properties: expected an object of schemas"),
        ({"properties": {"a": {"enum": 1}}}, "at #/properties/a/enum: expected a list of values"),
        ({"properties": {"a": {"oneOf": {}}}}, "at #/properties/a/oneOf: expected a list of schemas"),
        ({"properties": {"a": {"prefixItems": {}}}}, "at #/properties/a/prefixItems: expected a list"),
        ({"properties": {"a": {"$ref": "b.json"}}}, "refers to 'b.json' at #/properties/a, which is neither"),
        (
            {"properties": {"a": {"$ref": "#/definitions/b"}}},
            "refers to '#/definitions/b' at #/properties/a,",
        ),
        ({"type": "array", "items": INTEGER}, "does not describe objects with fields: it has another type"),
        ({"type": ["object", "array"]}, "does not describe objects with fields: it is an object or an array"),
        ({"type": "object"}, "describes objects without naming any field"),
        ([], "expected an object, got []"),
    ],
)
def test_refused(described: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(message)):
        of(described)


def test_title() -> None:
    assert title_of('{"title": "Order"}') == "Order"
    assert title_of("true") is title_of('{"title": 1}') is None


def test_not_json() -> None:
    with pytest.raises(SchemaError, match="A JSON Schema is not JSON"):
        json_type("{'type': 'object'}")
    with pytest.raises(SchemaError, match="The JSON Schema 'b' is not JSON"):
        json_type("{}", [("b", "{")])


def test_deep_and_wide() -> None:
    """Schemas that are small and have types without an end are refused in time."""
    deep: Any = INTEGER
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SchemaError, match="more than 100 schemas in one another"):
        of({"properties": {"a": deep}})
    levels = {
        f"l{n}": {"properties": {f"p{m}": {"$ref": f"#/definitions/l{n + 1}"} for m in range(9)}}
        for n in range(9)
    }
    wide = {"properties": {"a": {"$ref": "#/definitions/l0"}}, "definitions": {**levels, "l9": INTEGER}}
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        of(wide)
    mutual = {
        f"l{n}": {"properties": {f"p{m}": {"$ref": f"#/definitions/l{m}"} for m in range(12)}}
        for n in range(12)
    }
    with pytest.raises(SchemaError, match="more than 20000 schemas"):
        of({"properties": {"a": {"$ref": "#/definitions/l0"}}, "definitions": mutual})


@pytest.mark.parametrize("seed", range(60))
def test_values_of_random_schemas(seed: int) -> None:
    """The library jsonschema says that values are valid, and they are read as they are."""
    random = Random(seed)
    described = {**schema(random), "$defs": DEFS}
    kind = of(described)
    check_type(kind.read_as, "_corrupt_record")
    is_valid = jsonschema.Draft202012Validator(described).is_valid
    values = [value for value in (value_of(random, described) for _ in range(40)) if is_valid(value)]
    assert len(values) > 20
    found = decode(kind, [*values, None, b"[]"])
    assert found.corrupt.tolist() == [len(values) + 1]
    expected = [as_column(value, kind.type) for value in values]
    assert found.array.to_pylist()[:-1] == [*expected, None]


@pytest.mark.parametrize("seed", range(40))
def test_schemas_that_make_no_sense(seed: int) -> None:
    """They are refused, or have a type that the kernels take; no other error comes of them."""
    random = Random(seed)
    odd: list[Any] = [None, True, 7, -1.5, "", "object", "#", "#/a", [], {}, [{}], {"$ref": "#"}, 10**400]
    keywords = (
        "type properties items oneOf allOf enum const $ref $id id title connect.type format required if"
    )
    keywords += " connect.parameters connect.index additionalProperties patternProperties prefixItems $anchor"
    for _ in range(25):
        described: Any = copy.deepcopy({**schema(random), "$defs": DEFS})
        for _ in range(random.randint(1, 4)):
            node = described
            while isinstance(node, dict) and node and random.random() < 0.7:
                key = random.choice(list(node))
                if not isinstance(node[key], dict) or not node[key]:
                    break
                node = node[key]
            node[random.choice([*keywords.split(), *node])] = copy.deepcopy(random.choice(odd))
        try:
            kind = of(described)
        except SchemaError:
            continue
        try:
            check_type(kind.read_as, "_corrupt_record")
        except OptionError as e:
            pytest.fail(f"{json.dumps(described)[:2000]}: {e}")
        decode(kind, [{}, value_of(random, schema(random))])


def test_type_is_what_arrow_builds() -> None:
    found = of({"properties": {"l": {"items": {"connect.type": "bytes", "type": "string"}}}})
    array = decode(found, [{"l": ["QQ==", None, ""]}, {"l": []}, {}]).array
    assert array.type == found.type
    assert array.to_pylist()[0] == {"l": [b"A", None, b""]}
    array.validate(full=True)


@pytest.mark.parametrize("key", ["allOf", "oneOf"])
def test_mixtures_of_small_schemas_that_stand_for_large_ones(key: str) -> None:
    named = {
        f"{side}{level}": {
            "properties": {
                name: {"$ref": f"#/definitions/{side}{level - 1}"} if level else {"type": "string"}
                for name in "lr"
            }
        }
        for side in "ab"
        for level in range(40)
    }
    with pytest.raises(SchemaError, match="mixtures of more than"):
        of({"definitions": named, key: [{"$ref": "#/definitions/a39"}, {"$ref": "#/definitions/b39"}]})


def test_deep_values_and_long_pointers_in_a_schema_are_refused() -> None:
    for deep in ("[" * 600 + "]" * 600, '{"a":' * 600 + "1" + "}" * 600):
        with pytest.raises(SchemaError, match="more than 100 types in one another"):
            json_type(f'{{"properties": {{"a": {{"enum": [{deep}]}}}}}}')
    with pytest.raises(SchemaError, match="neither in it"):
        of({"properties": {"a": {"$ref": f"#/properties/b/items/{'9' * 5000}"}, "b": {"items": [True]}}})
