"""Protobuf as google.protobuf reads it, with descriptors of protoc's own making."""

from __future__ import annotations

import json
import math
import random
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, struct_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from grpc_tools import protoc

from pyspark_kafkalog.codec.fields import text_of
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions

INCLUDES = Path(protoc.__file__).parent / "_proto"
_TYPE = FieldDescriptor
_WORDS = ["", "a", "text", "ä", "日本", "x" * 200, "line\n"]
_SIZES = {_TYPE.TYPE_INT32: 31, _TYPE.TYPE_SINT32: 31, _TYPE.TYPE_SFIXED32: 31}
_UNSIGNED = {_TYPE.TYPE_UINT32: 32, _TYPE.TYPE_FIXED32: 32, _TYPE.TYPE_UINT64: 64, _TYPE.TYPE_FIXED64: 64}
_DEEPEST = 4


def compiled(files: Mapping[str, str]) -> bytes:
    """The FileDescriptorSet that protoc makes of files, with all that they import."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        out = Path(folder, "out.desc")
        command = [
            "protoc",
            f"-I{folder}",
            f"-I{INCLUDES}",
            "--include_imports",
            f"--descriptor_set_out={out}",
        ]
        if protoc.main([*command, *files]):
            raise ValueError("protoc refuses the files")
        return out.read_bytes()


def pool_of(descriptors: bytes) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return pool


def class_of(descriptors: bytes, name: str) -> type[Message]:
    """The class of messages with this name."""
    return message_factory.GetMessageClass(pool_of(descriptors).FindMessageTypeByName(name))


def _number(kind: int, rng: random.Random) -> Any:
    if kind in _UNSIGNED:
        return rng.randrange(1 << _UNSIGNED[kind]) >> rng.randrange(_UNSIGNED[kind] + 1)
    bits = _SIZES.get(kind, 63)
    return rng.randrange(-(1 << bits), 1 << bits) >> rng.randrange(bits + 1)


def _scalar(field: FieldDescriptor, rng: random.Random) -> Any:
    kind = field.type
    if kind == _TYPE.TYPE_STRING:
        return rng.choice(_WORDS)
    if kind == _TYPE.TYPE_BYTES:
        return rng.randbytes(rng.choice([0, 1, 5, 300]))
    if kind == _TYPE.TYPE_BOOL:
        return rng.random() < 0.5
    if kind == _TYPE.TYPE_ENUM:
        numbers = [value.number for value in field.enum_type.values]
        return rng.choice(numbers if field.enum_type.is_closed else [*numbers, 77])
    if kind in (_TYPE.TYPE_FLOAT, _TYPE.TYPE_DOUBLE):
        found = rng.choice([0.0, -0.0, 1.5, rng.random(), math.inf, -(2.0**100)])
        return struct.unpack("f", struct.pack("f", found))[0] if kind == _TYPE.TYPE_FLOAT else found
    return _number(kind, rng)


def _json(rng: random.Random, depth: int = 0) -> Any:
    if depth < 3 and rng.random() < 0.3:
        return {rng.choice("abc"): _json(rng, depth + 1) for _ in range(rng.randrange(3))}
    if depth < 3 and rng.random() < 0.2:
        return [_json(rng, depth + 1) for _ in range(rng.randrange(3))]
    return rng.choice([None, True, 1.0, -0.25, 1e300, "t", "ü"])


def fill(message: Any, rng: random.Random, depth: int = 0, anys: Sequence[bytes] = ()) -> Any:
    """``message`` with some of its fields set.

    :param anys: values of google.protobuf.Any; without them, it is filled like any other message.
    """
    name = message.DESCRIPTOR.full_name
    if anys and name == "google.protobuf.Any":
        message.MergeFromString(rng.choice(anys))
        return message
    if name == "google.protobuf.Struct":
        json_format.ParseDict({rng.choice("abc"): _json(rng) for _ in range(rng.randrange(4))}, message)
        return message
    if name in ("google.protobuf.Value", "google.protobuf.ListValue"):
        json_format.ParseDict([_json(rng)] if name.endswith("ListValue") else _json(rng), message)
        return message
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        message.seconds = rng.randrange(-62135596800, 253402300799) if rng.random() < 0.8 else 0
        message.nanos = rng.choice([0, 1, 999, 999999999, rng.randrange(10**9)])
        return message
    for field in message.DESCRIPTOR.fields:
        is_left_out = rng.random() < (0.01 if field.is_required else 0.35)
        if is_left_out or (field.message_type is not None and depth >= _DEEPEST):
            continue
        if field.is_repeated:
            _fill_repeated(message, field, rng, depth, anys)
        elif field.message_type is None:
            setattr(message, field.name, _scalar(field, rng))
        else:
            found = getattr(message, field.name)
            found.SetInParent()
            fill(found, rng, depth + 1, anys)
    return message


def _fill_repeated(
    message: Any, field: FieldDescriptor, rng: random.Random, depth: int, anys: Sequence[bytes]
) -> None:
    items = getattr(message, field.name)
    count = rng.choice([0, 1, 2, 5])
    if field.message_type is None:
        items.extend(_scalar(field, rng) for _ in range(count))
        return
    if not field.message_type.GetOptions().map_entry:
        for _ in range(count):
            fill(items.add(), rng, depth + 1, anys)
        return
    key, value = field.message_type.fields
    for _ in range(count):
        found = _scalar(key, rng)
        if value.message_type is None:
            items[found] = _scalar(value, rng)
        else:
            fill(items[found], rng, depth + 1, anys)


class Json:
    """JSON that equals its text, whichever order its keys have."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        found = json.loads(other) if isinstance(other, str) else other
        return bool(self._value == (found._value if isinstance(found, Json) else found))

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return json.dumps(self._value)


