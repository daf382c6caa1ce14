"""A column as Avro, by a schema of the registry or of an option."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pyspark_kafkalog.extensions.typed_values.avro.encoder import Encoder, check_fits, schema_of
from pyspark_kafkalog.extensions.typed_values.avro.schema import parse
from pyspark_kafkalog.extensions.typed_values.encoding import ColumnToEncode
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat, WrittenValueOptions
from pyspark_kafkalog.extensions.typed_values.registry_options import CONFLUENT
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from pyspark_kafkalog.extensions.typed_values.subjects import written_schema


class AvroToEncode(ColumnToEncode):
    """A column that becomes Avro."""

    __slots__ = ()

    def encoder(self, prefix: bytes) -> Callable[[pa.Array], pa.Array]:
        """See :meth:`.encoding.ColumnToEncode.encoder`."""
        assert self.schema is not None, "Avro has one"
        schema = parse(self.schema.text, self.schema.references)
        is_framed = self.format.registry == CONFLUENT
        return Encoder(schema, self.type, self.name, prefix=prefix, is_framed=is_framed).encode


def avro_to_encode(
    column: ColumnFormat, field: pa.Field, values: WrittenValueOptions, topic: str | None
) -> AvroToEncode:
    """The encoding of a column; the registry is asked, or told, for its schema.

    :raises OptionError: if Avro has no such types, and for a topic that isn't known before.
    :raises SchemaError: if the column does not fit the schema; it names the field.
    :raises SchemaRegistryError: if the registry has no schema, refuses one, or does not answer.
    """
    schema = written_schema(column, field, values, topic, check_fits=_check_fits, schema_of=schema_of)
    return AvroToEncode(column, field.type, schema)


def _check_fits(schema: RegisteredSchema, field: pa.Field) -> None:
    check_fits(parse(schema.text, schema.references), field.type, field.name)
