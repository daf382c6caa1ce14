"""The options by which the bytes of keys and values become columns of other types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.errors import OptionError, SchemaError
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions
from pyspark_kafkalog.extensions.typed_values.registry_options import (
    APICURIO,
    AZURE,
    CONFLUENT,
    URL_OPTIONS,
    RegistryOptions,
    registry_options,
)
from pyspark_kafkalog.model import CORRUPT_FIELD
from pyspark_kafkalog.options.settings import ReadOptions, WriteOptions
from pyspark_kafkalog.options.table import HEADER_SERIALIZER, VALUE_FORMATS, from_option
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.read.values import Values
from pyspark_kafkalog.write.values import WrittenValues

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.extensions.typed_values.column_decoder import ColumnToDecode
    from pyspark_kafkalog.extensions.typed_values.encoding import ColumnToEncode
    from pyspark_kafkalog.read.values import Decode

JSON = "json"
_CORRUPT, _ZONE = "columnNameOfCorruptRecord", "timeZone"
_JSON = tuple(name for name in VALUE_FORMATS if name.endswith(JSON))
_PROTOBUF = tuple(name for name in VALUE_FORMATS if name.endswith("protobuf"))
_OF_PROTOBUF = (
    "recursive.fields",
    "enums.as",
    "emit.default",
    "upcast.",
    "unwrap.",
    "retain.empty",
    "convert.",
)
_NEED_SCHEMA = {
    "avro": "the Avro schema, as JSON",
    "protobuf": "the text of the .proto file, or its descriptors in base64",
}
_REGISTERED = tuple(name for name in VALUE_FORMATS if "-" in name)
_INCLUDE_ID, _REGISTER = "includeSchemaId", "auto.register.schemas"
ID_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "key": {"keySchemaId": "int", "keySchemaGuid": "string"},
    "value": {"schemaId": "int", "schemaGuid": "string"},
}
"""The columns that may have a format, and those with the ids and GUIDs of the schemas of their values."""


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """The format of a column: how its bytes become a value.

    ``schema`` is the text of the schema that its values are read with; None for the newest one that the
    registry has for the topic, or for JSON that of the DataFrame. With ``fails_fast`` a value that can't be
    decoded ends the query. Of JSON the field ``corrupt`` gets such a value, and ``zone`` is the time zone of
    times without one; None for the session's. With ``id_in_header`` a write has the key of a schema there.
    Of Protobuf, ``message`` is the name of the message; None for the first one of the schema.
    ``strategy`` names the subjects of its schemas.
    """

    column: str
    format: str
    schema: str | None
    fails_fast: bool
    corrupt: str
    zone: str | None
    id_in_header: bool
    message: str | None
    protobuf: ProtobufOptions
    strategy: str

    @property
    def encoding(self) -> str:
        """The encoding of its values: ``avro``, ``json``, ``protobuf``."""
        return self.format.rpartition("-")[2]

    @property
    def is_registered(self) -> bool:
        """Whether each value has the key of its schema in a registry."""
        return "-" in self.format

    @property
    def registry(self) -> str:
        """The kind of the registry, such as ``confluent``; empty without one."""
        return self.format.rpartition("-")[0]

    def hint_for(self, kind: str) -> str:
        """The advice about a schema of another kind, such as ``AVRO``."""
        other = f"{self.registry}-{kind.lower()}"
        if other not in VALUE_FORMATS:
            return f"No {self.column}.format reads it."
        return f"Give {other} as {self.column}.format."

    @property
    def is_by_json_schema(self) -> bool:
        """Whether it is JSON, and a JSON Schema names the fields; fields in DDL don't begin with a brace."""
        is_given = self.is_registered if self.schema is None else self.schema.lstrip().startswith("{")
        return self.encoding == JSON and is_given

    @property
    def id_columns(self) -> Mapping[str, str]:
        """The columns with the keys of its values' schemas, and their types in DDL."""
        if not self.is_registered:
            return {}
        found = ID_COLUMNS[self.column]
        if self.registry != APICURIO:
            return found
        return {name: "bigint" if kind == "int" else kind for name, kind in found.items()}

    def unusable(self, error: SchemaError) -> OptionError:
        """The error for a schema that can't be read."""
        name = f"schema of column {self.column!r}"
        if self.schema is not None:
            name = f"option '{self.column}.schema'"
        return OptionError(f"The {name} can't be used: {error.message}", hint=error.hint)


