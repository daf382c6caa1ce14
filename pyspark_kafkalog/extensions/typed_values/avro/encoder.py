"""Encodes columns as Avro bodies, column by column, and tells before any row whether a type fits a schema."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import int64_column, list_column, valid_rows, validity_of
from pyspark_kafkalog.codec.text import TEXT, Choices, Part, joined_texts, texts_of_lists
from pyspark_kafkalog.errors import InvalidRecordError, SchemaError, listed
from pyspark_kafkalog.extensions.typed_values.avro import kernels
from pyspark_kafkalog.extensions.typed_values.avro.schema import (
    NAME,
    Array,
    Enum,
    Fixed,
    Map,
    Record,
    Schema,
    Union,
)
from pyspark_kafkalog.extensions.typed_values.avro.types import arrow_type
from pyspark_kafkalog.extensions.typed_values.ddl import differs

_Part: TypeAlias = bytes | pa.Array | Part
"""A part of each body, as :func:`.text.joined_texts` takes it."""
_PROMOTED = {
    pa.int8(): (pa.int32(), pa.int64()),
    pa.int16(): (pa.int32(), pa.int64()),
    pa.int32(): (pa.int64(),),
    pa.float32(): (pa.float64(),),
}
"""The types that numbers may be written as, if their own type has none in Avro or the schema another one."""
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_NESTED = (Record, Array, Map)
_MOST_DIGITS = 38
_LARGEST_DEFAULT = 1 << 20
"""Bytes of one field's default, with one for each value: records with defaults may be in one another."""
_MOST_LONG = (1 << 63) - 1
_ALL = np.empty(0, np.uint8)


class _Varints:
    """Numbers in zigzag, by seven bits from the lowest on, as a part of each row.

    :param validity: a bitmap of the rows that have one; empty if all have.
    :param null: the byte of a union's branch that null has, and ``some`` that before a number, if rows have
        their branches.
    """

    def __init__(
        self,
        values: np.ndarray,
        validity: np.ndarray = _ALL,
        null: int = kernels.NO_BYTE,
        some: int = kernels.NO_BYTE,
    ) -> None:
        self._numbers = values, validity, null, some

    def behind(self, null: int, some: int) -> _Varints:
        """The same behind the branches of a union."""
        values, validity, *_ = self._numbers
        return _Varints(values, validity, null, some)

    def measure(self, sizes: np.ndarray) -> None:
        """See :meth:`.text.Part.measure`."""
        kernels.measure_varints(*self._numbers, sizes)

    def put(self, at: np.ndarray, out: np.ndarray) -> None:
        """See :meth:`.text.Part.put`."""
        kernels.put_varints(*self._numbers, at, out)


class _Decimals:
    """Unscaled numbers in two's complement, big-endian, as a part of each row; null is empty.

    :param schema: a fixed, whose size they have, or bytes: as few as will do, behind their number.
    """

    def __init__(self, schema: Schema, column: pa.Array, path: str) -> None:
        self._schema, self._path = schema, path
        column = column.cast(pa.decimal128(_MOST_DIGITS, schema.scale))
        words = np.frombuffer(column.buffers()[1] or b"", np.int64)[2 * column.offset :][: 2 * len(column)]
        self._numbers = words, validity_of(column), schema.size if isinstance(schema, Fixed) else 0

    def measure(self, sizes: np.ndarray) -> None:
        """See :meth:`.text.Part.measure`.

        :raises InvalidRecordError: for a number that is too large for the size.
        """
        if kernels.measure_decimals(*self._numbers, sizes):
            raise InvalidRecordError(
                f"{self._path}: a row has a number that is too large for its {self._schema}"
            )

    def put(self, at: np.ndarray, out: np.ndarray) -> None:
        """See :meth:`.text.Part.put`."""
        kernels.put_decimals(*self._numbers, at, out)


