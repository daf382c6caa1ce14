"""Rules of resolution that fastavro does not share, causes of corrupt rows, and rows of several writers."""

from __future__ import annotations

import datetime
import io
import json
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.avro import decoder as module
from pyspark_kafkalog.extensions.typed_values.avro import kernels
from pyspark_kafkalog.extensions.typed_values.avro.decoder import CORRUPT, DatumDecoder
from pyspark_kafkalog.extensions.typed_values.avro.schema import parse
from pyspark_kafkalog.extensions.typed_values.columns import DecodedBodies
from tests.extensions.typed_values.avro import oracle
from tests.extensions.typed_values.avro.test_schema import logical, record
from tests.extensions.typed_values.columns import decode_column


def decoded(
    bodies: list[bytes | None], writer: Any, reader: Any = None, columns: pa.DataType | None = None
) -> DecodedBodies:
    decoder = DatumDecoder(parse(json.dumps(writer if reader is None else reader)), columns)
    found = decode_column(decoder, pa.array(bodies, pa.binary()), decoder.add(parse(json.dumps(writer))))
    found.array.validate(full=True)
    return found


def rows(bodies: list[bytes | None], writer: Any, reader: Any = None) -> list[Any]:
    found = decoded(bodies, writer, reader)
    assert not found.corrupt.size, found.reason(found.corrupt[0])
    return oracle.shown(found.array)


def reasons(bodies: list[bytes | None], writer: Any, reader: Any = None) -> list[str]:
    found = decoded(bodies, writer, reader)
    return [found.reason(row) if cause else "" for row, cause in enumerate(found.causes)]


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def text(value: str | bytes) -> bytes:
    value = value.encode() if isinstance(value, str) else value
    return varint(len(value)) + value


E = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
ARRAY = {"type": "array", "items": "int"}
SIMPLE = record(("a", "int"), ("b", ["null", "string"]), ("c", ARRAY))
GOOD = b"\x02\x02\x04xy\x04\x06\x08\x00"


def test_nulls_stay_null_and_corrupt_rows_are_structs_of_nulls() -> None:
    found = decoded([GOOD, None, GOOD[:-1], b"", GOOD + b"x", GOOD], SIMPLE)
    good, nulls = {"a": 1, "b": "xy", "c": [3, 4]}, {"a": None, "b": None, "c": None}
    assert found.array.to_pylist() == [good, None, nulls, nulls, nulls, good]
    assert found.corrupt.tolist() == [2, 3, 4]
    assert found.causes.tolist() == [0, 0, kernels.SHORT, kernels.SHORT, kernels.TRAILING, 0]
    assert [found.reason(row) for row in (2, 3, 4)] == [
        "c: the value ends too early, at byte 8",
        "a: the value ends too early, at byte 0",
        "the value goes on behind its last field, at byte 9",
    ]


def test_a_row_that_ends_in_a_fault_leaves_nothing_of_its_first_fields() -> None:
    """Records without lists are written as they are read; the fault may be behind all of them."""
    fields = (
        ("a", "int"),
        ("b", ["null", "string"]),
        ("c", "bytes"),
        ("d", [{**record(("e", "long")), "name": "D"}, "null"]),
    )
    good, more = b"\x02\x02\x04xy\x02z\x00\x08", b"\x04\x02\x08uvwx\x00\x00\x0a"
    found = decoded([good, more + b"?", more[:-1], more], record(*fields))
    first = {"a": 1, "b": "xy", "c": b"z", "d": {"e": 4}}
    nulls = dict.fromkeys("abcd")
    assert found.array.to_pylist() == [first, nulls, nulls, {"a": 2, "b": "uvwx", "c": b"", "d": {"e": 5}}]
    assert all(found.array.field(name).null_count == 2 for name in "abcd")
    found.array.validate(full=True)


