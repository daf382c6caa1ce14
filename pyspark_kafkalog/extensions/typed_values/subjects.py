"""The schema of a column in a registry, where a query is planned: by the subject of its topic."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pyspark_kafkalog.errors import OptionError, SchemaError, SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat, WrittenValueOptions
from pyspark_kafkalog.extensions.typed_values.registries.sources import registry_of
from pyspark_kafkalog.extensions.typed_values.registry_options import GLUE, RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from pyspark_kafkalog.extensions.typed_values.subject_names import record_of, subject_of
from pyspark_kafkalog.options.settings import ReadOptions

_MAKE_A_STRUCT = "If the schema is of a record, give a struct of its fields: struct(...) AS {}."

_REGISTER_ITS_TYPES = (
    "With auto.register.schemas=true a schema of the column's own types is registered, if it is compatible."
)


def _subject(
    column: ColumnFormat, registry: RegistryOptions, topic: str, schema: RegisteredSchema | None = None
) -> str:
    """The subject of a topic's column, as the registry's serializers name it.

    :param schema: the schema that is to be found there, if it is known.
    :raises OptionError: if the name is made of the schema's, which is not known.
    """
    if registry.registry == GLUE:
        return registry.schema_name or topic
    record = None
    if schema is not None and column.encoding == "protobuf":
        from pyspark_kafkalog.extensions.typed_values.protobuf.reading import message_of

        record = message_of(schema, column).name
    elif schema is not None:
        record = record_of(schema.kind, schema.text)
    return subject_of(column.strategy, topic, column.column, record)


def _newest(
    column: ColumnFormat, registry: RegistryOptions | None, topic: str
) -> tuple[RegisteredSchema, str]:
    """The newest schema of a topic's column, and its subject.

    :raises OptionError: if it is of another kind.
    :raises SchemaRegistryError: if there is none.
    """
    assert registry is not None, "the format needs it"
    subject, kind = _subject(column, registry, topic), column.encoding.upper()
    schema = registry_of(registry).latest(subject)
    if schema.kind != kind:
        raise OptionError(
            f"Subject {subject!r} has a schema of type {schema.kind}, expected {kind}",
            hint=column.hint_for(schema.kind),
        )
    return schema, subject


def read_schema(
    column: ColumnFormat, registry: RegistryOptions | None, options: ReadOptions
) -> RegisteredSchema:
    """The schema that a column is read by: that of an option, or the newest one of its topic.

    :raises OptionError: for a read of several topics without one.
    :raises SchemaRegistryError: if the registry has none.
    """
    if column.schema is not None:
        return RegisteredSchema(column.schema, column.encoding.upper())
    topics = options.selection.names or ()
    if len(topics) != 1:
        raise OptionError(
            f"Option '{column.column}.format' is {column.format}, and the read is not of one topic",
            hint=f"Give the schema of all of them as {column.column}.schema, or subscribe to one.",
        )
    return _newest(column, registry, topics[0])[0]


def written_schema(
    column: ColumnFormat,
    field: pa.Field,
    values: WrittenValueOptions,
    topic: str | None,
    *,
    check_fits: Callable[[RegisteredSchema, pa.Field], None],
    schema_of: Callable[[pa.DataType, str], str],
) -> RegisteredSchema:
    """The schema that a column is written by, which it fits; the registry is asked, or told, here.

    :param check_fits: raises SchemaError, naming the field, if a column does not fit a schema.
    :param schema_of: makes a schema for a type and a name; it raises SchemaError if there is none.
    :raises OptionError: if the format has no such types, and for a topic that isn't known before.
    :raises SchemaError: if the column does not fit the schema.
    :raises SchemaRegistryError: if the registry has no schema, refuses one, or does not answer.
    """

    kind, text = column.encoding.upper(), column.schema

    def fitting(schema: RegisteredSchema, what: str) -> RegisteredSchema:
        try:
            check_fits(schema, field)
        except SchemaError as e:
            # A struct is the usual value, and its columns are often given as the value by themselves.
            hint = e.hint or (None if pa.types.is_nested(field.type) else _MAKE_A_STRUCT.format(field.name))
            by_option = "" if values.auto_register else _REGISTER_ITS_TYPES
            if text is not None:
                by_option = f"Another {column.column}.schema may fit."
            message = f"Column {field.name!r} can't be written by {what}: {e.message}"
            raise SchemaError(message, hint=" ".join(filter(None, (hint, by_option)))) from None
        return schema

    if not column.is_registered:
        assert text is not None, "the format needs it"
        return fitting(RegisteredSchema(text, kind), f"{column.column}.schema")
    if topic is None:
        raise OptionError(
            f"Option '{column.column}.format' is {column.format}, which needs the option 'topic'",
            hint="Its name says where the schema is in the registry, which is asked before any row is"
            " written. Write each topic by itself: its rows by a filter, and in a stream in foreachBatch.",
        )
    assert values.registry is not None, "the format needs it"
    registry = registry_of(values.registry)
    if text is None and not values.auto_register:
        schema, subject = _newest(column, values.registry, topic)
        what = f"the newest schema of subject {subject!r}"
        return fitting(_with_key(schema, column, what), what)
    try:
        schema = RegisteredSchema(schema_of(field.type, field.name) if text is None else text, kind)
    except SchemaError as e:
        raise OptionError(f"Column {field.name!r} can't be written: {e.message}", hint=e.hint) from None
    fitting(schema, "the schema that is made of it" if text is None else f"{column.column}.schema")
    find = registry.register if values.auto_register else registry.find
    subject = _subject(column, values.registry, topic, schema)
    return _with_key(find(subject, schema), column, f"this schema of subject {subject!r}")


def _with_key(schema: RegisteredSchema, column: ColumnFormat, what: str) -> RegisteredSchema:
    """A schema, if it has the key that its values are to have.

    :raises SchemaRegistryError: if it hasn't.
    """
    if column.registry == GLUE:
        return schema
    if column.id_in_header and schema.guid is None:
        raise SchemaRegistryError(
            f"The schema registry gave no GUID of {what}",
            hint="Confluent Platform has GUIDs since 8.0. Leave out"
            f" {column.column}.schema.id.serializer: the id is written before the value then.",
        )
    if not column.id_in_header and schema.schema_id is None:
        raise SchemaRegistryError(f"The schema registry gave no id of {what}")
    return schema
