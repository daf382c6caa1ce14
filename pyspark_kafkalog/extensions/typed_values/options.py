"""How the bytes of keys and values become columns of other types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.registry_options import REGISTRY
from pyspark_kafkalog.options.user_options import UserOptions

CONFLUENT_AVRO = "confluent-avro"
JSON = "json"
_CORRUPT, _ZONE = "columnNameOfCorruptRecord", "timeZone"
_INCLUDE_ID, _REGISTER = "includeSchemaId", "auto.register.schemas"
ID_COLUMNS: Mapping[str, str] = {"key": "keySchemaId", "value": "schemaId"}
"""The columns that may have a format, and those with the ids of the schemas of their values."""


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """How the bytes of one column become a value.

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
                hint=f"Give the Avro schema of {column}s, as JSON. Those of Confluent's serializers begin"
                f" with the id of theirs: give {CONFLUENT_AVRO} and {REGISTRY} for them.",
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
