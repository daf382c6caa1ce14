"""A column as Protobuf, by a message of a schema of the registry or of an option."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pyspark_kafkalog.extensions.typed_values.encoding import ColumnToEncode
from pyspark_kafkalog.extensions.typed_values.framing import write_message
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat, WrittenValueOptions
from pyspark_kafkalog.extensions.typed_values.protobuf.encoder import MessageEncoder, check_fits, schema_of
from pyspark_kafkalog.extensions.typed_values.protobuf.reading import message_in, message_of
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import parse
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import varint
from pyspark_kafkalog.extensions.typed_values.registry_options import GLUE
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from pyspark_kafkalog.extensions.typed_values.subjects import written_schema


class ProtobufToEncode(ColumnToEncode):
    """A column that becomes Protobuf."""

    __slots__ = ()

    def encoder(self, prefix: bytes) -> Callable[[pa.Array], pa.Array]:
        """See :meth:`.encoding.ColumnToEncode.encoder`."""
        assert self.schema is not None, "Protobuf has one"
        message = message_of(self.schema, self.format)
        return MessageEncoder(message, self.type, self.name, prefix=prefix).encode

    @property
    def message(self) -> bytes:
        """See :attr:`.encoding.ColumnToEncode.message`."""
        assert self.schema is not None, "Protobuf has one"
        file = parse(self.schema.text, self.schema.references)
        message = message_in(file, self.format)
        if self.format.registry == GLUE:
            return varint(file.number(message))
        return write_message(file.indexes(message))


def protobuf_to_encode(
    column: ColumnFormat, field: pa.Field, values: WrittenValueOptions, topic: str | None
) -> ProtobufToEncode:
    """The encoding of a column; the registry is asked, or told, for its schema.

    :raises OptionError: if Protobuf has no such types, and for a topic that isn't known before.
    :raises SchemaError: if the column does not fit the message; it names the field.
    :raises SchemaRegistryError: if the registry has no schema, refuses one, or does not answer.
    """

    def check_column(schema: RegisteredSchema, field: pa.Field) -> None:
        check_fits(message_of(schema, column), field.type, field.name)

    def made(kind: pa.DataType, name: str) -> str:
        package, _, message = (column.message or name.capitalize()).rpartition(".")
        return schema_of(kind, name, name=message, package=package)

    schema = written_schema(column, field, values, topic, check_fits=check_column, schema_of=made)
    return ProtobufToEncode(column, field.type, schema)
