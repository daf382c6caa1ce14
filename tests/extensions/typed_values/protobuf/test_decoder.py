"""Causes of corrupt rows, rows of several writers, and what is read of a message."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.buffers import value_bounds
from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.column_decoder import TooLargeBatchError
from pyspark_kafkalog.extensions.typed_values.columns import DecodedBodies
from pyspark_kafkalog.extensions.typed_values.protobuf import kernels
from pyspark_kafkalog.extensions.typed_values.protobuf.decoder import CORRUPT, MessageDecoder
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import parse
from pyspark_kafkalog.extensions.typed_values.protobuf.types import AS_FROM_PROTOBUF
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import varint
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions
from tests.extensions.typed_values.columns import decode_column

HEAD = 'syntax = "proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";'


def decoded(
    bodies: list[bytes | None],
    writer: str,
    reader: str | None = None,
    columns: pa.DataType | None = None,
    options: ProtobufOptions = AS_FROM_PROTOBUF,
) -> DecodedBodies:
    decoder = MessageDecoder(parse(HEAD + (reader or writer)).at([0]), columns, options)
    entry = decoder.add(parse(HEAD + writer).at([0]))
    found = decode_column(decoder, pa.array(bodies, pa.binary()), entry)
    found.array.validate(full=True)
    return found


def rows(*given: Any, **more: Any) -> list[Any]:
    found = decoded(*given, **more)
    assert not found.corrupt.size, found.reason(found.corrupt[0])
    return found.array.to_pylist()


def sized(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


A = """message A {
  int32 a = 1; string s = 2; repeated int32 l = 3; google.protobuf.Timestamp t = 4; A inner = 5;
}"""
RECURSIVE = ProtobufOptions(max_depth=2)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x08", "a: the value ends too early, at byte 0"),
        (b"\x08\x80", "a: the value ends too early, at byte 0"),
        (b"\x08" + b"\xff" * 10, "a: expected a number of up to 64 bits, at byte 0"),
        (b"\x00\x01", "expected the number of a field, from 1 on, at byte 0"),
        (b"\x80\x80\x80\x80\x80\x01", "expected the number of a field, from 1 on, at byte 0"),
        (b"\xff\xff\xff\xff\x1f", "expected the number of a field, from 1 on, at byte 0"),
        (b"\x08\x01\x0e", "expected one of protobuf's six wire types, at byte 2"),
        (b"\x12\x05ab", "s: the value ends too early, at byte 0"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "s: the value ends too early, at byte 0"),
        (b"\x12\x01\xff", "s: expected UTF-8, at byte 2"),
        (b"\x12\x03\xed\xa0\x80", "s: expected UTF-8, at byte 2"),
        (b"\x1a\x02\x01\x80", "l: the value ends too early, at byte 3"),
        (b"\x2a\x03\x12\x02a", "inner.s: the value ends too early, at byte 2"),
        (b"\x0c", "a group ends that did not begin, at byte 0"),
        (b"\x33\x08\x01", "the value ends too early, at byte 3"),
        (b"\x33\x3c", "a group ends that did not begin, at byte 1"),
        (b"\x32\x05abc", "the value ends too early, at byte 0"),
        (b"\x35abc", "the value ends too early, at byte 0"),
        (b"\x31abcdefg", "the value ends too early, at byte 0"),
        (sized(4, b"\x08" + varint(1 << 62)), "t: the time does not fit into 64 bits of microseconds"),
    ],
)
def test_corrupt_rows_say_why(body: bytes, why: str) -> None:
    found = decoded([b"\x08\x05", body, b"\x12\x01x", None], A, options=RECURSIVE)
    assert found.corrupt.tolist() == [1]
    assert found.reason(1).startswith(why)
    first, corrupt, last, null = found.array.to_pylist()
    assert (first["a"], last["s"], null) == (5, "x", None)
    assert set(corrupt.values()) == {None}


def test_messages_in_one_another_have_an_end() -> None:
    for depth, cause in ((99, kernels.FINE), (100, kernels.FINE), (101, kernels.DEPTH)):
        found = decoded([b"\x33" * depth + b"\x34" * depth], A, options=RECURSIVE)
        assert found.causes.tolist() == [cause]


def test_the_last_value_counts_and_shorter_ones_leave_no_trace() -> None:
    texts = sized(2, b"a long text of many bytes") + sized(2, b"x")
    found = rows([texts + b"\x08\x01\x08\x02", sized(2, b"y") * 3, b"\x08\x05\x08\x00"], A, options=RECURSIVE)
    assert [(row["a"], row["s"]) for row in found] == [(2, "x"), (None, "y"), (None, None)]


def test_lists_may_be_packed_or_not() -> None:
    found = rows([b"\x18\x01\x1a\x02\x02\x03\x18\x04", b"\x1a\x00", b""], A, options=RECURSIVE)
    assert [row["l"] for row in found] == [[1, 2, 3, 4], [], []]


def test_wrong_wire_types_are_unknown_fields() -> None:
    assert rows([b"\x0d\x01\x02\x03\x04\x10\x05\x1d\x01\x02\x03\x04"], A, options=RECURSIVE)[0] == {
        "a": None,
        "s": None,
        "l": [],
        "t": None,
        "inner": None,
    }


CHOICE = "message O { oneof o { int32 a = 1; string s = 2; O p = 3; } repeated O items = 4; }"


def test_a_oneof_has_its_last_field() -> None:
    bodies = [
        b"\x08\x01" + sized(2, b"x"),
        sized(2, b"x") + b"\x08\x01",
        sized(3, b"\x08\x01") + sized(3, sized(2, b"y")),
        sized(4, b"\x08\x01" + sized(2, b"x")) + sized(4, b"\x08\x02"),
        b"\x08\x01" + sized(2, b"x") + b"\x08",
        b"\x08\x01",
    ]
    found = decoded(bodies, CHOICE, options=ProtobufOptions(max_depth=2))
    assert found.causes.tolist() == [0, 0, 0, 0, kernels.SHORT, 0]
    shown = found.array.to_pylist()
    assert [(row["a"], row["s"]) for row in shown[:2]] == [(None, "x"), (1, None)]
    assert (shown[2]["p"]["a"], shown[2]["p"]["s"]) == (None, "y")
    assert [(item["a"], item["s"]) for item in shown[3]["items"]] == [(None, "x"), (2, None)]
    pruned = decoded(
        bodies[:2], CHOICE, columns=pa.struct([("s", pa.string())]), options=ProtobufOptions(max_depth=2)
    )
    assert pruned.array.to_pylist() == [{"s": "x"}, {"s": None}]


def test_fields_that_are_not_wanted_are_skipped() -> None:
    body = b"\x08\x05" + sized(2, b"x") + b"\x1a\x02\x01\x02" + sized(5, b"\x08\x07" + sized(2, b"\xff"))
    columns = pa.struct([("inner", pa.struct([("a", pa.int32())])), ("l", pa.list_(pa.int32()))])
    assert rows([body], A, columns=columns, options=RECURSIVE) == [{"inner": {"a": 7}, "l": [1, 2]}]
    assert rows([body, b""], A, columns=pa.struct([]), options=RECURSIVE) == [{}, {}]


def test_maps_keep_the_last_of_the_same_keys() -> None:
    text = "message M { map<int32, string> n = 1; map<string, M2> m = 2; } message M2 { int32 a = 1; }"
    n = [sized(1, b"\x08\x01" + sized(2, value)) for value in (b"a", b"b")]
    m = sized(2, sized(1, b"k")) + sized(2, sized(1, b"k") + sized(2, b"\x08\x01") + sized(2, b""))
    found = rows([b"".join(n) + m + sized(1, b""), b""], text)
    assert found == [{"n": [(1, "b"), (0, "")], "m": [("k", {"a": 1})]}, {"n": [], "m": []}]


@pytest.mark.parametrize(
    ("writer", "reader", "body", "value"),
    [
        ("int32 a = 1;", "int64 a = 1;", b"\x08" + varint(-5), -5),
        ("sint32 a = 1;", "int64 b = 1;", b"\x08\x09", -5),
        ("uint32 a = 1;", "int64 a = 1;", b"\x08" + varint((1 << 32) - 1), (1 << 32) - 1),
        ("int64 a = 1;", "int32 a = 1;", b"\x08" + varint((1 << 32) + 7), 7),
        ("fixed32 a = 1;", "sint64 a = 1;", b"\x0d\xff\xff\xff\xff", (1 << 32) - 1),
        ("int32 a = 1;", "bool a = 1;", b"\x08\x05", True),
        ("float a = 1;", "double a = 1;", b"\x0d\x00\x00\xc0\x3f", 1.5),
        ("bytes a = 1;", "string a = 1;", b"\x0a\x01\xff", "\ufffd"),
        ("int32 a = 1;", "repeated int64 a = 1;", b"\x08\x05", [5]),
        ("repeated int32 a = 1 [packed = false];", "int64 a = 1;", b"\x08\x05\x08\x06", 6),
        ("E a = 1; enum E { X = 0; Y = 1; }", "E a = 1; enum E { X = 0; }", b"\x08\x01", "Y"),
        ("E a = 1; enum E { X = 0; Y = 1; }", "int32 a = 1;", b"\x08\x01", 1),
        ("int32 b = 2;", "int32 a = 1;", b"\x10\x05", None),
    ],
)
def test_readers_read_other_writers(writer: str, reader: str, body: bytes, value: Any) -> None:
    (row,) = rows([body], f"message M {{ {writer} }}", f"message M {{ {reader} }}")
    assert [*row.values()] == [value]


@pytest.mark.parametrize(
    ("writer", "reader", "why"),
    [
        ("string a = 1;", "int32 a = 1;", "a: the reader's schema expects int32, the writer's has string"),
        ("double a = 1;", "float a = 1;", "a: the reader's schema expects float, the writer's has double"),
        (
            "map<int32, int32> a = 1;",
            "int32 a = 1;",
            "a: the reader's schema expects int32, the writer's",
        ),
        (
            "int32 a = 1;",
            "N a = 1; message N { int32 b = 1; }",
            "expects message M.N",
        ),
        ("N a = 1; message N { string b = 1; }", "N a = 1; message N { int32 b = 1; }", "a.b: the reader's"),
        ("int32 a = 1;", "google.protobuf.Struct a = 1;", "expects message google.protobuf.Struct"),
        (
            "N a = 1; message N { string s = 1; }",
            "google.protobuf.Timestamp a = 1;",
            "expects message g",
        ),
    ],
)
def test_what_no_reader_can_read(writer: str, reader: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        decoded([], f"message M {{ {writer} }}", f"message M {{ {reader} }}")


def test_another_message_is_not_read() -> None:
    with pytest.raises(SchemaError, match="the value is a message B, and is read as a message A"):
        decoded([], "message B { int32 a = 1; }", "message A { int32 a = 1; }")
    assert rows(
        [b"\x08\x05"], "package two; message A { int32 a = 1; }", "package one; message A { int32 b = 1; }"
    )


def test_rows_of_several_writers() -> None:
    decoder = MessageDecoder(
        parse("message A { optional int64 a = 1; optional C c = 2; enum C { X = 0; } }").at([0])
    )
    one = decoder.add(
        parse("message A { optional sint32 a = 1; optional C c = 2; enum C { X = 0; Y = 5; } }").at([0])
    )
    two = decoder.add(
        parse(HEAD + "message A { oneof o { int32 a = 1; C c = 2; } enum C { X = 0; Z = 6; } }").at([0])
    )
    bodies = [b"\x08\x05\x10\x05", b"\x08\x05", b"\x10\x06", b"", None, b"\x10\x07", b"\x10\x07"]
    data, starts, sizes = value_bounds(pa.array(bodies, pa.binary()))
    entries = np.array([one, two, two, CORRUPT, CORRUPT, two, one])
    found = decoder.decode(data, starts, sizes, entries)
    shown = [None if row is None else (row["a"], row["c"]) for row in found.array.to_pylist()]
    unknown = (None, "UNKNOWN_ENUM_VALUE_C_7")
    assert shown == [(-3, "Y"), (5, None), (None, "Z"), (None, None), None, unknown, (None, None)]
    assert found.corrupt.tolist() == [3]
    assert found.reason(3).startswith("expected the key of a schema and a message of it")


def test_a_struct_that_is_not_one_is_corrupt() -> None:
    text = "message M { repeated N l = 1; int32 a = 2; } message N { google.protobuf.Struct s = 1; }"
    good = sized(1, sized(1, sized(1, sized(1, b"k") + sized(2, b"\x20\x01"))))
    found = decoded([good, b"\x10\x05", good * 2 + sized(1, sized(1, b"\x0a\x05")), good], text)
    assert found.corrupt.tolist() == [2]
    assert found.reason(2).startswith("expected a google.protobuf.Struct")
    assert [row["l"] for row in found.array.to_pylist()] == [
        [{"s": '{"k":true}'}],
        [],
        None,
        [{"s": '{"k":true}'}],
    ]


def test_defaults_of_proto2() -> None:
    fields = 'optional int32 a = 1 [default = 5]; optional string s = 2 [default = "x"];'
    text = f"message M {{ {fields} }}"
    decoder = MessageDecoder(parse(text).at([0]))
    found = decode_column(
        decoder, pa.array([b"", b"\x08\x00", b"\x08", None], pa.binary()), decoder.add(parse(text).at([0]))
    )
    assert found.array.to_pylist() == [{"a": 5, "s": "x"}, {"a": 0, "s": "x"}, {"a": None, "s": None}, None]


def test_defaults_are_of_the_type_or_none() -> None:
    fields = """optional uint32 a = 1 [default = 4294967295];
    optional uint64 b = 2 [default = 0xffffffffffffffff];
    optional int32 c = 3 [default = 4294967295];
    optional A d = 4 [default = 5]; repeated int32 e = 5 [default = 5];"""
    fields += f"optional double f = 6 [default = 0x{'f' * 50}]; optional sfixed64 g = 7 [default = -1];"
    text = f"message A {{ {fields} }}"
    for upcast, found in ((False, (-1, -1)), (True, (2**32 - 1, 2**64 - 1))):
        decoder = MessageDecoder(
            parse(text).at([0]), options=ProtobufOptions(max_depth=1, upcasts_unsigned=upcast)
        )
        (row,) = decode_column(decoder, pa.array([b""]), decoder.add(parse(text).at([0]))).array.to_pylist()
        assert (row["a"], row["b"], row["c"], row["e"], row["g"]) == (*found, None, [], -1)


def test_unknown_numbers_of_an_enum_that_is_not_wanted_clear_no_other_field() -> None:
    text = "enum E { ONE = 1; } message A { oneof o { E e = 1; int32 a = 2; } }"
    message = parse(text).at([0])
    decoder = MessageDecoder(message, pa.struct([("a", pa.int32())]))
    bodies = [b"\x10\x05\x08\x02", b"\x08\x02\x10\x05", b"\x10\x05\x08\x01", b"\x08\x02\x10\x05\x08\x02"]
    bodies.append(b"\x10\x05\x08\x81\x80\x80\x80\x10")  # ONE, in more than 32 bits
    found = decode_column(decoder, pa.array(bodies), decoder.add(message))
    assert [found.reason(row) for row in found.corrupt] == []
    assert [row["a"] for row in found.array.to_pylist()] == [5, 5, None, 5, None]


CHOICES = "message A { oneof o { A inner = 1; int32 a = 2; int32 b = 3; } }"


def test_a_oneof_may_be_set_as_often_as_a_value_has_room() -> None:
    deep = b""
    for _ in range(3000):
        deep = sized(1, deep)
    times = 50_000
    bodies = [b"\x10\x05\x18\x06" + deep, (sized(1, b"\x10\x05") + sized(1, b"\x18\x06")) * times]
    bodies += [b"\x10\x05\x18\x06" * times, sized(9, b"x") * times + b"\x10\x05\x18\x06"]
    begun = time.monotonic()
    found = decoded(bodies, CHOICES, options=RECURSIVE)
    assert time.monotonic() - begun < 30
    assert found.corrupt.size == 0
    assert [row["b"] for row in found.array.to_pylist()] == [None, None, 6, 6]
    assert found.array.to_pylist()[1]["inner"] == {"a": None, "b": 6}


def test_a_struct_may_come_in_many_parts() -> None:
    part = sized(5, sized(1, sized(1, b"k") + sized(2, b"\x20\x01")))
    text = "message A { google.protobuf.Value v = 1; }"
    begun = time.monotonic()
    assert rows([sized(1, part * 200_000)], text) == [{"v": '{"k":true}'}]
    assert time.monotonic() - begun < 30


def test_many_writers_of_wide_messages() -> None:
    """The most fields are those of one writer."""
    wide = "; ".join(f"int32 f{number} = {number}" for number in range(1, 301))
    message = parse(f'syntax = "proto3"; message A {{ {wide}; }}').at([0])
    decoder = MessageDecoder(message)
    entries = [decoder.add(message) for _ in range(700)]
    found = decode_column(decoder, pa.array([varint(300 << 3) + b"\x07"]), entries[-1])
    assert found.array.to_pylist()[0]["f300"] == 7


def test_a_closed_enum_is_read_as_a_boolean() -> None:
    """By its own numbers: any other makes the field unknown, even where it is 1."""
    writer = """message A { repeated E a = 1 [packed = false]; E b = 2; oneof o { E c = 3; } }
    enum E { option features.enum_type = CLOSED; ZERO = 0; FIVE = 5; MINUS = -1; }"""
    reader = "message A { repeated bool a = 1; bool b = 2; bool c = 3; }"
    minus = b"\xff" * 9 + b"\x01"
    body = b"\x08\5\x08\0\x08\1\x08" + minus + b"\x10\5\x18\5"
    decoder = MessageDecoder(parse('syntax = "proto3";' + reader).at([0]))
    entry = decoder.add(parse('edition = "2023";' + writer).at([0]))
    found = decode_column(decoder, pa.array([body, b"\x10\1\x18" + minus, b"\x10\0"], pa.binary()), entry)
    assert not found.corrupt.size
    assert found.array.to_pylist() == [
        {"a": [True, False, True], "b": True, "c": True},
        {"a": [], "b": None, "c": True},
        {"a": [], "b": None, "c": None},
    ]


LARGE = """
syntax = "proto2"; import "google/protobuf/struct.proto";
message M {
  repeated E e = 1; optional google.protobuf.Value v = 2; optional string s = 3 [default = "0123456789"];
  enum E { LONG_NAME_OF_AN_ENUM = 1; }
}
"""


@pytest.mark.parametrize("body", [b"\x08\1" * 10, b"\x12\x66\x1a\x64" + b"a" * 100, b"\x1a\x64" + b"a" * 100])
def test_columns_that_are_too_large_are_made_of_fewer_rows(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column of names, of JSON, or of a default has 2 GiB where its bodies have not."""
    monkeypatch.setattr(kernels, "MOST", 220)
    message = parse(LARGE).message("M")
    decoder = MessageDecoder(message)
    with pytest.raises(TooLargeBatchError):
        decode_column(decoder, pa.array([b"", *[body] * 20, b""] * 2, pa.binary()), decoder.add(message))
    assert not decode_column(decoder, pa.array([body], pa.binary()), decoder.add(message)).corrupt.size


@pytest.mark.parametrize("body", [b"\x08\1" * 10, b"\x12\x66\x1a\x64" + b"a" * 100])
def test_a_row_that_is_too_large_is_corrupt(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST", 90)
    message = parse(LARGE).message("M")
    decoder = MessageDecoder(message)
    found = decode_column(decoder, pa.array([body], pa.binary()), decoder.add(message))
    assert found.reason(0) == "a column of its batch would have 2 GiB or more, at byte 0"