def test_other_types_than_structs_are_null_where_they_are_corrupt() -> None:
    assert decoded([b"\x02", None, b"", b"\x02\x02"], "int").array.to_pylist() == [1, None, None, None]
    found = decoded([b"\x00", b"\x02\x02a", b"\x04", None], ["null", "string"])
    assert found.array.to_pylist() == [None, "a", None, None]
    assert found.corrupt.tolist() == [2]
    found = decoded([b"\x00", b"\x02", b"\x04"], ["null", record()])
    assert found.array.to_pylist() == [None, {}, {}]
    assert found.corrupt.tolist() == [2]
    found = decoded([b"\x00\x02", b"\x02\x02a", b"\x04", None], ["int", "string"])
    both = {"member0": None, "member1": None}
    assert found.array.to_pylist() == [{**both, "member0": 1}, {**both, "member1": "a"}, both, None]
    assert decoded([b"", None], "null").array.to_pylist() == [None, None]


def test_no_rows_are_a_column_too() -> None:
    assert decoded([], SIMPLE).array == pa.array([], decoded([GOOD], SIMPLE).array.type)
    column = pa.array([b"no", GOOD, None, GOOD], pa.binary())[1:3]
    decoder = DatumDecoder(parse(json.dumps(SIMPLE)))
    found = decode_column(decoder, column, decoder.add(parse(json.dumps(SIMPLE))))
    assert found.array.is_valid().to_pylist() == [True, False]
    assert not found.corrupt.size


