"""Decodes Avro bodies to a column of the reader's type, and tells of each corrupt one why."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import allocate
from pyspark_kafkalog.extensions.typed_values.avro import kernels
from pyspark_kafkalog.extensions.typed_values.avro.resolution import Compiler, Operation, rows_of
from pyspark_kafkalog.extensions.typed_values.avro.schema import Array, Map, Record, Schema, Union
from pyspark_kafkalog.extensions.typed_values.avro.types import arrow_type, parts
from pyspark_kafkalog.extensions.typed_values.columns import (
    Column,
    DatumArrays,
    DecodedBodies,
    GrowingRows,
    has_bytes,
    inner_type,
    lay_out,
)
from pyspark_kafkalog.extensions.typed_values.table import COUNT, POSITION, SIZES, VALIDITY, VALUES

CORRUPT = 0
"""An entry for rows whose framing is wrong: they come out as corrupt, whatever their bytes are."""
_WHY = {
    kernels.SHORT: "the value ends too early",
    kernels.TRAILING: "the value goes on behind its last field",
    kernels.VARINT: "expected a number of up to 64 bits",
    kernels.INT: "expected an int of 32 bits",
    kernels.LENGTH: "expected a length, got a negative number",
    kernels.BRANCH: "expected the number of a branch of the writer's union",
    kernels.SYMBOL: "expected the number of a symbol of the writer's enum",
    kernels.BOOLEAN: "expected a boolean as 0 or 1",
    kernels.TIMESTAMP: "the timestamp does not fit into 64 bits of microseconds",
    kernels.DECIMAL: "expected a decimal within the precision of the reader's schema",
    kernels.NO_BRANCH: "the reader's schema has no place for this branch of the writer's union",
    kernels.NO_SYMBOL: "the reader's enum has neither this symbol of the writer's nor a default",
    kernels.EMPTY_ITEMS: f"expected at most {kernels.MOST_EMPTY} items that take no bytes",
    kernels.DEPTH: f"expected at most {kernels.STACK} records and arrays in one another",
    kernels.LARGE: "a column of its batch would have 2 GiB or more",
    kernels.FRAMING: "expected the key of a schema, as the registry's serializers write it",
}


class DatumDecoder:
    """Decodes what several writers have written, by one reader's schema. For one thread at a time.

    :param reader: the schema that all is read as.
    :param columns: a part of :func:`.types.arrow_type` of it, which :func:`.check_part` has let pass: structs
        may have some of their fields only, in any order, at any depth. The rest is checked against the end of
        each row, and skipped. By default all.
    :raises SchemaError: if Spark has no type for the schema.
    """

    def __init__(self, reader: Schema, columns: pa.DataType | None = None) -> None:
        full = arrow_type(reader)
        self.type: pa.DataType = full if columns is None else columns
        self._columns: list[Column] = []
        self._levels = 1
        self._root = self._column(reader, full, self.type, "", 0, False)
        self._with_bytes = [column for column in self._columns if has_bytes(column.type)]
        self._compiler = Compiler(reader, self._root)
        self._table = np.zeros((max(len(self._columns), 1), kernels.COLUMN_COLUMNS), np.int64)
        self._counts = np.zeros(self._levels, np.int64)
        self._counts[:] = -1
        for column in self._columns:
            row = self._table[column.number]
            row[POSITION] = column.level
            if column.items:
                row[COUNT] = column.items
            elif has_bytes(column.type):
                row[COUNT] = self._counts.size
                self._counts = np.append(self._counts, 0)
            elif pa.types.is_decimal(column.type):
                limit = 10**column.type.precision
                row[kernels.LIMIT_HIGH] = limit >> 64
                row[kernels.LIMIT_LOW] = int(np.uint64(limit & (2**64 - 1)).astype(np.int64))
        rows, self._paths = rows_of(Operation("", kernels.FAIL, a=kernels.FRAMING), CORRUPT)
        self._program = GrowingRows(rows)

    def add(self, writer: Schema, *, is_framed: bool = False) -> int:
        """The entry for rows of this writer's schema; to be kept as long as the decoder is used.

        :param is_framed: by Confluent's serializers, which write a value that is bytes without its length.
        :raises SchemaError: if the reader's schema can't read what it writes.
        """
        return self._add(self._compiler.compile(writer, is_framed=is_framed))

    def refuse(self, reason: str) -> int:
        """The entry for rows that are corrupt for this reason, whatever their bytes are."""
        return self._add(Operation(reason, kernels.FAIL, a=kernels.FOREIGN))

    def _add(self, first: Operation) -> int:
        entry = self._program.count
        rows, paths = rows_of(first, entry)
        self._program.add(rows)
        self._paths += paths
        return entry

    def decode(
        self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, entries: np.ndarray
    ) -> DecodedBodies:
        """Decode the bodies ``data[start:start + size]``, a row each, in their order.

        :param data: uint8.
        :param starts: int64, like the others, within ``data``.
        :param sizes: in bytes; negative for null.
        :param entries: what :meth:`add` has given for each row's writer, or :data:`CORRUPT`.
        """
        rows, program = starts.size, self._program.rows
        stack, saved = np.empty(kernels.STACK, np.int64), np.empty(self._levels, np.int64)
        faults = np.zeros((kernels.FAULT_COLUMNS, rows), np.int64)
        counts, table, out = self._counts.copy(), self._table.copy(), allocate(64)
        origins = allocate(0, np.int64)
        room = np.zeros_like(counts)
        # Rows are where they are, so only lists have to be counted first.
        for fill in (0, 1) if self._levels > 1 else (1,):
            if fill:
                room[: self._levels] = counts[: self._levels] + 1
                room[0] = rows
                out = lay_out(self._columns, table, room)
                origins = self._lay_out_origins(table, room)
                counts = self._counts.copy()
            kernels.decode(
                *(data, starts, sizes, entries, program, table, fill, counts, saved, stack),
                *(out, out.view(np.int32), out.view(np.int64), origins, faults),
            )
        causes = faults[kernels.CAUSE]
        corrupt = causes != kernels.FINE
        given = sizes >= 0
        fine = given & ~corrupt
        self._forget(np.flatnonzero(corrupt), table, out)
        text = self._gather(data, table, room, counts, out, origins)
        arrays = DatumArrays(table, room[: self._levels], out, None if fine.all() else fine, text)
        valid = arrays.valid(self._root)
        if pa.types.is_struct(self._root.type) and corrupt.any():
            valid = corrupt | (given if valid is None else valid)
        return DecodedBodies(arrays.array(self._root, valid), causes, faults, self._paths, _WHY)

    def _lay_out_origins(self, table: np.ndarray, room: np.ndarray) -> np.ndarray:
        """Room for where the bytes of each value begin; ``table`` gets where each column's are."""
        end = 0
        for column in self._with_bytes:
            table[column.number, VALUES] = end
            end += int(room[column.level])
        return allocate(end, np.int64)

    def _gather(
        self,
        data: np.ndarray,
        table: np.ndarray,
        room: np.ndarray,
        counts: np.ndarray,
        out: np.ndarray,
        origins: np.ndarray,
    ) -> np.ndarray:
        """The bytes of all columns; ``table`` gets where each column's lie."""
        texts = np.empty((len(self._with_bytes), kernels.TEXT_COLUMNS), np.int64)
        end = 0
        for text, column in zip(texts, self._with_bytes, strict=True):
            row = table[column.number]
            text[:] = room[column.level], row[SIZES], row[VALUES], end
            row[VALUES] = end
            end += int(counts[row[COUNT]])
        gathered = allocate(end)
        constants = np.frombuffer(bytes(self._compiler.constants), np.uint8)
        kernels.gather(data, constants, out.view(np.int32), origins, texts, gathered)
        return gathered

    def _forget(self, rows: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
        """Make null what the kernel has written of corrupt rows before it came to the fault."""
        if rows.size == 0:
            return
        for column in self._columns:
            if column.level > 0:
                continue
            if column.nullable:
                out[rows + table[column.number, VALIDITY]] = 0
            if has_bytes(column.type):
                out.view(np.int32)[rows + table[column.number, SIZES]] = 0

    def _column(
        self,
        schema: Schema,
        full: pa.DataType,
        wanted: pa.DataType | None,
        path: str,
        level: int,
        nullable: bool,
    ) -> Column:
        """The column for ``schema``, whose type is ``full``, or what is ``wanted`` of that."""
        if isinstance(schema, Union):
            nullable = nullable or schema.is_nullable
            if len(schema.others) == 1:
                return self._column(schema.others[0], full, wanted, path, level, nullable)
        number = -1 if wanted is None else len(self._columns)
        column = Column(path, full if wanted is None else wanted, number, level, nullable)
        if wanted is not None:
            self._columns.append(column)
        if pa.types.is_struct(full) and isinstance(schema, Record | Union):
            names = {} if wanted is None else {field.name: field.type for field in wanted}
            for name, part in parts(schema):
                column.children[name] = self._column(
                    part,
                    full.field(name).type,
                    names.get(name),
                    f"{path}.{name}",
                    level,
                    isinstance(schema, Union),
                )
        elif isinstance(schema, Array | Map):
            if wanted is not None:
                column.items = self._levels
                self._levels += 1
            if isinstance(schema, Map):
                key = None if wanted is None else pa.string()
                column.children["key"] = self._column(
                    Schema("string"), pa.string(), key, f"{path}.key", column.items, False
                )
            name, inner = ("value", schema.values) if isinstance(schema, Map) else ("element", schema.items)
            wanted = None if wanted is None else inner_type(wanted)
            column.children[name] = self._column(
                inner, inner_type(full), wanted, f"{path}.{name}", column.items, False
            )
        return column
