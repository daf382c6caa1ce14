"""Keys and values as what their bytes mean: the last step of a read but for the user's own function.

The schema that values are read with is pinned when a query is planned. That of each writer is asked for by
the id before the value, or in a header, as Confluent's serializers put it there. JSON has no schema but the
user's.
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import binary_column, list_column
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.errors import CorruptRecordError, KafkaLogError, OptionError, SchemaError
from pyspark_kafkalog.largemessage.segments import find
from pyspark_kafkalog.model import CORRUPT_FIELD, HEADERS_FIELD, TopicPartition
from pyspark_kafkalog.options.formats import CONFLUENT_AVRO, JSON, ColumnFormat
from pyspark_kafkalog.options.registry import RegistryOptions
from pyspark_kafkalog.options.settings import ReadOptions
from pyspark_kafkalog.schema_registry import RegisteredSchema, SchemaRegistry, registry_of
from pyspark_kafkalog.values.avro.decoder import CORRUPT, Decoded, Decoder
from pyspark_kafkalog.values.avro.schema import Union, parse
from pyspark_kafkalog.values.avro.types import arrow_type
from pyspark_kafkalog.values.columns import check_part
from pyspark_kafkalog.values.ddl import parse_ddl
from pyspark_kafkalog.values.json import decoder as json
from pyspark_kafkalog.values.json.times import zone as zone_named
from pyspark_kafkalog.values.json.types import check_type, has_timestamps

_PREFIX = 5
"""Bytes before a value: a zero, and the id of its schema, big-endian."""
_BY_ID, _BY_GUID = 0, 1
"""What a header begins with: then comes an id of 4 bytes, or a GUID of 16."""
_CORRUPT = pa.struct(
    [
        ("reason", pa.string()),
        ("column", pa.string()),
        *((name, ROW_TYPES[name]) for name in ("topic", "partition", "offset", "timestamp")),
        *((name, ROW_TYPES[name]) for name in ("key", "value", "headers")),
    ]
)
"""A record that can't be decoded, whole."""
_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """What decodes one column. Sent to the tasks.

    ``schema`` is that of the reader of Avro, and ``type`` a part of what it gives; None if the values are not
    wanted. The type of JSON is None as long as only the DataFrame's schema names it. With ``with_ids`` there
    is a column with the ids of their schemas, and with ``keeps_corrupt`` one with the records that can't be
    decoded.
    """

    format: ColumnFormat
    schema: RegisteredSchema | None
    type: pa.DataType | None
    with_ids: bool
    keeps_corrupt: bool

    @property
    def name(self) -> str:
        return self.format.column

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns that it makes.

        :raises OptionError: if the type of JSON is not known.
        """
        if self.format.format == JSON and self.type is None:
            raise OptionError(
                f"Option '{self.name}.format' is {JSON}, which needs to know the fields",
                hint=f'Give {self.name}.schema, "id bigint, name string", or the type of the column:'
                f' .schema("{self.name} struct<id: bigint, name: string>").',
            )
        made = self.ids if self.type is None else {self.name: self.type, **self.ids}
        return made | ({CORRUPT_FIELD[0]: _CORRUPT} if self.keeps_corrupt else {})

    @property
    def ids(self) -> dict[str, pa.DataType]:
        """The column with the ids of schemas, if it makes that."""
        return (
            {} if not self.with_ids or self.format.id_column is None else {self.format.id_column: pa.int32()}
        )

    def part(self, wanted: pa.Schema) -> DecodedColumn | None:
        """What makes those of its columns that are wanted: structs may have some of their fields.

        :raises OptionError: if what is wanted isn't a part of it.
        """
        names = wanted.names
        kind = wanted.field(self.name).type if self.name in names else None
        with_ids = self.format.id_column in names
        keeps_corrupt = self.keeps_corrupt and CORRUPT_FIELD[0] in names
        if kind is None and not with_ids and not keeps_corrupt:
            return None
        if kind is None and keeps_corrupt:
            kind = self.types[self.name]  # decoding finds them
        if kind is not None:
            self._check_part(kind)
        return replace(self, type=kind, with_ids=with_ids, keeps_corrupt=keeps_corrupt)

    def _check_part(self, wanted: pa.DataType) -> None:
        if self.format.format == JSON:
            check_type(wanted, self.format.corrupt)
            wanted = pa.struct([field for field in wanted if field.name != self.format.corrupt])
        if self.type is not None:
            check_part(wanted, self.type, self.name)


def decoded_columns(options: ReadOptions) -> tuple[DecodedColumn, ...]:
    """What decodes each column that has a format; the registry is asked where no schema is given.

    :raises OptionError: for a schema that can't be read, or is that of several topics.
    :raises SchemaRegistryError: if the registry has none.
    """
    return tuple(
        _json_column(column, keeps_corrupt=options.include_corrupt)
        if column.format == JSON
        else _avro_column(column, options)
        for column in options.formats
    )


def _json_column(column: ColumnFormat, *, keeps_corrupt: bool) -> DecodedColumn:
    if column.zone is not None and zone_named(column.zone) is None:
        raise OptionError(f"Option 'timeZone': there is no time zone {column.zone!r}")
    kind = None
    if column.schema is not None:
        try:
            kind = parse_ddl(column.schema)
        except SchemaError as e:
            raise OptionError(
                f"Option '{column.column}.schema': {e.message}",
                hint="Give fields as in Spark's DDL: id bigint, items array<struct<name: string>>. A"
                " StructType gives it by simpleString().",
            ) from None
        check_type(kind, column.corrupt)
    return DecodedColumn(column, None, kind, with_ids=False, keeps_corrupt=keeps_corrupt)


def _avro_column(column: ColumnFormat, options: ReadOptions) -> DecodedColumn:
    schema = _reader_schema(column, options)
    try:
        parsed = parse(schema.text, schema.references)
        if isinstance(parsed, Union) and not parsed.branches:
            raise SchemaError("it is a union of no types, which has no values")
        kind = arrow_type(parsed)
        return DecodedColumn(column, schema, kind, with_ids=True, keeps_corrupt=options.include_corrupt)
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


class Decoding:
    """Decodes columns of rows, in a task.

    :param columns: what decodes each of them.
    :param registry: where their writers' schemas are.
    :param zone: the name of the time zone of times in JSON that have none, unless an option gives another.
    :raises OptionError: if there is no such zone here.
    """

    def __init__(
        self, columns: Collection[DecodedColumn], registry: RegistryOptions | None, zone: str
    ) -> None:
        found = None if registry is None else registry_of(registry)
        self._columns: dict[str, _Column] = {
            column.name: _JsonColumn(column, zone)
            if column.format.format == JSON
            else _AvroColumn(column, found)
            for column in columns
        }
        self._keeps_corrupt = any(column.keeps_corrupt for column in columns)

    def __call__(self, rows: Iterable[pa.RecordBatch], partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition with these columns decoded.

        :raises CorruptRecordError: for a value that can't be decoded, if the column fails fast.
        :raises SchemaRegistryError: if the registry does not know a schema, or does not answer.
        """
        for batch in rows:
            yield self._decoded(batch, partition)

    def _decoded(self, batch: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
        columns, fields = list(batch.columns), list(batch.schema)
        corrupt: dict[int, tuple[str, str]] = {}
        for name in sorted(self._columns):  # the key first, as Kafka Connect does
            number, reasons = batch.schema.get_field_index(name), dict[int, str]()
            for made, column in (
                self._columns[name].decode(batch, columns[number], partition, reasons).items()
            ):
                if made == name:
                    columns[number], fields[number] = column, pa.field(name, column.type)
                else:
                    columns.append(column)
                    fields.append(pa.field(made, column.type))
            corrupt = {row: (reason, name) for row, reason in reasons.items()} | corrupt
        if self._keeps_corrupt:
            columns.append(_whole(batch, corrupt, partition))
            fields.append(pa.field(CORRUPT_FIELD[0], _CORRUPT))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _whole(
    batch: pa.RecordBatch, corrupt: Mapping[int, tuple[str, str]], partition: TopicPartition
) -> pa.Array:
    """A column with the records of ``corrupt`` rows: why, and which column; null in all other rows."""
    if not corrupt:
        return pa.nulls(batch.num_rows, _CORRUPT)
    rows = sorted(corrupt)
    records = batch.take(pa.array(rows))
    given: dict[str, Any] = {
        "reason": [corrupt[row][0] for row in rows],
        "column": [corrupt[row][1] for row in rows],
        "topic": [partition.topic] * len(rows),
        "partition": [partition.partition] * len(rows),
    }
    parts = [
        pa.array(given[field.name], field.type) if field.name in given else records.column(field.name)
        for field in _CORRUPT
    ]
    places = np.zeros(batch.num_rows, np.int64)
    places[rows] = np.arange(len(rows))
    is_good = np.ones(batch.num_rows, bool)
    is_good[rows] = False
    whole = pa.StructArray.from_arrays(parts, fields=list(_CORRUPT))
    return whole.take(pa.array(places, mask=is_good))


class _Values(NamedTuple):
    """The values of a column of ``batch``: ``data[start:start + size]``; a size of -1 is null."""

    batch: pa.RecordBatch
    data: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    partition: TopicPartition

    def place(self, row: int) -> dict[str, Any]:
        """Where a row is from, for errors."""
        return {"topic_partition": self.partition, "offset": self.batch.column("offset")[row].as_py()}


class _Column(ABC):
    """Decodes one column."""

    left = "structs of nulls"
    """What corrupt values are, in PERMISSIVE mode."""

    def __init__(self, column: DecodedColumn) -> None:
        self._column = column
        self._has_warned = False

    def decode(
        self,
        batch: pa.RecordBatch,
        bytes_: pa.Array,
        partition: TopicPartition,
        reasons: dict[int, str],
    ) -> dict[str, pa.Array]:
        """What is made of a column of ``batch``: its values, and the ids of their schemas.

        :param reasons: gets why each corrupt row is, if these are kept; else the first is an error or a
            warning.
        """
        offsets, validity, data = binary_column(bytes_)
        starts, sizes = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
        if validity.size:
            valid = np.unpackbits(validity, count=len(bytes_), bitorder="little").astype(bool)
            sizes[~valid] = -1
        values = _Values(batch, data, starts, sizes, partition)
        decoded, made = self.decoded(values)
        if decoded is None:
            return made
        if self._column.keeps_corrupt:
            reasons |= {row: self._reason(decoded, row) for row in decoded.corrupt.tolist()}
        elif decoded.corrupt.size:
            self._have_failed(decoded, values)
        return {**made, self._column.name: decoded.array}

    @abstractmethod
    def decoded(self, values: _Values) -> tuple[Decoded | json.Decoded | None, dict[str, pa.Array]]:
        """What becomes of the values, if they are wanted, and the column with their ids, if that is.

        Their starts and sizes may be changed.
        """

    def _seen(self, values: _Values, row: int) -> str | None:
        """What a corrupt row seems to be, and what to do about it. No hint: commands have their own."""
        if self._column.name == "value" and _segments(values.batch.slice(row, 1)).size:
            return "it is a segment of a large message: give large.message.enabled=true (--large-messages)"
        looks_framed = values.sizes[row] >= _PREFIX and values.data[values.starts[row]] == 0
        if looks_framed and self._column.format.format != CONFLUENT_AVRO:
            return (
                f"it begins like a value of Confluent's serializers: give {CONFLUENT_AVRO} for those of Avro"
            )
        return None

    def _reason(self, decoded: Decoded | json.Decoded, row: int) -> str:
        return f"The {self._column.name} can't be decoded: {decoded.reason(row)}"

    def _have_failed(self, decoded: Decoded | json.Decoded, values: _Values) -> None:
        """Raise, or warn, of the first corrupt row."""
        row = int(decoded.corrupt[0])
        text = "; ".join(filter(None, [self._reason(decoded, row), self._seen(values, row)]))
        error = CorruptRecordError(text, **values.place(row))
        if self._column.format.fails_fast:
            raise error.with_hint(f"With mode=PERMISSIVE such values are {self.left}.")
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s; this one and others are %s", error, self.left)


class _JsonColumn(_Column):
    left = "structs of what could be read"

    def __init__(self, column: DecodedColumn, zone: str) -> None:
        super().__init__(column)
        kind = column.types[column.name]
        name = (column.format.zone or zone) if has_timestamps(kind) else "UTC"
        found = zone_named(name)
        if found is None:
            raise OptionError(
                f"There is no time zone {name!r} here, by which times in the {column.name} are read",
                hint="Install tzdata on this machine, or give the option timeZone.",
            )
        self._decoder = json.Decoder(kind, found, column.format.corrupt)

    def decoded(self, values: _Values) -> tuple[json.Decoded, dict[str, pa.Array]]:
        return self._decoder.decode(values.data, values.starts, values.sizes), {}


class _AvroColumn(_Column):
    def __init__(self, column: DecodedColumn, registry: SchemaRegistry | None) -> None:
        super().__init__(column)
        self._registry = registry
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

    def decoded(self, values: _Values) -> tuple[Decoded | None, dict[str, pa.Array]]:
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
        prefixed = np.flatnonzero(sizes >= _PREFIX)
        prefixed = prefixed[data[starts[prefixed]] == 0]
        if by_header:
            prefixed = np.setdiff1d(prefixed, np.fromiter(by_header, np.int64))
        ids = np.full(sizes.size, -1, np.int64)
        ids[prefixed] = 0
        for byte in range(1, _PREFIX):
            ids[prefixed] = ids[prefixed] << 8 | data[starts[prefixed] + byte]
        if self._column.type is not None:
            self._leave_out_segments(batch, ids, prefixed)
        starts[prefixed] += _PREFIX
        sizes[prefixed] -= _PREFIX
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
        for row in rows[_segments(batch.take(pa.array(rows)))].tolist():
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


def _segments(batch: pa.RecordBatch) -> np.ndarray:
    """The rows whose values are message segments."""
    found = find(batch)
    return np.empty(0, np.int64) if found is None else found.row[found.error == 0]