def check_fits(schema: Schema, kind: pa.DataType, path: str) -> None:
    """Check that values of this type can be written by a schema.

    A field of the schema that a struct doesn't have needs a default, or to be nullable.

    :param path: where the value is, for people: ``value``.
    :raises SchemaError: naming the field.
    """
    if isinstance(schema, Union):
        _check_union(schema, kind, path)
    elif isinstance(schema, Record) and pa.types.is_struct(kind):
        names = [field.name for field in kind]
        known = {field.name: field.schema for field in schema.fields}
        for field in kind:
            if field.name not in known:
                raise SchemaError(
                    f"{path}.{field.name}: the schema has no such field in its {schema}",
                    hint=f"It has {listed(known, 20)}.",
                )
            if names.count(field.name) > 1:
                raise SchemaError(f"{path}.{field.name}: the struct has two such fields")
            check_fits(known[field.name], field.type, f"{path}.{field.name}")
        for each in schema.fields:
            if each.name not in names:
                _left_out(each.schema, each.default if each.has_default else None, f"{path}.{each.name}")
    elif isinstance(schema, Array) and pa.types.is_list(kind):
        check_fits(schema.items, kind.value_type, f"{path}.element")
    elif isinstance(schema, Map) and pa.types.is_map(kind) and kind.key_type == pa.string():
        check_fits(schema.values, kind.item_type, f"{path}.value")
    elif isinstance(schema, _NESTED) or not _fits(schema, kind):
        raise _differs(schema, kind, path)


def _check_union(schema: Union, kind: pa.DataType, path: str) -> None:
    if pa.types.is_null(kind) and schema.is_nullable:
        return
    branches = _branches(schema, kind, path)
    if len(branches) == 1:
        check_fits(branches[0][1], kind, path)
        return
    for (_, branch), field in zip(branches, kind, strict=True):
        check_fits(branch, field.type, f"{path}.{field.name}")


def _branches(schema: Union, kind: pa.DataType, path: str) -> list[tuple[int, Schema]]:
    """The branches that a column is written by, with their numbers: one, or those of a struct's members.

    Of two numbers that are one in Spark it is the wider one.

    :raises SchemaError: if no branch, or more than one, is of the column's type.
    """
    found = [(number, branch) for number, branch in enumerate(schema.branches) if branch.kind != "null"]
    if {branch.kind for _, branch in found} in ({"int", "long"}, {"float", "double"}):
        found = [each for each in found if each[1].kind in ("long", "double")]
    members = [f"member{number}" for number in range(len(found))]
    if len(found) == 1 or (pa.types.is_struct(kind) and [field.name for field in kind] == members):
        return found
    fitting = [each for each in found if _does_fit(each[1], kind, path)]
    if len(fitting) > 1:  # a smaller number is written by its own type rather than by a wider one
        fitting = [
            each for each in fitting if not isinstance(each[1], _NESTED) and arrow_type(each[1]) == kind
        ]
    if len(fitting) != 1:
        raise SchemaError(
            _differs(schema, kind, path).message,
            hint=f"Give a column of the type of one branch only, or a struct of {listed(members, 6)},"
            " of which a row has one.",
        )
    return fitting


def _does_fit(schema: Schema, kind: pa.DataType, path: str) -> bool:
    try:
        check_fits(schema, kind, path)
    except SchemaError:
        return False
    return True


def _fits(schema: Schema, kind: pa.DataType) -> bool:
    """Whether a type that isn't nested is what the schema is read as, or a smaller number."""
    read = arrow_type(schema)
    if pa.types.is_decimal(read) and pa.types.is_decimal(kind):
        return bool(kind.scale == read.scale and kind.precision <= read.precision)
    if pa.types.is_timestamp(read) and pa.types.is_timestamp(kind):
        return (kind.tz is None) == (read.tz is None)
    return kind == read or read in _PROMOTED.get(kind, ())


def schema_of(kind: pa.DataType, path: str, *, name: str = "topLevelRecord") -> str:
    """A schema for values of this type, as JSON, with Spark's names of records (its SchemaConverters).

    What may be null is a union whose first branch is null, its default: so fields can be added later.

    :raises SchemaError: if Avro has none; it names the field.
    """
    return json.dumps(_schema_of(kind, path, name, ""))


