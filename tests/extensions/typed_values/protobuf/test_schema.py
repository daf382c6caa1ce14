"""Schemas from text are those that protoc makes, and errors name the line or the type."""

from __future__ import annotations

import base64
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import google
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import (
    MessageType,
    ProtoFile,
    parse,
    parse_descriptor_set,
)
from pyspark_kafkalog.extensions.typed_values.protobuf.types import arrow_type
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions
from tests.extensions.typed_values.protobuf import oracle
from tests.extensions.typed_values.protobuf.schemas import SCHEMAS

GOOGLE = sorted(path for folder in google.__path__ for path in Path(folder).rglob("*.proto"))


def shown(file: ProtoFile) -> dict[str, Any]:
    """All that decides about bytes and types."""
    found: dict[str, Any] = {}

    def add(message: MessageType) -> None:
        found[message.name] = [
            (
                *(each.name, each.number, each.kind, each.message and each.message.name),
                each.enum and (each.enum.name, each.enum.values, each.enum.is_closed),
                *(each.is_repeated, each.is_required, each.is_packed, each.has_presence, each.checks_utf8),
                *(each.is_group, repr(each.default), each.oneof, each.is_map),
            )
            for each in message.fields
        ]
        for inner in message.messages:
            add(inner)

    for message in file.messages:
        add(message)
    return found


@pytest.mark.parametrize("name", SCHEMAS)
def test_text_is_what_protoc_makes_of_it(name: str) -> None:
    assert shown(parse(SCHEMAS[name])) == shown(
        parse_descriptor_set(oracle.compiled({"a.proto": SCHEMAS[name]}))
    )


@pytest.mark.long
def test_public_files_are_what_protoc_makes_of_them() -> None:
    """Google's common types, as far as this Python has them."""
    assert len(GOOGLE) > 30
    for path in GOOGLE:
        root = next(parent for parent in path.parents if parent.name == "google").parent
        text, name = path.read_text(), str(path.relative_to(root))
        if "google.protobuf.DescriptorProto" in text or name == "google/protobuf/descriptor.proto":
            continue
        others = {other: given for other, given in _imports(text, root).items() if other != name}
        descriptors = FileDescriptorSet.FromString(oracle.compiled({**others, name: text}))
        (own,) = (file for file in descriptors.file if file.name == name)
        descriptors.file.remove(own)
        descriptors.file.append(own)
        theirs = parse_descriptor_set(descriptors.SerializeToString())
        assert shown(parse(text, others.values())) == shown(theirs)


