"""Encodes columns as Protobuf messages, column by column, and tells before any row whether a type fits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import int64_column, list_column, valid_rows, validity_of
from pyspark_kafkalog.codec.text import TEXT, Part, joined_texts, texts_of_lists
from pyspark_kafkalog.errors import InvalidRecordError, SchemaError, listed
from pyspark_kafkalog.extensions.typed_values.ddl import differs
from pyspark_kafkalog.extensions.typed_values.protobuf import kernels
from pyspark_kafkalog.extensions.typed_values.protobuf.kernels import END_GROUP, GROUP, SIZED
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import MessageField, MessageType
from pyspark_kafkalog.extensions.typed_values.protobuf.struct_json import NotStructError, struct_of
from pyspark_kafkalog.extensions.typed_values.protobuf.types import (
    DUMMY,
    ENCODED_AS,
    ColumnShape,
    shape_of,
)
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import WIRE_TYPES, varint
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions

_Part: TypeAlias = bytes | pa.Array | Part
"""A part of each body, as :func:`.text.joined_texts` takes it."""
_ALL = np.empty(0, np.uint8)
_FORMS = {
    "sint32": kernels.AS_ZIGZAG,
    "sint64": kernels.AS_ZIGZAG,
    **dict.fromkeys(("fixed32", "sfixed32", "float"), kernels.AS_FOUR_BYTES),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), kernels.AS_EIGHT_BYTES),
}
_MOST_UINT32 = (1 << 32) - 1
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Numbers:
    """Numbers as a part of each row, behind a tag or without; null is empty."""

    def __init__(
        self, values: np.ndarray, validity: np.ndarray = _ALL, form: int = kernels.AS_VARINT, tag: bytes = b""
    ) -> None:
        self._values, self._validity, self._form = values, validity, form
        self._tag = int.from_bytes(tag, "little"), len(tag)

    def measure(self, sizes: np.ndarray) -> None:
        """See :meth:`.text.Part.measure`."""
        kernels.measure_numbers(self._values, self._validity, self._form, self._tag[1], sizes)

    def put(self, at: np.ndarray, out: np.ndarray) -> None:
        """See :meth:`.text.Part.put`."""
        kernels.put_numbers(self._values, self._validity, self._form, *self._tag, at, out)


def check_fits(message: MessageType, kind: pa.DataType, path: str) -> None:
    """Check that values of this type can be written as a message.

    Fields that a struct doesn't have are not written, unless they are required.

    :param path: where the value is, for people: ``value``.
    :raises SchemaError: naming the field.
    """
    if not pa.types.is_struct(kind):
        raise differs(path, message, kind, None)
    names = [field.name for field in kind]
    known = {field.name: field for field in message.fields}
    for field in kind:
        at = f"{path}.{field.name}"
        if field.name == DUMMY and not known:
            continue
        if field.name not in known:
            raise SchemaError(
                f"{at}: the schema has no such field in its {message}", hint=f"It has {listed(known, 20)}."
            )
        if names.count(field.name) > 1:
            raise SchemaError(f"{at}: the struct has two such fields")
        _check_field(known[field.name], field.type, at)
    for each in message.fields:
        if each.is_required and each.name not in names:
            raise SchemaError(f"{path}.{each.name}: the struct has no such field, and the schema requires it")


def _check_field(field: MessageField, kind: pa.DataType, path: str) -> None:
    if field.is_map and field.message is not None:
        if not pa.types.is_map(kind):
            raise differs(path, field, kind, None)
        key, value = field.message.fields
        _check_value(key, kind.key_type, f"{path}.key")
        _check_value(value, kind.item_type, f"{path}.value")
    elif field.is_repeated:
        if not pa.types.is_list(kind):
            raise differs(path, field, kind, None)
        _check_value(field, kind.value_type, f"{path}.element")
    else:
        _check_value(field, kind, path)


def _check_value(field: MessageField, kind: pa.DataType, path: str) -> None:
    if pa.types.is_null(kind):
        return
    form = _form(field, kind)
    if form is None:
        raise _differs(field, kind, path)
    if form == "message" and field.message is not None:
        check_fits(field.message, kind, path)


def _form(field: MessageField, kind: pa.DataType) -> str | None:
    """The way in which a value of this type is written as a field; None if it can't be."""
    if field.message is None:
        return "scalar" if _is_scalar(field.kind, kind) else None
    own = _shape(field)
    if own is not None and own.form == "time":
        fits = pa.types.is_timestamp(kind) and kind.tz is not None
        if fits if pa.types.is_timestamp(own.type) else pa.types.is_duration(kind):
            return "time"
    if own is not None and own.form == "json" and pa.types.is_string(kind):
        return "json"
    if own is not None and own.form == "wrapper" and _is_scalar(field.message.fields[0].kind, kind):
        return "wrapper"
    return "message" if pa.types.is_struct(kind) else None