def _schema_of(kind: pa.DataType, path: str, name: str, space: str) -> Any:
    def inner(field: pa.Field, path: str, name: str, space: str) -> Any:
        found = _schema_of(field.type, path, name, space)
        return ["null", found] if field.nullable and found != "null" else found

    if pa.types.is_struct(kind):
        full = f"{space}.{name}" if space else name
        fields = []
        for field in kind:
            at = f"{path}.{field.name}"
            if not NAME.fullmatch(field.name):
                raise SchemaError(f"{at}: Avro has no such names")
            found: dict[str, Any] = {"name": field.name, "type": inner(field, at, field.name, full)}
            if isinstance(found["type"], list):
                found["default"] = None
            fields.append(found)
        made = {"type": "record", "name": name, "fields": fields}
        return {**made, "namespace": space} if space else made
    if pa.types.is_list(kind):
        return {"type": "array", "items": inner(kind.value_field, f"{path}.element", name, space)}
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return {"type": "map", "values": inner(kind.item_field, f"{path}.value", name, space)}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        logical = "local-timestamp-micros" if kind.tz is None else "timestamp-micros"
        return {"type": "long", "logicalType": logical}
    if kind == pa.date32():
        return {"type": "int", "logicalType": "date"}
    if kind not in _KINDS:
        raise SchemaError(f"{path}: Avro has no type for {kind}")
    return _KINDS[kind]


_KINDS = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}


class Encoder:
    """Encodes columns of one type by one schema.

    :param kind: the type.
    :param path: where the column is, for people.
    :param prefix: bytes before each body.
    :param is_framed: by Confluent's serializers, which write a value that is bytes without its length.
    :raises SchemaError: see :func:`check_fits`.
    """

    def __init__(
        self, schema: Schema, kind: pa.DataType, path: str, *, prefix: bytes = b"", is_framed: bool = False
    ) -> None:
        check_fits(schema, kind, path)
        self._schema, self._path, self._prefix = schema, path, prefix
        self._is_bare = is_framed and schema.kind == "bytes" and schema.logical is None

    def encode(self, column: pa.Array) -> pa.BinaryArray:
        """The body of each row; nulls stay.

        :raises InvalidRecordError: for a value that the schema can't hold; it names the field.
        """
        given = column.drop_null() if column.null_count else column
        parts = [given.cast(TEXT)] if self._is_bare else _parts(self._schema, given, self._path)
        bodies = joined_texts([self._prefix, *parts], len(given))
        return _spread(bodies, column).cast(pa.binary())


def _parts(schema: Schema, column: pa.Array, path: str) -> Sequence[_Part]:
    """The parts of each row's body. Rows of nested types are not null."""
    if isinstance(schema, Union):
        return _union(schema, column, path)
    if schema.kind == "null":
        return []
    if column.null_count:
        raise _has_null(schema, path)
    if isinstance(schema, Record):
        parts: list[_Part] = []
        numbers = {field.name: number for number, field in enumerate(column.type)}
        for each in schema.fields:
            at = f"{path}.{each.name}"
            if each.name in numbers:
                parts += _parts(each.schema, column.field(numbers[each.name]), at)
            else:
                parts.append(_left_out(each.schema, each.default if each.has_default else None, at))
        return parts
    if isinstance(schema, Array | Map):
        return _items(schema, column, path)
    return _leaf(schema, column, path)


def _union(schema: Union, column: pa.Array, path: str) -> Sequence[_Part]:
    null = next((number for number, each in enumerate(schema.branches) if each.kind == "null"), None)
    if pa.types.is_null(column.type):
        return [_varint(0 if null is None else null)]
    branches = _branches(schema, column.type, path)
    if len(branches) > 1:
        return [*_members(schema, branches, null, column, path)]
    ((number, branch),) = branches
    if not column.null_count:
        return [_varint(number), *_parts(branch, column, path)]
    if null is None:
        raise _has_null(schema, path)
    return _behind(_varint(null), _varint(number), _nullable(branch, column, path), column)


def _behind(null: bytes, some: bytes, parts: list[_Part], column: pa.Array) -> list[_Part]:
    """The parts of the rows of a column behind their branches."""
    first = parts[0] if parts else None
    if isinstance(first, _Varints) and len(null) == len(some) == 1:
        return [first.behind(null[0], some[0]), *parts[1:]]
    return [Choices((null, some), valid_rows(column).view(np.uint8)), *parts]


def _members(
    schema: Union, branches: list[tuple[int, Schema]], null: int | None, column: pa.Array, path: str
) -> Iterator[_Part]:
    """The parts of a union of which each row has one member of a struct, or none."""
    members = column.flatten()
    chosen = np.full(len(column), -1 if null is None else null, np.int64)
    given = [valid_rows(member) for member in members]
    for (number, _), valid in zip(branches, given, strict=True):
        chosen[valid] = number
    if (np.sum(given, axis=0) > 1).any():
        raise InvalidRecordError(f"{path}: a row has more than one member of its {schema}")
    if (chosen < 0).any():
        raise _has_null(schema, path)
    yield _Varints(chosen)
    for (_, branch), member in zip(branches, members, strict=True):
        yield from _nullable(branch, member, path)


