"""Compiles a writer's and the reader's schema into operations ("Schema Resolution" of Avro's specification).

As in Java's Resolver, a branch of a writer's union, or a symbol of its enum, that the reader's schema has no
place for is a fault of the rows that have it. All else that does not fit is an error here.

Names of records need not be equal outside of unions. A timestamp has the unit that its writer's schema says.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.avro import kernels
from pyspark_kafkalog.extensions.typed_values.avro.schema import (
    Array,
    Enum,
    Fixed,
    Map,
    Named,
    Record,
    Schema,
    Union,
)
from pyspark_kafkalog.extensions.typed_values.columns import Column

_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""The types that a writer's type may be read as."""
_SIZES = {"boolean": 1, "float": 4, "double": 8}
"""Bytes."""
_PUT_SIZED = {
    "boolean": kernels.PUT_BOOLEAN,
    "float": kernels.PUT_FLOAT,
    "double": kernels.PUT_DOUBLE,
}
_PUT_NUMBER = {
    pa.int32(): kernels.PUT_INT32,
    pa.date32(): kernels.PUT_INT32,
    pa.float32(): kernels.PUT_AS_FLOAT,
    pa.float64(): kernels.PUT_AS_DOUBLE,
}
"""The operations that put a varint into columns that aren't int64."""
_ONE_VALUE = {
    *(kernels.PUT_BYTES, kernels.PUT_DECIMAL, kernels.PUT_FIXED, kernels.PUT_FIXED_DECIMAL),
    *(kernels.PUT_INT32, kernels.PUT_INT64, kernels.PUT_AS_FLOAT, kernels.PUT_AS_DOUBLE),
    *(kernels.PUT_MILLIS, kernels.PUT_BOOLEAN, kernels.PUT_FLOAT, kernels.PUT_DOUBLE),
    *(kernels.PUT_FLOAT_AS_DOUBLE, kernels.SET_BOOLEAN, kernels.SET_INT32, kernels.SET_INT64),
    *(kernels.SET_INT128, kernels.SET_BYTES),
}
"""The operations that write one value of their column."""
_TIMESTAMPS = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")
_MOST_OPERATIONS = 200_000


@dataclass(eq=False)
class Operation:
    """A row of a program. ``a`` may be another one, or is the first of ``rows``, which lie side by side."""

    path: str
    code: int
    next: Operation | None = None
    column: int = 0
    a: int | Operation = 0
    b: int = 0
    valid: bool = False
    rows: Sequence[Operation] = ()


