"""Avro as a column, by the schema of the reader, which is pinned when a query is planned."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.avro.decoder import DatumDecoder
from pyspark_kafkalog.extensions.typed_values.avro.schema import Union, parse
from pyspark_kafkalog.extensions.typed_values.avro.types import arrow_type
from pyspark_kafkalog.extensions.typed_values.column_decoder import (
    ColumnDecoder,
    ColumnToDecode,
    ColumnValues,
)
from pyspark_kafkalog.extensions.typed_values.columns import DecodedBodies
from pyspark_kafkalog.extensions.typed_values.framing import MessageKey
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat
from pyspark_kafkalog.extensions.typed_values.registry_options import CONFLUENT, RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from pyspark_kafkalog.extensions.typed_values.subjects import read_schema
from pyspark_kafkalog.extensions.typed_values.writers import Writers
from pyspark_kafkalog.options.settings import ReadOptions


class AvroColumn(ColumnToDecode):
    """A column of Avro; ``schema`` is the reader's."""

    __slots__ = ()

    def decoder(self, registry: RegistryOptions | None, zone: str) -> ColumnDecoder:
        """See :meth:`.column_decoder.ColumnToDecode.decoder`."""
        return AvroDecoder(self, registry)


def avro_column(column: ColumnFormat, registry: RegistryOptions | None, options: ReadOptions) -> AvroColumn:
    """The decoding of a column; the registry is asked for the schema unless an option gives one.

    :raises OptionError: for a schema that can't be read, or is that of several topics.
    :raises SchemaRegistryError: if the registry has none.
    """
    schema = read_schema(column, registry, options)
    try:
        parsed = parse(schema.text, schema.references)
        if isinstance(parsed, Union) and not parsed.branches:
            raise SchemaError("it is a union of no types, which has no values")
        kind = arrow_type(parsed)
    except SchemaError as e:
        raise column.unusable(e) from None
    return AvroColumn.of(column, schema, kind, options)


class AvroDecoder(ColumnDecoder):
    """Decodes Avro.

    :param registry: where its writers' schemas are; None for the format that has one only.
    """

    def __init__(self, column: ColumnToDecode, registry: RegistryOptions | None) -> None:
        super().__init__(column)
        assert column.schema is not None, "Avro has one"
        schema = parse(column.schema.text, column.schema.references)
        self._decoder = DatumDecoder(schema, column.type)
        self._writers = None
        if column.format.is_registered:
            assert registry is not None, "the format needs it"
            self._writers = Writers(column, registry, self._add, self._decoder.refuse)
        else:
            self._own = self._decoder.add(schema)

    def decoded(self, values: ColumnValues) -> tuple[DecodedBodies | None, dict[str, pa.Array]]:
        made: dict[str, pa.Array] = {}
        if self._writers is None:
            entries = np.full(values.sizes.size, self._own, np.int64)
        else:
            values, entries, made = self._writers.find(values)
            if self._column.type is None:
                return None, made
        return self._decoder.decode(values.data, values.starts, values.sizes, entries), made

    def _add(self, schema: RegisteredSchema, message: MessageKey) -> int:
        is_framed = self._column.format.registry == CONFLUENT
        return self._decoder.add(parse(schema.text, schema.references), is_framed=is_framed)
