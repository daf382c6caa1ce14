"""Any as JSON is what google.protobuf prints, and a row that has none is corrupt."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    field_mask_pb2,
    json_format,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from pyspark_kafkalog.extensions.typed_values.protobuf.any_json import AnyPrinter
from pyspark_kafkalog.extensions.typed_values.protobuf.decoder import MessageDecoder
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import parse
from pyspark_kafkalog.extensions.typed_values.protobuf.struct_json import NotStructError
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import varint
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions
from tests.extensions.typed_values.columns import decode_column
from tests.extensions.typed_values.protobuf import oracle
from tests.extensions.typed_values.protobuf.schemas import SCHEMAS

ENVELOPE = """
syntax = "proto3"; package shop; import "google/protobuf/any.proto";
message Envelope { google.protobuf.Any one = 1; repeated google.protobuf.Any many = 2; }
"""
OPTIONS = ProtobufOptions(any_as_json=True)
URL = "type.googleapis.com/"


def read(values: list[bytes]) -> tuple[list[Any], list[int]]:
    """The rows of envelopes with each value as an Any, and which are corrupt."""
    file = parse(ENVELOPE, [*SCHEMAS.values()])
    message = file.message("shop.Envelope")
    decoder = MessageDecoder(message, options=OPTIONS, types=file.types())
    assert decoder.type == pa.struct(
        [("one", pa.string()), ("many", pa.list_(pa.field("element", pa.string())))]
    )
    bodies = [b"\x0a" + size(value) + value + b"\x12" + size(value) + value for value in values]
    found = decode_column(decoder, pa.array([*bodies, b"", None], pa.binary()), decoder.add(message))
    rows = found.array.to_pylist()
    assert rows[-2:] == [{"one": None, "many": []}, None]
    return rows[:-2], found.corrupt.tolist()


def size(value: bytes) -> bytes:
    return bytes([len(value) & 127 | 128, len(value) >> 7 & 127 | 128, len(value) >> 14])


def packed(name: str, body: bytes) -> bytes:
    return any_pb2.Any(type_url=URL + name, value=body).SerializeToString()


@pytest.mark.parametrize("name", SCHEMAS)
def test_messages_are_googles(name: str) -> None:
    rng, pool = random.Random(3), descriptor_pool.DescriptorPool()
    for module in any_pb2, duration_pb2, timestamp_pb2, struct_pb2, wrappers_pb2:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)
    descriptors = oracle.compiled({"all.proto": SCHEMAS[name]})
    for each in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        if each.name == "all.proto":
            pool.Add(each)
    kind = oracle.class_of(descriptors, name)
    values, expected = [], list[Any]()
    for _ in range(150):
        message = oracle.fill(kind(), rng)
        if name == "test.three.All":
            message.any.Clear()
            if rng.random() < 0.5:
                message.any.type_url = URL + "google.protobuf.Int64Value"
                message.any.value = b"\x08\7"
        body = message.SerializePartialToString()
        values.append(packed(name, body))
        try:
            shown = any_pb2.Any(type_url=URL + name, value=body)
            expected.append(
                json_format.MessageToDict(shown, preserving_proto_field_name=True, descriptor_pool=pool)
            )
        except (ValueError, json_format.SerializeToJsonError):
            expected.append(None)
    rows, corrupt = read(values)
    assert corrupt == [row for row, value in enumerate(expected) if value is None]
    assert len(corrupt) < 100
    for row, value in zip(rows, expected, strict=True):
        if value is not None:
            assert json.loads(row["one"]) == value
            assert row["many"] == [row["one"]]


@pytest.mark.parametrize(
    "message",
    [
        timestamp_pb2.Timestamp(),
        timestamp_pb2.Timestamp(seconds=-62135596800),
        timestamp_pb2.Timestamp(seconds=253402300799, nanos=120_000_000),
        timestamp_pb2.Timestamp(seconds=-1, nanos=1),
        duration_pb2.Duration(seconds=-315576000000),
        duration_pb2.Duration(seconds=-1, nanos=-500),
        duration_pb2.Duration(nanos=-1_000_000),
        field_mask_pb2.FieldMask(paths=["a", "b_c.d_e"]),
        struct_pb2.Value(list_value=struct_pb2.ListValue(values=[struct_pb2.Value(number_value=1.5)])),
        struct_pb2.Struct(fields={"a": struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)}),
        wrappers_pb2.BytesValue(value=b"\xff"),
        wrappers_pb2.FloatValue(value=0.1),
        wrappers_pb2.DoubleValue(value=float("-inf")),
        wrappers_pb2.UInt64Value(value=1 << 63),
        wrappers_pb2.StringValue(),
        any_pb2.Any(type_url=URL + "google.protobuf.BoolValue", value=b"\x08\1"),
        any_pb2.Any(),
    ],
    ids=lambda message: f"{message.DESCRIPTOR.name} {message}",
)
def test_well_known_messages(message: Any) -> None:
    shown = any_pb2.Any()
    shown.Pack(message)
    (row,), corrupt = read([shown.SerializeToString()])
    assert not corrupt
    assert json.loads(row["one"]) == json_format.MessageToDict(shown)


def test_the_text() -> None:
    """Without spaces, by the names of fields; what is unknown is left out."""
    (row, empty), corrupt = read([packed("test.three.Other", b"\x08\7\x10\1"), b""])
    assert not corrupt
    assert row["one"] == '{"@type":"type.googleapis.com/test.three.Other","a":7}'
    assert empty["one"] == "{}"


@pytest.mark.parametrize(
    "value",
    [
        packed("shop.Unknown", b""),
        any_pb2.Any(type_url="test.three.Other").SerializeToString(),
        any_pb2.Any(value=b"\x08\1").SerializeToString(),
        packed("test.three.Other", b"\x08"),
        packed("test.three.Other", b"\x0b"),
        packed("test.three.Other", b"\x88\x80\x80\x80\x80\0\1"),
        packed("test.three.Other", b"\x88\x80\x80\x80\x40\1"),
        packed("google.protobuf.StringValue", b"\x0a\1\xff"),
        packed("google.protobuf.Timestamp", b"\x10\xff\xff\xff\xff\x0f"),
        packed("google.protobuf.Duration", b"\x08\1\x10" + b"\xff" * 9 + b"\1"),
        b"\x0a\1\xff",
        b"\x0a",
    ],
)
def test_what_is_no_any(value: bytes) -> None:
    good = packed("test.three.Other", b"\x08\7")
    rows, corrupt = read([good, value, good])
    assert corrupt == [1]
    assert rows[1] == {"one": None, "many": None}
    assert rows[0] == rows[2]


def test_messages_in_one_another_have_a_bound() -> None:
    value = b""
    for _ in range(200):
        value = packed("google.protobuf.Any", value)
    assert read([value])[1] == [0]


def test_many_items_take_as_long_as_their_bytes() -> None:
    """A copy of the list for each of them would take an hour."""
    paths = b"\x0a\1a" * 600_000
    rows, _ = read([packed("google.protobuf.FieldMask", paths)])
    assert len(json.loads(rows[0]["one"])["value"]) == 2 * 600_000 - 1


def test_a_field_mask_is_javas() -> None:
    """Guava's CaseFormat: google.protobuf for Python refuses such paths."""
    mask = field_mask_pb2.FieldMask(paths=["a.b_cD", "", "D_ÄöX", "_a__b.C_dE_", "_"])
    (row,), corrupt = read([packed("google.protobuf.FieldMask", mask.SerializeToString())])
    assert not corrupt
    assert json.loads(row["one"])["value"] == "a.bCd,dÄöx,AB.cDe,"