class Compiler:
    """Operations for one reader's schema, and the bytes of their constants."""

    def __init__(self, reader: Schema, column: Column) -> None:
        self._reader = reader
        self._column = column
        self._skipped: dict[Record, Operation] = {}
        self._empty: dict[Record, bool] = {}
        self._whole: Schema | None = None
        self._count = 0
        self._texts: dict[tuple[str, str], bytes] = {}
        self._places: dict[bytes, int] = {}
        """The position of each of the constants."""
        self.constants = bytearray()

    def compile(self, writer: Schema, *, is_framed: bool = False) -> Operation:
        """The first operation of a program that reads what ``writer`` has written.

        :param is_framed: by Confluent's serializers, which write a value that is bytes without its length.
        :raises SchemaError: if the two schemas do not fit; it names the field.
        """
        self._skipped.clear()
        self._empty.clear()
        self._texts.clear()
        self._count = 0
        self._whole = writer if is_framed and writer.kind == "bytes" else None
        try:
            return self._read(writer, self._reader, self._column, self._new("", kernels.END))
        except (_TooLargeError, RecursionError):
            raise SchemaError(
                f"To read a writer's Avro schema takes more than {_MOST_OPERATIONS} operations, or has more "
                "than some hundred schemas in one another"
            ) from None

    def _new(self, path: str, code: int, then: Operation | None = None, **more: Any) -> Operation:
        self._count += 1
        if self._count > _MOST_OPERATIONS:
            raise _TooLargeError
        return Operation(path, code, then, **more)

    def _put(self, code: int, column: Column, then: Operation, **more: Any) -> Operation:
        return self._new(column.path, code, then, column=column.number, **more)

    def _choose(self, path: str, cause: int, rows: Sequence[Operation], then: Operation) -> Operation:
        """Go on with one of ``rows``; those that do nothing are ``then``."""
        own = [self._new(path, kernels.GO_ON, then) if row is then else row for row in rows]
        return self._new(path, kernels.CHOOSE, column=cause, b=len(own), rows=own)

    def _loop(self, path: str, *, takes_no_bytes: bool, then: Operation) -> tuple[Operation, Operation]:
        """The block of a list, and the last operation of an item. :meth:`_begin` says which is the first."""
        block = self._new(path, kernels.BLOCK, b=int(takes_no_bytes))
        block.rows = [self._new(path, kernels.GO_ON, then), self._new(path, kernels.SKIP_NUMBER)]
        return block, self._new(path, kernels.REPEAT, block)

    @staticmethod
    def _begin(block: Operation, repeat: Operation, item: Operation) -> Operation:
        block.next = block.rows[1].next = repeat.a = item
        return block

    def _read(self, writer: Schema, reader: Schema, column: Column, then: Operation) -> Operation:
        """Read what ``writer`` has written into ``column``, or skip it, and go on with ``then``."""
        found = self._fill(writer, reader, column, then)
        return found if column.number >= 0 else self._skip(writer, column.path, then)

    def _fill(self, writer: Schema, reader: Schema, column: Column, then: Operation) -> Operation:
        if isinstance(writer, Union):
            return self._writers_union(writer, reader, column, then)
        if isinstance(reader, Union):
            branch = self._branch(writer, reader, column)
            part = self._part(reader, branch, column)
            return self._present(branch, part, column, self._read(writer, branch, part, then))
        if writer.kind != reader.kind:
            if reader.kind not in _PROMOTED.get(writer.kind, ()):
                raise _differ(writer, reader, column)
        elif isinstance(writer, Record) and isinstance(reader, Record):
            return self._record(writer, reader, column, then)
        elif isinstance(writer, Array) and isinstance(reader, Array):
            return self._list(writer.items, reader.items, column, then)
        elif isinstance(writer, Map) and isinstance(reader, Map):
            return self._list(writer.values, reader.values, column, then)
        elif isinstance(writer, Named) and isinstance(reader, Named) and not reader.is_named_as(writer):
            raise _differ(writer, reader, column)
        if writer.logical == reader.logical == "decimal" and writer.scale != reader.scale:
            raise _differ(writer, reader, column)
        if isinstance(writer, Enum) and isinstance(reader, Enum):
            return self._enum(writer, reader, column, then)
        if isinstance(writer, Fixed) and isinstance(reader, Fixed):
            if writer.size != reader.size:
                raise _differ(writer, reader, column)
            is_decimal = pa.types.is_decimal(column.type)
            code = kernels.PUT_FIXED_DECIMAL if is_decimal else kernels.PUT_FIXED
            return self._put(code, column, then, a=writer.size)
        return self._primitive(writer, reader, column, then)

    def _writers_union(self, writer: Union, reader: Schema, column: Column, then: Operation) -> Operation:
        rows: list[Operation] = []
        differs, fits = None, False
        for branch in writer.branches:
            try:
                rows.append(self._fill(branch, reader, column, then))
                fits = True
            except SchemaError as e:
                differs = differs or e
                rows.append(self._new(column.path, kernels.FAIL, a=kernels.NO_BRANCH))
        if differs is not None and not fits:
            raise differs
        return self._choose(column.path, kernels.BRANCH, rows, then)

    def _branch(self, writer: Schema, reader: Union, column: Column) -> Schema:
        """The branch of the reader's union that takes what ``writer`` writes, as Java's Resolver does."""
        same = [branch for branch in reader.branches if branch.kind == writer.kind]
        if not isinstance(writer, Named):
            promoted = _PROMOTED.get(writer.kind, ())
            same += [branch for branch in reader.branches if branch.kind in promoted]
        else:
            named = [branch for branch in same if isinstance(branch, Named)]
            exact = [branch for branch in named if branch.name == writer.name]
            fitting = [] if exact else [each for each in named if self._fits(writer, each, reader, column)]
            same = [*exact, *sorted(fitting, key=lambda branch: not branch.is_named_as(writer))]
        if not same:
            raise _differ(writer, reader, column)
        return same[0]

    def _fits(self, writer: Schema, branch: Schema, reader: Union, column: Column) -> bool:
        try:
            self._fill(writer, branch, self._part(reader, branch, column), self._new("", kernels.END))
        except SchemaError:
            return False
        return True

    @staticmethod
    def _part(reader: Union, branch: Schema, column: Column) -> Column:
        """The column for a branch of the reader's union: a member of a struct, or the column itself."""
        others = reader.others
        if branch.kind == "null" or len(others) == 1 or not pa.types.is_struct(column.type):
            return column
        return column.children[f"member{others.index(branch)}"]

    def _present(self, branch: Schema, part: Column, column: Column, then: Operation) -> Operation:
        """Mark a column, and the part that a branch of its union fills, as not null, unless it is."""
        if branch.kind == "null":
            return then
        for each in (part, column) if part is not column else (column,):
            if not each.nullable or each.number < 0:
                continue
            if then.code not in _ONE_VALUE or then.column != each.number:
                then = self._put(kernels.GO_ON, each, then)
            then.valid = True
        return then

    def _record(self, writer: Record, reader: Record, column: Column, then: Operation) -> Operation:
        written = {each.name for each in writer.fields}
        found = {each.name: each for each in reader.fields if each.name in written}
        missing = []
        for each in reader.fields:
            if each.name not in found:
                former = [alias for alias in each.aliases if alias in written and alias not in found]
                if former:
                    found[former[0]] = each
                elif each.has_default:
                    missing.append(each)
                else:
                    raise SchemaError(
                        f"{_place(column.children[each.name])}: the writer's {writer} has no such field, "
                        "and the reader's has no default for it"
                    )
        for each in reversed(missing):
            then = self._constant(each.default, each.schema, column.children[each.name], then)
        for each in reversed(writer.fields):
            read_as = found.get(each.name)
            if read_as is None:
                then = self._skip(each.schema, f"{column.path}.{each.name}", then)
            else:
                then = self._read(each.schema, read_as.schema, column.children[read_as.name], then)
        return then

    def _list(self, writer: Schema, reader: Schema, column: Column, then: Operation) -> Operation:
        """Read an array or a map, by the schemas of its items or values."""
        key, part = column.children.get("key"), [*column.children.values()][-1]
        takes_no_bytes = key is None and self._takes_no_bytes(writer)
        block, repeat = self._loop(column.path, takes_no_bytes=takes_no_bytes, then=then)
        item = self._read(writer, reader, part, repeat)
        if key is not None:
            item = self._put(kernels.PUT_BYTES, key, item)
        return self._begin(block, repeat, self._put(kernels.PUT_ITEM, column, item))

    def _enum(self, writer: Enum, reader: Enum, column: Column, then: Operation) -> Operation:
        rows, known = [], {*reader.symbols}
        for symbol in writer.symbols:
            read_as = symbol if symbol in known else reader.default
            if read_as is None:
                rows.append(self._new(column.path, kernels.FAIL, a=kernels.NO_SYMBOL))
            else:
                rows.append(self._bytes(self._encoded(read_as), column, then))
        return self._choose(column.path, kernels.SYMBOL, rows, then)

    def _primitive(self, writer: Schema, reader: Schema, column: Column, then: Operation) -> Operation:
        kind = writer.kind
        if kind == "null":
            return then
        if kind in _SIZES:
            code = _PUT_SIZED[kind]
            if kind == "float" and column.type == pa.float64():
                code = kernels.PUT_FLOAT_AS_DOUBLE
            return self._put(code, column, then, a=_SIZES[kind])
        if kind in ("bytes", "string"):
            is_decimal = pa.types.is_decimal(column.type)
            if writer is self._whole:
                code = kernels.PUT_FIXED_DECIMAL if is_decimal else kernels.PUT_FIXED
                return self._put(code, column, then, a=kernels.REST)
            return self._put(kernels.PUT_DECIMAL if is_decimal else kernels.PUT_BYTES, column, then)
        code = _PUT_NUMBER.get(column.type, kernels.PUT_INT64)
        if pa.types.is_timestamp(column.type) and _is_in_millis(writer, reader):
            code = kernels.PUT_MILLIS
        return self._put(code, column, then, a=int(kind == "int"))

    def _skip(self, writer: Schema, path: str, then: Operation) -> Operation:
        """Skip what ``writer`` has written."""
        if writer is self._whole:
            return self._new(path, kernels.SKIP, then, a=kernels.REST)
        if self._takes_no_bytes(writer):
            return then
        if isinstance(writer, Union):
            rows = [self._skip(branch, path, then) for branch in writer.branches]
            return self._choose(path, kernels.BRANCH, rows, then)
        if isinstance(writer, Array | Map):
            items = writer.items if isinstance(writer, Array) else writer.values
            takes_no_bytes = isinstance(writer, Array) and self._takes_no_bytes(items)
            block, repeat = self._loop(path, takes_no_bytes=takes_no_bytes, then=then)
            item = self._skip(items, path, repeat)
            if isinstance(writer, Map):
                item = self._new(path, kernels.SKIP_BYTES, item)
            return self._begin(block, repeat, item)
        if isinstance(writer, Record):
            return self._new(path, kernels.CALL, self._skip_record(writer), a=then)
        if isinstance(writer, Fixed):
            return self._new(path, kernels.SKIP, then, a=writer.size)
        if writer.kind in _SIZES:
            return self._new(path, kernels.SKIP, then, a=_SIZES[writer.kind])
        if writer.kind in ("bytes", "string"):
            return self._new(path, kernels.SKIP_BYTES, then)
        return self._new(path, kernels.SKIP_NUMBER, then, a=int(writer.kind != "long"))

    def _skip_record(self, writer: Record) -> Operation:
        """The operation that skips a record. It is one for all places, as a record may contain itself."""
        if writer not in self._skipped:
            self._skipped[writer] = first = self._new(writer.name, kernels.GO_ON)
            then = self._new(writer.name, kernels.RETURN)
            for each in reversed(writer.fields):
                then = self._skip(each.schema, f"{writer.name}.{each.name}", then)
            first.next = then
        return self._skipped[writer]

    def _takes_no_bytes(self, schema: Schema) -> bool:
        """Whether values of a schema have no bytes. A record that always contains itself has no values."""
        if isinstance(schema, Record):
            if schema not in self._empty:
                self._empty[schema] = False
                self._empty[schema] = all(self._takes_no_bytes(each.schema) for each in schema.fields)
            return self._empty[schema]
        return schema.kind == "null" or (isinstance(schema, Fixed) and schema.size == 0)

    def _constant(self, value: Any, reader: Schema, column: Column, then: Operation) -> Operation:
        """Fill a column with a default, of JSON."""
        found = self._default(value, reader, column, then)
        return found if column.number >= 0 else then

    def _default(self, value: Any, reader: Schema, column: Column, then: Operation) -> Operation:
        if isinstance(reader, Union):
            for branch in reader.branches:
                if (branch.kind == "null") != (value is None):
                    continue
                part = self._part(reader, branch, column)
                try:
                    return self._present(branch, part, column, self._constant(value, branch, part, then))
                except SchemaError:
                    continue
        elif isinstance(reader, Record) and isinstance(value, dict):
            for each in reversed(reader.fields):
                part = column.children[each.name]
                if each.name in value:
                    then = self._constant(value[each.name], each.schema, part, then)
                elif each.has_default:
                    then = self._constant(each.default, each.schema, part, then)
                else:
                    raise _no_default(value, reader, column)
            return then
        elif isinstance(reader, Array) and isinstance(value, list):
            for item in reversed(value):
                then = self._constant(item, reader.items, column.children["element"], then)
                then = self._put(kernels.PUT_ITEM, column, then)
            return then
        elif isinstance(reader, Map) and isinstance(value, dict):
            for key, item in reversed(value.items()):
                then = self._constant(item, reader.values, column.children["value"], then)
                then = self._bytes(self._encoded(key), column.children["key"], then)
                then = self._put(kernels.PUT_ITEM, column, then)
            return then
        elif isinstance(reader, Enum):
            if value in reader.symbols:
                return self._bytes(self._encoded(value), column, then)
        else:
            found = self._simple_default(value, reader, column, then)
            if found is not None:
                return found
        raise _no_default(value, reader, column)

    def _simple_default(
        self, value: Any, reader: Schema, column: Column, then: Operation
    ) -> Operation | None:
        """The operation that writes a constant; None if the value isn't of the type."""
        kind = reader.kind
        if kind == "null":
            return then if value is None else None
        if kind == "boolean":
            if not isinstance(value, bool):
                return None
            return self._put(kernels.SET_BOOLEAN, column, then, a=int(value))
        if kind in ("int", "long"):
            most = 31 if kind == "int" else 63
            if type(value) is not int or not -(1 << most) <= value < 1 << most:
                return None
            if pa.types.is_timestamp(column.type) and _is_in_millis(reader, reader):
                value *= 1000
                if not -(1 << 63) <= value < 1 << 63:
                    return None
            is_narrow = column.type in (pa.int32(), pa.date32())
            return self._put(kernels.SET_INT32 if is_narrow else kernels.SET_INT64, column, then, a=value)
        if kind in ("float", "double"):
            if type(value) not in (int, float):
                return None
            is_narrow = column.type == pa.float32()
            number, bits = "fi" if is_narrow else "dq"
            try:
                packed = struct.pack(f"<{number}", np.float32(value) if kind == "float" else value)
            except (OverflowError, struct.error):  # the latter for an int that no double holds
                return None
            code = kernels.SET_INT32 if is_narrow else kernels.SET_INT64
            return self._put(code, column, then, a=struct.unpack(f"<{bits}", packed)[0])
        if not isinstance(value, str):
            return None
        try:
            text = self._encoded(value, "utf-8" if kind == "string" else "latin-1")
        except UnicodeEncodeError:
            return None
        if isinstance(reader, Fixed) and len(text) != reader.size:
            return None
        if not pa.types.is_decimal(column.type):
            return self._bytes(text, column, then)
        unscaled = int.from_bytes(text, "big", signed=True)
        if not text or abs(unscaled) >= 10**reader.precision:
            return None
        low, high = struct.unpack("<qq", unscaled.to_bytes(16, "little", signed=True))
        return self._put(kernels.SET_INT128, column, then, a=low, b=high)

    def _encoded(self, text: str, encoding: str = "utf-8") -> bytes:
        """The bytes of a text, which may be a long one that a schema needs many times."""
        found = self._texts.get((text, encoding))
        if found is None:
            found = self._texts[text, encoding] = text.encode(encoding)
        return found

    def _bytes(self, text: bytes, column: Column, then: Operation) -> Operation:
        at = self._places.get(text)
        if at is None:
            at = self._places[text] = len(self.constants)
            self.constants += text
        return self._put(kernels.SET_BYTES, column, then, a=at, b=len(text))