def shown(value: Any, kind: pa.DataType) -> Any:
    """A value of ours, so that it is equal to the expected one: NaN and the order of maps do not matter."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: shown(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: shown(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [shown(item, kind.value_type) for item in value]
    if pa.types.is_floating(kind):
        return struct.pack("<d", value)
    return value


def rows(array: pa.Array) -> list[Any]:
    """The rows of ours. Times are numbers of microseconds."""
    return [shown(value, array.type) for value in _with_numbers(array).to_pylist()]


def _with_numbers(array: pa.Array) -> pa.Array:
    kind = _numeric(array.type)
    return array if kind == array.type else array.cast(kind)


def _numeric(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _numeric(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _numeric(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _numeric(kind.value_type)))
    return pa.int64() if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) else kind


def expected(message: Any, kind: pa.DataType, options: ProtobufOptions) -> Any:
    """What from_protobuf makes of a message, of the fields that ``kind`` has."""
    found = {}
    known = message.DESCRIPTOR.fields_by_name
    for part in kind:
        field = known[part.name]
        value = getattr(message, field.name)
        if field.is_repeated:
            found[part.name] = _repeated(field, value, part.type, options)
        elif field.has_presence and not message.HasField(field.name):
            found[part.name] = _value(field, value, part.type, options) if field.has_default_value else None
        elif not field.has_presence and not options.emits_defaults and _is_zero(value):
            found[part.name] = None
        else:
            found[part.name] = _value(field, value, part.type, options)
    return found


def _is_zero(value: Any) -> bool:
    return not value and str(value) != "-0.0"


def _repeated(field: FieldDescriptor, value: Any, kind: pa.DataType, options: ProtobufOptions) -> Any:
    if not pa.types.is_map(kind):
        return [_value(field, item, kind.value_type, options) for item in value]
    known = field.message_type.fields_by_name
    return {
        _value(known["key"], key, kind.key_type, options): _value(
            known["value"], item, kind.item_type, options
        )
        for key, item in value.items()
    }


def _value(field: FieldDescriptor, value: Any, kind: pa.DataType, options: ProtobufOptions) -> Any:
    message = field.message_type
    if message is not None:
        if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
            return value.seconds * 1_000_000 + int(value.nanos / 1000)
        if pa.types.is_struct(kind):
            return expected(value, kind, options)
        if message.full_name in (
            "google.protobuf.Struct",
            "google.protobuf.Value",
            "google.protobuf.ListValue",
        ):
            return Json(_plain(value))
        if not field.is_repeated and not options.emits_defaults and _is_zero(value.value):
            return None
        return _value(message.fields_by_name["value"], value.value, kind, options)
    if field.type == _TYPE.TYPE_ENUM and pa.types.is_string(kind):
        name = field.enum_type.values_by_number.get(value)
        return f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_{value}" if name is None else name.name
    if pa.types.is_string(kind) and isinstance(value, bytes):  # of proto2, and not UTF-8
        return text_of(value)
    if pa.types.is_floating(kind):
        return struct.pack("<d", value)
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value
    return value


def _plain(value: Any) -> Any:
    """A Struct, ListValue or Value as JSON's values; numbers that are whole have no point."""
    if isinstance(value, struct_pb2.Struct):
        return {key: _plain(item) for key, item in value.fields.items()}
    if isinstance(value, struct_pb2.ListValue) or value.DESCRIPTOR.full_name.endswith("ListValue"):
        return [_plain(item) for item in value.values]
    if value.DESCRIPTOR.full_name.endswith("Struct"):
        return {key: _plain(item) for key, item in value.fields.items()}
    which = value.WhichOneof("kind")
    if which in (None, "null_value"):
        return None
    found = getattr(value, which)
    if which in ("struct_value", "list_value"):
        return _plain(found)
    if which != "number_value":
        return found
    if not math.isfinite(found):
        return "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"
    return int(found) if found == int(found) and abs(found) < 2**53 else found
