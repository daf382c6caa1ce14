"""The declarations in descriptors, as ``protoc --descriptor_set_out`` writes them (descriptor.proto)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.protobuf.declarations import (
    DEEPEST,
    SCALARS,
    EnumDeclaration,
    FieldDeclaration,
    FileDeclaration,
    MessageDeclaration,
)
from pyspark_kafkalog.extensions.typed_values.protobuf.text import unescaped

_KINDS = {number: name for name, number in SCALARS.items()} | {10: "group", 11: "", 14: ""}
_LABELS = {1: "", 2: "required", 3: "repeated"}
"""The first is also that of fields without a label."""
_PRESENCE = {1: "EXPLICIT", 2: "IMPLICIT", 3: "LEGACY_REQUIRED"}
_ENUM_TYPE = {1: "OPEN", 2: "CLOSED"}
_ENCODING = {1: "PACKED", 2: "EXPANDED"}
_UTF8 = {2: "VERIFY", 3: "NONE"}
_MESSAGES = {1: "LENGTH_PREFIXED", 2: "DELIMITED"}
_FEATURES = {
    1: ("field_presence", _PRESENCE),
    2: ("enum_type", _ENUM_TYPE),
    3: ("repeated_field_encoding", _ENCODING),
    4: ("utf8_validation", _UTF8),
    5: ("message_encoding", _MESSAGES),
}
_EDITIONS = {998: "proto2", 999: "proto3"}
_FEATURES_OF_FILES, _FEATURES_OF_MESSAGES, _FEATURES_OF_ENUMS = 50, 12, 7
_FEATURES_OF_FIELDS, _FEATURES_OF_ONEOFS = 21, 1


def parse_descriptors(data: bytes) -> list[FileDeclaration]:
    """The files of a FileDescriptorSet, or of one FileDescriptorProto.

    :raises SchemaError: if it isn't one.
    """
    try:
        parts = list(_fields(data))
        if not parts:
            raise ValueError("it is empty")
        if all(number == 1 for number, _ in parts):
            return [_file(part) for _, part in parts]
        return [_file(data)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        raise SchemaError(f"the descriptor can't be read: {e}") from None


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """The numbers of fields, and their values: bytes or unsigned integers."""
    if not isinstance(data, bytes):
        raise ValueError("expected a message")
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        wire = tag & 7
        if tag < 8:
            raise ValueError("a field has the number 0")
        if wire == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"unexpected wire type {wire}")
        if size > end - at:
            raise ValueError("it ends too early")
        found = data[at : at + size]
        yield tag >> 3, found if wire == 2 else int.from_bytes(found, "little")
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("expected a number of up to 64 bits")


def _file(data: bytes) -> FileDeclaration:
    made = FileDeclaration()
    for number, value in _fields(data):
        if number == 1:
            made.name = value.decode()
        elif number == 2:
            made.package = value.decode()
        elif number == 3:
            made.imports.append(value.decode())
        elif number == 4:
            made.messages.append(_message(value, 1))
        elif number == 5:
            made.enums.append(_enum(value))
        elif number == 8:
            made.options = _options(value, _FEATURES_OF_FILES)
        elif number == 12:
            made.syntax = value.decode()
        elif number == 14:
            edition = value
            made.syntax = _EDITIONS.get(edition, str(edition))
    return made


def _message(data: bytes, depth: int) -> MessageDeclaration:
    if depth > DEEPEST:
        raise ValueError(f"more than {DEEPEST} messages in one another")
    made = MessageDeclaration("")
    fields: list[tuple[FieldDeclaration, int | None]] = []
    oneofs: list[str] = []
    for number, value in _fields(data):
        if number == 1:
            made.name = value.decode()
        elif number == 2:
            fields.append(_field(value))
        elif number == 3:
            made.messages.append(_message(value, depth + 1))
        elif number == 4:
            made.enums.append(_enum(value))
        elif number == 7:
            made.options = _options(value, _FEATURES_OF_MESSAGES)
            made.is_map_entry = any(n == 7 and bool(found) for n, found in _fields(value))
        elif number == 8:
            parts = dict(_fields(value))
            name = parts[1].decode()
            made.oneofs[name] = _options(parts.get(2, b""), _FEATURES_OF_ONEOFS)
            oneofs.append(name)
    for field, index in fields:
        field.oneof = None if index is None else oneofs[index]
        made.fields.append(field)
    return made


def _field(data: bytes) -> tuple[FieldDeclaration, int | None]:
    """A field, and the number of its oneof, unless that is one that ``optional`` stands for."""
    parts = dict(_fields(data))
    if not isinstance(parts[3], int):
        raise ValueError("expected the number of a field")
    made = FieldDeclaration(parts[1].decode(), parts[3], _LABELS[parts.get(4, 1)])
    kind = parts.get(5, 0)
    if kind not in _KINDS and 6 not in parts:
        raise ValueError(f"unknown type {kind} of field {made.name}")
    made.kind = _KINDS.get(kind, "")
    made.type_name = parts.get(6, b"").decode()
    made.options = _options(parts.get(8, b""), _FEATURES_OF_FIELDS)
    packed = [value for number, value in _fields(parts.get(8, b"")) if number == 2]
    if packed:
        made.options["packed"] = "true" if packed[-1] else "false"
    if 7 in parts:
        made.options["default"] = unescaped(parts[7]) if made.kind == "bytes" else parts[7]
    if parts.get(17):
        made.options["proto3_optional"] = "true"
        return made, None
    return made, parts.get(9)


def _enum(data: bytes) -> EnumDeclaration:
    made = EnumDeclaration("")
    for number, value in _fields(data):
        if number == 1:
            made.name = value.decode()
        elif number == 2:
            parts = dict(_fields(value))
            made.values.append((parts[1].decode(), _signed32(parts.get(2, 0))))
        elif number == 3:
            made.options = _options(value, _FEATURES_OF_ENUMS)
    return made


def _signed32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _options(data: bytes, features: int) -> dict[str, Any]:
    """The features among options."""
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        if number == features:
            for feature, setting in _fields(value):
                if feature in _FEATURES and setting in _FEATURES[feature][1]:
                    name, values = _FEATURES[feature]
                    found[f"features.{name}"] = values[setting]
    return found
