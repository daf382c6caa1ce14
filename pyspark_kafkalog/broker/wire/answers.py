"""Reads responses strictly by Kafka's layouts, which kafka-python provides.

kafka-python's own reader trusts its input: varints may run on forever, strings
may reach past the end of the response, arrays and strings may be null where the
layout forbids it, and each tagged field costs a copy of everything after it.
This reader does not trust it: every length and count is checked against the bytes
available, a varint has at most 5 bytes (Kafka's ByteUtils), null appears only
where the layout allows it, and a response ends where its layout ends.

A response header is a correlation id int32, followed from flexible versions on by
tagged fields (KIP-482), but never in ApiVersions (KIP-511).
"""

from __future__ import annotations

import struct
import sys
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from itertools import groupby
from typing import Any, Protocol

from kafka.protocol.metadata import ApiVersionsResponse

Frame = bytes | bytearray | memoryview
ReadValue = Callable[[Frame, int], tuple[Any, int]]
"""Takes a frame and a position; returns the value there and the position after it."""
UNREADABLE = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, struct.error)
"""The exceptions of reading when a response violates its layout or makes no sense."""

_FIXED = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"}
_FIXED |= {"float64": "d", "bool": "?", "bitfield": "i"}
_LONGEST_VARINT = 5


class FieldLayout(Protocol):
    """A field of a layout, as parsed by kafka-python."""

    name: str
    type_str: str
    default: Any
    tag: int | None
    fields: Mapping[str, FieldLayout] | None
    array_of: FieldLayout

    def is_array(self) -> bool: ...
    def is_struct(self) -> bool: ...
    def for_version_q(self, version: int) -> bool: ...
    def tagged_field_q(self, version: int) -> bool: ...
    def nullable_for_version_q(self, version: int) -> bool: ...


def response_of(api: Any) -> Any:
    """The class of the response to a request of class ``api``: its neighbour in kafka-python's module.

    kafka-python's own registry holds it by a weak reference, which can be dead where threads import.
    """
    return getattr(sys.modules[api.__module__], api.__name__.replace("Request", "Response"))


def read_header(response: Any, version: int, frame: Frame) -> tuple[int, int]:
    """The correlation id of a response, and the position of its body.

    :param response: kafka-python's response class.
    :raises ValueError: or another of :data:`UNREADABLE`, if the header is malformed.
    """
    (correlation_id,) = struct.unpack_from(">i", frame)
    if response.API_KEY == ApiVersionsResponse.API_KEY or not response.flexible_version_q(version):
        return correlation_id, 4
    return correlation_id, _no_tags(frame, 4, {})


def read_body(response: Any, version: int, frame: Frame, position: int) -> Any:
    """The response whose body begins at ``position``; its fields have kafka-python's names.

    A field that the version lacks has the default of Kafka's layout.

    :param response: kafka-python's response class.
    :raises ValueError: or another of :data:`UNREADABLE`, if the body is malformed.
    """
    if response.API_KEY == ApiVersionsResponse.API_KEY and frame[position : position + 2] != b"\0\0":
        version = 0  # an error always has this layout (KIP-511)
    answer, end = _layout(response.API_KEY, response[None], version)(frame, position)
    if end != len(frame):
        raise ValueError(f"its layout ends at byte {end} of {len(frame)}")
    return answer