def _nullable(schema: Schema, column: pa.Array, path: str) -> list[_Part]:
    """The parts of each row; rows that are null are empty."""
    if not column.null_count:
        return [*_parts(schema, column, path)]
    if isinstance(schema, _NESTED):
        given = column.drop_null()
        return [_spread(joined_texts(_parts(schema, given, path), len(given)), column)]
    return _leaf(schema, column, path)


def _has_null(schema: Schema, path: str) -> InvalidRecordError:
    return InvalidRecordError(f"{path}: a row has null, and its schema, {schema}, has not")


def _items(schema: Array | Map, column: pa.Array, path: str) -> list[_Part]:
    offsets, _ = list_column(column)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    if isinstance(schema, Map):
        keys = _leaf(Schema("string"), column.keys.slice(first, count), f"{path}.key")
        inner = [*keys, *_parts(schema.values, column.items.slice(first, count), f"{path}.value")]
    else:
        inner = [*_parts(schema.items, column.values.slice(first, count), f"{path}.element")]
    bodies = joined_texts(inner, count)
    counts = np.diff(offsets).astype(np.int64)
    has_items = np.packbits(counts > 0, bitorder="little")
    return [_Varints(counts, has_items), texts_of_lists(bodies, offsets - first), b"\0"]


def _leaf(schema: Schema, column: pa.Array, path: str) -> list[_Part]:
    """The same for a type that is not nested; rows that are null are empty."""
    if schema.logical == "decimal":
        return [_Decimals(schema, column, path)]
    if schema.kind in ("string", "bytes"):
        return _sized(column.cast(TEXT))
    if isinstance(schema, Fixed):
        if pc.any(pc.not_equal(pc.binary_length(column), schema.size)).as_py():
            raise InvalidRecordError(f"{path}: a row has other than the {schema.size} bytes of its {schema}")
        return [column.cast(TEXT)]
    if isinstance(schema, Enum):
        numbers = pc.index_in(column, pa.array(schema.symbols, pa.string()))
        if numbers.null_count > column.null_count:
            raise InvalidRecordError(f"{path}: a row has a text that its {schema} has not")
        return [_varints(numbers)]
    if schema.kind == "boolean":
        return [_of_width(column.fill_null(False).to_numpy(zero_copy_only=False), np.uint8, column)]
    if schema.kind in ("float", "double"):
        kind = np.float32 if schema.kind == "float" else np.float64
        return [_of_width(column.fill_null(0).to_numpy(), kind, column)]
    if pa.types.is_timestamp(column.type):
        return [_Varints(_timestamps(schema, column, path), validity_of(column))]
    return [_varints(column.cast(pa.int32()) if pa.types.is_date32(column.type) else column)]


def _varints(numbers: pa.Array) -> _Varints:
    return _Varints(int64_column(numbers.cast(pa.int64())), validity_of(numbers))


def _timestamps(schema: Schema, column: pa.Array, path: str) -> np.ndarray:
    per_second = 1000 if (schema.logical or "").endswith("millis") else 1_000_000
    given = _PER_SECOND[column.type.unit]
    numbers = column.cast(pa.int64())
    if given == per_second:
        return int64_column(numbers)
    numbers = numbers.fill_null(0).to_numpy()
    if given > per_second:
        numbers = numbers // (given // per_second)
    else:
        factor = per_second // given
        most = _MOST_LONG // factor
        if ((numbers > most) | (numbers < -most)).any():
            raise InvalidRecordError(f"{path}: a row has a time that is too large for its {schema}")
        numbers = numbers * factor
    return np.asarray(numbers, np.int64)


def _sized(column: pa.LargeBinaryArray) -> list[_Part]:
    """The length of each row before it."""
    ends = np.frombuffer(column.buffers()[1], np.int64)[column.offset :][: len(column) + 1]
    return [_Varints(np.diff(ends), validity_of(column)), column]


