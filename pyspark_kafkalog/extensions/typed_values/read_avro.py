"""Avro as a column, by the schema of the reader, which is pinned when a query is planned.

The schema of each writer is asked for by the id before the value, or in a header, as Confluent's serializers
put it there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import list_column
from pyspark_kafkalog.errors import KafkaLogError, OptionError, SchemaError
from pyspark_kafkalog.extensions.typed_values.avro.decoder import CORRUPT, DatumDecoder, DecodedAvro
from pyspark_kafkalog.extensions.typed_values.avro.schema import Union, parse
from pyspark_kafkalog.extensions.typed_values.avro.types import arrow_type
from pyspark_kafkalog.extensions.typed_values.column_decoder import (
    PREFIX,
    ColumnDecoder,
    ColumnToDecode,
    ColumnValues,
    segments_in,
)
from pyspark_kafkalog.extensions.typed_values.options import CONFLUENT_AVRO, ColumnFormat
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema, registry_of
from pyspark_kafkalog.model import HEADERS_FIELD
from pyspark_kafkalog.options.settings import ReadOptions

_BY_ID, _BY_GUID = 0, 1
"""The first byte of a header: then comes an id of 4 bytes, or a GUID of 16."""


def avro_column(
    column: ColumnFormat, registry: RegistryOptions | None, options: ReadOptions
) -> ColumnToDecode:
    """The decoding of a column; the registry is asked for the schema unless an option gives one.

    :raises OptionError: for a schema that can't be read, or is that of several topics.
    :raises SchemaRegistryError: if the registry has none.
    """
    schema = _reader_schema(column, registry, options)
    try:
        parsed = parse(schema.text, schema.references)
        if isinstance(parsed, Union) and not parsed.branches:
            raise SchemaError("it is a union of no types, which has no values")
        kind = arrow_type(parsed)
        return ColumnToDecode.of(column, schema, kind, options)
    except SchemaError as e:
        what = (
            f"schema of column {column.column!r}"
            if column.schema is None
            else f"option '{column.column}.schema'"
        )
        raise OptionError(f"The {what} can't be used: {e.message}", hint=e.hint) from None


def _reader_schema(
    column: ColumnFormat, registry: RegistryOptions | None, options: ReadOptions
) -> RegisteredSchema:
    if column.schema is not None:
        return RegisteredSchema(column.schema)
    topics = options.selection.names or ()
    if len(topics) != 1:
        raise OptionError(
            f"Option '{column.column}.format' is {CONFLUENT_AVRO}, and the read is not of one topic",
            hint=f"Give the Avro schema of all of them as {column.column}.schema, or subscribe to one.",
        )
    assert registry is not None, "the format needs it"
    subject = f"{topics[0]}-{column.column}"
    schema = registry_of(registry).latest(subject)
    if schema.kind != "AVRO":
        raise OptionError(f"Subject {subject!r} has a schema of type {schema.kind}, expected AVRO")
    return schema


def _key(header: bytes) -> int | uuid.UUID | None:
    """The id or the GUID that a header has, if it has one."""
    if len(header) == 5 and header[0] == _BY_ID:
        return int.from_bytes(header[1:], "big")
    return uuid.UUID(bytes=header[1:]) if len(header) == 17 and header[0] == _BY_GUID else None


class AvroDecoder(ColumnDecoder):
    """Decodes Avro.

    :param registry: where its writers' schemas are; None for the format that has one only.
    """

    def __init__(self, column: ColumnToDecode, registry: RegistryOptions | None) -> None:
        super().__init__(column)
        self._registry = None if registry is None else registry_of(registry)
        assert column.schema is not None, "Avro has one"
        schema = parse(column.schema.text, column.schema.references)
        self._decoder = DatumDecoder(schema, column.type)
        self._is_framed = column.format.format == CONFLUENT_AVRO
        self._header = f"__{column.name}_schema_id"
        self._entries: dict[int | uuid.UUID, int] = {}
        """The decoder's entry for each writer's schema."""
        self._has_segments = False
        if not self._is_framed:
            self._own = self._decoder.add(schema)

    def decoded(self, values: ColumnValues) -> tuple[DecodedAvro | None, dict[str, pa.Array]]:
        batch, data, starts, sizes, _ = values
        made: dict[str, pa.Array] = {}
        if self._is_framed:
            ids, guids = self._find_ids(batch, data, starts, sizes)
            made = {name: pa.array(ids.astype(np.int32), mask=ids < 0) for name in self._column.ids}
            if self._column.type is None:
                return None, made
            entries = self._find_writers(ids, guids, values.place)
        else:
            entries = np.full(sizes.size, self._own, np.int64)
        return self._decoder.decode(data, starts, sizes, entries), made

    def _find_ids(
        self, batch: pa.RecordBatch, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, dict[uuid.UUID, np.ndarray]]:
        """The id of each row's schema, -1 where there is none, and the rows that have a GUID instead, by it.

        ``starts`` and ``sizes`` become those behind the prefix.
        """
        rows, numbers, keys = self._by_header(batch.column(HEADERS_FIELD[0]))
        is_value = sizes[rows] >= 0
        rows, numbers = rows[is_value], numbers[is_value]
        may_have_prefix = sizes >= PREFIX
        may_have_prefix[rows] = False
        prefixed = np.flatnonzero(may_have_prefix)
        prefixed = prefixed[data[starts[prefixed]] == 0]
        ids = np.full(sizes.size, -1, np.int64)
        ids[prefixed] = 0
        for byte in range(1, PREFIX):
            ids[prefixed] = ids[prefixed] << 8 | data[starts[prefixed] + byte]
        if self._column.type is not None:
            self._leave_out_segments(batch, ids, prefixed)
        starts[prefixed] += PREFIX
        sizes[prefixed] -= PREFIX
        ids[rows] = np.array([key if isinstance(key, int) else -1 for key in keys], np.int64)[numbers]
        guids = {
            key: rows[numbers == number] for number, key in enumerate(keys) if isinstance(key, uuid.UUID)
        }
        return ids, guids

    def _leave_out_segments(self, batch: pa.RecordBatch, ids: np.ndarray, rows: np.ndarray) -> None:
        """Set the ids of those of ``rows`` that are message segments to -1: no registry will ever know them.

        A value may look like one by chance, so the registry is asked for the first one.
        """
        known = [key for key in self._entries if isinstance(key, int)]
        rows = rows[~np.isin(ids[rows], known)]
        if self._column.name != "value" or not rows.size:
            return
        assert self._registry is not None, "the format needs it"
        for row in rows[segments_in(batch.take(pa.array(rows)))].tolist():
            self._has_segments = self._has_segments or not self._registry.knows(int(ids[row]))
            if self._has_segments:
                ids[row] = -1

    def _find_writers(
        self, ids: np.ndarray, guids: dict[uuid.UUID, np.ndarray], place: Callable[[int], dict[str, Any]]
    ) -> np.ndarray:
        """The entry of each row's writer."""
        unique, first, index = np.unique(ids, return_index=True, return_inverse=True)
        found = [
            CORRUPT if schema_id < 0 else self._entry(int(schema_id), int(row), place)
            for schema_id, row in zip(unique, first, strict=True)
        ]
        entries = np.array(found, np.int64)[index]
        for guid, rows in guids.items():
            if rows.size:
                entries[rows] = self._entry(guid, int(rows[0]), place)
        return entries

    def _by_header(self, headers: pa.ListArray) -> tuple[np.ndarray, np.ndarray, list[int | uuid.UUID]]:
        """The rows whose headers have an id or a GUID, the number of each one's, and these.

        The last one in a row counts, as for Java's.
        """
        offsets, _ = list_column(headers)
        first, last = int(offsets[0]), int(offsets[-1])
        pairs = headers.values.slice(first, last - first)
        named = pc.fill_null(pc.equal(pairs.field("key"), self._header), False)
        places = pc.indices_nonzero(named)
        found = pairs.field("value").take(places).dictionary_encode()
        keys = [_key(value or b"") for value in found.dictionary.to_pylist()]
        numbers = found.indices.fill_null(-1).to_numpy()
        is_known = np.array([*(key is not None for key in keys), False])[numbers]  # -1 is the last one
        rows = np.searchsorted(offsets, places.to_numpy()[is_known] + first, side="right") - 1
        is_last = np.append(rows[1:] != rows[:-1], True)[: rows.size]
        return rows[is_last], numbers[is_known][is_last], [-1 if key is None else key for key in keys]

    def _entry(self, key: int | uuid.UUID, row: int, place: Callable[[int], dict[str, Any]]) -> int:
        """The decoder's entry for a writer's schema; ``row`` is the first one that has it."""
        entry = self._entries.get(key)
        if entry is None:
            assert self._registry is not None, "the format needs it"
            registry = self._registry
            try:
                schema = registry.by_id(key) if isinstance(key, int) else registry.by_guid(str(key))
                if schema.kind != "AVRO":
                    raise SchemaError(f"it is a schema of type {schema.kind}, expected AVRO")
                entry = self._decoder.add(parse(schema.text, schema.references), is_framed=True)
            except SchemaError as e:
                raise SchemaError(
                    f"The {self._column.name} can't be read with the schema of this query: schema"
                    f" {'id' if isinstance(key, int) else 'GUID'} {key}: {e.message}",
                    hint=f"Give a schema that can read both as {self._column.name}.schema.",
                    **place(row),
                ) from None
            except KafkaLogError as e:
                raise type(e)(e.message, hint=e.hint, **place(row)) from None
            self._entries[key] = entry
        return entry
