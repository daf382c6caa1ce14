"""Compiles a writer's message and the reader's shape into a program.

Fields are the same if their numbers are, as protobuf has it, whatever their names are. Integers of any type
are read as any other, cut to its bits where these are fewer, and a value as a list of it or the other way
round. All else that differs is an error here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.columns import Column
from pyspark_kafkalog.extensions.typed_values.protobuf import kernels
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import EnumType, MessageField, MessageType
from pyspark_kafkalog.extensions.typed_values.protobuf.types import ColumnShape
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import WIRE_TYPES, wire_type

_FAMILIES = (
    {kind for kind, wire in WIRE_TYPES.items() if wire != kernels.SIZED} - {"float", "double"},
    {"float", "double"},
    {"string", "bytes"},
)
_CHANGES = {
    "uint32": kernels.UINT32,
    "fixed32": kernels.UINT32,
    "int32": kernels.INT32,
    "sfixed32": kernels.INT32,
    "enum": kernels.INT32,
    "sint32": kernels.ZIGZAG32,
    "sint64": kernels.ZIGZAG64,
    "bool": kernels.BOOL,
}
_STORES = {
    pa.bool_(): kernels.ONE_BYTE,
    pa.int32(): kernels.FOUR_BYTES,
    pa.float32(): kernels.FOUR_BYTES,
    pa.int64(): kernels.EIGHT_BYTES,
    pa.float64(): kernels.EIGHT_BYTES,
}
_MOST_ROWS = 200_000
_NONE = -1


@dataclass(eq=False)
class FieldColumn(Column):
    """A column, and the shape that it has. Enums are filled as numbers, and JSON as the bytes that it is of.

    ``names`` are those of an enum's numbers.
    """

    shape: ColumnShape = field(kw_only=True)
    names: dict[int, str] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class Program:
    """Rows that are to be added to a table, the path of each, and what follows the numbers of enums."""

    rows: np.ndarray
    paths: list[str]
    numbers: list[int]


class MessageCompiler:
    """Compiles programs for one reader.

    :param columns: how many columns there are; the oneofs of programs come behind them.
    :param emits_defaults: whether what stands for nothing is a zero.
    """

    def __init__(self, root: FieldColumn, columns: int, *, emits_defaults: bool) -> None:
        self._root = root
        self._emits_defaults = emits_defaults
        self._columns = columns
        self.levels: list[int] = []
        """The level of each oneof."""
        self._rows: list[list[int]] = []
        self._paths: list[str] = []
        self._numbers: list[int] = []
        self._known: dict[EnumType, tuple[int, int]] = {}
        self._first = 0
        self._count = 0

    def compile(self, writer: MessageType, first: int, numbers: int) -> Program:
        """The program for what ``writer`` has written.

        :param first: the number of its first row.
        :param numbers: how many numbers of enums there are before those of this program.
        :raises SchemaError: if it can't be read as the reader's message; it names the field.
        """
        self._rows, self._paths, self._numbers, self._known = [], [], [], {}
        self._first, self._count = first, numbers
        levels = len(self.levels)
        try:
            self._message(writer, self._root)
        except SchemaError:
            del self.levels[levels:]
            raise
        return Program(np.array(self._rows, np.int64), self._paths, self._numbers)

    def _message(self, writer: MessageType, place: FieldColumn) -> int:
        """Add the message, and give the number of its row."""
        written = {each.number: each for each in writer.fields}
        wanted: dict[int, FieldColumn] = {}
        for part in place.children.values():
            assert isinstance(part, FieldColumn)
            own = part.shape.field
            if own is not None and part.number >= 0 and own.number in written:
                wanted[own.number] = part
        groups = {written[number].oneof for number in wanted} - {None}
        members = {each.number for each in writer.fields if each.oneof in groups}
        level = next((each.level for each in wanted.values()), 0)
        oneofs = {name: self._oneof(level) for name in sorted(groups, key=str)}
        numbers = sorted({*wanted, *members})
        at = self._reserve(place.path, len(numbers))
        for row, number in enumerate(numbers, at + 1):
            each = written[number]
            if number in wanted:
                self._field(row, each, wanted[number])
            else:
                self._set(row, kernels.NUMBER, number)
                self._set(row, kernels.WIRE, wire_type(each))
                if each.is_group:
                    self._set(row, kernels.STORE, kernels.SUBMESSAGE)
                self._set(row, kernels.CHANGE, _CHANGES.get(each.kind, kernels.AS_IT_IS))
                self._set_numbers(row, each)
            oneof = oneofs.get(each.oneof, _NONE)
            self._set(row, kernels.ONEOF, oneof)
            is_number = each.message is None and wire_type(each) != kernels.SIZED
            is_closed = each.enum is not None and each.enum.is_closed
            is_plain = is_number and oneof == _NONE and not wanted[number].items and not is_closed
            self._set(row, kernels.PLAIN, int(is_plain))
        return at

    def _reserve(self, path: str, fields: int) -> int:
        at = self._first + len(self._rows)
        if len(self._rows) + fields >= _MOST_ROWS:
            raise SchemaError(f"To read a writer's Protobuf schema takes more than {_MOST_ROWS} fields")
        self._rows.append([0] * kernels.PROGRAM_COLUMNS)
        self._paths.append(path)
        self._set(at, kernels.FIELDS, fields)
        for _ in range(fields):
            row = [0] * kernels.PROGRAM_COLUMNS
            row[kernels.ITEMS] = row[kernels.VALID] = row[kernels.ONEOF] = _NONE
            self._rows.append(row)
            self._paths.append(path)
        return at

    def _oneof(self, level: int) -> int:
        self.levels.append(level)
        return self._columns + len(self.levels) - 1

    def _set(self, row: int, column: int, value: int) -> None:
        self._rows[row - self._first][column] = value

    def _field(self, row: int, writer: MessageField, place: FieldColumn) -> None:
        self._paths[row - self._first] = place.path
        self._set(row, kernels.NUMBER, writer.number)
        self._set(row, kernels.WIRE, wire_type(writer))
        if (place.shape.form == "map") != writer.is_map:
            raise _differ(writer, place)
        part = place
        if place.items:
            self._set(row, kernels.ITEMS, place.number)
            if place.shape.form == "list":
                found = place.children["element"]
                assert isinstance(found, FieldColumn)
                part = found
        self._set(row, kernels.COLUMN, part.number)
        if part.nullable:
            self._set(row, kernels.VALID, part.number)
            reader = part.shape.field
            assert reader is not None
            self._set(row, kernels.NONZERO, int(not reader.has_presence))
        if writer.message is None:
            self._scalar(row, writer, part)
            return
        if part.shape.form == "json":
            if part.shape.message is None or writer.message.name != part.shape.message.name:
                raise _differ(writer, part)
            if writer.is_group:
                self._set(row, kernels.STORE, kernels.SUBMESSAGE)
                self._set(row, kernels.MESSAGE, self._whole(part))
            else:
                self._set(row, kernels.STORE, kernels.MORE_BYTES)
            return
        if part.shape.message is None:
            raise _differ(writer, part)
        self._set(row, kernels.STORE, kernels.SUBMESSAGE)
        message = writer.message
        if part.shape.form == "time":
            inner = self._time(message, part)
        elif part.shape.form == "wrapper":
            inner = self._wrapper(row, message, part)
        else:
            inner = self._message(message, part)
        self._set(row, kernels.MESSAGE, inner)

    def _whole(self, place: FieldColumn) -> int:
        """Add a message that is stored as its bytes, whatever its fields are."""
        at = self._reserve(place.path, 0)
        self._set(at, kernels.ACTION, kernels.PUT_BYTES)
        self._set(at, kernels.ACTION_COLUMN, place.number)
        return at

    def _time(self, writer: MessageType, place: FieldColumn) -> int:
        assert place.shape.message is not None
        stores = {
            each.number: store
            for each, store in zip(place.shape.message.fields, (kernels.SECONDS, kernels.NANOS), strict=True)
        }
        found = sorted(
            (each for each in writer.fields if each.number in stores), key=lambda each: each.number
        )
        at = self._reserve(place.path, len(found))
        self._set(at, kernels.ACTION, kernels.PUT_TIME)
        self._set(at, kernels.ACTION_COLUMN, place.number)
        for row, each in enumerate(found, at + 1):
            if each.kind not in _FAMILIES[0] or each.is_repeated:
                raise _differ(each, place)
            self._set(row, kernels.NUMBER, each.number)
            self._set(row, kernels.WIRE, wire_type(each))
            self._set(row, kernels.CHANGE, _CHANGES.get(each.kind, kernels.AS_IT_IS))
            self._set(row, kernels.STORE, stores[each.number])
            self._set(row, kernels.COLUMN, place.number)
        return at

    def _wrapper(self, outer: int, writer: MessageType, place: FieldColumn) -> int:
        """Add the message of one value. A zero in it is null, too, as from_protobuf has it."""
        found = [each for each in writer.fields if each.number == 1]
        at = self._reserve(place.path, len(found))
        for row, each in enumerate(found, at + 1):
            self._set(row, kernels.NUMBER, 1)
            self._set(row, kernels.WIRE, wire_type(each))
            self._set(row, kernels.COLUMN, place.number)
            if place.nullable and not self._emits_defaults:
                self._set(outer, kernels.VALID, _NONE)
                self._set(row, kernels.VALID, place.number)
                self._set(row, kernels.NONZERO, 1)
            self._scalar(row, each, place)
        return at

    def _scalar(self, row: int, writer: MessageField, place: FieldColumn) -> None:
        reader = place.shape.field
        assert reader is not None
        kind = reader.kind
        if place.shape.form == "wrapper":
            assert place.shape.message is not None
            kind = place.shape.message.fields[0].kind
        if not any(writer.kind in family and kind in family for family in _FAMILIES):
            raise _differ(writer, place)
        if writer.kind == "double" and kind == "float":
            raise _differ(writer, place)
        change, store = _CHANGES.get(writer.kind, kernels.AS_IT_IS), _STORES.get(place.type)
        if store is None:
            if pa.types.is_decimal(place.type):
                store = kernels.UNSIGNED_DECIMAL
            else:
                store = kernels.UTF8 if writer.checks_utf8 else kernels.ALL_BYTES
        elif place.type == pa.float64():
            change = kernels.FLOAT_TO_DOUBLE if writer.kind == "float" else kernels.AS_IT_IS
        elif place.type == pa.bool_() and writer.enum is None:
            change = kernels.BOOL  # a closed enum's number is looked for as it is
        elif store == kernels.FOUR_BYTES and change in (kernels.AS_IT_IS, kernels.UINT32):
            change = kernels.INT32
        self._set(row, kernels.CHANGE, change)
        self._set(row, kernels.STORE, store)
        if writer.enum is not None:
            for name, number in writer.enum.values:
                place.names.setdefault(number, name)
            self._set_numbers(row, writer)

    def _set_numbers(self, row: int, writer: MessageField) -> None:
        """Set the numbers of a closed enum, any other of which makes a field unknown."""
        if writer.enum is not None and writer.enum.is_closed:
            first, last = self._closed(writer.enum)
            self._set(row, kernels.FIRST, first)
            self._set(row, kernels.LAST, last)

    def _closed(self, enum: EnumType) -> tuple[int, int]:
        """The numbers of an enum, sorted, among those of all enums."""
        if enum not in self._known:
            found = sorted({number for _, number in enum.values})
            first = self._count + len(self._numbers)
            self._numbers += found
            self._known[enum] = first, first + len(found)
        return self._known[enum]


def _differ(writer: MessageField, place: FieldColumn) -> SchemaError:
    path = place.path.removeprefix(".") or "The value"
    return SchemaError(f"{path}: the reader's schema expects {place.shape.field}, the writer's has {writer}")