def _of_width(values: np.ndarray, kind: type[np.generic], column: pa.Array) -> pa.Array:
    """Values of this type of numpy's; the rows that are null in the column are null, and empty."""
    data = np.ascontiguousarray(values).astype(kind, copy=False).view(np.uint8)
    ends = np.arange(len(values) + 1, dtype=np.int64) * np.dtype(kind).itemsize
    found = pa.Array.from_buffers(TEXT, len(values), [None, pa.py_buffer(ends), pa.py_buffer(data)])
    return pc.if_else(column.is_valid(), found, pa.scalar(None, TEXT)) if column.null_count else found


def _varint(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def _spread(bodies: pa.Array, column: pa.Array) -> pa.Array:
    """``bodies`` of the rows of a column that are not null, with nulls where those are."""
    if not column.null_count:
        return bodies
    valid = valid_rows(column)
    places = np.cumsum(valid) - 1
    return bodies.take(pa.array(places, mask=~valid))


def _left_out(schema: Schema, default: Any, path: str) -> bytes:
    """The bytes of a field that the struct does not have.

    :raises SchemaError: if it has neither a default nor null, or one without end.
    """
    try:
        found = _default(schema, default, _Room())
    except (_TooLargeError, RecursionError):
        raise SchemaError(
            f"{path}: the struct has no such field, and its default in the schema has more than"
            f" {_LARGEST_DEFAULT} bytes, or leads back to itself"
        ) from None
    if found is None:
        raise SchemaError(
            f"{path}: the struct has no such field, and it has no default in the schema and is not nullable"
        )
    return found


class _TooLargeError(Exception):
    """A default has no room."""


@dataclass(slots=True)
class _Room:
    """The room that is left for a default."""

    left: int = _LARGEST_DEFAULT

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise _TooLargeError


def _default(schema: Schema, value: Any, room: _Room) -> bytes | None:
    """The body of a default, of JSON; None if it isn't of the schema's type.

    :raises _TooLargeError: if there is no room for it.
    """
    found = _default_in(schema, value, room)
    room.take(1 + len(found or b""))
    return found


def _default_in(schema: Schema, value: Any, room: _Room) -> bytes | None:
    if isinstance(schema, Union):
        for number, branch in enumerate(schema.branches):
            if (branch.kind == "null") == (value is None):
                found = _default(branch, value, room)
                if found is not None:
                    return _varint(number) + found
        return None
    if isinstance(schema, Record):
        if not isinstance(value, dict):
            return None
        parts = []
        for each in schema.fields:
            parts.append(_default(each.schema, value.get(each.name, each.default), room))
        return None if None in parts else b"".join(part for part in parts if part is not None)
    if isinstance(schema, Array):
        if not isinstance(value, list):
            return None
        return _blocks([_default(schema.items, item, room) for item in value])
    if isinstance(schema, Map):
        if not isinstance(value, dict):
            return None
        items = [
            (_with_size(key.encode()), _default(schema.values, item, room)) for key, item in value.items()
        ]
        return _blocks([None if item is None else key + item for key, item in items])
    if isinstance(schema, Enum):
        return _varint(schema.symbols.index(value)) if value in schema.symbols else None
    return _simple_default(schema, value)


def _blocks(items: list[bytes | None]) -> bytes | None:
    """The items of an array or a map in one block; None if one is."""
    found = [item for item in items if item is not None]
    if len(found) < len(items):
        return None
    return (_varint(len(items)) + b"".join(found) if items else b"") + b"\0"


def _simple_default(schema: Schema, value: Any) -> bytes | None:
    kind = schema.kind
    if kind == "null":
        return b"" if value is None else None
    if kind == "boolean":
        return bytes([value]) if isinstance(value, bool) else None
    if kind in ("int", "long"):
        most = 31 if kind == "int" else 63
        return _varint(value) if type(value) is int and -(1 << most) <= value < 1 << most else None
    if kind in ("float", "double"):
        try:
            return struct.pack("<f" if kind == "float" else "<d", value)
        except (struct.error, OverflowError):
            return None
    if not isinstance(value, str):
        return None
    try:
        text = value.encode("utf-8" if kind == "string" else "latin-1")
    except UnicodeEncodeError:
        return None
    if isinstance(schema, Fixed):
        return text if len(text) == schema.size else None
    return _with_size(text)


def _with_size(text: bytes) -> bytes:
    return _varint(len(text)) + text


def _differs(schema: Schema, kind: pa.DataType, path: str) -> SchemaError:
    fitting = None if isinstance(schema, Union | Record | Array | Map) else arrow_type(schema)
    return differs(path, schema, kind, fitting)
