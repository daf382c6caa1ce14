"""Decodes JSON to a column of structs, and tells of each corrupt row why."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.fields import text_of
from pyspark_kafkalog.extensions.typed_values.columns import (
    Arrays,
    Column,
    has_bytes,
    inner_type,
    lay_out,
    width_of,
)
from pyspark_kafkalog.extensions.typed_values.ddl import ddl
from pyspark_kafkalog.extensions.typed_values.json import kernels
from pyspark_kafkalog.extensions.typed_values.json.respelling_kernels import LARGEST_GROWTH, respell
from pyspark_kafkalog.extensions.typed_values.json.rows import root
from pyspark_kafkalog.extensions.typed_values.json.times import Zone, seconds_east_of_clocks, zone
from pyspark_kafkalog.extensions.typed_values.json.tokens import Fault
from pyspark_kafkalog.extensions.typed_values.table import COUNT, POSITION, SIZES, VALIDITY, VALUES

_KINDS = {
    pa.string(): kernels.STRING,
    pa.bool_(): kernels.BOOLEAN,
    pa.int8(): kernels.INT8,
    pa.int16(): kernels.INT16,
    pa.int32(): kernels.INT32,
    pa.int64(): kernels.INT64_,
    pa.float32(): kernels.FLOAT,
    pa.float64(): kernels.DOUBLE,
    pa.date32(): kernels.DATE,
    pa.timestamp("us", tz="UTC"): kernels.TIMESTAMP,
    pa.timestamp("us"): kernels.TIMESTAMP_NTZ,
}
_ODD_NAME = re.compile('["\\\\\x00-\x1f\ufffd]')
"""The characters that are escaped in JSON; and the one that Java has for bytes that are not UTF-8."""
_ZONE_NAME = re.compile(rb':[0-9]{1,2}(?:\.[0-9]*)? ?([A-Za-z+-][A-Za-z0-9~/._+:-]*)"')
"""The end of a time that names its zone."""
_SAMPLE = 1000
"""Rows, in which new zones are looked for."""
_LEAST_ROOM, _MOST_SPARE = 64, 1 << 16


@dataclass(frozen=True, eq=False)
class DecodedJson:
    """The values decoded from some rows.

    :ivar array: of the decoder's type, a row each. Null and blank values are null. A corrupt one has the
        fields that could be read, as from_json gives it in PERMISSIVE mode, and its text if that is wanted.
    :ivar corrupt: the numbers of rows that are corrupt, in order.
    :ivar slow: how many rows the compiled code has left, by the place where, in words.
    """

    array: pa.Array
    corrupt: np.ndarray
    slow: Counter[str]
    _value: Callable[[int], bytes]
    _fault: Callable[[int], Fault | None]

    def reason(self, row: int) -> str:
        """The reason why a row is corrupt: the field, what was expected there, and the byte of the value."""
        fault = self._fault(row)
        assert fault is not None, "it is corrupt"
        path = ".".join(fault.path)
        return f"{f'{path}: ' if path else ''}{fault.why}, at byte {_byte(self._value(row), fault.at)}"


class Decoder:
    """Decodes JSON by one schema. For one thread at a time.

    :param kind: a struct as :func:`.types.check_type` wants it.
    :param zone: of timestamps without one.
    :param corrupt: the field that gets the text of corrupt rows, if the struct has it.
    """

    def __init__(self, kind: pa.StructType, zone: Zone, corrupt: str) -> None:
        self.type: pa.StructType = kind
        self._corrupt = corrupt
        self._inner = pa.struct([field for field in kind if field.name != corrupt])
        self._zone = zone
        self._convert = root(self._inner, zone)
        self._columns: list[Column] = []
        self._levels = 1
        self._root = self._column(self._inner, "", 0)
        self._has_odd_names = any(_ODD_NAME.search(column.path) for column in self._columns)
        """Whether a name may not be the bytes between its quotes."""
        self._table = np.zeros((len(self._columns), kernels.COLUMN_COLUMNS), np.int64)
        self._fill_table()
        self._room = np.full(self._counts.size, _LEAST_ROOM, np.int64)
        """The number of items and bytes that earlier batches had."""
        self._zones: dict[bytes, Zone] = {}
        """The zones that times have named, which the kernel knows by their places in ``_zone_names``."""
        self._zone_names = np.empty(0, np.uint8)

    def decode(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> DecodedJson:
        """Decode the values ``data[start:start + size]``, a row each, in their order.

        :param data: uint8.
        :param starts: int64, like ``sizes``, within ``data``.
        :param sizes: in bytes; negative for null.
        """
        array, marks = self._common(data, starts, sizes)

        def value(row: int) -> bytes:
            return data[starts[row] : starts[row] + sizes[row]].tobytes()

        if self._has_odd_names:
            marks[sizes >= 0] = kernels.RARE
        else:
            while (left := self._left_in_new_zones(marks, value)).size:
                found_there, marks[left] = self._common(data, starts[left], sizes[left])
                array = _with(array, left, found_there)
            array = self._respelled(array, marks, data, starts, sizes)
        faults: dict[int, Fault | None] = {}
        rare, found = np.flatnonzero(marks >= kernels.RARE), []
        for row in rare.tolist():
            fields, faults[row] = self._convert(text_of(value(row)))
            found.append(fields)
        if rare.size:
            array = _with(array, rare, pa.array(found, self._inner))
        is_corrupt = marks == kernels.CORRUPT
        is_corrupt[[row for row, fault in faults.items() if fault is not None]] = True
        corrupt = np.flatnonzero(is_corrupt)
        if self._corrupt in self.type.names:
            array = self._with_texts(array, {row: text_of(value(row)) for row in corrupt.tolist()})
        places_left = zip(*np.unique(marks[rare], return_counts=True), strict=True)
        slow = Counter({self._left_at(int(mark)): int(count) for mark, count in places_left})
        return DecodedJson(
            array, corrupt, slow, value, lambda row: faults.get(row) or self._convert(text_of(value(row)))[1]
        )

    def _respelled(
        self, array: pa.Array, marks: np.ndarray, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> pa.Array:
        """Have the kernel decode rows that it left as soon as they are spelled in its way."""
        left = np.flatnonzero(marks >= kernels.RARE)
        if not left.size:
            return array
        out = np.empty(LARGEST_GROWTH * int(sizes[left].sum()), np.uint8)
        new_sizes = np.empty(left.size, np.int64)
        respell(data, starts[left], sizes[left], out, new_sizes)
        is_other = new_sizes >= 0
        rows, new_sizes = left[is_other], new_sizes[is_other]
        if not rows.size:
            return array
        found, marks[rows] = self._common(out, np.cumsum(new_sizes) - new_sizes, new_sizes)
        return _with(array, rows, found)

    def _left_in_new_zones(self, marks: np.ndarray, value: Callable[[int], bytes]) -> np.ndarray:
        """The rows that the kernel left at a time, if some of them name zones that it had not met."""
        left: np.ndarray = np.flatnonzero(marks >= kernels.RARE)
        left = left[self._table[(marks[left] - kernels.RARE) // 2, kernels.KIND] == kernels.TIMESTAMP]
        met = len(self._zones)
        for row in left[:: left.size // _SAMPLE + 1].tolist():
            for name in _ZONE_NAME.findall(value(row)):
                self._meet(name)
        if len(self._zones) == met:
            return left[:0]
        names = [bytes([len(name)]) + name.ljust(kernels.ZONE_BYTES - 1) for name in self._zones]
        self._zone_names = np.frombuffer(b"".join(names), np.uint8)
        return left

    def _meet(self, name: bytes) -> None:
        """Have the kernel know a zone, if it is one, and there are not too many."""
        if len(name) < kernels.ZONE_BYTES and len(self._zones) < kernels.MOST_ZONES:
            found = zone(name.decode())
            if found is not None:
                self._zones[name] = found

    def _left_at(self, mark: int) -> str:
        """The place where the kernel has left a row, in words."""
        number, is_value = divmod(mark - kernels.RARE, 2)
        column = self._columns[number]
        name = column.path.removeprefix(".")
        if is_value and name:
            return f"field {name!r}, of type {ddl(column.type)}"
        return f"a name or punctuation in {repr(name) if name else 'the value'}"

    def _common(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """The columns that the kernel decodes, and the rows that it leaves."""
        rows = sizes.size
        room = self._room.copy()
        room[0] = rows
        room[self._levels :] += min(int(sizes.max(initial=0)), _MOST_SPARE)
        counts = np.full(room.size, -1, np.int64)
        counts[self._levels :] = 0
        gone, marks = np.empty_like(counts), np.zeros(rows, np.int64)
        closing, name = np.empty(kernels.MOST_DEPTH, np.uint8), np.empty(kernels.LONGEST_NAME, np.uint8)
        stack, seen = np.empty((2, 2 * len(self._columns)), np.int64)
        table = self._table.copy()
        out = lay_out(self._columns, table, room)
        first, seconds = 0, self._zone if isinstance(self._zone, int) else kernels.NO_ZONE
        while True:
            seen[:] = 0
            first, lacking, needed = kernels.decode(
                *(data, starts, sizes, first, seconds, self._zone_names, table),
                *(self._children, self._slots, self._names),
                *(_powers(), room, counts, gone, stack, seen, closing, name),
                *(out, out.view(np.int32), out.view(np.int64), marks),
            )
            if lacking < 0:
                break
            # Others will soon lack room, too, and moving all is slow.
            room = np.maximum(room, 2 * counts)
            room[0] = rows
            room[lacking] = max(2 * room[lacking], needed)
            old, at, table = out, table, table.copy()
            out = lay_out(self._columns, table, room)
            self._move(old, at, out, table, rows, counts)
        lengths = counts[: self._levels] + 1
        lengths[0] = rows
        if self._zones or not isinstance(self._zone, int):
            self._place(table, lengths, out)
        self._room[1:] = np.maximum(counts[1:] + counts[1:] // 8, _LEAST_ROOM)
        return Arrays(table, lengths, out).of(self._root), marks

    def _place(self, table: np.ndarray, lengths: np.ndarray, out: np.ndarray) -> None:
        """Have timestamps by the clocks of a zone be those of UTC."""
        zones = [self._zone, *self._zones.values()]
        for column in self._columns:
            row = table[column.number]
            if row[kernels.KIND] != kernels.TIMESTAMP:
                continue
            valid = out[row[VALIDITY] : row[VALIDITY] + lengths[column.level]]
            micros = out.view(np.int64)[row[VALUES] : row[VALUES] + lengths[column.level]]
            for what in np.unique(valid[valid >= kernels.LOCAL]).tolist():
                local = np.flatnonzero(valid == what)
                valid[local] = 1
                seconds = micros[local] // 1_000_000
                micros[local] -= seconds_east_of_clocks(zones[what - kernels.LOCAL], seconds) * 1_000_000

    def _move(
        self,
        old: np.ndarray,
        at: np.ndarray,
        out: np.ndarray,
        table: np.ndarray,
        rows: int,
        counts: np.ndarray,
    ) -> None:
        """Take what has been decoded from one block to a larger one, by the tables of both."""
        for column in self._columns:
            before, after = at[column.number], table[column.number]
            length = rows if column.level == 0 else int(counts[column.level]) + 1
            parts = [(VALIDITY, 1, length)]
            if column.items or has_bytes(column.type):
                parts.append((SIZES, 4, length))
            if has_bytes(column.type):
                parts.append((VALUES, 1, int(counts[after[COUNT]])))
            elif not column.items and not pa.types.is_struct(column.type):
                parts.append((VALUES, width_of(column.type), length))
            for part, width, elements in parts:
                to, begin = width * int(after[part]), width * int(before[part])
                out[to : to + width * elements] = old[begin : begin + width * elements]

    def _with_texts(self, array: pa.Array, texts: dict[int, str]) -> pa.Array:
        """The structs with the text of those that are corrupt."""
        fields = [
            pa.array(map(texts.get, range(len(array))), pa.string(), size=len(array))
            if field.name == self._corrupt
            else array.field(field.name)
            for field in self.type
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(self.type), mask=mask)

    def _column(self, kind: pa.DataType, path: str, level: int) -> Column:
        column = Column(path, kind, len(self._columns), level, True)
        self._columns.append(column)
        if pa.types.is_struct(kind):
            for field in kind:
                column.children[field.name] = self._column(field.type, f"{path}.{field.name}", level)
        elif pa.types.is_map(kind) or pa.types.is_list(kind):
            column.items = self._levels
            self._levels += 1
            name = "element"
            if pa.types.is_map(kind):
                column.children["key"] = self._column(pa.string(), f"{path}.key", column.items)
                name = "value"
            column.children[name] = self._column(inner_type(kind), f"{path}.{name}", column.items)
        return column

    def _fill_table(self) -> None:
        """Fill the kernel's table of the columns."""
        children: list[int] = []
        slots: list[int] = []
        names, counts = bytearray(), self._levels
        for column in self._columns:
            row, kind = self._table[column.number], column.type
            row[POSITION] = column.level
            row[kernels.CHILDREN] = len(children)
            row[kernels.FIELDS] = len(column.children)
            row[kernels.BEHIND] = column.number + _columns_in(kind)
            children += [child.number for child in column.children.values()]
            if pa.types.is_struct(kind):
                row[kernels.KIND] = kernels.STRUCT
                row[kernels.SLOTS] = len(slots)
                encoded = [name.encode() for name in column.children]
                own = _slots(encoded)
                row[kernels.MASK] = len(own) - 1
                slots += own
                for ordinal, (name, child) in enumerate(zip(encoded, column.children.values(), strict=True)):
                    self._table[child.number, kernels.ORDINAL] = ordinal
                    self._table[child.number, kernels.NAME_AT] = len(names)
                    self._table[child.number, kernels.NAME_SIZE] = len(name)
                    names += name
            elif column.items:
                row[kernels.KIND] = kernels.MAP if pa.types.is_map(kind) else kernels.LIST
                row[COUNT] = column.items
            elif pa.types.is_decimal(kind):
                row[kernels.KIND] = kernels.DECIMAL
                row[kernels.SCALE] = kind.scale
                row[kernels.PRECISION] = kind.precision
            else:
                row[kernels.KIND] = _KINDS[kind]
            if has_bytes(kind):
                row[COUNT] = counts
                counts += 1
        self._children = np.array(children, np.int64)
        self._slots = np.array(slots, np.int64)
        self._names = np.frombuffer(bytes(names), np.uint8)
        self._counts = np.zeros(counts, np.int64)