def _shape(field: MessageField) -> ColumnShape | None:
    """The shape of a message that need not be a struct."""
    one = MessageField(field.name, field.number, field.kind, field.message)
    try:
        return shape_of(MessageType("", fields=[one]), _UNWRAPPED).parts.get(field.name)
    except SchemaError:
        return None


_UNWRAPPED = ProtobufOptions(unwraps=True, max_depth=1)


def _is_scalar(kind: str, column: pa.DataType) -> bool:
    if kind == "enum":
        return bool(pa.types.is_string(column) or column in (pa.int8(), pa.int16(), pa.int32()))
    return column in ENCODED_AS[kind]


def _differs(field: MessageField, kind: pa.DataType, path: str) -> SchemaError:
    shape = _shape(field)
    return differs(path, field, kind, None if shape is None or pa.types.is_nested(shape.type) else shape.type)


class MessageEncoder:
    """Encodes columns of one type as one message.

    :param kind: the type.
    :param path: where the column is, for people.
    :param prefix: bytes before each body.
    :raises SchemaError: see :func:`check_fits`.
    """

    def __init__(self, message: MessageType, kind: pa.DataType, path: str, *, prefix: bytes = b"") -> None:
        check_fits(message, kind, path)
        self._message, self._path, self._prefix = message, path, prefix

    def encode(self, column: pa.Array) -> pa.BinaryArray:
        """The body of each row; nulls stay.

        :raises InvalidRecordError: for a value that the schema can't hold; it names the field.
        """
        given = column.drop_null() if column.null_count else column
        bodies = joined_texts([self._prefix, *_parts(self._message, given, self._path)], len(given))
        return _spread(bodies, column).cast(pa.binary())


def _parts(message: MessageType, column: pa.StructArray, path: str) -> Iterator[_Part]:
    """The parts of each row's body, in the order of their numbers. No row is null."""
    numbers = {field.name: number for number, field in enumerate(column.type)}
    chosen: dict[str, np.ndarray] = {}
    for field in sorted(message.fields, key=lambda each: each.number):
        at = f"{path}.{field.name}"
        if field.name not in numbers:
            continue
        part = column.field(numbers[field.name])
        if field.oneof is not None and not pa.types.is_null(part.type):
            given = valid_rows(part)
            before = chosen.get(field.oneof)
            if before is not None and (before & given).any():
                raise InvalidRecordError(f"{at}: a row has another field of {field.oneof}, too")
            chosen[field.oneof] = given if before is None else before | given
        if part.null_count and field.is_required:
            raise InvalidRecordError(f"{at}: a row has null, and the schema requires a value")
        yield from _field(field, part, at)


def _field(field: MessageField, column: pa.Array, path: str) -> Sequence[_Part]:
    if pa.types.is_null(column.type):
        return []
    if field.is_repeated:
        return _repeated(field, column, path)
    if field.message is None:
        return _scalars(field, field.kind, column, path, _tag(field))
    return _sized(field, *_bodies(field, column, path))


def _tag(field: MessageField, wire: int | None = None) -> bytes:
    return varint(field.number << 3 | (WIRE_TYPES[field.kind] if wire is None else wire))


