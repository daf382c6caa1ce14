"""Protobuf's wire format in plain Python, for rows that are rare."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_kafkalog.extensions.typed_values.protobuf.kernels import (
    END_GROUP,
    FIXED32,
    FIXED64,
    GROUP,
    SIZED,
    STACK,
    VARINT,
)
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import MessageField, MessageType

WIRE_TYPES = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "sint32", "sint64"), VARINT),
    **dict.fromkeys(("bool", "enum"), VARINT),
    **dict.fromkeys(("fixed32", "sfixed32", "float"), FIXED32),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), FIXED64),
    **dict.fromkeys(("string", "bytes", "message"), SIZED),
}
_MOST_TAG = 5
"""Bytes."""
_WIDTHS = {FIXED64: 8, FIXED32: 4}


class NotWireError(Exception):
    """Bytes are not a message."""


def varint(value: int) -> bytes:
    """A number of up to 64 bits, from the lowest seven on."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at ``at``, and where it ends.

    :raises NotWireError: if it does not.
    """
    value = shift = 0
    while at < len(data) and shift <= 63:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), at
        shift += 7
    raise NotWireError


def _read_tag(data: bytes, at: int) -> tuple[int, int]:
    """The tag at ``at``, of at most five bytes and 32 bits, and where it ends.

    :raises NotWireError: if there is none.
    """
    tag, end = read_varint(data, at)
    if end - at > _MOST_TAG or tag >> 32:
        raise NotWireError
    return tag, end


def fields_of(data: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """The number of each field, its wire type, its bytes with the tag, and without tag and length.

    :raises NotWireError: if the bytes are not a message.
    """
    at = 0
    while at < len(data):
        first = at
        tag, at = _read_tag(data, at)
        number, wire = tag >> 3, tag & 7
        begin = at
        if wire == VARINT:
            _, at = read_varint(data, at)
        elif wire == SIZED:
            size, begin = read_varint(data, at)
            at = begin + size
        elif wire in _WIDTHS:
            at += _WIDTHS[wire]
        elif wire == GROUP:
            at, end = _end_of_group(data, at, number)
            yield number, wire, data[first:at], data[begin:end]
            continue
        else:
            raise NotWireError
        if at > len(data) or number == 0:
            raise NotWireError
        yield number, wire, data[first:at], data[begin:at]


def _end_of_group(data: bytes, at: int, number: int) -> tuple[int, int]:
    """The end of a group behind its last tag, and before that."""
    open_groups = [number]
    while True:
        before = at
        tag, at = _read_tag(data, at)
        found, wire = tag >> 3, tag & 7
        if wire == GROUP:
            open_groups.append(found)
        elif wire == END_GROUP:
            if found != open_groups.pop():
                raise NotWireError
            if not open_groups:
                return at, before
        elif wire == VARINT:
            _, at = read_varint(data, at)
        elif wire == SIZED:
            size, at = read_varint(data, at)
            at += size
        elif wire in _WIDTHS:
            at += _WIDTHS[wire]
        else:
            raise NotWireError
        if at > len(data):
            raise NotWireError


def with_one_of_each(message: MessageType, data: bytes, depth: int = 0) -> bytes:
    """The same message with one field of each oneof, as parsers leave it: the last one clears the others.

    Parts of a submessage come together. Messages that lie deeper than a decoder looks stay as they are.

    :param data: bytes that are a message.
    :param depth: the number of messages around it.
    :raises NotWireError: if they are not.
    """
    if depth >= STACK:
        return data
    known = {field.number: field for field in message.fields}
    found: list[tuple[MessageField | None, bytes, bytes]] = []
    last: dict[str, tuple[int, int]] = {}
    """The number of the field that counts in each oneof, and where it was set first."""
    for number, wire, whole, body in fields_of(data):
        field = known.get(number)
        if field is not None and (
            wire != wire_type(field) or (not field.is_repeated and not is_known(field, body))
        ):
            field = None
        if field is not None and field.oneof is not None and last.get(field.oneof, (0, 0))[0] != number:
            last[field.oneof] = number, len(found)
        found.append((field, whole, body))
    out: list[bytes] = []
    parts: dict[int, list[bytes]] = {}
    for place, (field, whole, body) in enumerate(found):
        if field is not None and field.oneof is not None and place < last[field.oneof][1]:
            continue
        if field is None or field.message is None:
            out.append(whole)
        elif field.is_repeated:
            out.append(_message(field, with_one_of_each(field.message, body, depth + 1)))
        else:
            parts.setdefault(field.number, []).append(body)
    for number, bodies in parts.items():
        field = known[number]
        assert field.message is not None, "they are messages"
        out.append(_message(field, with_one_of_each(field.message, b"".join(bodies), depth + 1)))
    return b"".join(out)


def _message(field: MessageField, body: bytes) -> bytes:
    if field.is_group:
        return varint(field.number << 3 | GROUP) + body + varint(field.number << 3 | END_GROUP)
    return varint(field.number << 3 | SIZED) + varint(len(body)) + body


def is_known(field: MessageField, body: bytes) -> bool:
    """Whether an enum has the number that is written, unless it takes any."""
    if field.enum is None or not field.enum.is_closed:
        return True
    value = read_varint(body, 0)[0] & 0xFFFFFFFF
    return (value - (1 << 32) if value >> 31 else value) in field.enum.names


def wire_type(field: MessageField) -> int:
    """The wire type of a field that is not packed."""
    return GROUP if field.is_group else WIRE_TYPES[field.kind]
