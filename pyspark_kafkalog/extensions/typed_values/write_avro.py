"""A column as Avro, by a schema of the registry or of an option."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from pyspark_kafkalog.errors import OptionError, SchemaError, SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.avro.encoder import Encoder, check_fits, schema_of
from pyspark_kafkalog.extensions.typed_values.avro.schema import parse
from pyspark_kafkalog.extensions.typed_values.options import CONFLUENT_AVRO, ColumnFormat, WrittenValueOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema, registry_of


def written_schema(
    column: ColumnFormat, field: pa.Field, values: WrittenValueOptions, topic: str | None
) -> RegisteredSchema:
    """The schema that a column is written by, which it fits; the registry is asked, or told, here.

    :raises OptionError: if Avro has no such types, and for a topic that isn't known before.
    :raises SchemaError: if the column does not fit the schema; it names the field.
    :raises SchemaRegistryError: if the registry has no schema, refuses one, or does not answer.
    """
    text = column.schema
    if column.format != CONFLUENT_AVRO:
        assert text is not None, "the format needs it"
        schema = RegisteredSchema(text)
        _check_fits(schema, field, f"{column.column}.schema")
        return schema
    if topic is None:
        raise OptionError(
            f"Option '{column.column}.format' is {CONFLUENT_AVRO}, which needs the option 'topic'",
            hint="Its name says where the schema is in the registry, which is asked before any row is"
            " written. Write each topic by itself: its rows by a filter, and in a stream in foreachBatch.",
        )
    assert values.registry is not None, "the format needs it"
    registry, subject = registry_of(values.registry), f"{topic}-{column.column}"
    if text is None and not values.auto_register:
        schema = registry.latest(subject)
        if schema.kind != "AVRO":
            raise OptionError(f"Subject {subject!r} has a schema of type {schema.kind}, expected AVRO")
        if schema.schema_id is None:
            raise SchemaRegistryError(f"The schema registry gave no id of the newest schema of {subject!r}")
        _check_fits(schema, field, f"the newest schema of subject {subject!r}")
        return schema
    try:
        schema = RegisteredSchema(schema_of(field.type, field.name) if text is None else text)
    except SchemaError as e:
        raise OptionError(f"Column {field.name!r} can't be written: {e.message}", hint=e.hint) from None
    _check_fits(schema, field, "the schema that is made of it" if text is None else f"{column.column}.schema")
    find = registry.register if values.auto_register else registry.id_of
    return replace(schema, schema_id=find(subject, schema.text))


def _check_fits(schema: RegisteredSchema, field: pa.Field, what: str) -> None:
    try:
        parsed = parse(schema.text, schema.references)
        check_fits(parsed, field.type, field.name)
    except SchemaError as e:
        raise SchemaError(
            f"Column {field.name!r} can't be written by {what}: {e.message}", hint=e.hint
        ) from None


def avro_encoder(column: ColumnFormat, kind: pa.DataType, schema: RegisteredSchema) -> Encoder:
    """The encoder of a column of this type, in a task."""
    parsed, prefix = parse(schema.text, schema.references), b""
    is_framed = column.format == CONFLUENT_AVRO
    if is_framed:
        assert schema.schema_id is not None, "the registry has given it"
        prefix = b"\0" + schema.schema_id.to_bytes(4, "big")
    return Encoder(parsed, kind, column.column, prefix=prefix, is_framed=is_framed)
