"""Protobuf as a column, by the message of the reader, which is pinned when a query is planned."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.errors import SchemaError, listed
from pyspark_kafkalog.extensions.typed_values.column_decoder import (
    ColumnDecoder,
    ColumnToDecode,
    ColumnValues,
)
from pyspark_kafkalog.extensions.typed_values.columns import DecodedBodies
from pyspark_kafkalog.extensions.typed_values.framing import MessageKey
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat
from pyspark_kafkalog.extensions.typed_values.protobuf.decoder import MessageDecoder
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import MessageType, ProtoFile, parse
from pyspark_kafkalog.extensions.typed_values.protobuf.types import arrow_type
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from pyspark_kafkalog.extensions.typed_values.subjects import read_schema
from pyspark_kafkalog.extensions.typed_values.writers import WITHOUT, Writers
from pyspark_kafkalog.options.settings import ReadOptions


class ProtobufColumn(ColumnToDecode):
    """A column of Protobuf; ``schema`` has the reader's message."""

    __slots__ = ()

    def decoder(self, registry: RegistryOptions | None, zone: str) -> ColumnDecoder:
        """See :meth:`.column_decoder.ColumnToDecode.decoder`."""
        return ProtobufDecoder(self, registry)


def protobuf_column(
    column: ColumnFormat, registry: RegistryOptions | None, options: ReadOptions
) -> ProtobufColumn:
    """The decoding of a column; the registry is asked for the schema unless an option gives one.

    :raises OptionError: for a schema that can't be read, lacks the message, or is that of several topics.
    :raises SchemaRegistryError: if the registry has none.
    """
    schema = read_schema(column, registry, options)
    try:
        kind = arrow_type(message_of(schema, column), column.protobuf)
    except SchemaError as e:
        raise column.unusable(e) from None
    return ProtobufColumn.of(column, schema, kind, options)


def message_of(schema: RegisteredSchema, column: ColumnFormat) -> MessageType:
    """The message that a column is read or written by: that of an option, or the first one.

    :raises SchemaError: if the schema is not valid, or lacks it.
    """
    return message_in(parse(schema.text, schema.references), column)


def message_in(file: ProtoFile, column: ColumnFormat) -> MessageType:
    """The message of a file that a column is read or written by.

    :raises SchemaError: if there is none.
    """
    if column.message is not None:
        return file.message(column.message)
    if not column.is_registered and len(file.messages) > 1:
        raise SchemaError(
            f"it has {len(file.messages)} messages",
            hint=f"Give {column.column}.message: {listed([each.name for each in file.messages], 20)}.",
        )
    return file.at((0,))


class ProtobufDecoder(ColumnDecoder):
    """Decodes Protobuf.

    :param registry: where its writers' schemas are; None for the format that has one only.
    """

    def __init__(self, column: ColumnToDecode, registry: RegistryOptions | None) -> None:
        super().__init__(column)
        assert column.schema is not None, "Protobuf has one"
        file = parse(column.schema.text, column.schema.references)
        message, options = message_in(file, column.format), column.format.protobuf
        self._decoder = MessageDecoder(
            message, column.type, options, file.types() if options.any_as_json else {}
        )
        self._files: dict[RegisteredSchema, ProtoFile] = {}
        self._writers = None
        if column.format.is_registered:
            assert registry is not None, "the format needs it"
            self._writers = Writers(column, registry, self._add, self._decoder.refuse)
        else:
            self._own = self._decoder.add(message)

    def decoded(self, values: ColumnValues) -> tuple[DecodedBodies | None, dict[str, pa.Array]]:
        made: dict[str, pa.Array] = {}
        if self._writers is None:
            entries = np.full(values.sizes.size, self._own, np.int64)
        else:
            values, entries, made = self._writers.find(values)
            if self._column.type is None:
                return None, made
        return self._decoder.decode(values.data, values.starts, values.sizes, entries), made

    def _add(self, schema: RegisteredSchema, key: MessageKey) -> int:
        file = self._files.get(schema)
        if file is None:
            file = self._files[schema] = parse(schema.text, schema.references)
        try:
            message = file.keyed(key)
        except SchemaError:
            return WITHOUT
        return self._decoder.add(message)