class _TooLargeError(Exception):
    """A program grows without bound, whichever branch is tried."""


def rows_of(first: Operation, at: int) -> tuple[np.ndarray, list[str]]:
    """A program, whose first row is to be row ``at`` of a table, and the path of each row."""
    placed: dict[Operation, int] = {}
    due: list[Sequence[Operation]] = [[first]]
    while due:
        rows = due.pop()
        if rows[0] in placed:
            continue
        for row in rows:
            placed[row] = at + len(placed)
        for row in reversed(rows):
            due += [[each] for each in (row.a, row.next) if isinstance(each, Operation)]
            if row.rows:
                due.append(row.rows)
    table = []
    for row in placed:
        a = row.rows[0] if row.rows else row.a
        following = 0 if row.next is None else placed[row.next]
        a = placed[a] if isinstance(a, Operation) else a
        table.append((row.code, following, row.column, a, row.b, row.valid))
    return np.array(table, np.int64), [row.path for row in placed]


def _is_in_millis(writer: Schema, reader: Schema) -> bool:
    unit = writer.logical if writer.logical in _TIMESTAMPS else reader.logical
    return unit in ("timestamp-millis", "local-timestamp-millis")


def _place(column: Column) -> str:
    return column.path.removeprefix(".") or "The value"


def _differ(writer: Schema, reader: Schema, column: Column) -> SchemaError:
    return SchemaError(f"{_place(column)}: the reader's schema expects {reader}, the writer's has {writer}")


def _no_default(value: Any, reader: Schema, column: Column) -> SchemaError:
    shown = repr(value)[:100]
    return SchemaError(
        f"{_place(column)}: the default {shown} in the reader's schema is not of its type, {reader}"
    )
