"""Decodes Protobuf messages to a column of the reader's type, and tells of each corrupt one why."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import allocate, as_array
from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.column_decoder import TooLargeBatchError
from pyspark_kafkalog.extensions.typed_values.columns import (
    Column,
    DatumArrays,
    DecodedBodies,
    GrowingRows,
    has_bytes,
    inner_type,
    lay_out,
)
from pyspark_kafkalog.extensions.typed_values.protobuf import kernels
from pyspark_kafkalog.extensions.typed_values.protobuf.any_json import AnyPrinter
from pyspark_kafkalog.extensions.typed_values.protobuf.resolution import FieldColumn, MessageCompiler
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import MessageType
from pyspark_kafkalog.extensions.typed_values.protobuf.struct_json import NotStructError, json_of
from pyspark_kafkalog.extensions.typed_values.protobuf.types import (
    ANY,
    AS_FROM_PROTOBUF,
    ColumnShape,
    shape_of,
)
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import NotWireError, with_one_of_each
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions
from pyspark_kafkalog.extensions.typed_values.table import COUNT, POSITION, SIZES

_NO_TYPES: Mapping[str, MessageType] = {}
CORRUPT = 0
"""An entry for rows whose framing is wrong: they come out as corrupt, whatever their bytes are."""
_TABLE_COLUMNS = 5
_WHY = {
    kernels.SHORT: "the value ends too early",
    kernels.TAG: "expected the number of a field, from 1 on",
    kernels.WIRE_TYPE: "expected one of protobuf's six wire types",
    kernels.LONG: "expected a number of up to 64 bits",
    kernels.TEXT: "expected UTF-8",
    kernels.ENDS: "a group ends that did not begin",
    kernels.TIME: "the time does not fit into 64 bits of microseconds",
    kernels.DEPTH: f"expected at most {kernels.STACK - 1} messages in one another",
    kernels.LARGE: "a column of its batch would have 2 GiB or more",
    kernels.FRAMING: "expected the key of a schema and a message of it, as the registry's serializers write"
    " them",
    kernels.JSON: "expected a google.protobuf.Struct or one of its values, or an Any of a message that the"
    " schema has",
    kernels.AGAIN: "a oneof has several of its fields",
}


class MessageDecoder:
    """Decodes what several writers have written, by one reader's message. For one thread at a time.

    :param reader: the message that all is read as.
    :param columns: a part of the type of it, which :func:`.check_part` has let pass: structs may have some of
        their fields only, in any order, at any depth. The rest is checked against the end of its message, and
        skipped. By default all.
    :param types: the messages that an Any may have if it is read as JSON, by their names.
    :raises SchemaError: if Spark has no type for the message.
    """

    def __init__(
        self,
        reader: MessageType,
        columns: pa.DataType | None = None,
        options: ProtobufOptions = AS_FROM_PROTOBUF,
        types: Mapping[str, MessageType] = _NO_TYPES,
    ) -> None:
        shape = shape_of(reader, options)
        self.type: pa.DataType = shape.type if columns is None else columns
        self._reader = reader
        self._printer = AnyPrinter(types, enums_as_ints=options.enums_as_ints)
        self._emits_defaults = options.emits_defaults
        self._columns: list[FieldColumn] = []
        self._lists: dict[int, FieldColumn] = {}
        """The list or map that has the items of each level."""
        self._levels = 1
        self._root = self._place(shape, self.type, "", 0, nullable=False)
        self._counts = np.zeros(self._levels, np.int64)
        self._counts[:] = -1
        table = np.zeros((len(self._columns), _TABLE_COLUMNS), np.int64)
        for column in self._columns:
            row = table[column.number]
            row[POSITION] = column.level
            if column.items:
                row[COUNT] = column.items
            elif has_bytes(column.type):
                row[COUNT] = self._counts.size
                self._counts = np.append(self._counts, 0)
        self._table = GrowingRows(table)
        self._compiler = MessageCompiler(
            self._root, len(self._columns), emits_defaults=options.emits_defaults
        )
        self._program = GrowingRows(_refusal(kernels.FRAMING))
        self._paths = [""]
        self._numbers = GrowingRows(np.empty(0, np.int64))
        self._writers: dict[int, MessageType] = {}

    def add(self, writer: MessageType) -> int:
        """The entry for rows of this writer's message; to be kept as long as the decoder is used.

        :raises SchemaError: if the reader's message can't read what it writes, or is another one.
        """
        if writer.name.rpartition(".")[2] != self._reader.name.rpartition(".")[2]:
            raise SchemaError(
                f"the value is a {writer}, and is read as a {self._reader}",
                hint="Read each message by a query of its own, with value.message (key.message).",
            )
        entry, oneofs = self._program.count, len(self._compiler.levels)
        found = self._compiler.compile(writer, entry, self._numbers.count)
        self._program.add(found.rows)
        self._paths += found.paths
        self._numbers.add(np.array(found.numbers, np.int64))
        levels = np.zeros((len(self._compiler.levels) - oneofs, _TABLE_COLUMNS), np.int64)
        levels[:, POSITION] = self._compiler.levels[oneofs:]
        self._table.add(levels)
        self._writers[entry] = writer
        return entry

    def refuse(self, reason: str) -> int:
        """The entry for rows that are corrupt for this reason, whatever their bytes are."""
        entry = self._program.count
        self._program.add(_refusal(kernels.FOREIGN))
        self._paths.append(reason)
        return entry

    def decode(
        self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, entries: np.ndarray
    ) -> DecodedBodies:
        """Decode the bodies ``data[start:start + size]``, a row each, in their order.

        :param data: uint8.
        :param starts: int64, like the others, within ``data``.
        :param sizes: in bytes; negative for null.
        :param entries: what :meth:`add` has given for each row's writer, or :data:`CORRUPT`.
        :raises TooLargeBatchError: if a column of several rows would have 2 GiB or more.
        """
        faults = np.zeros((kernels.FAULT_COLUMNS, starts.size), np.int64)
        is_rewritten = False
        while True:
            counts = self._run(data, starts, sizes, entries, faults, 0, None)
            again = np.flatnonzero(faults[kernels.CAUSE] == kernels.AGAIN)
            if again.size and not is_rewritten:
                data, starts, sizes = self._rewritten(data, starts, sizes, entries, faults)
                is_rewritten = True
                continue
            room = counts
            room[: self._levels] += 1
            room[0] = starts.size
            table = self._table.rows.copy()
            out = lay_out(self._columns, table, room)
            self._run(data, starts, sizes, entries, faults, 1, (table, out))
            try:
                array = self._array(table, out, room, sizes, faults)
            except _UnreadableError as e:
                faults[kernels.CAUSE, e.rows] = e.cause
                faults[kernels.FAILED_AT, e.rows] = -1
                continue
            return DecodedBodies(array, faults[kernels.CAUSE], faults, self._paths, _WHY)

    def _run(
        self,
        data: np.ndarray,
        starts: np.ndarray,
        sizes: np.ndarray,
        entries: np.ndarray,
        faults: np.ndarray,
        fill: int,
        filled: tuple[np.ndarray, np.ndarray] | None,
    ) -> np.ndarray:
        """Count, or fill; returns how far positions are, and the most bytes that columns had."""
        table, out = (self._table.rows, allocate(64)) if filled is None else filled
        counts, peaks = self._counts.copy(), self._counts.copy()
        states = np.full((max(len(table), 1), kernels.STATE_COLUMNS), kernels.NOWHERE, np.int64)
        stack = np.empty((kernels.STACK, kernels.STACK_COLUMNS), np.int64)
        kernels.decode(
            *(data, starts, sizes, entries, self._program.rows, table, self._numbers.rows, fill),
            *(counts, peaks, np.empty_like(counts), states, stack),
            *(out, out.view(np.int32), out.view(np.int64), faults),
        )
        return np.maximum(counts, peaks)

    def _rewritten(
        self,
        data: np.ndarray,
        starts: np.ndarray,
        sizes: np.ndarray,
        entries: np.ndarray,
        faults: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same rows, those that are to be read again with one field of each oneof and without a fault."""
        rows, bodies = [], []
        for row in np.flatnonzero(faults[kernels.CAUSE] == kernels.AGAIN).tolist():
            try:
                body = data[starts[row] : starts[row] + sizes[row]].tobytes()
                bodies.append(with_one_of_each(self._writers[int(entries[row])], body))
            except NotWireError:
                faults[kernels.CAUSE, row] = kernels.SHORT
            else:
                faults[:, row] = 0
                rows.append(row)
        starts, sizes = starts.copy(), sizes.copy()
        sizes[rows] = [len(body) for body in bodies]
        starts[rows] = data.size + np.cumsum(sizes[rows]) - sizes[rows]
        return np.concatenate([data, as_array(b"".join(bodies))]), starts, sizes

    def _array(
        self, table: np.ndarray, out: np.ndarray, room: np.ndarray, sizes: np.ndarray, faults: np.ndarray
    ) -> pa.Array:
        corrupt = faults[kernels.CAUSE] != kernels.FINE
        given = sizes >= 0
        fine = given & ~corrupt
        arrays = _Arrays(
            table, room[: self._levels], out, None if fine.all() else fine, self._lists, self._printer
        )
        valid = arrays.valid(self._root)
        if corrupt.any():
            valid = corrupt | given
        return arrays.array(self._root, valid)

    def _place(
        self, shape: ColumnShape, wanted: pa.DataType | None, path: str, level: int, *, nullable: bool
    ) -> FieldColumn:
        """The column for a shape, or for what is ``wanted`` of it."""
        number = -1 if wanted is None else len(self._columns)
        kind = shape.type if wanted is None else wanted
        if shape.form == "enum":
            kind = pa.int32()
        elif shape.form == "json":
            kind = pa.binary()
        place = FieldColumn(path, kind, number, level, nullable, shape=shape)
        if wanted is None:
            return place
        self._columns.append(place)
        if shape.field is not None and shape.field.enum is not None:
            for name, value in shape.field.enum.values:
                place.names.setdefault(value, name)
        if shape.form in ("list", "map"):
            place.items = self._levels
            self._lists[self._levels] = place
            self._levels += 1
            for name, part in shape.parts.items():
                inner = part.type if name == "key" else inner_type(wanted)
                place.children[name] = self._place(part, inner, f"{path}.{name}", place.items, nullable=False)
        elif shape.form == "message":
            names = {field.name: field.type for field in wanted}
            for name, part in shape.parts.items():
                own = part.field
                is_bare = own is not None and (
                    own.is_repeated or (self._emits_defaults and not own.has_presence)
                )
                place.children[name] = self._place(
                    part, names.get(name), f"{path}.{name}", level, nullable=not is_bare
                )
        return place