def _imports(text: str, root: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("import"):
            name = line.split('"')[1]
            path = root / name
            if path.exists():
                found |= {name: path.read_text()} | _imports(path.read_text(), root)
    return found


ODD = """
/* syntax */ syntax = 'proto3' ; package a . b;
import public "other.proto"; import weak 'x/y.proto';
option java_package = "a" "b"; option (my.option) = { a: 1 b { c: [1, 2] } [x.y/z.W]: {} };
message message { // names are words of the language, too
  string message = 1; string enum = 2; bool option = 3 [deprecated = true, (x).y = -inf]; int32 oneof = 4;
  repeated reserved reserved = 5; optional string optional = 6; string group = 7; int32 map = 8;
  reserved 100 to 200, 300; reserved "a", 'b';
  option (x) = "}";
  oneof package { string syntax = 9; option (y) = true; int32 import = 0xA; }
  message reserved { .a.b.message parent = 1; };
  enum E { option allow_alias = true; A = 0; reserved -5 to -1; B = 0 [(z) = { a: "}" }]; C = -1; }
  map < int32 , reserved > m = 012;;
}
service S { rpc M (message) returns (stream message) { option (h) = { get: "/v1/{name=a/*}" }; } }
extend google.protobuf.FieldOptions { string x = 50000; }
"""


def test_odd_texts_are_read() -> None:
    with pytest.raises(SchemaError, match=r"message a.b.message has field m or its number 10 twice"):
        parse(ODD + "message Z { }")
    text = ODD.replace("012", "011").replace("= 9;", "= 20;")
    (own,) = parse(text).messages
    assert [(each.name, each.number) for each in own.fields][-3:] == [
        ("syntax", 20),
        ("import", 10),
        ("m", 9),
    ]
    assert own.fields[4].message is own.messages[0]
    assert own.messages[0].fields[0].message is own


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("message A {\n  int32 a = ;\n}", "line 2 of the .proto text: expected an integer, got ';'"),
        ("message A { int32 a = 1; ", "line 1 of the .proto text: expected a name, got the end"),
        ("message A { int32 a = 1 }", "expected ';', got '}'"),
        ('syntax = "proto4";', "expected proto2 or proto3, got 'proto4'"),
        ("\nwhat?", "line 2 of the .proto text: unexpected character"),
        ("message A { B b = 1; }", "A.b: there is no type B"),
        ("message A { int32 a = 0; }", "message A: field a has the number 0"),
        ("message A { int32 a = 1; int32 b = 1; }", "has field b or its number 1 twice"),
        ("message A { enum E { } }", "enum A.E has no values"),
        ("A" * 8, "the descriptor can't be read"),
        ("A" * 5, "neither the text of a .proto file nor base64"),
        ("message A { " * 200, "more than 100 messages in one another"),
        ("message A { option x = " + "{ a: " * 5000, "more than 100 messages in one another"),
    ],
)
def test_errors_name_the_place(text: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        parse(text)


def test_types_are_found_in_other_subjects_and_well_known_files() -> None:
    text = """
    syntax = "proto3"; package shop; import "a/item.proto"; import "google/type/money.proto";
    import "confluent/type/decimal.proto"; import "buf/validate/validate.proto";
    message Order { items.Item item = 1; google.type.Money price = 2; confluent.type.Decimal d = 3; }
    """
    item = 'syntax = "proto3"; package shop.items; message Item { string sku = 1; }'
    kind = arrow_type(parse(text, [item]).message("Order"))
    assert kind.field("item").type == pa.struct([("sku", pa.string())])
    assert kind.field("price").type.field("units").type == pa.int64()
    with pytest.raises(SchemaError, match=r"there is no type items.Item") as raised:
        parse(text)
    assert "a/item.proto" in str(raised.value.hint)


def test_a_schema_may_be_a_descriptor_in_base64() -> None:
    data = oracle.compiled({"a.proto": SCHEMAS["test.two.All"]})
    file = parse(base64.b64encode(data).decode())
    assert shown(file) == shown(parse(SCHEMAS["test.two.All"]))


def test_messages_are_found_by_name_and_by_indexes() -> None:
    within = "message B { map<string, C> m = 1; message C { } } enum E { X = 0; } message C { }"
    text = f"package p; message A {{ {within} }}"
    file = parse(text + " message D { }")
    names = {"p.A": (0,), "p.A.B": (0, 0), "p.A.B.C": (0, 0, 0), "p.A.C": (0, 1), "p.D": (1,)}
    assert {message.name: file.indexes(message) for message in file.all()} == names
    assert all(file.at(path).name == name for name, path in names.items())
    assert file.message("B").name == "p.A.B"
    for name, why in (("C", "has more than one message 'C'"), ("X", "has no message 'X'")):
        with pytest.raises(SchemaError, match=why):
            file.message(name)
    for path in ((2,), (0, 5), (-1,), ()):
        with pytest.raises(SchemaError, match="indexes"):
            file.at(path)


TREE = """syntax = "proto3"; message E { }
message T { string v = 1; repeated T kids = 2; map<string, T> m = 3; E e = 4; }"""


def test_recursion_has_a_depth() -> None:
    message = parse(TREE).message("T")
    with pytest.raises(SchemaError, match="at kids: the message T contains itself") as raised:
        arrow_type(message)
    assert "recursive.fields.max.depth" in str(raised.value.hint)
    leaf = pa.struct([("v", pa.string())])
    assert arrow_type(message, ProtobufOptions(max_depth=1)) == leaf
    two = arrow_type(message, ProtobufOptions(max_depth=2))
    assert two.field("kids").type == pa.list_(leaf)
    assert two.field("m").type == pa.map_(pa.string(), leaf)
    kept = arrow_type(message, ProtobufOptions(max_depth=1, keeps_empty=True))
    assert kept.field("e").type == pa.struct([("__dummy_field_in_empty_struct", pa.string())])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"//{'/' * 80}\n#{'#' * 80}\n{'/**/' * 80} // {'// ' * 80}\n@", "line 4 .*unexpected character"),
        (f"message A {{ int32 a = {'9' * 5000}; }}", "a number of more than 60 digits"),
        ("enum E { X = 2147483648; }", "X has a number beyond 32 bits"),
        (";" * 1_000_001, "more than 1000000 words"),
        ("message A { map<double, int32> m = 1; }", "the entries A.MEntry of a map have no key"),
        ("message A { message B { } map<B, int32> m = 1; }", "the entries A.MEntry of a map have no key"),
        ("orders.proto", "expected a declaration, got 'orders'. Give the text of the file"),
    ],
)
def test_hostile_texts_are_refused_soon(text: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        parse(text)


@pytest.mark.parametrize("name", SCHEMAS)
def test_hostile_descriptors_are_read_or_refused(name: str, seed: int) -> None:
    rng = Random(seed)
    whole = oracle.compiled({"all.proto": SCHEMAS[name]})
    for _ in range(500):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        with suppress(SchemaError):
            arrow_type(parse(base64.b64encode(data).decode()).at([0]), ProtobufOptions(max_depth=1))


@pytest.mark.parametrize(
    "field",
    [b"\x0a\x01a", b"\x0a\x01a\x1a\x01\x01", b"\x08\x01\x18\x01", b"\x0a\x01a\x18\x01\x20\x09", b"\x18\x01"],
    ids=["no number", "a text as number", "a number as name", "label 9", "no name"],
)
def test_descriptors_of_odd_fields_are_refused(field: bytes) -> None:
    message = b"\x0a\x01A\x12" + bytes([len(field)]) + field
    with pytest.raises(SchemaError, match="can't be read"):
        parse_descriptor_set(b"\x0a" + bytes([len(message) + 2]) + b"\x22" + bytes([len(message)]) + message)