def read_varint(frame: Frame, position: int) -> tuple[int, int]:
    """An unsigned varint, and the position after it.

    :raises ValueError: if it has more than 5 bytes.
    :raises IndexError: if the frame ends inside it.
    """
    value = frame[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for count in range(1, _LONGEST_VARINT):
        byte = frame[position + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, position + count + 1
    raise ValueError(f"a varint of more than {_LONGEST_VARINT} bytes at byte {position}")


@cache
def _layout(api_key: int, response: Any, version: int) -> ReadValue:
    return _struct(response.__name__, response.fields, version, response.flexible_version_q(version))


def _struct(name: str, fields: Mapping[str, FieldLayout], version: int, flexible: bool) -> ReadValue:
    """A reader of a struct, compiled from text like the methods of dataclasses: it runs per partition."""
    known = [field for field in fields.values() if field.for_version_q(version)]
    untagged = [field for field in known if not field.tagged_field_q(version)]
    scope: dict[str, Any] = {"make": type(name, (), {f.name: _default(f) for f in fields.values()})}
    lines = ["value = make()"]
    for is_fixed, run in groupby(untagged, lambda field: field.type_str in _FIXED and not field.is_array()):
        if is_fixed:
            fixed = list(run)
            layout = struct.Struct(">" + "".join(_FIXED[field.type_str] for field in fixed))
            scope[f"unpack_{len(lines)}"] = layout.unpack_from
            targets = "".join(f"value.{field.name}, " for field in fixed)
            lines.append(f"{targets}= unpack_{len(lines)}(frame, position); position += {layout.size}")
        else:
            for field in run:
                scope[f"read_{len(lines)}"] = _value(field, version, flexible)
                lines.append(f"value.{field.name}, position = read_{len(lines)}(frame, position)")
    if flexible:
        scope["tags"] = _tags(
            {f.tag: (f.name, _value(f, version, flexible)) for f in known if f not in untagged}
        )
        lines.append("position = tags(frame, position, value.__dict__) if frame[position] else position + 1")
    lines.append("return value, position")
    exec("def read(frame, position):\n    " + "\n    ".join(lines), scope)
    read: ReadValue = scope["read"]
    return read


def _default(field: FieldLayout) -> Any:
    try:
        default = field.default
    except NotImplementedError:  # structs have none
        return None
    return tuple(default) if isinstance(default, list) else default


def _tags(known: Mapping[int | None, tuple[str, ReadValue]]) -> Callable[[Frame, int, dict[str, Any]], int]:
    """A reader that stores the known tagged fields in a dictionary and returns the position after all."""

    def read_tags(frame: Frame, position: int, values: dict[str, Any]) -> int:
        count, position = read_varint(frame, position)
        for _ in range(count):
            tag, position = read_varint(frame, position)
            size, position = read_varint(frame, position)
            end = position + size
            if end > len(frame):
                raise ValueError(
                    f"a tagged field has {size} bytes, but only {len(frame) - position} are left"
                )
            if tag in known:
                name, read = known[tag]
                values[name], position = read(frame, position)
                if position != end:
                    raise ValueError(f"{name} ends at byte {position}, expected {end}")
            position = end
        return position

    return read_tags


_no_tags = _tags({})


def _value(field: FieldLayout, version: int, flexible: bool) -> ReadValue:
    nullable = field.nullable_for_version_q(version)
    if field.is_array():
        return _array(field, version, flexible, nullable)
    if field.is_struct():
        assert field.fields is not None
        read = _struct(field.type_str, field.fields, version, flexible)
        return _nullable(read) if nullable else read
    if field.type_str == "uuid":
        return _uuid
    if field.type_str in _FIXED:  # a tagged field
        return _fixed(struct.Struct(">" + _FIXED[field.type_str]))
    if field.type_str == "string":
        return _bytes(field.name, _length(flexible, ">h"), nullable, _text)
    if field.type_str in ("bytes", "records"):
        return _bytes(field.name, _length(flexible, ">i"), nullable, bytes)
    raise NotImplementedError(f"{field.name} has type {field.type_str}")


def _fixed(layout: struct.Struct) -> ReadValue:
    return lambda frame, position: (layout.unpack_from(frame, position)[0], position + layout.size)


def _uuid(frame: Frame, position: int) -> tuple[uuid.UUID | None, int]:
    """The zero UUID stands for None."""
    value = uuid.UUID(bytes=bytes(frame[position : position + 16]))
    return value if value.int else None, position + 16


def _text(data: Frame) -> str:
    return str(data, "utf-8")


def _length(flexible: bool, layout: str) -> ReadValue:
    """A length, below 0 for null; in flexible versions a varint of length + 1."""
    if flexible:

        def read(frame: Frame, position: int) -> tuple[int, int]:
            byte = frame[position]
            if byte < 0x80:
                return byte - 1, position + 1
            length, position = read_varint(frame, position)
            return length - 1, position

        return read
    return _fixed(struct.Struct(layout))


def _bytes(name: str, length: ReadValue, nullable: bool, make: Callable[[Frame], Any]) -> ReadValue:
    def read(frame: Frame, position: int) -> tuple[Any, int]:
        size, position = length(frame, position)
        if size < 0:
            return _null(name, nullable), position
        end = position + size
        if end > len(frame):
            raise ValueError(f"{name} has {size} bytes, but only {len(frame) - position} are left")
        return make(frame[position:end]), end

    return read


def _array(field: FieldLayout, version: int, flexible: bool, nullable: bool) -> ReadValue:
    length, name, item = _length(flexible, ">i"), field.name, field.array_of
    if item.type_str in _FIXED:
        read_all = _numbers(_FIXED[item.type_str])
    else:
        read_all = _items(_value(item, version, flexible))

    def read(frame: Frame, position: int) -> tuple[Any, int]:
        count, position = length(frame, position)
        if count < 0:
            return _null(name, nullable), position
        if count > len(frame) - position:
            raise ValueError(f"{name} has {count} items, but only {len(frame) - position} bytes are left")
        return read_all(frame, position, count)

    return read


def _numbers(kind: str) -> Callable[[Frame, int, int], tuple[Any, int]]:
    size = struct.calcsize(">" + kind)
    few = [struct.Struct(f">{count}{kind}").unpack_from for count in range(8)]

    def read_all(frame: Frame, position: int, count: int) -> tuple[Any, int]:
        unpack_from = few[count] if count < len(few) else struct.Struct(f">{count}{kind}").unpack_from
        return list(unpack_from(frame, position)), position + count * size

    return read_all


def _items(read: ReadValue) -> Callable[[Frame, int, int], tuple[Any, int]]:
    def read_all(frame: Frame, position: int, count: int) -> tuple[Any, int]:
        items = []
        for _ in range(count):
            item, position = read(frame, position)
            items.append(item)
        return items, position

    return read_all


def _nullable(read: ReadValue) -> ReadValue:
    """A struct that may be null: a leading byte below 0 means null (KIP-893)."""

    def read_nullable(frame: Frame, position: int) -> tuple[Any, int]:
        return (None, position + 1) if frame[position] >= 0x80 else read(frame, position + 1)

    return read_nullable


def _null(name: str, nullable: bool) -> Any:
    if not nullable:
        raise ValueError(f"{name} is null")
    return None