@pytest.mark.parametrize(
    ("schema", "body", "said"),
    [
        ("int", b"\x80\x80\x80\x80\x80\x00", "expected an int of 32 bits, at byte 0"),
        ("int", varint(2**31), "expected an int of 32 bits, at byte 0"),
        ("int", varint(-(2**31) - 1), "expected an int of 32 bits, at byte 0"),
        ("long", b"\xff" * 9 + b"\x02", "expected a number of up to 64 bits, at byte 0"),
        ("long", b"\xff" * 10 + b"\x00", "expected a number of up to 64 bits, at byte 0"),
        ("long", b"\xff" * 9, "the value ends too early, at byte 0"),
        ("boolean", b"\x02", "expected a boolean as 0 or 1, at byte 0"),
        ("boolean", b"", "the value ends too early, at byte 0"),
        ("float", bytes(3), "the value ends too early, at byte 0"),
        ("double", bytes(7), "the value ends too early, at byte 0"),
        ("double", bytes(9), "the value goes on behind its last field, at byte 8"),
        ("string", b"\x03ab", "expected a length, got a negative number, at byte 0"),
        ("bytes", b"\x06ab", "the value ends too early, at byte 0"),
        ("bytes", varint(2**62) + b"ab", "the value ends too early, at byte 0"),
        ("bytes", varint(-(2**63)) + b"ab", "expected a length, got a negative number, at byte 0"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "the value ends too early, at byte 0"),
        (E, b"\x04", "expected the number of a symbol of the writer's enum, at byte 0"),
        (E, b"\x01", "expected the number of a symbol of the writer's enum, at byte 0"),
        (["null", "int"], b"\x04", "expected the number of a branch of the writer's union, at byte 0"),
        (["null", "int"], b"\x01", "expected the number of a branch of the writer's union, at byte 0"),
        (ARRAY, b"\x02\x02", "the value ends too early, at byte 2"),
        (ARRAY, varint(2**62) + b"\x02", "the value ends too early, at byte 0"),
        (ARRAY, varint(-(2**63)) + b"\x02", "expected a length, got a negative number, at byte 0"),
        (ARRAY, b"\x01", "the value ends too early, at byte 0"),
        (
            {"type": "map", "values": "int"},
            b"\x02\x01",
            "key: expected a length, got a negative number, at byte 1",
        ),
        (
            record(("x", record(("y", {"type": "array", "items": ["int", "boolean"]}), name="I"))),
            b"\x02\x02\x03\x00",
            r"x.y.element.member1: expected a boolean as 0 or 1, at byte 2",
        ),
        (logical("bytes", "decimal", precision=3), b"\x00", "expected a decimal within the precision"),
        (
            logical("bytes", "decimal", precision=3),
            text(b"\x03\xe8"),
            "expected a decimal within the precision",
        ),
        (
            logical("bytes", "decimal", precision=3),
            text(b"\xfc\x18"),
            "expected a decimal within the precision",
        ),
        (
            logical("bytes", "decimal", precision=38),
            text((10**38).to_bytes(17, "big")),
            "expected a decimal within the precision",
        ),
        (
            logical("bytes", "decimal", precision=38),
            text((1 << 128).to_bytes(17, "big")),
            "expected a decimal within the precision",
        ),
        (logical("bytes", "decimal", precision=38), text(b"\x80" + bytes(15)), "expected a decimal within"),
        (logical("bytes", "decimal", precision=38), text(b"\x80" + bytes(40)), "expected a decimal within"),
        (logical("long", "timestamp-millis"), varint(2**63 // 1000 + 1), "does not fit into 64 bits"),
        (logical("long", "timestamp-millis"), varint(-(2**63)), "does not fit into 64 bits"),
    ],
)
def test_a_corrupt_row_says_why_and_where(schema: Any, body: bytes, said: str) -> None:
    (found,) = reasons([body], schema)
    assert said in found
    for before, after in ((b"", b""), (b"\x00" * 20, b"\x00" * 20), (b"\xff" * 20, b"\xff" * 20)):
        decoder = DatumDecoder(parse(json.dumps(schema)))
        entry = decoder.add(parse(json.dumps(schema)))
        data = np.frombuffer(before + body + after, np.uint8)
        where = (np.array([number], np.int64) for number in (len(before), len(body), entry))
        assert decoder.decode(data, *where).reason(0) == found


def test_limits_are_within() -> None:
    whole = 10**38 - 1
    kind = logical("bytes", "decimal", precision=38, scale=38)
    bodies = [
        text(number.to_bytes(size, "big", signed=True)) for number in (whole, -whole) for size in (16, 40)
    ]
    assert rows([*bodies, text(b"\xff"), text(b"\x00")], kind) == [
        *[Decimal(f"0.{'9' * 38}")] * 2,
        *[Decimal(f"-0.{'9' * 38}")] * 2,
        Decimal(-1).scaleb(-38),
        Decimal(0).scaleb(-38),
    ]
    assert rows([varint(2**31 - 1), varint(-(2**31)), b"\x82\x80\x80\x80\x00"], "int") == [
        2**31 - 1,
        -(2**31),
        1,
    ]
    assert rows([varint(2**63 - 1), varint(-(2**63))], "long") == [2**63 - 1, -(2**63)]
    found = decoded([varint(2**63 // 1000), varint(-(2**63 // 1000))], logical("long", "timestamp-millis"))
    assert not found.corrupt.size
    assert found.array.cast(pa.int64()).to_pylist() == [9223372036854775000, -9223372036854775000]


def test_blocks_may_say_how_long_they_are() -> None:
    body = varint(-2) + varint(99) + b"\x02\x04" + varint(1) + b"\x06" + varint(-1) + varint(1) + b"\x08\x00"
    assert rows([body], ARRAY) == [[1, 2, 3, 4]]
    assert rows([b"\x02" + body], record(("n", "int"), ("a", ARRAY)), record(("n", "int"))) == [{"n": 1}]


@pytest.mark.parametrize(
    "items",
    ["null", record(name="I"), record(("n", "null"), name="I"), {"type": "fixed", "name": "F", "size": 0}],
)
def test_items_without_bytes_are_few(items: Any) -> None:
    schema = {"type": "array", "items": items}
    few = varint(1000) + varint(-24) + varint(0) + b"\x00"
    many = varint(1000) + varint(25) + b"\x00"
    found = decoded([few, many, varint(2**60) + b"\x00", varint(-(2**60)) + b"\x00\x00"], schema)
    assert found.causes.tolist() == [0, *[kernels.EMPTY_ITEMS] * 3]
    assert len(found.array[0]) == 1024
    twice = {"type": "array", "items": schema}
    assert decoded([b"\x04" + few + few + b"\x00"], twice).causes.tolist() == [kernels.EMPTY_ITEMS]
    skipped = decoded([few, many], record(("a", schema)), record())
    assert skipped.causes.tolist() == [0, kernels.EMPTY_ITEMS]


def test_of_equal_keys_the_last_counts() -> None:
    schema = {"type": "map", "values": ["null", "int"]}

    def body(*entries: tuple[str, int | None]) -> bytes:
        parts = [
            text(key) + (b"\x00" if value is None else b"\x02" + varint(value)) for key, value in entries
        ]
        return varint(len(parts)) + b"".join(parts) + b"\x00" if parts else b"\x00"

    few = [("a", 1), ("b", 2), ("a", 3), ("aa", 4), ("", 5), ("b", None)]
    many = [(str(number % 50), number) for number in range(70)]
    other = [(str(number), number) for number in range(40)]
    bodies = [body(*few), None, body(), body(("a", 7)), body(*many), body(*other), b"\x02"]
    found = decoded(bodies, schema)
    assert found.corrupt.tolist() == [6]
    kept = [dict(few), None, {}, {"a": 7}, dict(many), dict(other), None]
    assert oracle.shown(found.array) == kept
    assert [None if value is None else len(value) for value in found.array.to_pylist()] == [
        None if value is None else len(value) for value in kept
    ]


def test_text_that_is_not_utf8_is_replaced() -> None:
    schema = record(("s", ["null", "string"]), ("m", {"type": "map", "values": "string"}))
    body = (
        b"\x02"
        + text(b"a\xff")
        + b"\x04"
        + text(b"\xfe")
        + text(b"\xc3\xa4")
        + text(b"k")
        + text(b"\xe2\x82")
        + b"\x00"
    )
    assert rows([b"\x00\x00", body], schema) == [
        {"s": None, "m": {}},
        {"s": "a\ufffd", "m": {"\ufffd": "ä", "k": "\ufffd"}},
    ]


def test_fields_are_found_by_name_before_their_aliases() -> None:
    writer = record(("y", "int"), ("z", "int"))
    x = {"name": "x", "type": "int", "aliases": ["y", "z"], "default": 7}
    assert rows([b"\x02\x04"], writer, record(x, ("y", "int"))) == [{"x": 2, "y": 1}]
    assert rows([b"\x02\x04"], writer, record(x, ("y", "int"), ("z", "int"))) == [{"x": 7, "y": 1, "z": 2}]
    assert rows([b"\x02\x04"], writer, record(x, {**x, "name": "w"})) == [{"x": 1, "w": 2}]


def test_recursive_types_are_skipped() -> None:
    node = record(
        ("value", "string"),
        ("next", ["null", "Node"]),
        ("more", {"type": "array", "items": "Node"}),
        name="Node",
    )
    writer = record(("tree", node), ("n", "int"), ("again", "Node"))
    leaf = text("x") + b"\x00\x00"
    tree = (
        text("abc")
        + b"\x02"
        + text("d")
        + b"\x02"
        + leaf
        + b"\x04"
        + leaf
        + leaf
        + b"\x00"
        + b"\x02"
        + leaf
        + b"\x00"
    )
    reader = record(("n", "int"))
    assert rows([tree + b"\x0a" + leaf], writer, reader) == [{"n": 5}]
    deep = (text("") + b"\x02") * 600 + leaf + b"\x00" * 600
    deeper = (text("") + b"\x02") * 1200 + leaf + b"\x00" * 1200
    found = decoded([deep + b"\x0a" + leaf, deeper + b"\x0a" + leaf], writer, reader)
    assert found.causes.tolist() == [0, kernels.DEPTH]
    endless = record(("a", record(("b", "Inner"), name="Inner")), ("n", "int"))
    assert decoded([b"\x02"], endless, reader).causes.tolist() == [kernels.DEPTH]


@pytest.mark.parametrize(
    ("schema", "body", "cause"),
    [
        ("int", varint(2**31), kernels.INT),
        (E, varint(2**31), kernels.INT),
        ("long", b"\xff" * 10, kernels.VARINT),
        ("boolean", b"", kernels.SHORT),
        ("double", bytes(7), kernels.SHORT),
        ("string", b"\x04a", kernels.SHORT),
        ("bytes", b"\x01", kernels.LENGTH),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", kernels.SHORT),
        (["null", "int"], b"\x04", kernels.BRANCH),
        (["null", "int"], b"\x80\x80\x80\x80\x80\x00", kernels.INT),
        (["null", "int"], b"\x02", kernels.SHORT),
        (ARRAY, b"\x04\x02\x02", kernels.SHORT),
        ({"type": "map", "values": "int"}, b"\x02\x01", kernels.LENGTH),
        (record(("x", "boolean"), name="I"), b"", kernels.SHORT),
        ("int", b"\x02\x02", kernels.TRAILING),
    ],
)
def test_what_is_skipped_is_followed_to_its_end(schema: Any, body: bytes, cause: int) -> None:
    writer, reader = record(("x", schema), name="W"), record(name="W")
    assert decoded([body], writer, reader).causes.tolist() == [cause]
    assert decoded([b"\x02" + body], ["null", writer], ["null", reader]).causes.tolist() == [cause]


def test_rows_of_several_writers_are_decoded_at_once() -> None:
    reader = record(("a", "long"), ("b", ["null", "string"]), {"name": "c", "type": "int", "default": 9})
    decoder = DatumDecoder(parse(json.dumps(reader)))
    first = decoder.add(
        parse(
            json.dumps(
                record(("a", "int"))
                | {"fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]}
            )
        )
    )
    second = decoder.add(
        parse(json.dumps(record(("c", "int"), ("x", "double"), ("b", "null"), ("a", "long"))))
    )
    bodies = [b"\x02" + text("one"), b"\x04" + bytes(8) + b"\x06", b"\x00", b"\x00\x00\x00\x00\x00", b""]
    data = b"".join(b"\x00\x00\x00\x00\x07" + body for body in bodies)
    sizes = np.array([*map(len, bodies), -1], np.int64)
    starts = np.append(np.cumsum(sizes[:-1] + 5) - sizes[:-1], 0)
    entries = np.array([first, second, first, CORRUPT, CORRUPT, second], np.int64)
    found = decoder.decode(np.frombuffer(data, np.uint8), starts, sizes, entries)
    found.array.validate(full=True)
    nulls = {"a": None, "b": None, "c": None}
    assert found.array.to_pylist() == [
        {"a": 1, "b": "one", "c": 9},
        {"a": 3, "b": None, "c": 2},
        nulls,
        nulls,
        nulls,
        None,
    ]
    assert found.corrupt.tolist() == [2, 3, 4]
    assert (
        found.reason(3) == "expected the key of a schema, as the registry's serializers write it, at byte 0"
    )


def test_a_timestamp_has_the_unit_of_its_writer() -> None:
    at = datetime.datetime(2024, 2, 3, 4, 5, 6, 7000)
    micros = (at - oracle.EPOCH) // datetime.timedelta(microseconds=1)
    utc = at.replace(tzinfo=datetime.timezone.utc)
    for first, local in (("", "local-"), ("local-", "")):
        for unit, number in (("millis", micros // 1000), ("micros", micros)):
            writer = logical("long", f"{first}timestamp-{unit}")
            for other in ("millis", "micros"):
                reader = logical("long", f"{local}timestamp-{other}")
                assert rows([varint(number)], writer, reader) == [at if local else utc]
            assert rows([varint(number)], "long", writer) == [at if first else utc]
            assert rows([varint(number)], writer, "long") == [number]
    day = logical("int", "date")
    assert rows([varint(3)], "int", logical("long", "timestamp-millis"))[0].timestamp() == 0.003
    assert rows([varint(3)], day, "long") == [3]
    assert rows([varint(3)], "int", day) == [datetime.date(1970, 1, 4)]


def test_the_readers_union_takes_the_same_type_first() -> None:
    """Java's Resolver: the same type, whatever its place, then the first that it can be promoted to."""
    assert rows([b"\x02"], "int", ["double", "long", "int", "string"]) == [
        {"member0": None, "member1": None, "member2": 1, "member3": None}
    ]
    assert rows([b"\x02"], "int", ["string", "float", "long"])[0]["member1"] == 1.0
    assert rows([text("a")], "string", ["bytes", "string"])[0]["member1"] == "a"
    assert rows([text("a")], "string", ["int", "bytes"])[0]["member1"] == b"a"
    assert rows([b"\x02"], "int", ["float", "double"]) == [1.0]
    assert rows([struct.pack("<f", 0.1)], "float", ["null", "double", "float"]) == [float(np.float32(0.1))]


def test_records_in_unions_are_chosen_by_name_then_by_what_fits() -> None:
    one, other = record(("a", "int"), name="x.One"), record(("a", "int"), ("b", "int"), name="x.Other")
    members = {"member0": None, "member1": None}
    written = record(("a", "int"), ("b", "int"), name="x.Other")
    assert rows([b"\x02\x04"], written, [one, other]) == [{**members, "member1": {"a": 1, "b": 2}}]
    renamed = record(("a", "int"), ("b", "int"), name="x.New")
    assert rows([b"\x02\x04"], renamed, [one, other]) == [{**members, "member0": {"a": 1}}]
    last = record(("a", "int"), ("b", "int"), name="y.Other")
    assert rows([b"\x02\x04"], last, [one, other]) == [{**members, "member1": {"a": 1, "b": 2}}]
    aliased = {**other, "aliases": ["New"]}
    assert rows([b"\x02\x04"], renamed, [one, aliased]) == [{**members, "member1": {"a": 1, "b": 2}}]
    assert rows([b"\x02"], record(("a", "int"), name="New"), ["null", other, record(("a", "long"))]) == [
        {"member0": None, "member1": {"a": 1}}
    ]


def test_what_the_readers_schema_has_no_place_for_is_a_fault_of_the_row() -> None:
    found = decoded([b"\x00\x02", b"\x02\x02a", b"\x04"], ["int", "string", "null"], ["null", "long"])
    assert found.array.to_pylist() == [1, None, None]
    assert found.causes.tolist() == [0, kernels.NO_BRANCH, 0]
    assert (
        found.reason(1) == "the reader's schema has no place for this branch of the writer's union, at byte 1"
    )
    fewer = {**E, "symbols": ["B", "C"]}
    found = decoded([b"\x00", b"\x02"], record(("e", E)), record(("e", fewer)))
    assert found.array.to_pylist() == [{"e": None}, {"e": "B"}]
    assert found.reason(0).startswith(
        "e: the reader's enum has neither this symbol of the writer's nor a default"
    )
    assert rows([b"\x00", b"\x02"], E, {**fewer, "default": "C"}) == ["C", "B"]


@pytest.mark.parametrize(
    ("schema", "default", "expected"),
    [
        ("double", 1, 1.0),
        ("float", 1.1, float(np.float32(1.1))),
        ("long", -(2**63), -(2**63)),
        ("boolean", True, True),
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0001", b"\xff\x01"),
        (E, "B", "B"),
        (["null", "string"], None, None),
        (["null", "string"], "x", "x"),
        (["int", "string"], "x", {"member0": None, "member1": "x"}),
        (["double", "float"], 2, 2.0),
        (["int", "long"], 2**40, 2**40),
        (logical("int", "date"), 1, datetime.date(1970, 1, 2)),
        (
            logical("long", "timestamp-millis"),
            1,
            oracle.EPOCH.replace(microsecond=1000, tzinfo=datetime.timezone.utc),
        ),
        (logical("long", "local-timestamp-micros"), 1, oracle.EPOCH.replace(microsecond=1)),
        (logical("bytes", "decimal", precision=5, scale=2), "\u00ff\u0000", Decimal("-2.56")),
        (ARRAY, [1, 2], [1, 2]),
        ({"type": "map", "values": ARRAY}, {"a": [1], "b": []}, {"a": [1], "b": []}),
        (
            record(("p", "int"), {"name": "q", "type": ["null", E], "default": None}, name="I"),
            {"p": 5},
            {"p": 5, "q": None},
        ),
    ],
)
def test_defaults_fill_fields_that_the_writer_has_not(schema: Any, default: Any, expected: Any) -> None:
    reader = record(("n", "int"), {"name": "d", "type": schema, "default": default})
    assert rows([b"\x02", b"\x04"], record(("n", "int")), reader) == [
        {"n": 1, "d": expected},
        {"n": 2, "d": expected},
    ]
    items = {"type": "array", "items": reader}
    written = {"type": "array", "items": record(("n", "int"))}
    assert rows([b"\x04\x02\x04\x00"], written, items) == [[{"n": 1, "d": expected}, {"n": 2, "d": expected}]]


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        ("int", "x"),
        ("double", 10**400),
        ("float", -(10**400)),
        ("int", 2**31),
        ("int", True),
        ("int", 1.0),
        ("boolean", 1),
        ("double", "x"),
        ("float", 10**400),
        ("string", 5),
        ("bytes", "€"),
        ("null", 0),
        (E, "C"),
        (E, ["A"]),
        (ARRAY, ["x"]),
        (ARRAY, {}),
        ({"type": "map", "values": "int"}, []),
        (["null", "int"], "x"),
        ({"type": "fixed", "name": "F", "size": 2}, "x"),
        (logical("bytes", "decimal", precision=1), ""),
        (logical("bytes", "decimal", precision=1), "\n"),
        (logical("long", "timestamp-millis"), 2**62),
        (record(("p", "int"), name="I"), {}),
    ],
)
def test_defaults_of_another_type_are_refused(schema: Any, default: Any) -> None:
    reader = record(("n", "int"), {"name": "d", "type": schema, "default": default})
    with pytest.raises(SchemaError, match=r"^d[.a-z]*: the default .* is not of its type"):
        decoded([], record(("n", "int")), reader)


@pytest.mark.parametrize(
    ("writer", "reader", "said"),
    [
        ("int", "string", "The value: the reader's schema expects string, the writer's has int"),
        ("long", "int", "expects int, the writer's has long"),
        (E, "string", "expects string, the writer's has enum E"),
        (E, {**E, "name": "G"}, "expects enum G, the writer's has enum E"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            r"expects fixed F\(3\), the writer's has fixed F\(2\)",
        ),
        (ARRAY, {"type": "array", "items": "boolean"}, "element: the reader's schema expects boolean"),
        (
            {"type": "map", "values": "int"},
            {"type": "map", "values": E},
            "value: the reader's schema expects enum E",
        ),
        (
            record(("a", record(("b", "string"), name="I"))),
            record(("a", record(("b", "int"), name="I"))),
            r"a\.b: the reader's schema expects int, the writer's has string",
        ),
        (
            record(("a", "int")),
            record(("b", "int")),
            "b: the writer's record R has no such field, and the reader's",
        ),
        (["null", "string"], "int", "expects int, the writer's has null"),
        ("string", ["null", "int"], "expects union of null, int, the writer's has string"),
        (
            logical("bytes", "decimal", precision=9, scale=2),
            logical("bytes", "decimal", precision=9, scale=3),
            r"expects bytes decimal\(9,3\), the writer's has bytes decimal\(9,2\)",
        ),
    ],
)
def test_schemas_that_differ_are_refused_with_the_difference(writer: Any, reader: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        decoded([], writer, reader)


def test_what_is_not_wanted_has_to_fit_too() -> None:
    writer, reader = record(("a", "int"), ("b", "int")), record(("a", "int"), ("b", "string"))
    with pytest.raises(SchemaError, match="b: the reader's schema expects string"):
        decoded([], writer, reader, pa.struct([("a", pa.int32())]))


def test_a_column_of_2_gib_is_refused_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only defaults and symbols can make more of a row than it has bytes."""
    schema = {"type": "enum", "name": "E", "symbols": ["A", "B" * (1 << 20)]}
    bodies = [b"\x02"] * 2100 + [b"\x00"] * 5
    decode, found = kernels.decode, []

    def measured(*arguments: Any) -> None:
        decode(*arguments)
        found.append(arguments[-1][kernels.CAUSE].copy())
        raise StopIteration

    monkeypatch.setattr(module.kernels, "decode", measured)
    with pytest.raises(StopIteration):
        decoded(bodies, schema)
    assert found[0].tolist() == [0] * 2047 + [kernels.LARGE] * 53 + [0] * 5


@pytest.mark.long
def test_programs_may_not_grow_without_end() -> None:
    """Each of two branches fits, at each of many depths."""
    writer: Any = "int"
    names: Any = "int"
    reader: Any = "int"
    for depth in range(30):
        writer = [record(("x", writer), name=f"A{depth}"), record(("x", names), name=f"B{depth}")]
        names = [f"A{depth}", f"B{depth}"]
        reader = record(("x", reader), name=f"C{depth}")
    with pytest.raises(SchemaError, match="more than 200000 operations"):
        decoded([], writer, reader)


def test_schemas_that_refer_to_one_another_many_times_are_compiled_once() -> None:
    texts = [json.dumps(record(name="R0"))]
    for number in range(1000):
        fields = [{"name": name, "type": f"R{number}"} for name in "ab"]
        texts.append(json.dumps({"type": "record", "name": f"R{number + 1}", "fields": fields}))
    deep = {
        "type": "record",
        "name": "W",
        "fields": [{"name": "a", "type": "R30"}, {"name": "n", "type": "int"}],
    }
    decoder = DatumDecoder(parse(json.dumps(record(("n", "int")))))
    entry = decoder.add(parse(json.dumps(deep), texts))
    assert decode_column(decoder, pa.array([b"\x02"]), entry).array.to_pylist() == [{"n": 1}]
    with pytest.raises(SchemaError, match="some hundred schemas in one another"):
        decoder.add(parse(json.dumps(deep).replace("R30", "R1000"), texts))


def test_values_are_read_by_fastavro_with_the_schema_as_it_stands() -> None:
    """With logical types, which the oracle leaves out."""
    import fastavro

    schema = record(
        ("d", logical("int", "date")),
        ("t", logical("long", "timestamp-micros")),
        ("x", logical("bytes", "decimal", precision=9, scale=2)),
        ("u", logical("string", "uuid")),
    )
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out,
        fastavro.parse_schema(schema),
        row := {
            "d": datetime.date(2024, 2, 3),
            "t": datetime.datetime(2024, 2, 3, 4, tzinfo=datetime.timezone.utc),
            "x": Decimal("-12.50"),
            "u": "12345678-1234-5678-1234-567812345678",
        },
    )
    assert rows([out.getvalue()], schema) == [row]


def test_texts_that_a_schema_needs_many_times() -> None:
    """An enum's default for each symbol that it has not, and one of records in a list: they are kept once."""
    text = "x" * 100_000
    enum = {"type": "enum", "name": "E", "symbols": [text], "default": text}
    items = {"type": "array", "items": record({"name": "s", "type": "string", "default": text}, name="I")}
    reader = record(("e", enum), {"name": "l", "type": items, "default": [{}] * 1000})
    writer = record(("e", {"type": "enum", "name": "E", "symbols": [f"s{n}" for n in range(10_000)]}))
    decoder = DatumDecoder(parse(json.dumps(reader)))
    entry = decoder.add(parse(json.dumps(writer)))
    assert len(decoder._compiler.constants) == len(text)
    decoded = decode_column(decoder, pa.array([b"\x0e"], pa.binary()), entry)
    assert decoded.array.to_pylist() == [{"e": text, "l": [{"s": text}] * 1000}]