def test_a_field_mask_that_is_declared_otherwise() -> None:
    text = 'syntax = "proto3"; package google.protobuf; message FieldMask { repeated int32 paths = 1; }'
    value = packed("google.protobuf.FieldMask", b"\x0a\1\7")
    with pytest.raises(NotStructError):
        AnyPrinter(parse(text).types()).text(value)


@pytest.mark.parametrize("is_packed", [True, False])
def test_many_values_of_a_closed_enum(is_packed: bool) -> None:
    names = " ".join(f"A{number} = {number};" for number in range(2000))
    text = f"""syntax = "proto2"; message M {{ repeated E e = 1; enum E {{ {names} }} }}"""
    types = parse(text).types()

    count, one = 100_000, varint(1999)
    body = b"\x0a" + varint(count * len(one)) + one * count if is_packed else (b"\x08" + one) * count
    found = AnyPrinter(types).text(packed("M", body))
    assert found.count('"A1999"') == count


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_struct_has_numbers_that_json_has(number: str) -> None:
    """Java's JsonFormat refuses them; a struct that is a field itself has a string for them."""
    value = struct_pb2.Value(number_value=float(number))
    inner = struct_pb2.Struct(fields={"a": struct_pb2.Value(list_value=struct_pb2.ListValue(values=[value]))})
    good = packed("google.protobuf.Struct", b"")
    _, corrupt = read([good, packed("google.protobuf.Struct", inner.SerializeToString()), good])
    assert corrupt == [1]


def test_enums_as_numbers() -> None:
    """As Spark lets JsonFormat print them, with the option of the same name."""
    fields = "repeated E e = 1; google.protobuf.NullValue n = 2;"
    text = f'syntax = "proto3"; message M {{ {fields} enum E {{ A = 0; }} }}'
    printer = AnyPrinter(parse(text).types(), enums_as_ints=True)
    assert json.loads(printer.text(packed("M", b"\x0a\2\0\5\x10\5"))) == {
        "@type": f"{URL}M",
        "e": [0, 5],
        "n": None,
    }
