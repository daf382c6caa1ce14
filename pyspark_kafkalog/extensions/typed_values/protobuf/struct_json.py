"""google.protobuf.Struct and its values as JSON, and back (struct.proto)."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from pyspark_kafkalog.extensions.typed_values.protobuf.kernels import FIXED64, SIZED, VARINT
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import (
    NotWireError,
    fields_of,
    read_varint,
    varint,
)

STRUCTS = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
_DEEPEST = 100
_NULL, _NUMBER, _TEXT, _BOOL, _STRUCT, _LIST = range(1, 7)
_WIRES = {_NULL: VARINT, _NUMBER: FIXED64, _TEXT: SIZED, _BOOL: VARINT, _STRUCT: SIZED, _LIST: SIZED}
_MOST_WHOLE = 1 << 53
_Shown: TypeAlias = Callable[[float], Any]


class NotStructError(Exception):
    """Bytes are not a Struct, or a value is not one's, or an Any has an unknown message."""


def json_of(name: str, data: bytes) -> str:
    """The JSON of a message with this full name.

    :raises NotStructError: if it isn't one.
    """
    return json.dumps(value_of(name, data, _any_number), ensure_ascii=False, separators=(",", ":"))


def value_of(name: str, data: bytes, shown: _Shown) -> Any:
    """The value that the JSON of a message has, as Python's.

    :param shown: gives the value of a number.
    :raises NotStructError: see :func:`json_of`.
    """
    try:
        return _READERS[name.rpartition(".")[2]](data, 1, shown)
    except (NotWireError, UnicodeDecodeError, RecursionError):
        raise NotStructError from None


def _struct(data: bytes, depth: int, shown: _Shown) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise NotStructError
    found: dict[str, Any] = {}
    for number, wire, _, entry in fields_of(data):
        if number != 1 or wire != SIZED:
            continue
        key, value = "", list[bytes]()
        for part, part_wire, _, body in fields_of(entry):
            if part == 1 and part_wire == SIZED:
                key = body.decode()
            elif part == 2 and part_wire == SIZED:
                value.append(body)
        found[key] = _value(b"".join(value), depth + 1, shown)
    return found


def _list(data: bytes, depth: int, shown: _Shown) -> list[Any]:
    if depth > _DEEPEST:
        raise NotStructError
    items = [body for number, wire, _, body in fields_of(data) if (number, wire) == (1, SIZED)]
    return [_value(body, depth + 1, shown) for body in items]


def _value(data: bytes, depth: int, shown: _Shown) -> Any:
    if depth > _DEEPEST:
        raise NotStructError
    last, bodies = 0, list[bytes]()
    for number, wire, _, found in fields_of(data):
        if _WIRES.get(number) == wire:
            # The parts of a message come together, unless another one was between them.
            if number != last or number not in (_STRUCT, _LIST):
                bodies.clear()
            bodies.append(found)
            last = number
    body = b"".join(bodies)
    if last == _NUMBER:
        return shown(struct.unpack("<d", body)[0])
    if last == _TEXT:
        return body.decode()
    if last == _BOOL:
        return read_varint(body, 0)[0] != 0
    if last == _STRUCT:
        return _struct(body, depth, shown)
    return _list(body, depth, shown) if last == _LIST else None


def _any_number(number: float) -> Any:
    if not math.isfinite(number):
        return "NaN" if number != number else ("Infinity" if number > 0 else "-Infinity")
    return finite_number(number)


def finite_number(number: float) -> int | float:
    """A number as Java's JsonFormat has it, which refuses the others.

    :raises NotStructError: if it is NaN or infinite.
    """
    if not math.isfinite(number):
        raise NotStructError
    return int(number) if number.is_integer() and abs(number) < _MOST_WHOLE else number


_READERS: dict[str, Callable[[bytes, int, _Shown], Any]] = {
    "Struct": _struct,
    "ListValue": _list,
    "Value": _value,
}


def struct_of(name: str, text: str) -> bytes:
    """The message with this full name that JSON is.

    :raises NotStructError: if it isn't JSON, or not that of such a message.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise NotStructError from None
    last = name.rpartition(".")[2]
    if last != "Value" and not isinstance(value, {"Struct": dict, "ListValue": list}[last]):
        raise NotStructError
    try:
        return _encoded_value(value) if last == "Value" else _encoded(value)
    except (RecursionError, OverflowError, UnicodeEncodeError):
        raise NotStructError from None


def _encoded(value: Any) -> bytes:
    """A Struct or a ListValue."""
    if isinstance(value, list):
        return b"".join(_sized(1, _encoded_value(each)) for each in value)
    return b"".join(
        _sized(1, _sized(1, key.encode()) + _sized(2, _encoded_value(each))) for key, each in value.items()
    )


def _encoded_value(value: Any) -> bytes:
    if value is None:
        return bytes([_NULL << 3 | VARINT, 0])
    if isinstance(value, bool):
        return bytes([_BOOL << 3 | VARINT, value])
    if isinstance(value, int | float):
        return bytes([_NUMBER << 3 | FIXED64]) + struct.pack("<d", value)
    if isinstance(value, str):
        return _sized(_TEXT, value.encode())
    return _sized(_LIST if isinstance(value, list) else _STRUCT, _encoded(value))


def _sized(number: int, body: bytes) -> bytes:
    return varint(number << 3 | SIZED) + varint(len(body)) + body