def _sized(field: MessageField, bodies: pa.LargeBinaryArray, valid: np.ndarray | None = None) -> list[_Part]:
    """Each of ``bodies`` behind its tag and length, or between the tags of a group; null is empty."""
    if field.is_group:
        first, last = _tag(field, GROUP), _tag(field, END_GROUP)
        whole = joined_texts([first, bodies, last], len(bodies))
        return [whole if valid is None else pc.if_else(pa.array(valid), whole, pa.scalar(None, TEXT))]
    return [*_with_lengths(bodies, _tag(field, SIZED), valid)]


def _with_lengths(
    bodies: pa.LargeBinaryArray, tag: bytes, valid: np.ndarray | None = None
) -> tuple[_Part, _Part]:
    ends = np.frombuffer(bodies.buffers()[1], np.int64)[bodies.offset :][: len(bodies) + 1]
    validity = validity_of(bodies) if valid is None else np.packbits(valid, bitorder="little")
    return _Numbers(np.diff(ends), validity, tag=tag), bodies


def _bodies(
    field: MessageField, column: pa.Array, path: str
) -> tuple[pa.LargeBinaryArray, np.ndarray | None]:
    """The body of each row, and which rows have one; None: all."""
    valid = valid_rows(column) if column.null_count else None
    given = column if valid is None else column.drop_null()
    form, message = _form(field, column.type), field.message
    assert message is not None
    parts: Sequence[_Part]
    if form == "time":
        parts = _time(message, given, path)
    elif form == "json":
        parts = [_structs(message, given, path)]
    elif form == "wrapper":
        inner = message.fields[0]
        parts = _scalars(inner, inner.kind, given, path, _tag(inner))
    else:
        parts = [*_parts(message, given, path)]
    found = joined_texts(parts, len(given))
    return _spread(found, column), valid