def _with(array: pa.Array, rows: np.ndarray, others: pa.Array) -> pa.Array:
    """An array with others at ``rows``."""
    places = np.arange(len(array))
    places[rows] = len(array) + np.arange(rows.size)
    return pa.concat_arrays([array, others]).take(pa.array(places))


def _columns_in(kind: pa.DataType) -> int:
    """The number of columns of a type, with those within it."""
    if pa.types.is_struct(kind):
        return 1 + sum(_columns_in(field.type) for field in kind)
    if pa.types.is_map(kind):
        return 2 + _columns_in(kind.item_type)
    return 1 + (_columns_in(kind.value_type) if pa.types.is_list(kind) else 0)


def _slots(names: list[bytes]) -> list[int]:
    """A hash table of the numbers of names, as :func:`.kernels.field_of` looks them up; -1: none is there."""
    size = 2
    while size < 2 * len(names):
        size *= 2
    found = [-1] * size
    for number, name in enumerate(names):
        digest = len(name)
        for byte in name:
            digest = (digest * 31 + byte) & 0x7FFFFFFF
        while found[digest % size] >= 0:
            digest += 1
        found[digest % size] = number
    return found


@cache
def _powers() -> np.ndarray:
    """The upper 128 bits of powers of five from -342 to 308, high and low."""
    rows = []
    for power in range(-342, 309):
        if power >= 0:
            number = 5**power << 128
        else:
            exact = 5**-power
            number = (1 << (exact.bit_length() + 256)) // exact
        number >>= number.bit_length() - 128
        number += kernels.LEAST_ROUNDED <= power < 0
        rows.append([number >> 64, number & (2**64 - 1)])
    return np.array(rows, np.uint64).view(np.int64)


def _byte(value: bytes, at: int) -> int:
    """The byte where a character of the text of a value begins."""
    return bisect_left(
        range(len(value)), at, key=lambda end: len(text_of(value[:end]).encode("utf-16-le")) // 2
    )
