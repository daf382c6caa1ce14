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
from pyspark_kafkalog.model import HEADERS_FIELD
from pyspark_kafkalog.options.formats import CONFLUENT_AVRO, ColumnFormat
from pyspark_kafkalog.options.registry import RegistryOptions
from pyspark_kafkalog.options.settings import ReadOptions
from pyspark_kafkalog.reading.decoded_column import PREFIX, ColumnDecoder, DecodedColumn, Values, segments_in
from pyspark_kafkalog.schema_registry import RegisteredSchema, registry_of
from pyspark_kafkalog.values.avro.decoder import CORRUPT, Decoded, Decoder
from pyspark_kafkalog.values.avro.schema import Union, parse
from pyspark_kafkalog.values.avro.types import arrow_type

_BY_ID, _BY_GUID = 0, 1
"""What a header begins with: then comes an id of 4 bytes, or a GUID of 16."""


def avro_column(column: ColumnFormat, options: ReadOptions) -> DecodedColumn:
    """What decodes a column; the registry is asked for the schema unless an option gives one.

    :raises OptionError: for a schema that can't be read, or is that of several topics.
    :raises SchemaRegistryError: if the registry has none.
    """
    schema = _reader_schema(column, options)
    try:
        parsed = parse(schema.text, schema.references)
        if isinstance(parsed, Union) and not parsed.branches:
            raise SchemaError("it is a union of no types, which has no values")
        kind = arrow_type(parsed)
        return DecodedColumn(
            column,
            schema,
            kind,
            with_ids=True,
            keeps_corrupt=options.include_corrupt,
            of_whole=options.large_messages.enabled,
        )
    except SchemaError as e:
        raise OptionError(
            f"The schema of column {column.column!r} can't be used: {e.message}", hint=e.hint
        ) from None


def _reader_schema(column: ColumnFormat, options: ReadOptions) -> RegisteredSchema:
    if column.schema is not None:
        return RegisteredSchema(column.schema)
    topics = options.selection.names or ()
    if len(topics) != 1:
        raise OptionError(
            f"Option '{column.column}.format' is {CONFLUENT_AVRO}, and the read is not of one topic",
            hint=f"Give the Avro schema of all of them as {column.column}.schema, or subscribe to one.",
        )
    assert options.registry is not None, "the format needs it"
    subject = f"{topics[0]}-{column.column}"
    schema = registry_of(options.registry).latest(subject)
    if schema.kind != "AVRO":
        raise OptionError(f"Subject {subject!r} has a schema of type {schema.kind}, expected AVRO")
    return schema


class AvroDecoder(ColumnDecoder):
    """Decodes Avro.

    :param registry: where its writers' schemas are; None for the format that has one only.
    """

    def __init__(self, column: DecodedColumn, registry: RegistryOptions | None) -> None:
        super().__init__(column)
        self._registry = None if registry is None else registry_of(registry)
        assert column.schema is not None, "Avro has one"
        schema = parse(column.schema.text, column.schema.references)
        self._decoder = Decoder(schema, column.type)
        self._is_framed = column.format.format == CONFLUENT_AVRO
        self._header = f"__{column.name}_schema_id"
        self._entries: dict[int | uuid.UUID, int] = {}
        """The decoder's entry for each writer's schema."""
        self._has_segments = False
        if not self._is_framed:
            self._own = self._decoder.add(schema)

    def decoded(self, values: Values) -> tuple[Decoded | None, dict[str, pa.Array]]:
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
    ) -> tuple[np.ndarray, dict[int, uuid.UUID]]:
        """The id of each row's schema, -1 where there is none, and the GUIDs of rows that have one instead.

        ``starts`` and ``sizes`` become those behind the prefix.
        """
        by_header = {row: key for row, key in self._by_header(batch).items() if sizes[row] >= 0}
        prefixed = np.flatnonzero(sizes >= PREFIX)
        prefixed = prefixed[data[starts[prefixed]] == 0]
        if by_header:
            prefixed = np.setdiff1d(prefixed, np.fromiter(by_header, np.int64))
        ids = np.full(sizes.size, -1, np.int64)
        ids[prefixed] = 0
        for byte in range(1, PREFIX):
            ids[prefixed] = ids[prefixed] << 8 | data[starts[prefixed] + byte]
        if self._column.type is not None:
            self._leave_out_segments(batch, ids, prefixed)
        starts[prefixed] += PREFIX
        sizes[prefixed] -= PREFIX
        guids = {}
        for row, key in by_header.items():
            if isinstance(key, int):
                ids[row] = key
            else:
                guids[row] = key
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
        self, ids: np.ndarray, guids: dict[int, uuid.UUID], place: Callable[[int], dict[str, Any]]
    ) -> np.ndarray:
        """The entry of each row's writer."""
        unique, first, index = np.unique(ids, return_index=True, return_inverse=True)
        found = [
            CORRUPT if schema_id < 0 else self._entry(int(schema_id), int(row), place)
            for schema_id, row in zip(unique, first, strict=True)
        ]
        entries = np.array(found, np.int64)[index]
        for row, guid in guids.items():
            entries[row] = self._entry(guid, row, place)
        return entries

    def _by_header(self, batch: pa.RecordBatch) -> dict[int, int | uuid.UUID]:
        """The id or GUID of each row whose headers have one; the last one counts, as for Java's."""
        headers = batch.column(HEADERS_FIELD[0])
        if not len(headers.values):
            return {}
        keys, values = headers.values.field("key"), headers.values.field("value")
        places = pc.indices_nonzero(pc.fill_null(pc.equal(keys, self._header), False)).to_numpy()
        offsets, _ = list_column(headers)
        found: dict[int, int | uuid.UUID] = {}
        for at in places:
            row = int(np.searchsorted(offsets, at, side="right")) - 1
            value = values[int(at)].as_py() or b""
            if 0 <= row < len(headers):
                if len(value) == 5 and value[0] == _BY_ID:
                    found[row] = int.from_bytes(value[1:], "big")
                elif len(value) == 17 and value[0] == _BY_GUID:
                    found[row] = uuid.UUID(bytes=value[1:])
        return found

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
