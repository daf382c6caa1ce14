"""Keys and values as what their bytes mean: the last step of a read before the user's own function.

The modules of a format are loaded only where it is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.extensions.large_messages.segments import as_sent
from pyspark_kafkalog.extensions.typed_values.column_decoder import (
    CORRUPT_TYPE,
    ColumnToDecode,
    TooLargeBatchError,
)
from pyspark_kafkalog.extensions.typed_values.options import JSON, ColumnFormat, ValueOptions
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.model import CORRUPT_FIELD, TopicPartition
from pyspark_kafkalog.options.settings import ReadOptions

_MOST_VALUES = 4_000_000
"""Fields times rows of a batch: where structs are wide it has fewer rows, so that memory is bounded."""


def decoded_columns(values: ValueOptions, options: ReadOptions) -> tuple[ColumnToDecode, ...]:
    """The columns that have a format; the registry is asked where no schema is given.

    :raises OptionError: for a schema that can't be read, or is that of several topics.
    :raises SchemaRegistryError: if the registry has none.
    """
    return tuple(_decoded_column(column, values, options) for column in values.formats)


def _decoded_column(column: ColumnFormat, values: ValueOptions, options: ReadOptions) -> ColumnToDecode:
    if column.is_by_json_schema:
        from pyspark_kafkalog.extensions.typed_values.json_schema.reading import json_schema_column

        return json_schema_column(column, values.registry, options)
    if column.encoding == "protobuf":
        from pyspark_kafkalog.extensions.typed_values.protobuf.reading import protobuf_column

        return protobuf_column(column, values.registry, options)
    if column.encoding == JSON:
        from pyspark_kafkalog.extensions.typed_values.json.reading import json_column

        return json_column(column, options)
    from pyspark_kafkalog.extensions.typed_values.avro.reading import avro_column

    return avro_column(column, values.registry, options)


def _leaves(kind: pa.DataType) -> int:
    """The fields of a type that have values themselves."""
    return sum(_leaves(field.type) for field in kind) if pa.types.is_struct(kind) else 1


class Decoding:
    """Decodes columns of rows, in a task.

    :param columns: what decodes each of them.
    :param registry: where their writers' schemas are.
    :param zone: the name of the time zone of times in JSON that have none, unless an option gives another.
    :raises OptionError: if there is no such zone here.
    """

    def __init__(
        self, columns: Collection[ColumnToDecode], registry: RegistryOptions | None, zone: str
    ) -> None:
        self._columns = {column.name: column.decoder(registry, zone) for column in columns}
        fields = sum(_leaves(kind) for column in columns for kind in column.types.values())
        self._rows = max(_MOST_VALUES // max(fields, 1), 1)
        self._keeps_corrupt = any(column.keeps_corrupt for column in columns)
        self._of_whole = any(column.of_whole for column in columns)

    def __call__(self, rows: Iterable[pa.RecordBatch], partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition with these columns decoded.

        :raises CorruptRecordError: for a value that can't be decoded, if the column fails fast.
        :raises SchemaRegistryError: if the registry does not know a schema, or does not answer.
        """
        for batch in rows:
            for start in range(0, max(batch.num_rows, 1), self._rows):
                yield from self._parts(batch.slice(start, self._rows), partition)

    def _parts(self, batch: pa.RecordBatch, partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a batch, in as many as memory allows if their values were compressed."""
        try:
            decoded = self._decoded(batch, partition)
        except TooLargeBatchError:
            half = batch.num_rows // 2
            yield from self._parts(batch.slice(0, half), partition)
            yield from self._parts(batch.slice(half), partition)
        else:
            yield decoded

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
            columns.append(_whole(batch, corrupt, partition, of_whole=self._of_whole))
            fields.append(pa.field(CORRUPT_FIELD[0], CORRUPT_TYPE))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _whole(
    batch: pa.RecordBatch,
    corrupt: Mapping[int, tuple[str, str]],
    partition: TopicPartition,
    *,
    of_whole: bool,
) -> pa.Array:
    """A column with the records of ``corrupt`` rows: why, and which column; null in all other rows.

    :param of_whole: whether a reader of whole messages has added headers.
    """
    if not corrupt:
        return pa.nulls(batch.num_rows, CORRUPT_TYPE)
    rows = sorted(corrupt)
    records = batch.take(pa.array(rows))
    if of_whole:
        number = records.schema.get_field_index("headers")
        sent = as_sent(records.column(number))
        records = records.set_column(number, records.schema.field(number), sent)
    given: dict[str, Any] = {
        "reason": [corrupt[row][0] for row in rows],
        "column": [corrupt[row][1] for row in rows],
        "topic": [partition.topic] * len(rows),
        "partition": [partition.partition] * len(rows),
    }
    parts = [
        pa.array(given[field.name], field.type) if field.name in given else records.column(field.name)
        for field in CORRUPT_TYPE
    ]
    places = np.zeros(batch.num_rows, np.int64)
    places[rows] = np.arange(len(rows))
    is_good = np.ones(batch.num_rows, bool)
    is_good[rows] = False
    whole = pa.StructArray.from_arrays(parts, fields=list(CORRUPT_TYPE))
    return whole.take(pa.array(places, mask=is_good))
