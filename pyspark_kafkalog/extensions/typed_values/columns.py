"""Columns that kernels fill, nested ones too, in one block of memory, and Arrow's arrays of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import allocate, as_array
from pyspark_kafkalog.codec.rows import as_utf8
from pyspark_kafkalog.errors import OptionError, listed
from pyspark_kafkalog.extensions.typed_values import column_kernels
from pyspark_kafkalog.extensions.typed_values.ddl import ddl, is_in_list_or_map
from pyspark_kafkalog.extensions.typed_values.table import COUNT, SIZES, VALIDITY, VALUES

_FEW = 32
"""Entries of a map that are compared with one another."""


@dataclass(frozen=True, eq=False)
class DecodedBodies:
    """The values that a kernel has decoded from some rows.

    :ivar array: of the decoder's type, a row each. A null body is null. A corrupt one is a struct of nulls if
        the type is a struct, as Spark's functions give it in PERMISSIVE mode, and else null.
    :ivar causes: int64, a row each: 0, or why it is corrupt, one of the causes of the format's kernels. Rows
        of a foreign schema have the whole reason in place of a path.
    """

    array: pa.Array
    causes: np.ndarray
    _faults: np.ndarray
    _paths: list[str]
    _why: Mapping[int, str]

    @property
    def corrupt(self) -> np.ndarray:
        """The numbers of rows that are corrupt."""
        return np.flatnonzero(self.causes)

    def reason(self, row: int) -> str:
        """The reason why a row is corrupt: the field, what was expected there, and the byte of the body."""
        cause, step, byte = (int(number) for number in self._faults[:, row])
        if cause not in self._why:
            return self._paths[step]
        path = self._paths[step].removeprefix(".") if step >= 0 else ""
        return f"{f'{path}: ' if path else ''}{self._why[cause]}, at byte {byte}"


@dataclass(eq=False)
class Column:
    """A column that is filled, or a part of one.

    :ivar path: where it is, for people.
    :ivar number: its row in the kernels' table of columns; -1: it is not wanted.
    :ivar level: 0: it has a position for each row; else for each item of the list with this number.
    :ivar nullable: whether it has a validity of its own.
    :ivar children: by name: the fields of a struct; ``element`` of a list; ``key`` and ``value`` of a map.
    """

    path: str
    type: pa.DataType
    number: int
    level: int
    nullable: bool
    children: dict[str, Column] = field(default_factory=dict)
    items: int = 0
    """The level of a list's or a map's items."""


class GrowingRows:
    """Rows that are added to one another, in an array that doubles so that many cost what each costs."""

    def __init__(self, rows: np.ndarray) -> None:
        self._room, self.count = rows, len(rows)

    @property
    def rows(self) -> np.ndarray:
        """All of them; a view, until more are added."""
        return self._room[: self.count]

    def add(self, rows: np.ndarray) -> None:
        count = self.count + len(rows)
        if count > len(self._room):
            room = np.empty((max(count, 2 * len(self._room)), *rows.shape[1:]), self._room.dtype)
            room[: self.count] = self.rows
            self._room = room
        self._room[self.count : count] = rows
        self.count = count


def lay_out(columns: Sequence[Column], table: np.ndarray, room: np.ndarray) -> np.ndarray:
    """A block of memory for the columns, zeroed except for bytes; ``table`` gets where each part lies in it.

    :param room: how many elements there are for each count: of rows, the items of each list, and bytes.
    """
    end = 0

    def reserve(elements: int, width: int) -> int:
        nonlocal end
        at = end
        end += -(-elements * width // 64) * 64
        return at // width

    for column in columns:
        length = int(room[column.level])
        row = table[column.number]
        if column.nullable:
            row[VALIDITY] = reserve(length, 1)
        if column.items or has_bytes(column.type):
            row[SIZES] = reserve(length + 1, 4) + 1
        elif not pa.types.is_struct(column.type) and not pa.types.is_null(column.type):
            row[VALUES] = reserve(length, width_of(column.type))
    zeroed = end
    for column in columns:
        if has_bytes(column.type):
            row = table[column.number]
            row[VALUES] = reserve(int(room[row[COUNT]]), 1)
    out = allocate(max(end, 64))
    out[:zeroed] = 0
    return out


class Arrays:
    """Makes Arrow's arrays of what a kernel has filled.

    :param table: where the parts of each column lie in ``out``.
    :param lengths: how many rows, and items of each list, there are.
    :param fine: which rows there are, for columns without a validity of their own; None: all.
    :param text: the memory of bytes; None: that of the rest.
    """

    def __init__(
        self,
        table: np.ndarray,
        lengths: np.ndarray,
        out: np.ndarray,
        fine: np.ndarray | None = None,
        text: np.ndarray | None = None,
    ) -> None:
        self._table = table
        self._lengths = lengths
        self._out = out
        self._buffer = pa.py_buffer(out)
        self._text = self._buffer if text is None else pa.py_buffer(text)
        self._fine = fine

    def of(self, column: Column) -> pa.Array:
        """The array of a column."""
        return self.array(column, self.valid(column))

    def valid(self, column: Column) -> np.ndarray | None:
        """The rows that have a value; None: all."""
        if column.nullable:
            at = int(self._table[column.number, VALIDITY])
            return self._out[at : at + int(self._lengths[column.level])].view(bool)
        return self._fine if column.level == 0 else None

    def array(self, column: Column, valid: np.ndarray | None) -> pa.Array:
        """The array of a column of which there are the ``valid`` values."""
        kind, row, length = column.type, self._table[column.number], int(self._lengths[column.level])
        if pa.types.is_null(kind):
            return pa.nulls(length)
        validity = None
        if valid is not None and not valid.all():
            validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
        if pa.types.is_struct(kind):
            children = [self.of(column.children[field.name]) for field in kind]
            return pa.Array.from_buffers(kind, length, [validity], children=children)
        if column.items:
            offsets = self._offsets(row, length)
            inner = [self.of(part) for part in column.children.values()]
            if "key" not in column.children:
                return pa.Array.from_buffers(kind, length, [validity, pa.py_buffer(offsets)], children=inner)
            return self.map(kind, validity, offsets, *inner)
        if has_bytes(kind):
            offsets = self._offsets(row, length)
            data = self._text.slice(int(row[VALUES]), int(offsets[-1]))
            return self.bytes(pa.Array.from_buffers(kind, length, [validity, pa.py_buffer(offsets), data]))
        width = width_of(kind)
        at = width * int(row[VALUES])
        if pa.types.is_boolean(kind):
            bits = np.packbits(self._out[at : at + length], bitorder="little")
            return pa.Array.from_buffers(kind, length, [validity, pa.py_buffer(bits)])
        return pa.Array.from_buffers(kind, length, [validity, self._buffer.slice(at, width * length)])

    def map(
        self,
        kind: pa.MapType,
        validity: pa.Buffer | None,
        offsets: np.ndarray,
        keys: pa.Array,
        values: pa.Array,
    ) -> pa.MapArray:
        """A column of maps."""
        fields = [kind.key_field, kind.item_field]
        entries = pa.Array.from_buffers(pa.struct(fields), len(keys), [None], children=[keys, values])
        return pa.Array.from_buffers(
            kind, offsets.size - 1, [validity, pa.py_buffer(offsets)], children=[entries]
        )

    def bytes(self, column: pa.Array) -> pa.Array:
        """A column of strings or binary values."""
        return column

    def _offsets(self, row: np.ndarray, length: int) -> np.ndarray:
        first = int(row[SIZES]) - 1
        sizes = self._out.view(np.int32)[first : first + length + 1]
        return np.cumsum(sizes, dtype=np.int32, out=sizes)


def check_part(wanted: pa.DataType, full: pa.DataType, path: str) -> None:
    """Check that a type is another one, or that structs in it have some of the fields only.

    :param path: where it is, for people.
    :raises OptionError: naming the field that isn't there, or is of another type.
    """
    if pa.types.is_struct(full) and pa.types.is_struct(wanted):
        fields = {field.name: field.type for field in full}
        for field in wanted:
            if field.name not in fields:
                raise OptionError(
                    f"There is no field {field.name!r} in {path}", hint=f"Give some of {listed(fields, 20)}."
                )
            check_part(field.type, fields[field.name], f"{path}.{field.name}")
    elif pa.types.is_list(full) and pa.types.is_list(wanted):
        check_part(inner_type(wanted), inner_type(full), f"{path}.element")
    elif pa.types.is_map(full) and pa.types.is_map(wanted) and wanted.key_type == full.key_type:
        check_part(inner_type(wanted), inner_type(full), f"{path}.value")
    elif wanted != full:
        raise OptionError(
            f"Expected {ddl(full)} for {path}, got {ddl(wanted)}",
            hint=f"Read it as {ddl(full)}{_conversion(wanted, full, path)}.",
        )


def _conversion(wanted: pa.DataType, full: pa.DataType, path: str) -> str:
    """The rest of an advice: how a column is converted once it is read, if a cast does it."""
    if pa.types.is_nested(wanted) or pa.types.is_nested(full) or is_in_list_or_map(path):
        return ""
    return f", and convert it then: CAST({path} AS {ddl(wanted)})"


class DatumArrays(Arrays):
    """Arrays of bodies whose text may not be UTF-8, and whose maps may have a key twice."""

    def bytes(self, column: pa.Array) -> pa.Array:
        return as_utf8(column) if pa.types.is_string(column.type) else column

    def map(
        self,
        kind: pa.MapType,
        validity: pa.Buffer | None,
        offsets: np.ndarray,
        keys: pa.Array,
        values: pa.Array,
    ) -> pa.MapArray:
        return super().map(kind, validity, *_last_entries(offsets, keys, values))


def _last_entries(
    offsets: np.ndarray, keys: pa.Array, values: pa.Array
) -> tuple[np.ndarray, pa.Array, pa.Array]:
    """The entries of maps, of which the last one with each key counts, as in Java.

    :param offsets: int32, of each map's entries.
    """
    if column_kernels.repeats(offsets, *_bytes_of(keys), _FEW):
        codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
        in_map = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
        pairs = (in_map * (codes.max() + 1) + codes)[::-1]
        last = np.sort(pairs.size - 1 - np.unique(pairs, return_index=True)[1])
        offsets = np.searchsorted(last, offsets).astype(np.int32)
        keys, values = keys.take(pa.array(last)), values.take(pa.array(last))
    return offsets, keys, values


def _bytes_of(keys: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the bytes of keys, and these bytes."""
    if pa.types.is_boolean(keys.type):
        keys = keys.cast(pa.uint8())
    if not has_bytes(keys.type):
        width = keys.type.bit_width // 8
        return np.arange(len(keys) + 1, dtype=np.int32) * width, as_array(keys.buffers()[1] or b"")
    _, ends, data = keys.buffers()
    return np.frombuffer(ends, np.int32)[: len(keys) + 1], as_array(data or b"")


def has_bytes(kind: pa.DataType) -> bool:
    """Whether it is a string or binary."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def width_of(kind: pa.DataType) -> int:
    """Bytes of a value while it is filled: a boolean has one."""
    return 1 if pa.types.is_boolean(kind) else kind.bit_width // 8


def inner_type(kind: pa.DataType) -> pa.DataType:
    """The type of a list's items or a map's values."""
    return kind.item_type if pa.types.is_map(kind) else kind.value_type
