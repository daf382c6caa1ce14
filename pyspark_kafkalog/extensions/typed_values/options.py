"""The options by which the bytes of keys and values become columns of other types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.registry_options import (
    REGISTRY,
    RegistryOptions,
    registry_options,
)
from pyspark_kafkalog.model import CORRUPT_FIELD
from pyspark_kafkalog.options.settings import ReadOptions, WriteOptions
from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.read.values import Values
from pyspark_kafkalog.write.values import WrittenValues

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.extensions.typed_values.column_decoder import ColumnToDecode
    from pyspark_kafkalog.extensions.typed_values.encoding import ColumnToEncode
    from pyspark_kafkalog.read.values import Decode

CONFLUENT_AVRO = "confluent-avro"
JSON = "json"
_CORRUPT, _ZONE = "columnNameOfCorruptRecord", "timeZone"
_INCLUDE_ID, _REGISTER = "includeSchemaId", "auto.register.schemas"
ID_COLUMNS: Mapping[str, str] = {"key": "keySchemaId", "value": "schemaId"}
"""The columns that may have a format, and those with the ids of the schemas of their values."""


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """The format of a column: how its bytes become a value.

    ``schema`` is the text of the schema that its values are read with; None for the newest one that the
    registry has for the topic, or for JSON that of the DataFrame. With ``fails_fast`` a value that can't be
    decoded ends the query. Of JSON the field ``corrupt`` gets such a value, and ``zone`` is the time zone of
    times without one; None for the session's.
    """

    column: str
    format: str
    schema: str | None
    fails_fast: bool
    corrupt: str
    zone: str | None

    @property
    def id_column(self) -> str | None:
        """The column with the ids of its values' schemas; None for a format without any."""
        return ID_COLUMNS[self.column] if self.format == CONFLUENT_AVRO else None


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
        found = {}
        if self.include_schema_id:
            found = {form.id_column: "int" for form in self.formats if form.id_column is not None}
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
    def encoded(self) -> Collection[str]:
        """See :attr:`.values.WrittenValues.encoded`."""
        return {form.column for form in self.formats}

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
    formats, registry = column_formats(user), registry_options(user)
    return user.fill(ValueOptions, formats=formats, registry=registry) if formats else None


def written_value_options(user: UserOptions) -> WrittenValueOptions | None:
    """The columns that a write encodes; None for none.

    :raises OptionError: as for :func:`value_options`.
    """
    formats, registry = column_formats(user), registry_options(user)
    return user.fill(WrittenValueOptions, formats=formats, registry=registry) if formats else None


def column_formats(user: UserOptions) -> tuple[ColumnFormat, ...]:
    """The formats of the columns that have one.

    :raises OptionError: for a format that lacks what it needs, and for options of formats without one.
    """
    formats = {column: user.value(f"{column}.format") for column in ID_COLUMNS}
    for column, name in formats.items():
        if name is None and f"{column}.schema" in user:
            raise OptionError(
                f"Option '{column}.schema' needs '{column}.format'", hint="Give avro, confluent-avro or json."
            )
        if name == "avro" and user.value(f"{column}.schema") is None:
            raise OptionError(
                f"Option '{column}.format' is avro, which needs '{column}.schema'",
                hint=f"Give the Avro schema of {column}s, as JSON. If they come from Confluent's serializers,"
                f" set {column}.format to {CONFLUENT_AVRO} instead, and give {REGISTRY}.",
            )
    confluent = next((column for column, name in formats.items() if name == CONFLUENT_AVRO), None)
    if confluent is not None and user.value(REGISTRY) is None:
        raise OptionError(
            f"Option '{confluent}.format' is {CONFLUENT_AVRO}, which needs {REGISTRY!r}",
            hint="Give the URL of the schema registry, such as https://host:8081.",
        )
    given = {
        REGISTRY: REGISTRY in user,
        _REGISTER: user.value(_REGISTER),
        _INCLUDE_ID: user.value(_INCLUDE_ID),
    }
    for option, is_given in given.items():
        if confluent is None and is_given:
            raise OptionError(
                f"Option {option!r} applies only to a key.format or value.format of {CONFLUENT_AVRO}",
                hint="Leave it out, or give the format.",
            )
    if not any(formats.values()):
        user.refuse_without("value.format", "mode", "includecorrupt")
    if JSON not in formats.values():
        user.refuse_without("value.format=json", _CORRUPT.lower(), _ZONE.lower())
    fails_fast = user.value("mode")
    if fails_fast and user.value("includeCorrupt"):
        raise OptionError(
            "Option 'includeCorrupt' is true, and 'mode' is FAILFAST, which ends the query instead",
            hint="Leave one of them out.",
        )
    rules = fails_fast, user.value(_CORRUPT), user.value(_ZONE)
    return tuple(
        ColumnFormat(column, name, user.value(f"{column}.schema"), *rules)
        for column, name in formats.items()
        if name is not None
    )