def _refusal(cause: int) -> np.ndarray:
    """The message of rows that are corrupt whatever their bytes are."""
    row = np.zeros((1, kernels.PROGRAM_COLUMNS), np.int64)
    row[0, kernels.ACTION], row[0, kernels.ACTION_COLUMN] = kernels.FAIL, cause
    return row


class _UnreadableError(Exception):
    """Rows are corrupt, as only shows when arrays are made: for JSON, or for its size."""

    def __init__(self, rows: np.ndarray, cause: int) -> None:
        super().__init__()
        self.rows, self.cause = rows, cause


class _Arrays(DatumArrays):
    def __init__(
        self,
        table: np.ndarray,
        lengths: np.ndarray,
        out: np.ndarray,
        fine: np.ndarray | None,
        lists: dict[int, FieldColumn],
        printer: AnyPrinter,
    ) -> None:
        super().__init__(table, lengths, out, fine)
        self._lists, self._printer = lists, printer

    def array(self, column: Column, valid: np.ndarray | None) -> pa.Array:
        """The array of a column of which there are the ``valid`` values."""
        assert isinstance(column, FieldColumn)
        array = super().array(column, valid)
        shape = column.shape
        if shape.form == "enum" and pa.types.is_string(shape.type):
            array = self._taken(*_named(array, column))
        elif shape.form == "json":
            array = self._json(array, column)
        default = None if shape.field is None else shape.field.default
        if default is not None and column.nullable:
            if shape.form == "enum" and pa.types.is_string(shape.type):
                default = column.names[default]
            elif pa.types.is_signed_integer(array.type) and default >> array.type.bit_width - 1 > 0:
                default -= 1 << array.type.bit_width  # as its bits are read
            if isinstance(default, str | bytes):
                self._make_room(
                    array.null_count * len(pa.scalar(default, array.type).as_buffer()) + array.nbytes
                )
            array = pc.fill_null(array, pa.scalar(default, array.type))
            if column.level == 0 and self._fine is not None:
                array = pc.if_else(pa.array(self._fine), array, pa.scalar(None, array.type))
        return array

    def _json(self, array: pa.Array, column: FieldColumn) -> pa.Array:
        message = column.shape.message
        assert message is not None
        kinds = array.dictionary_encode()
        texts: list[bytes | None] = []
        wrong: list[int] = []
        room = 0
        for number, value in enumerate(kinds.dictionary.to_pylist()):
            try:
                is_any = message.name == ANY
                text = (self._printer.text(value) if is_any else json_of(message.name, value)).encode()
            except NotStructError:
                texts.append(None)
                wrong.append(number)
            else:
                texts.append(text)
                room += len(text)
                self._make_room(room)
        if wrong:
            positions = np.flatnonzero(np.isin(kinds.indices.fill_null(-1).to_numpy(), wrong))
            raise _UnreadableError(self._rows_of(positions, column.level), kernels.JSON)
        return self._taken(pa.array(texts, pa.string()), kinds.indices)

    def _taken(self, texts: pa.StringArray, indices: pa.Array) -> pa.StringArray:
        """The text of each index; null where that is."""
        sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64)
        counts = np.bincount(indices.drop_null().to_numpy(), minlength=sizes.size)
        self._make_room(int(sizes @ counts))
        return texts.take(indices)

    def _make_room(self, size: int) -> None:
        """Refuse a column of so many bytes if Arrow's offsets can't count them.

        :raises TooLargeBatchError: if a part of the rows may do.
        """
        if size > kernels.MOST:
            if self._lengths[0] > 1:
                raise TooLargeBatchError
            raise _UnreadableError(np.array([0]), kernels.LARGE)

    def _rows_of(self, positions: np.ndarray, level: int) -> np.ndarray:
        """The rows that items of a list are of. The offsets of all lists around them are made."""
        while level:
            around = self._lists[level]
            first = int(self._table[around.number, SIZES]) - 1
            length = int(self._lengths[around.level])
            offsets = self._out.view(np.int32)[first : first + length + 1]
            positions = np.searchsorted(offsets, positions, side="right") - 1
            level = around.level
        return np.unique(positions)


def _named(numbers: pa.Array, place: FieldColumn) -> tuple[pa.StringArray, pa.Array]:
    """The names of an enum's numbers, and which of them each has; Java's name for a number that has none."""
    names = dict(place.names)
    known = np.array(sorted(names), np.int64)
    values = numbers.fill_null(int(known[0])).to_numpy()
    found = np.searchsorted(known, values)
    found[found == known.size] = 0
    unknown = np.unique(values[known[found] != values])
    if unknown.size:
        assert place.shape.field is not None
        enum = place.shape.field.enum
        own = "" if enum is None else enum.name.rpartition(".")[2]
        names |= {int(number): f"UNKNOWN_ENUM_VALUE_{own}_{number}" for number in unknown}
        known = np.array(sorted(names), np.int64)
        found = np.searchsorted(known, values)
    texts = pa.array([names[int(number)] for number in known], pa.string())
    indexes = pa.array(found)
    if numbers.null_count:
        indexes = pc.if_else(numbers.is_valid(), indexes, pa.scalar(None, pa.int64()))
    return texts, indexes
