"""Schemas are parsed as Avro's specification says; what is not valid is named with its place."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.avro.schema import Array, Enum, Fixed, Record, Union, parse
from pyspark_kafkalog.extensions.typed_values.avro.types import arrow_type
from pyspark_kafkalog.extensions.typed_values.ddl import ddl


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": each[0], "type": each[1]} if isinstance(each, tuple) else each for each in fields
        ],
        **more,
    }


def test_names_are_found_in_their_namespaces() -> None:
    schema = parse(
        json.dumps(
            record(
                ("e", {"type": "enum", "name": "E", "symbols": ["A"], "aliases": ["Old", "x.Old"]}),
                ("f", {"type": "fixed", "name": "other.F", "size": 3}),
                ("inner", record(("e", "a.E"), ("f", "F"), name="I", namespace="other")),
                ("again", ["null", "E", "other.I", "a.R"]),
                name="a.R",
            )
        )
    )
    assert isinstance(schema, Record)
    enum, fixed, inner, again = (field.schema for field in schema.fields)
    assert isinstance(enum, Enum)
    assert isinstance(fixed, Fixed)
    assert isinstance(inner, Record)
    assert isinstance(again, Union)
    assert (schema.name, enum.name, fixed.name, inner.name) == ("a.R", "a.E", "other.F", "other.I")
    assert enum.aliases == ("a.Old", "x.Old")
    assert [field.schema for field in inner.fields] == [enum, fixed]
    assert again.branches[1:] == (enum, inner, schema)


def test_namespaces_may_be_anything() -> None:
    schema = parse(json.dumps(record(("a", "int"), name="my-company.events.R")))
    assert str(schema) == "record my-company.events.R"


def test_references_are_known_by_their_names() -> None:
    sku = json.dumps({"type": "fixed", "name": "shop.Sku", "size": 8})
    item = json.dumps(record(("sku", "shop.Sku"), name="shop.Item"))
    order = json.dumps(record(("items", {"type": "array", "items": "Item"}), name="shop.Order"))
    schema = parse(order, [sku, item])
    assert isinstance(schema, Record)
    items = schema.fields[0].schema
    assert isinstance(items, Array)
    assert str(items.items) == "record shop.Item"
    assert isinstance(items.items, Record)
    assert str(items.items.fields[0].schema) == "fixed shop.Sku(8)"
    with pytest.raises(SchemaError, match=r"not valid at items\.element: there is no type 'Item'"):
        parse(order, [sku])


def test_a_type_may_be_repeated() -> None:
    """Avro 1.12 for Java takes it: two references may both contain the type."""
    money = record(("amount", "long"), name="shop.Money")
    first = json.dumps(record(("m", money), name="shop.First"))
    both = parse(json.dumps(record(("f", "shop.First"), ("m", money), name="Both")), [first])
    assert isinstance(both, Record)
    inner = both.fields[0].schema
    assert isinstance(inner, Record)
    assert inner.fields[0].schema is both.fields[1].schema
    other = record(("amount", "int"), name="shop.Money")
    with pytest.raises(SchemaError, match=r"the type 'shop\.Money' is defined twice"):
        parse(json.dumps(other), [first])


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ({"type": "enum", "name": "E", "symbols": ["\ud800"]}, "is not JSON: .* surrogates"),
        (record({"name": "a", "type": "int", "default": {"\ud800": 1}}), "is not JSON: .* surrogates"),
        ("5", "expected a schema, got 5"),
        ('"unknown"', "there is no type 'unknown'"),
        ({"type": 5}, "expected a type, got 5"),
        ({"name": "x"}, "expected a type, got null"),
        ({"type": "array"}, "'items' is missing"),
        (record(("a", record(("b", "int")))), "the type 'R' is defined twice, and not in the same way"),
        (record(("a", record(("b", "nope"), name="I"))), r"at a\.b: there is no type 'nope'"),
        (record(("a", {"type": "map", "values": {"type": "array", "items": 5}})), r"at a\.value\.element"),
        (record({"name": "a"}), r"at a: 'type' is missing"),
        (record({"name": "a b", "type": "int"}), "expected the name of a field"),
        (record(("a", "int"), ("a", "int")), "expected each field of R once"),
        (record(5), "expected a field, got 5"),
        ({"type": "record", "name": "R", "fields": {}}, "expected fields in a list"),
        ({"type": "record", "name": "a.R-S", "fields": []}, r"expected a name, got 'a\.R-S'"),
        ({"type": "record", "name": "int", "fields": []}, "expected a name, got 'int'"),
        ({"type": "record", "fields": []}, "'name' is missing"),
        ({"type": "record", "name": 5, "fields": []}, "expected a name, got 5"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "expected each symbol of E once"),
        ({"type": "enum", "name": "E", "symbols": "A"}, "expected a list of strings"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "expected one of the symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "expected the size of F, got -1"),
        ({"type": "fixed", "name": "F", "size": True}, "expected the size of F, got true"),
        (["int", ["string"]], "a union may not be right in a union"),
        (["int", "int"], "expected each type once"),
        (record(("a", "int"), aliases="x"), "expected a list of strings"),
    ],
)
def test_what_is_not_valid_is_named(schema: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        parse(schema if isinstance(schema, str) else json.dumps(schema))


def test_schemas_may_not_be_nested_without_end() -> None:
    schema: Any = "int"
    for _ in range(101):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaError, match="at most 100 schemas"):
        parse(json.dumps(schema))


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, "logicalType": "decimal", **more}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("null", "void"),
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ("string", "string"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "F", "size": 4}, "binary"),
        (logical("int", "date"), "date"),
        (logical("int", "time-millis"), "int"),
        (logical("long", "time-micros"), "bigint"),
        (logical("long", "timestamp-millis"), "timestamp"),
        (logical("long", "timestamp-micros"), "timestamp"),
        (logical("long", "timestamp-nanos"), "bigint"),
        (logical("long", "local-timestamp-millis"), "timestamp_ntz"),
        (logical("long", "local-timestamp-micros"), "timestamp_ntz"),
        (logical("string", "uuid"), "string"),
        (logical("string", "date"), "string"),
        (logical("bytes", "decimal", precision=10, scale=2), "decimal(10,2)"),
        (logical("bytes", "decimal", precision=10), "decimal(10,0)"),
        (logical("bytes", "decimal"), "binary"),
        (logical("bytes", "decimal", precision=2, scale=3), "binary"),
        (fixed(4, precision=9, scale=9), "decimal(9,9)"),
        (fixed(4, precision=10), "binary"),
        (fixed(16, precision=38), "decimal(38,0)"),
        (fixed(0, precision=1), "binary"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>"),
        ({"type": "map", "values": {"type": "array", "items": "string"}}, "map<string, array<string>>"),
        ({"type": {"type": "array", "items": "int"}}, "array<int>"),
        (["null", "string"], "string"),
        (["string", "null"], "string"),
        (["string"], "string"),
        (["int", "long"], "bigint"),
        (["null", "long", "int"], "bigint"),
        (["float", "double"], "double"),
        (["int", "long", "float"], "struct<`member0`: int, `member1`: bigint, `member2`: float>"),
        (["int", "null", "string"], "struct<`member0`: int, `member1`: string>"),
        ([], "struct<>"),
        (["null"], "struct<>"),
        (record(), "struct<>"),
        (
            record(("a", "int"), ("ä", record(("c", ["null", "bytes"]), name="I"))),
            "struct<`a`: int, `ä`: struct<`c`: binary>>",
        ),
    ],
)
def test_types_are_those_of_sparks_converter(schema: Any, expected: str) -> None:
    assert ddl(arrow_type(parse(json.dumps(schema)))) == expected


def test_all_is_nullable_and_lists_and_maps_are_as_pyspark_declares_them() -> None:
    kind = arrow_type(
        parse(
            json.dumps(
                record(("a", {"type": "array", "items": "int"}), ("m", {"type": "map", "values": "int"}))
            )
        )
    )
    assert kind == pa.struct(
        [
            pa.field("a", pa.list_(pa.field("element", pa.int32()))),
            pa.field("m", pa.map_(pa.string(), pa.int32())),
        ]
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record(("next", ["null", "R"])), "at next: the record R contains itself"),
        (record(("a", {"type": "array", "items": "R"})), r"at a\.element: the record R contains itself"),
        (record(("d", logical("bytes", "decimal", precision=39))), "more than 38 digits"),
    ],
)
def test_what_spark_has_no_type_for_is_named(schema: Any, said: str) -> None:
    parsed = parse(json.dumps(schema))
    with pytest.raises(SchemaError, match=said):
        arrow_type(parsed)


def test_a_text_may_not_have_schemas_without_end() -> None:
    fields = [(f"f{n}", ["null", "int"]) for n in range(70_000)]
    with pytest.raises(SchemaError, match="at f66666: expected at most 200000 schemas"):
        parse(json.dumps(record(*fields)))
    twice = json.dumps(record(*fields[:5000], fields[0]))
    with pytest.raises(SchemaError, match="expected each field of R once") as caught:
        parse(twice)
    assert len(str(caught.value)) == 2000


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record(("x" * 1001, "int")), "expected the name of a field"),
        (record(("a", record(name="x" * 1001))), "expected a name"),
        ([record(name=f"R{n}") for n in range(1001)], "expected at most 1000 types in a union"),
    ],
)
def test_what_is_too_much_for_a_schema(schema: Any, said: str) -> None:
    """Paths of a record's fields hold all names around them."""
    with pytest.raises(SchemaError, match=said):
        parse(json.dumps(schema))


def test_names_in_one_another_may_not_be_too_long() -> None:
    texts = [json.dumps(record(name="R0"))]
    texts += [json.dumps(record(("x" * 1000, f"R{n}"), name=f"R{n + 1}")) for n in range(5)]
    assert arrow_type(parse(texts[3], texts[:3]))
    with pytest.raises(SchemaError, match="in one another have more than 4000 characters"):
        arrow_type(parse(texts[-1], texts[:-1]))


def test_a_type_may_not_grow_without_end() -> None:
    inner = json.dumps(record(name="R0"))
    texts = [
        json.dumps(record(("a", f"R{number}"), ("b", f"R{number}"), name=f"R{number + 1}"))
        for number in range(30)
    ]
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        arrow_type(parse(texts[-1], [inner, *texts[:-1]]))
