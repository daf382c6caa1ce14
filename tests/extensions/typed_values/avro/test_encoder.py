"""What is written is what fastavro and our own reader give back; what does not fit is refused, by field."""

from __future__ import annotations

import decimal
import io
import json
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from pyspark_kafkalog.errors import InvalidRecordError, SchemaError
from pyspark_kafkalog.extensions.typed_values.avro.decoder import DatumDecoder
from pyspark_kafkalog.extensions.typed_values.avro.encoder import Encoder, schema_of
from pyspark_kafkalog.extensions.typed_values.avro.schema import parse
from tests.confluent import MANY, body, record
from tests.extensions.typed_values.avro.strategies import Case, cases
from tests.extensions.typed_values.columns import decode_column


def encoded(schema: Any, column: pa.Array, **settings: Any) -> list[bytes | None]:
    found = Encoder(parse(json.dumps(schema)), column.type, "value", **settings).encode(column)
    assert found.type == pa.binary()
    return found.to_pylist()


def read(schema: Any, bodies: list[bytes | None]) -> list[Any]:
    """By fastavro, and as plain types: it refuses texts that aren't UUIDs, and times before midnight."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema).replace('"logicalType"', '"doc"')))
    return [None if b is None else fastavro.schemaless_reader(io.BytesIO(b), parsed, None) for b in bodies]


def decoded(schema: Any, bodies: list[bytes | None]) -> pa.Array:
    decoder = DatumDecoder(parse(json.dumps(schema)))
    found = decode_column(decoder, pa.array(bodies, pa.binary()), decoder.add(parse(json.dumps(schema))))
    assert not found.corrupt.size, found.reason(int(found.corrupt[0]))
    return found.array


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(cases())
def test_what_was_decoded_is_encoded_again(case: Case) -> None:
    try:
        column = decoded(case.writer, [body(case.writer, value) for value in case.values])
    except SchemaError:
        return
    bodies = encoded(case.writer, column)
    assert repr(decoded(case.writer, bodies).to_pylist()) == repr(column.to_pylist())
    assert [each is None for each in bodies] == column.is_null().to_pylist()
    read(case.writer, bodies)
    some = column.slice(1, max(0, len(column) - 2))
    assert encoded(case.writer, some) == bodies[1 : 1 + len(some)]


def test_bytes_are_those_of_fastavro() -> None:
    schema = record("Outer", **MANY, counts={"type": "map", "values": ["long", "null"]})
    rows = []
    for n, number in enumerate([0, -1, 1, 63, -64, 64, -65, 2**31 - 1, -(2**31), 8191, 8192]):
        part = {"x": number, "y": None if n % 2 else "é" * n}
        rows.append(
            {
                "flag": bool(n % 2),
                "number": number,
                "big": number << 32,
                "ratio": n / 4,
                "exact": n / 3,
                "text": "x" * (n * 20),
                "raw": bytes(n),
                "colour": ["RED", "GREEN"][n % 2],
                "digest": struct.pack(">I", n),
                "price": decimal.Decimal(number // 3).scaleb(-3),
                "inner": part,
                "maybe": None if n % 3 else part,
                "items": [part] * (n % 4),
                "counts": {f"k{i}": None if i % 2 else i - n for i in range(n % 5)},
            }
        )
    bodies = [body(schema, row) for row in rows]
    assert encoded(schema, decoded(schema, bodies)) == bodies


def test_fields_by_name_and_left_out_ones() -> None:
    schema = record(
        "A",
        new=("string", "ä"),
        b="long",
        none=["null", "int"],
        list=({"type": "array", "items": "int"}, [1, -1]),
        map=({"type": "map", "values": "int"}, {"k": 2}),
        inner=(record("B", x=("double", 1.5), y=("int", 3)), {"x": 2.5}),
        a="int",
        raw=("bytes", "\x00ÿ"),
        either=(["int", "null"], 7),
    )
    kind = pa.struct([("a", pa.int8()), ("b", pa.int32())])
    column = pa.array([{"a": 1, "b": 2}, None, {"a": -3, "b": 4}], kind)
    bodies = encoded(schema, column, prefix=b"\0\0\0\0\x07")
    assert bodies[1] is None
    assert all(each is None or each[:5] == b"\0\0\0\0\x07" for each in bodies)
    rows = read(schema, [None if each is None else each[5:] for each in bodies])
    rest = {"new": "ä", "none": None, "list": [1, -1], "map": {"k": 2}, "inner": {"x": 2.5, "y": 3}}
    rest |= {"raw": b"\0\xff", "either": 7}
    assert rows == [{**rest, "a": 1, "b": 2}, None, {**rest, "a": -3, "b": 4}]


def bomb(size: int) -> Any:
    """A record whose default is two records with such defaults, and so on."""
    inner = record(f"R{size}")
    for number in reversed(range(size)):
        inner = record(f"R{number}", a=(inner, {}), b=(f"R{number + 1}", {}))
    return inner


@pytest.mark.parametrize(
    ("schema", "kind", "said"),
    [
        (
            record("A", a="int"),
            {"a": pa.int64()},
            r"value.a: the schema expects int, the column is bigint. Convert it .*: CAST\(a AS int\) AS a\.$",
        ),
        (
            record("A", a="int"),
            {"a": pa.int32(), "b": pa.int32()},
            r"value\.b: the schema has no .*\. It has a\.",
        ),
        (record("A", a="int", b="int"), {"a": pa.int32()}, "value.b: the struct has no such field, and it"),
        (record("A", a=("int", "x")), {}, "value.a: the struct has no such field"),
        (
            record("A", a=record("B", b="string")),
            {"a": pa.struct({"b": pa.int32()})},
            "value.a.b: the schema",
        ),
        (
            record("A", a={"type": "array", "items": "int"}),
            {"a": pa.list_(pa.string())},
            r"value.a.element: .*\. Convert it to int\.$",
        ),
        (record("A", a=["null", "int", "string"]), {"a": pa.int64()}, "value.a: the schema expects union of"),
        (
            record("A", a=["string", {"type": "enum", "name": "E", "symbols": ["X"]}]),
            {"a": pa.string()},
            "one branch only, or a struct of member0, member1",
        ),
        (
            record("A", a=["null", record("B", x="int"), record("C", x="int")]),
            {"a": pa.struct({"x": pa.int32()})},
            "value.a: the schema expects union of null, record B, record C, the column is struct",
        ),
        (
            record("A", a=["null", "long", record("B", x="int")]),
            {"a": pa.struct({"y": pa.int32()})},
            "value.a: the schema expects union of",
        ),
        (record("A", x="int", n=("A", {"x": 1})), {"x": pa.int32()}, "value.n: .* leads back to itself"),
        (record("A", b=(bomb(20), {})), {}, "value.b: .* more than 1048576 bytes"),
        (
            record("A", a=({"type": "array", "items": record("B", s=("string", "x" * 2000))}, [{}] * 1000)),
            {},
            "value.a: .* more than 1048576 bytes",
        ),
        (record("A", a={"type": "long", "logicalType": "timestamp-micros"}), {"a": pa.timestamp("us")}, "a:"),
        (
            record("A", a={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}),
            {"a": pa.decimal128(6, 2)},
            r"value.a: the schema expects bytes decimal\(5,2\), the .* AS decimal\(5,2\)\) AS a\.$",
        ),
        ("string", {"a": pa.int32()}, "value: the schema expects string, the column is struct"),
    ],
)
def test_what_does_not_fit_is_refused(schema: Any, kind: dict[str, pa.DataType], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        Encoder(parse(json.dumps(schema)), pa.struct(kind), "value")


@pytest.mark.parametrize(
    ("schema", "kind", "value", "said"),
    [
        ("int", pa.int32(), None, "value.a: a row has null, and its schema, int, has not"),
        (
            {"type": "enum", "name": "E", "symbols": ["X"]},
            pa.string(),
            "Y",
            "a text that its enum E has not",
        ),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"x", "other than the 2 bytes"),
        (record("B", b="int"), pa.struct({"b": pa.int32()}), None, "value.a: a row has null"),
        (
            ["int", "string"],
            pa.struct({"member0": pa.int32(), "member1": pa.string()}),
            {"member0": 1, "member1": "x"},
            "more than one member",
        ),
        (
            ["int", "string"],
            pa.struct({"member0": pa.int32(), "member1": pa.string()}),
            {"member0": None, "member1": None},
            "value.a: a row has null",
        ),
        (
            {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 2, "scale": 0},
            pa.decimal128(2, 0),
            decimal.Decimal(99),
            None,
        ),
    ],
)
def test_values_that_a_schema_can_not_hold(
    schema: Any, kind: pa.DataType, value: Any, said: str | None
) -> None:
    column = pa.array([{"a": value}], pa.struct({"a": kind}))
    if said is None:
        assert encoded(record("A", a=schema), column) == [b"\x63"]
        return
    with pytest.raises(InvalidRecordError, match=said):
        encoded(record("A", a=schema), column)


def test_a_number_with_more_digits_than_its_column_says_is_refused() -> None:
    schema = {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 2, "scale": 0}
    words = struct.pack("<qqqq", 99, 0, 128, 0)
    column = pa.Array.from_buffers(pa.decimal128(2, 0), 2, [None, pa.py_buffer(words)])
    with pytest.raises(InvalidRecordError, match="value: a row has a number that is too large for its fixed"):
        encoded(schema, column)
    assert encoded(schema, column.slice(0, 1)) == [b"\x63"]


@pytest.mark.parametrize("null", [0, 63, 64, 70])
def test_a_branch_of_any_number(null: int) -> None:
    union: list[Any] = [{"type": "fixed", "name": f"F{n}", "size": n + 1} for n in range(70)]
    union.insert(null, "null")
    for kind, values in (
        (pa.int64(), [None, 300, -1]),
        (pa.float64(), [1.5, None]),
        (pa.string(), ["x", None]),
    ):
        name = {pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}[kind]
        schema = record("A", a=[*union, name])
        column = pa.array([{"a": each} for each in values], pa.struct({"a": kind}))
        assert read(schema, encoded(schema, column)) == [{"a": each} for each in values]


@pytest.mark.parametrize("size", range(1, 17))
def test_decimals_of_each_size(size: int) -> None:
    most = 2 ** (8 * size - 1)
    values = [n for n in (most - 1, -most, most // 2, -most // 2 - 1, 0, -1) if abs(n) < 10**38]
    found = read(
        record("A", a=["null", "bytes"]),
        encoded(
            record("A", a=["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}]),
            pa.array(
                [{"a": None}, *({"a": decimal.Decimal(n)} for n in values)],
                pa.struct({"a": pa.decimal128(38, 0)}),
            ),
        ),
    )
    assert found[0] == {"a": None}
    written = [each["a"] for each in found[1:]]
    assert [int.from_bytes(each, "big", signed=True) for each in written] == values
    assert [len(each) for each in written] == [(n if n >= 0 else ~n).bit_length() // 8 + 1 for n in values]


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1000)])
def test_times_that_are_too_large(unit: str, per_second: int) -> None:
    schema = {"type": "long", "logicalType": "timestamp-micros"}
    most = (2**63 - 1) * per_second // 10**6
    column = pa.array([most, -most, None], pa.timestamp(unit, "UTC"))
    factor = 10**6 // per_second
    assert read("long", encoded(schema, column)) == [most * factor, -most * factor, None]
    for value in (most + 1, -most - 1, 2**62, -(2**63)):
        with pytest.raises(InvalidRecordError, match="value: a row has a time that is too large"):
            encoded(schema, pa.array([value], pa.timestamp(unit, "UTC")))


RECORD = record("B", x="int", y=("string", "d"))


@pytest.mark.parametrize(
    ("union", "kind", "values", "expected"),
    [
        (["null", "long", "string"], pa.int64(), [1, None], [1, None]),
        (["null", "long", "string"], pa.string(), ["a", None], ["a", None]),
        (["string", "long"], pa.int8(), [-3], [-3]),
        (["int", "long", "string"], pa.int32(), [4], [4]),
        (["double", "null", "int"], pa.float32(), [0.5, None], [0.5, None]),
        (
            ["null", "string", RECORD],
            pa.struct({"x": pa.int32()}),
            [{"x": 1}, None],
            [{"x": 1, "y": "d"}, None],
        ),
        ([RECORD, "null"], pa.struct({"x": pa.int8()}), [{"x": 1}, None], [{"x": 1, "y": "d"}, None]),
        ([RECORD], pa.struct({"x": pa.int32()}), [{"x": 1}], [{"x": 1, "y": "d"}]),
        (["null", RECORD, record("C", z="int")], pa.struct({"z": pa.int32()}), [{"z": 1}], [{"z": 1}]),
        (
            ["null", {"type": "array", "items": ["null", "int", "string"]}, "string"],
            pa.list_(pa.int32()),
            [[1, None], None, []],
            [[1, None], None, []],
        ),
    ],
)
def test_the_branch_of_a_union_by_the_type_of_the_column(
    union: Any, kind: pa.DataType, values: list[Any], expected: list[Any]
) -> None:
    schema = record("A", u=union)
    column = pa.array([{"u": value} for value in values], pa.struct({"u": kind}))
    assert read(schema, encoded(schema, column)) == [{"u": value} for value in expected]
    with_rest = [*values, None] if None not in values and "null" not in union else []
    if with_rest:
        column = pa.array([{"u": value} for value in with_rest], pa.struct({"u": kind}))
        with pytest.raises(InvalidRecordError, match=r"value\.u: a row has null"):
            encoded(schema, column)


def test_bytes_without_a_length() -> None:
    column = pa.array([b"ab", None, b""], pa.binary())
    assert encoded("bytes", column, prefix=b"p", is_framed=True) == [b"pab", None, b"p"]
    assert encoded("bytes", column) == [b"\x04ab", None, b"\0"]


def test_the_schema_of_a_struct() -> None:
    inner = pa.struct([pa.field("x", pa.int16(), nullable=False), ("t", pa.timestamp("us", "Europe/Berlin"))])
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("name", pa.string()),
            ("day", pa.date32()),
            ("price", pa.decimal128(20, 3)),
            ("local", pa.timestamp("us")),
            ("inner", inner),
            pa.field("items", pa.list_(pa.field("element", inner)), nullable=False),
            ("counts", pa.map_(pa.string(), inner)),
        ]
    )
    schema = json.loads(schema_of(kind, "value"))
    fastavro.parse_schema(schema)
    assert schema["name"] == "topLevelRecord"
    assert schema["fields"][0] == {"name": "id", "type": "long"}
    assert schema["fields"][1] == {"name": "name", "type": ["null", "string"], "default": None}
    assert schema["fields"][5]["type"][1]["namespace"] == "topLevelRecord"
    rows = [
        {"id": 1, "items": [{"x": 1, "t": None}], "counts": [("k", {"x": 2, "t": 3})]},
        {"id": 2, "items": []},
    ]
    column = pa.array(rows, kind)
    assert (
        decoded(schema, encoded(schema, column)).to_pylist()[0]["counts"] == column.to_pylist()[0]["counts"]
    )
    for other, said in (
        (pa.struct({"a": pa.duration("us")}), "value.a: Avro has no type for duration"),
        (pa.struct({"a b": pa.int32()}), "value.a b: Avro has no such names"),
        (pa.struct({"m": pa.map_(pa.int32(), pa.int32())}), "value.m: Avro has no type for map"),
    ):
        with pytest.raises(SchemaError, match=said):
            schema_of(other, "value")