@dataclass(frozen=True, slots=True)
class ValueOptions(Values):
    """The columns that a read decodes, with the schemas of writers in ``registry``."""

    formats: tuple[ColumnFormat, ...]
    registry: RegistryOptions | None
    include_schema_id: bool = from_option(_INCLUDE_ID)
    include_corrupt: bool = from_option("includeCorrupt")

    @property
    def columns(self) -> Mapping[str, str]:
        """See :attr:`.contracts.ExtensionOptions.columns`."""
        found: dict[str, str] = {}
        if self.include_schema_id:
            for form in self.formats:
                found |= form.id_columns
        return {**found, **dict([CORRUPT_FIELD])} if self.include_corrupt else found

    @property
    def decoded(self) -> Collection[str]:
        """See :attr:`.values.Values.decoded`."""
        return {form.column for form in self.formats}

    def columns_of(self, options: ReadOptions) -> tuple[ColumnToDecode, ...]:
        """See :meth:`.values.Values.columns_of`."""
        from pyspark_kafkalog.extensions.typed_values.decoding import decoded_columns

        return decoded_columns(self, options)

    def decoding(self, columns: Iterable[Any], zone: str = "UTC") -> Decode | None:
        """See :meth:`.values.Values.decoding`."""
        from pyspark_kafkalog.extensions.typed_values.decoding import Decoding

        found = tuple(columns)
        return Decoding(found, self.registry, zone) if found else None


