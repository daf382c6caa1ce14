"""Columns as protobuf are what google.protobuf reads."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import InvalidRecordError, SchemaError
from pyspark_kafkalog.extensions.typed_values.protobuf.decoder import MessageDecoder
from pyspark_kafkalog.extensions.typed_values.protobuf.encoder import MessageEncoder, check_fits, schema_of
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import parse
from pyspark_kafkalog.extensions.typed_values.protobuf.types import arrow_type
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions
from tests.extensions.typed_values.columns import decode_column
from tests.extensions.typed_values.protobuf import oracle
from tests.extensions.typed_values.protobuf.schemas import SCHEMAS

OPTIONS = [
    ProtobufOptions(max_depth=6, enums_as_ints=True),
    ProtobufOptions(6, enums_as_ints=True, emits_defaults=True, upcasts_unsigned=True, unwraps=True),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_decoded_is_encoded_again(name: str, options: ProtobufOptions) -> None:
    rng = random.Random(3)
    kind = oracle.class_of(oracle.compiled({"all.proto": SCHEMAS[name]}), name)
    bodies = [
        oracle.fill(kind(), rng).SerializeToString() if rng.random() < 0.9 else None for _ in range(200)
    ]
    message = parse(SCHEMAS[name]).message(name)
    decoder = MessageDecoder(message, options=options)
    column = decode_column(decoder, pa.array(bodies, pa.binary()), decoder.add(message)).array
    encoded = MessageEncoder(message, column.type, "value", prefix=b"abc").encode(column)
    assert encoded.type == pa.binary()
    sliced = MessageEncoder(message, column.type, "value", prefix=b"abc").encode(column.slice(50, 100))
    assert sliced == encoded.slice(50, 100)
    for body, again in zip(bodies, encoded.to_pylist(), strict=True):
        if body is None:
            assert again is None
            continue
        assert again[:3] == b"abc"
        found, given = kind.FromString(again[3:]), kind.FromString(body)
        assert oracle.expected(found, column.type, options) == oracle.expected(given, column.type, options)


def encoded(text: str, rows: list[Any], kind: pa.DataType | None = None) -> list[bytes | None]:
    message = parse(text).at([0])
    column = pa.array(rows, arrow_type(message) if kind is None else kind)
    return MessageEncoder(message, column.type, "value").encode(column).to_pylist()


@pytest.mark.parametrize(
    ("text", "rows", "kind", "why"),
    [
        ("message M { required int32 a = 1; }", [{"a": None}], None, "value.a: a row has null"),
        ("message M { repeated int32 a = 1; }", [{"a": [None]}], None, "value.a.element: a row has null"),
        (
            "message M { map<int32, string> a = 1; }",
            [{"a": [(1, None)]}],
            None,
            "value.a.value: a row has null",
        ),
        (
            "message M { oneof o { int32 a = 1; string b = 2; } }",
            [{"a": 1, "b": "x"}],
            None,
            "value.b: a row has another field of o, too",
        ),
        (
            "message M { optional E a = 1; enum E { X = 0; } }",
            [{"a": "Y"}],
            None,
            "value.a: a row has a text",
        ),
        (
            "message M { optional E a = 1; enum E { X = 0; } }",
            [{"a": 1}],
            pa.struct([("a", pa.int32())]),
            "value.a: a row has a number",
        ),
        (
            "message M { optional uint32 a = 1; }",
            [{"a": 1 << 32}],
            pa.struct([("a", pa.int64())]),
            "value.a: a row has a number that a uint32 has not",
        ),
        (
            'import "google/protobuf/struct.proto"; message M { optional google.protobuf.Struct a = 1; }',
            [{"a": "[]"}],
            None,
            "value.a: a row has a text that isn't JSON",
        ),
    ],
)
def test_values_that_a_schema_has_not(text: str, rows: list[Any], kind: pa.DataType | None, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=why):
        encoded(text, rows, kind)


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("message M { optional int32 a = 1; }", pa.int32(), "value: the schema expects message M"),
        (
            "message M { optional int32 a = 1; }",
            pa.struct([("b", pa.int32())]),
            "value.b: the schema has no such",
        ),
        ("message M { required int32 a = 1; }", pa.struct([]), "value.a: the struct has no such field"),
        (
            "message M { optional int32 a = 1; }",
            pa.struct([("a", pa.int64())]),
            r"value.a: the schema expects int32, the column is bigint. .*: CAST\(a AS int\) AS a\.$",
        ),
        (
            "message M { repeated int32 a = 1; }",
            pa.struct([("a", pa.int32())]),
            "value.a: the schema expects repeated int32, the column is int$",
        ),
        (
            "message M { map<int32, string> a = 1; }",
            pa.struct([("a", pa.map_(pa.string(), pa.string()))]),
            r"value.a.key: the schema expects int32, .*\. Convert it to int\.$",
        ),
    ],
)
def test_types_that_do_not_fit(text: str, kind: pa.DataType, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        check_fits(parse(text).at([0]), kind, "value")


def test_null_lists_and_maps_are_empty() -> None:
    fields = "repeated int32 a = 1; map<string, int32> b = 2; repeated string c = 3;"
    text = f'syntax = "proto3"; message M {{ {fields} }}'
    rows = [{"a": None, "b": None, "c": None}, {"a": [1], "b": [("k", 2)], "c": ["x"]}]
    assert encoded(text, rows) == [b"", b"\x0a\x01\x01\x12\x05\x0a\x01k\x10\x02\x1a\x01x"]


def test_a_schema_of_a_type_has_its_values() -> None:
    point = pa.struct([pa.field("x", pa.float32()), pa.field("y", pa.float64(), nullable=False)])
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("small", pa.int16()),
            pa.field("name", pa.string()),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("took", pa.duration("us")),
            pa.field("home_address", point),
            pa.field("Points", pa.list_(point)),
            pa.field("by_name", pa.map_(pa.string(), point)),
            pa.field("flags", pa.list_(pa.bool_())),
        ]
    )
    text = schema_of(kind, "value", package="shop.orders")
    assert 'package shop.orders;\nimport "google/protobuf/duration.proto";' in text
    assert "optional HomeAddress home_address = 6;" in text
    assert "repeated PointsMessage Points = 7;" in text
    message = parse(text).at([0])
    assert message.name == "shop.orders.Value"
    rows = [
        {"id": 0, "small": 0, "name": "", "at": 5, "took": -1_500_000, "home_address": {"x": None, "y": 1.5}},
        {
            "id": 5,
            "Points": [{"x": 1.0, "y": 0.0}],
            "by_name": [("a", {"x": 0.0, "y": 2.0})],
            "flags": [False],
        },
    ]
    column = pa.array(rows, kind)
    body = MessageEncoder(message, kind, "value").encode(column)
    found = oracle.class_of(oracle.compiled({"v.proto": text}), "shop.orders.Value").FromString(
        body[0].as_py()
    )
    assert (found.id, found.small, found.HasField("small"), found.name) == (0, 0, True, "")
    assert (found.took.seconds, found.took.nanos) == (-1, -500_000_000)
    decoder = MessageDecoder(message)
    again = decode_column(decoder, body, decoder.add(message)).array
    assert again.to_pylist()[1]["by_name"] == [("a", {"x": 0.0, "y": 2.0})]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (pa.int32(), "value: Protobuf has messages only"),
        (pa.struct([("a b", pa.int32())]), "value.a b: Protobuf has no such names"),
        (pa.struct([("a", pa.date32())]), "value.a: Protobuf has no type for date32"),
        (
            pa.struct([("a", pa.list_(pa.list_(pa.int32())))]),
            "value.a.element: Protobuf has no type for list",
        ),
        (pa.struct([("a", pa.map_(pa.float64(), pa.int32()))]), "value.a: Protobuf has no maps by double"),
    ],
)
def test_types_that_protobuf_has_not(kind: pa.DataType, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        schema_of(kind, "value")
