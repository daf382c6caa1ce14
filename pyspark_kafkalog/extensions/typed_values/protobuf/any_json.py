"""google.protobuf.Any as JSON, as from_protobuf's ``convert.any.fields.to.json`` has it (Java's JsonFormat).

Fields have the names of the schema, in the order of their numbers. Those that are not written are left out,
and so are unknown ones and extensions.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pyspark_kafkalog.extensions.typed_values.protobuf.kernels import GROUP, SIZED
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import MessageField, MessageType
from pyspark_kafkalog.extensions.typed_values.protobuf.struct_json import (
    STRUCTS,
    NotStructError,
    finite_number,
    value_of,
)
from pyspark_kafkalog.extensions.typed_values.protobuf.types import ANY, WRAPPED
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import (
    NotWireError,
    fields_of,
    is_known,
    read_varint,
    wire_type,
)

_DEEPEST = 100
_GOOGLE = "google.protobuf."
_TIMESTAMP, _DURATION, _FIELD_MASK = f"{_GOOGLE}Timestamp", f"{_GOOGLE}Duration", f"{_GOOGLE}FieldMask"
_SPECIAL = {*STRUCTS, *WRAPPED, _TIMESTAMP, _DURATION, _FIELD_MASK, ANY}
"""Messages that have a form of their own."""
_FIXED = {"double": "<d", "float": "<f", "fixed32": "<I", "sfixed32": "<i", "fixed64": "<Q", "sfixed64": "<q"}
_LEAST_SECONDS, _MOST_SECONDS = -62135596800, 253402300799
"""The first of year 1, and the last of year 9999."""
_MOST_DURATION, _MOST_NANOS = 315576000000, 999999999


class AnyPrinter:
    """Prints each google.protobuf.Any as JSON.

    :param types: the messages that it may have, by their full names.
    :param enums_as_ints: whether enums are their numbers, and not their names.
    """

    def __init__(self, types: Mapping[str, MessageType], *, enums_as_ints: bool = False) -> None:
        self._types, self._enums_as_ints = types, enums_as_ints

    def text(self, data: bytes) -> str:
        """The JSON of an Any.

        :raises NotStructError: if it isn't one, or has another message.
        """
        try:
            return json.dumps(self._any(data, 0), ensure_ascii=False, separators=(",", ":"))
        except (NotWireError, ValueError, TypeError, AttributeError, RecursionError):
            # Text that isn't UTF-8, or a schema that declares one of the well-known messages otherwise.
            raise NotStructError from None

    def _any(self, data: bytes, depth: int) -> dict[str, Any]:
        url, value = "", b""
        for number, wire, _, body in fields_of(data):
            if (number, wire) == (1, SIZED):
                url = body.decode()
            elif (number, wire) == (2, SIZED):
                value = body
        if not url and not value:
            return {}
        message = self._types.get(url.rpartition("/")[2])
        if message is None or "/" not in url:
            raise NotStructError
        found = self._message(message, value, depth + 1)
        return {"@type": url, **({"value": found} if message.name in _SPECIAL else found)}

    def _message(self, message: MessageType, data: bytes, depth: int) -> Any:
        if depth > _DEEPEST:
            raise NotStructError
        name = message.name
        if name in STRUCTS:
            return value_of(name, data, finite_number)
        if name == ANY:
            return self._any(data, depth)
        found = self._fields(message, data, depth)
        if name in WRAPPED:
            # A value that is not written is a zero.
            (field,) = message.fields
            return found.get(field.name, self._shown(field, _zero(field)))
        if name in (_TIMESTAMP, _DURATION):
            seconds, nanos = int(found.get("seconds", 0)), int(found.get("nanos", 0))
            return _timestamp(seconds, nanos) if name == _TIMESTAMP else _duration(seconds, nanos)
        if name == _FIELD_MASK:
            return ",".join(_in_camels(path) for path in found.get("paths", []) if path)
        return found

    def _fields(self, message: MessageType, data: bytes, depth: int) -> dict[str, Any]:
        """The fields that are written, in the order of their numbers."""
        known = {field.number: field for field in message.fields}
        scalars: dict[int, list[Any]] = {}
        bodies: dict[int, list[bytes]] = {}
        of_oneof: dict[str, int] = {}
        for number, wire, _, body in fields_of(data):
            field = known.get(number)
            if field is None:
                continue
            if field.message is not None:
                if wire != wire_type(field):
                    continue
                bodies.setdefault(number, []).append(body)
            else:
                items = list(_items(field, wire, body))
                if not items:
                    continue
                if field.is_repeated:
                    scalars.setdefault(number, []).extend(items)
                else:
                    scalars[number] = items[-1:]
            if field.oneof is not None:
                before = of_oneof.get(field.oneof, number)
                if before != number:
                    scalars.pop(before, None)
                    bodies.pop(before, None)
                of_oneof[field.oneof] = number
        found: dict[str, Any] = {}
        for field in sorted(message.fields, key=lambda each: each.number):
            if field.number in scalars:
                items = scalars[field.number]
                if field.is_repeated:
                    found[field.name] = [self._shown(field, item) for item in items]
                elif field.has_presence or _is_written(items[0]):
                    found[field.name] = self._shown(field, items[0])
            elif field.number in bodies:
                assert field.message is not None, "it has bodies"
                parts = bodies[field.number]
                if field.is_map:
                    found[field.name] = dict(self._entry(field.message, part, depth) for part in parts)
                elif field.is_repeated:
                    found[field.name] = [self._message(field.message, part, depth + 1) for part in parts]
                else:
                    found[field.name] = self._message(field.message, b"".join(parts), depth + 1)
            elif field.is_required:
                raise NotStructError
        return found

    def _entry(self, entry: MessageType, data: bytes, depth: int) -> tuple[str, Any]:
        key, value = sorted(entry.fields, key=lambda each: each.number)
        parts: dict[int, list[Any]] = {1: [], 2: []}
        for number, wire, _, body in fields_of(data):
            field = {1: key, 2: value}.get(number)
            if field is None or wire != wire_type(field):
                continue
            parts[number] += [body] if field.message is not None else _items(field, wire, body)
        name = self._shown(key, parts[1][-1] if parts[1] else _zero(key))
        if value.message is not None:
            shown = self._message(value.message, b"".join(parts[2]), depth + 1)
        else:
            shown = self._shown(value, parts[2][-1] if parts[2] else _zero(value))
        return (str(name).lower() if isinstance(name, bool) else str(name)), shown

    def _shown(self, field: MessageField, value: Any) -> Any:
        """A value as JSON has it."""
        if field.enum is not None:
            if field.enum.name == f"{_GOOGLE}NullValue":
                return None
            return value if self._enums_as_ints else field.enum.names.get(value, value)
        if field.kind in ("double", "float"):
            if not math.isfinite(value):
                return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
            return float(str(np.float32(value))) if field.kind == "float" else float(value)
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return str(value) if field.kind.endswith("64") else value


def _items(field: MessageField, wire: int, body: bytes) -> Iterator[Any]:
    """The values of a field that has no fields itself; several if it is packed."""
    expected = wire_type(field)
    if wire == expected:
        if is_known(field, body):
            yield _value(field, body)
    elif wire == SIZED and field.is_repeated and expected not in (SIZED, GROUP):
        at = 0
        while at < len(body):
            width = struct.calcsize(_FIXED[field.kind]) if field.kind in _FIXED else 0
            end = at + width if width else read_varint(body, at)[1]
            if end > len(body):
                raise NotWireError
            if is_known(field, body[at:end]):
                yield _value(field, body[at:end])
            at = end


def _value(field: MessageField, body: bytes) -> Any:
    """A value as Python's: a number, text, bytes, or a boolean."""
    kind = field.kind
    if kind in _FIXED:
        return struct.unpack(_FIXED[kind], body)[0]
    if kind == "string":
        return body.decode(errors="strict" if field.checks_utf8 else "replace")
    if kind == "bytes":
        return body
    number, _ = read_varint(body, 0)
    if kind == "bool":
        return number != 0
    bits = 32 if kind in ("int32", "uint32", "sint32", "enum") else 64
    number &= (1 << bits) - 1
    if kind in ("sint32", "sint64"):
        return number >> 1 ^ -(number & 1)
    return number - (1 << bits) if kind[0] != "u" and number >> bits - 1 else number