def _time(message: MessageType, column: pa.Array, path: str) -> list[_Part]:
    per_second = _PER_SECOND[column.type.unit]
    numbers = int64_column(column.cast(pa.int64()))
    if pa.types.is_timestamp(column.type):
        seconds = numbers // per_second
    else:
        seconds = np.sign(numbers) * (np.abs(numbers) // per_second)
    nanos = (numbers - seconds * per_second) * (1_000_000_000 // per_second)
    parts: list[_Part] = []
    for field, values in zip(message.fields, (seconds, nanos), strict=True):
        parts += _written(field, field.kind, values, None, _tag(field))
    return parts


def _structs(message: MessageType, column: pa.Array, path: str) -> pa.LargeBinaryArray:
    texts = column.dictionary_encode()
    found = []
    for text in texts.dictionary.to_pylist():
        try:
            found.append(struct_of(message.name, text))
        except NotStructError:
            raise InvalidRecordError(
                f"{path}: a row has a text that isn't JSON of a {message.name}"
            ) from None
    return pa.array(found, TEXT).take(texts.indices)


def _repeated(field: MessageField, column: pa.Array, path: str) -> list[_Part]:
    """Items behind their tags, or packed. A null list is empty, as Spark writes it."""
    if column.null_count:
        column = column.fill_null(pa.scalar([], column.type)) if not field.is_map else _filled(column)
    offsets, _ = list_column(column)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    if field.is_map and field.message is not None:
        parts: list[_Part] = []
        columns = column.keys.slice(first, count), column.items.slice(first, count)
        for each, items, name in zip(field.message.fields, columns, ("key", "value"), strict=True):
            at = f"{path}.{name}"
            _refuse_nulls(items, at)
            if each.message is None:
                parts += _scalars(each, each.kind, items, at, _tag(each), writes_zeros=True)
            else:
                parts += _sized(each, *_bodies(each, items, at))
        bodies = _sized(field, joined_texts(parts, count))
        return [texts_of_lists(joined_texts(bodies, count), offsets - first)]
    items = column.values.slice(first, count)
    at = f"{path}.element"
    _refuse_nulls(items, at)
    if field.message is not None:
        parts = [*_sized(field, *_bodies(field, items, at))]
    else:
        tag = b"" if field.is_packed else _tag(field)
        parts = [*_scalars(field, field.kind, items, at, tag, writes_zeros=True)]
    lists = texts_of_lists(joined_texts(parts, count), offsets - first)
    if not field.is_packed:
        return [lists]
    return [*_with_lengths(lists, _tag(field, SIZED), np.diff(offsets) > 0)]


def _filled(column: pa.MapArray) -> pa.MapArray:
    """Maps with no entries in place of nulls."""
    offsets, _ = list_column(column)
    valid = valid_rows(column)
    sizes = np.where(valid, np.diff(offsets), 0)
    if sizes.sum() == offsets[-1] - offsets[0]:
        return pa.MapArray.from_arrays(pa.array(offsets), column.keys, column.items, column.type)
    rows = column.take(pa.array(np.flatnonzero(valid)))
    ends = np.zeros(len(column) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    return pa.MapArray.from_arrays(pa.array(ends), rows.keys, rows.items, column.type)


def _refuse_nulls(items: pa.Array, path: str) -> None:
    if items.null_count:
        raise InvalidRecordError(f"{path}: a row has null, which Protobuf has not within lists and maps")


def _scalars(
    field: MessageField, kind: str, column: pa.Array, path: str, tag: bytes, *, writes_zeros: bool = False
) -> Sequence[_Part]:
    """Each value behind its tag; null is empty, and so is zero where it says no more than nothing."""
    writes_zeros = writes_zeros or field.has_presence
    if pa.types.is_null(column.type):
        return []
    if kind in ("string", "bytes"):
        texts = column.cast(TEXT)
        valid = None
        if not writes_zeros:
            valid = pc.fill_null(pc.greater(pc.binary_length(texts), 0), False).to_numpy(zero_copy_only=False)
        return _with_lengths(texts, tag or _tag(field), valid)
    values = _values(field, kind, column, path)
    valid = valid_rows(column) if column.null_count else None
    return _written(field, kind, values, valid, tag, writes_zeros=writes_zeros)


def _written(
    field: MessageField,
    kind: str,
    values: np.ndarray,
    valid: np.ndarray | None,
    tag: bytes,
    *,
    writes_zeros: bool = False,
) -> list[_Part]:
    if not writes_zeros:
        valid = values != 0 if valid is None else valid & (values != 0)
    validity = _ALL if valid is None or valid.all() else np.packbits(valid, bitorder="little")
    return [_Numbers(values, validity, _FORMS.get(kind, kernels.AS_VARINT), tag)]


def _values(field: MessageField, kind: str, column: pa.Array, path: str) -> np.ndarray:
    """The numbers of a column as 64 bits; those of null are any."""
    if kind == "enum":
        return _enums(field, column, path)
    if kind == "bool":
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False)).astype(np.int64)
    if kind in ("float", "double"):
        width, bits = (np.float32, np.int32) if kind == "float" else (np.float64, np.int64)
        numbers = np.ascontiguousarray(column.fill_null(0).to_numpy().astype(width))
        return numbers.view(bits).astype(np.int64)
    if pa.types.is_decimal(column.type):
        words = np.frombuffer(column.buffers()[1] or b"", np.int64).reshape(-1, 2)
        low, high = words[column.offset :][: len(column)].T
        if (high[valid_rows(column)] != 0).any():
            raise _too_large(kind, path)
        return np.ascontiguousarray(low)
    values = column.cast(pa.int64()).fill_null(0).to_numpy()
    values = np.asarray(values, np.int64)
    if kind in ("uint32", "fixed32"):
        if column.type == pa.int64() and ((values < 0) | (values > _MOST_UINT32)).any():
            raise _too_large(kind, path)
        return np.asarray(values & _MOST_UINT32)  # Java has unsigned numbers in signed ones
    return values


def _too_large(kind: str, path: str) -> InvalidRecordError:
    return InvalidRecordError(f"{path}: a row has a number that a {kind} has not")


def _enums(field: MessageField, column: pa.Array, path: str) -> np.ndarray:
    enum = field.enum
    assert enum is not None
    if pa.types.is_string(column.type):
        names, numbers = zip(*enum.values, strict=True)
        found = pc.index_in(column, pa.array(names, pa.string()))
        if found.null_count > column.null_count:
            raise InvalidRecordError(f"{path}: a row has a text that its {enum} has not")
        return np.asarray(np.array(numbers, np.int64)[found.fill_null(0).to_numpy()])
    first = enum.values[0][1]
    values = column.cast(pa.int64()).fill_null(first).to_numpy()
    if enum.is_closed and not np.isin(values, [number for _, number in enum.values]).all():
        raise InvalidRecordError(f"{path}: a row has a number that its {enum} has not")
    return np.asarray(values, np.int64)


def _spread(bodies: pa.Array, column: pa.Array) -> pa.Array:
    """``bodies`` of the rows of a column that are not null, with nulls where those are."""
    if not column.null_count:
        return bodies
    valid = valid_rows(column)
    places = np.cumsum(valid) - 1
    return bodies.take(pa.array(places, mask=~valid))


_MADE = {
    pa.bool_(): "bool",
    pa.int8(): "int32",
    pa.int16(): "int32",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}
_KEYS = ("string", "bool", "int32", "int64")


def schema_of(kind: pa.DataType, path: str, *, name: str = "Value", package: str = "") -> str:
    """The text of a .proto file with a message for values of this type, its first one.

    Fields are ``optional``, so that a zero is told from null; they are numbered in their order, and structs
    are messages within.

    :param path: where the value is, for people: ``value``.
    :raises SchemaError: if Protobuf has none; it names the field.
    """
    if not pa.types.is_struct(kind):
        raise SchemaError(f"{path}: Protobuf has messages only, so that it needs a struct, got {kind}")
    made = _Text()
    lines = made.message(kind, path, name)
    head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    return "\n".join([*head, *(f'import "{each}";' for each in sorted(made.imports)), *lines, ""])


class _Text:
    """Makes the text of messages, and knows what it imports."""

    def __init__(self) -> None:
        self.imports: set[str] = set()

    def message(self, kind: pa.StructType, path: str, name: str) -> list[str]:
        """The lines of a message for a struct."""
        inner: dict[str, list[str]] = {}
        lines = []
        for number, field in enumerate(kind, 1):
            at = f"{path}.{field.name}"
            if not _NAME.fullmatch(field.name):
                raise SchemaError(f"{at}: Protobuf has no such names")
            if pa.types.is_map(field.type):
                key = _MADE.get(field.type.key_type)
                if key not in _KEYS:
                    raise SchemaError(f"{at}: Protobuf has no maps by {field.type.key_type}")
                value = self._type(field.type.item_type, f"{at}.value", field.name, inner)
                found = f"map<{key}, {value}>"
            elif pa.types.is_list(field.type):
                item = self._type(field.type.value_type, f"{at}.element", field.name, inner)
                found = f"repeated {item}"
            else:
                found = f"optional {self._type(field.type, at, field.name, inner)}"
            lines.append(f"  {found} {field.name} = {number};")
        within = [f"  {line}" for each in inner.values() for line in each]
        return [f"message {name} {{", *within, *lines, "}"]

    def _type(self, kind: pa.DataType, path: str, name: str, inner: dict[str, list[str]]) -> str:
        """The type, whose message is added to those ``inner`` ones if it is new."""
        if pa.types.is_struct(kind):
            own = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
            while own in inner or own in ("", name):
                own += "Message"
            inner[own] = []
            inner[own] = self.message(kind, path, own)
            return own
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            self.imports.add("google/protobuf/timestamp.proto")
            return "google.protobuf.Timestamp"
        if pa.types.is_duration(kind):
            self.imports.add("google/protobuf/duration.proto")
            return "google.protobuf.Duration"
        if kind not in _MADE:
            raise SchemaError(
                f"{path}: Protobuf has no type for {kind}",
                hint="Cast dates, decimals and times without a zone to strings, and put lists in lists into"
                " structs.",
            )
        return _MADE[kind]