@dataclass(frozen=True, slots=True)
class WrittenValueOptions(WrittenValues):
    """The columns that a write encodes, by schemas in ``registry``."""

    formats: tuple[ColumnFormat, ...]
    registry: RegistryOptions | None
    auto_register: bool = from_option(_REGISTER)

    @property
    def for_tasks(self) -> WrittenValueOptions:
        """See :attr:`.contracts.ExtensionOptions.for_tasks`: no task asks the registry."""
        return replace(self, registry=None)

    @property
    def encoded(self) -> Mapping[str, str]:
        """See :attr:`.values.WrittenValues.encoded`."""
        return {form.column: form.format for form in self.formats}

    def columns_of(self, options: WriteOptions, given: pa.Schema) -> tuple[ColumnToEncode, ...]:
        """See :meth:`.values.WrittenValues.columns_of`."""
        from pyspark_kafkalog.extensions.typed_values.encoding import encoded_columns

        return encoded_columns(self, options.topic, given)

    def encoding(self, columns: Iterable[ColumnToEncode]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """See :meth:`.values.WrittenValues.encoding`."""
        from pyspark_kafkalog.extensions.typed_values.encoding import Encoding

        return Encoding(columns)


def value_options(user: UserOptions) -> ValueOptions | None:
    """The columns that a read decodes; None for none.

    :raises OptionError: for a format that lacks what it needs, and for options of formats without one.
    """
    formats = column_formats(user)
    for form in formats:
        if form.registry == AZURE and form.column == "key":
            raise OptionError(
                f"Option 'key.format' is {form.format}, which only values have",
                hint="Leave it out: the header content-type says the schema of the value.",
            )
        if form.registry == AZURE and form.schema is None:
            raise OptionError(
                f"Option 'value.format' is {form.format}, which needs 'value.schema'",
                hint="Give the Avro schema that values are read with, as JSON: Azure's registry has none for"
                " a topic.",
            )
    registry = registry_options(user, _registry(form.format for form in formats))
    return user.fill(ValueOptions, formats=formats, registry=registry) if formats else None


def written_value_options(user: UserOptions) -> WrittenValueOptions | None:
    """The columns that a write encodes; None for none.

    :raises OptionError: as for :func:`value_options`.
    """
    formats = column_formats(user)
    for form in formats:
        if form.registry in (APICURIO, AZURE):
            raise OptionError(
                f"Option '{form.column}.format' is {form.format}, which can only be read",
                hint=f"Give {CONFLUENT}-{form.encoding}, with a registry of Confluent's API:"
                " Apicurio has it at /apis/ccompat/v7.",
            )
    registry = registry_options(user, _registry(form.format for form in formats))
    return user.fill(WrittenValueOptions, formats=formats, registry=registry) if formats else None


def _registry(formats: Iterable[str | None]) -> str:
    """The kind of the registry of these formats.

    :raises OptionError: if there are two.
    """
    found = sorted({name.partition("-")[0] for name in formats if name is not None and "-" in name})
    if len(found) > 1:
        raise OptionError(
            f"Options 'key.format' and 'value.format' are of two registries, {' and '.join(found)}",
            hint="Leave one of them out: the column is bytes then.",
        )
    return found[0] if found else CONFLUENT


def column_formats(user: UserOptions) -> tuple[ColumnFormat, ...]:
    """The formats of the columns that have one.

    :raises OptionError: for a format that lacks what it needs, and for options of formats without one.
    """
    formats = {column: user.value(f"{column}.format") for column in ID_COLUMNS}
    kind = _registry(formats.values())
    for column, name in formats.items():
        if name is None and f"{column}.schema" in user:
            raise OptionError(
                f"Option '{column}.schema' needs '{column}.format'",
                hint=f"Give one of {', '.join(VALUE_FORMATS)}.",
            )
        if name not in _PROTOBUF:
            user.refuse_without(f"{column}.format={_PROTOBUF[0]}", f"{column}.message")
        if not (name or "").startswith(CONFLUENT):
            only = f"{column}.schema.id.", f"{column}.subject."
            user.refuse_without(f"{column}.format={_REGISTERED[0]}", *only)
        if name in _NEED_SCHEMA and user.value(f"{column}.schema") is None:
            raise OptionError(
                f"Option '{column}.format' is {name}, which needs '{column}.schema'",
                hint=f"Give {_NEED_SCHEMA[name]}. If they come from Confluent's serializers, set"
                f" {column}.format to confluent-{name} instead, and give {URL_OPTIONS[CONFLUENT]}.",
            )
    registered = next((column for column, name in formats.items() if name in _REGISTERED), None)
    url = None if registered is None else URL_OPTIONS.get(kind)
    if url is not None and user.value(url) is None:
        raise OptionError(
            f"Option '{registered}.format' is {formats[str(registered)]}, which needs {url!r}",
            hint="Give the URL of the schema registry, such as https://host:8081.",
        )
    given = {
        **{option: option in user for option in URL_OPTIONS.values()},
        _REGISTER: user.value(_REGISTER),
        _INCLUDE_ID: user.value(_INCLUDE_ID),
    }
    for option, is_given in given.items():
        if registered is None and is_given:
            raise OptionError(
                f"Option {option!r} applies only to a key.format or value.format of"
                f" {' or '.join(_REGISTERED)}",
                hint="Leave it out, or give the format.",
            )
    if not any(formats.values()):
        user.refuse_without("value.format", "mode", "includecorrupt")
    if not {*formats.values()} & {*_PROTOBUF}:
        user.refuse_without("value.format=protobuf", *_OF_PROTOBUF)
    if not {*formats.values()} & {*_JSON}:
        user.refuse_without("value.format=json", _CORRUPT.lower(), _ZONE.lower())
    fails_fast = user.value("mode")
    if fails_fast and user.value("includeCorrupt"):
        raise OptionError(
            "Option 'includeCorrupt' is true, and 'mode' is FAILFAST, which ends the query instead",
            hint="Leave one of them out.",
        )
    protobuf = user.fill(ProtobufOptions)
    rules = fails_fast, user.value(_CORRUPT), user.value(_ZONE)
    return tuple(
        ColumnFormat(
            column,
            name,
            user.value(f"{column}.schema"),
            *rules,
            message=user.value(f"{column}.message"),
            protobuf=protobuf,
            id_in_header=user.value(f"{column}.schema.id.serializer") == HEADER_SERIALIZER,
            strategy=user.value(f"{column}.subject.name.strategy"),
        )
        for column, name in formats.items()
        if name is not None
    )