def _zero(field: MessageField) -> Any:
    if field.enum is not None:
        return field.enum.values[0][1]
    return {"string": "", "bytes": b"", "bool": False}.get(field.kind, 0)


def _is_written(value: Any) -> bool:
    """Whether a value is more than nothing where presence is not kept."""
    return bool(value) or (isinstance(value, float) and math.copysign(1, value) < 0)


def _timestamp(seconds: int, nanos: int) -> str:
    if not (_LEAST_SECONDS <= seconds <= _MOST_SECONDS and 0 <= nanos <= _MOST_NANOS):
        raise NotStructError
    return f"{np.datetime64(seconds, 's')}{_digits(nanos)}Z"


def _duration(seconds: int, nanos: int) -> str:
    is_mixed = (seconds < 0 < nanos) or (nanos < 0 < seconds)
    if abs(seconds) > _MOST_DURATION or abs(nanos) > _MOST_NANOS or is_mixed:
        raise NotStructError
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_digits(abs(nanos))}s"


def _digits(nanos: int) -> str:
    """The digits behind a point: 3, 6 or 9, or nothing."""
    if not nanos:
        return ""
    digits = f"{nanos:09}"
    return "." + (digits[:3] if nanos % 1_000_000 == 0 else digits[:6] if nanos % 1000 == 0 else digits)


def _in_camels(path: str) -> str:
    """A path as Java's CaseFormat has it, which changes the case of ASCII only."""
    first, *others = path.encode().split(b"_")
    return b"".join([first.lower(), *(part.capitalize() for part in others)]).decode()
