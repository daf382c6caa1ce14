"""The columns that a read can produce, and those that a write takes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import CORRUPT_FIELD, DROPPED_FIELD, HEADERS_FIELD, ROW_FIELDS
from pyspark_kafkalog.options.user_options import is_slip, log_once, near_names, suggestion

SINK_FIELDS: Mapping[str, tuple[str, ...]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": (HEADERS_FIELD[1],),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns that a sink takes, by exact name, and their Spark types. Others are ignored, as in Spark,
except slips of these names."""


class Ways(NamedTuple):
    """The expressions that make other columns of a user's rows, as their library writes them."""

    rename: str
    """A format of the old name and the new one."""
    drop: str
    """A format of the name to leave out."""
    convert: Callable[[str, str], str]
    """Gives the expression for a column as a sink takes it, by its name and Spark type."""
    name_topic: str
    """Says how all rows get a topic."""
    add: Callable[[str], str]
    """Gives the expression that makes the column value of another one."""
    nest: str
    """An expression that makes the column value of all columns."""


RECORD_FIELDS: Mapping[str, str] = {**ROW_FIELDS, **dict([HEADERS_FIELD])}
"""The columns that a read of records may have."""
_STRUCTURED = ("struct", "array", "map")
_NESTED = (*_STRUCTURED, "variant")
_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_DOUBLED = re.compile(r"(.)\1+")
_FIELD = re.compile(r"[<,](\w+):")
_HEADERS_TO_CAST = re.compile(r"array<struct<[^:<>]+:(string|binary),[^:<>]+:(string|binary)>>")
_BY_OPTION: Mapping[str, str] = {
    HEADERS_FIELD[0]: "includeHeaders",
    DROPPED_FIELD[0]: "large.message.dead.letters",
    CORRUPT_FIELD[0]: "includeCorrupt",
}
"""The options that add columns."""
_OF_NO_RECORD: Mapping[str, str] = {
    CORRUPT_FIELD[0]: "Give the rows to dead_letters(), or leave out those where it is not null",
    DROPPED_FIELD[0]: "Leave out the rows where it is not null",
}
"""The columns of a read whose rows are not records, each with what to do with them."""
_NEVER_NULL = frozenset(ROW_FIELDS) - {"key", "value"}


def read_columns(
    fields: Iterable[tuple[str, str, bool]],
    allowed: Mapping[str, str] = RECORD_FIELDS,
    *,
    of_records: bool = True,
) -> tuple[str, ...]:
    """The names of the columns to build for a schema.

    :param fields: name, type as ``simpleString`` writes it, and nullability.
    :param allowed: the columns that exist, of records or of a view.
    :param of_records: columns of records, but not those of views, may be NOT NULL or come with an option.
    :raises OptionError: for a column that does not exist, has another type, or should be nullable.
    """
    names, fields = [], list(fields)
    for name, kind, nullable in fields:
        if name not in allowed:
            hint = _way_to_read(name, allowed, fields) if of_records else suggestion(name, allowed)
            raise OptionError(f"Unknown column {name!r}", hint=hint)
        if kind != allowed[name]:
            # Where a session calls another type timestamp, this name is plain.
            is_other = (kind, allowed[name]) == ("timestamp_ntz", "timestamp")
            named = "timestamp_ltz" if is_other else allowed[name]
            expression = _from_read(name, kind)
            then = f", and convert it then, for example with {expression}" if expression else ""
            advice = f"Read it as {named}{then}."
            raise OptionError(
                f"Column {name!r} has type {kind}, expected {allowed[name]}",
                hint=_or_format(name, kind, advice),
            )
        if not nullable and not (of_records and name in _NEVER_NULL):
            raise OptionError(f"Column {name!r} must be nullable, because it may be null")
        names.append(name)
    if not names:
        raise OptionError("The schema has no columns", hint=f"Use some of {', '.join(allowed)}.")
    check_different(names)
    return tuple(names)


def _way_to_read(name: str, allowed: Collection[str], fields: Sequence[tuple[str, str, bool]]) -> str:
    """The hint for a column of a user's schema that a read does not have: it may be a field of values."""
    unknown = [(field, kind) for field, kind, _ in fields if field not in {*allowed, *_BY_OPTION}]
    are_slips = all(near_names(field, allowed) for field, _ in unknown)
    is_bytes = all(kind == "binary" for _, kind in unknown)
    if name in _BY_OPTION or are_slips or is_bytes:
        return way_to_column(name, allowed)
    schema = ", ".join(f"{_quoted(field)} {kind}" for field, kind in unknown)
    return (
        f"A record has the columns {', '.join(allowed)}. For fields of JSON values leave out the schema, and"
        f""" set value.format=json with value.schema: .option("value.format", "json")"""
        f""".option("value.schema", "{schema}")."""
    )


def _quoted(name: str) -> str:
    """A name as DDL takes it."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"


def way_to_column(name: str, known: Iterable[str]) -> str:
    """The option that adds a column to a read of records, or else what the user may have meant."""
    option = _BY_OPTION.get(name)
    return f"Set the option {option}=true to have it." if option else suggestion(name, known)


def check_different(names: Iterable[str]) -> None:
    """Check that no column is named twice.

    :raises OptionError: if one is.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise OptionError(f"Column {name!r} occurs twice", hint="Name it once.")
        seen.add(name)


def check_written_columns(
    columns: Mapping[str, str],
    *,
    topic: str | None,
    written: Collection[str] = (),
    value_format: str | None = None,
    ways: Ways | None = None,
) -> None:
    """Refuse rows that cannot be records, before any work starts, and log once which columns are ignored.

    :param columns: name -> Spark type, as ``simpleString`` writes it.
    :param topic: the option ``topic``; with it the column is not needed.
    :param written: the columns that are a part of the key or the value, too.
    :param value_format: how values are encoded; None: not at all.
    :param ways: those of the user's library; by default Spark's.
    :raises OptionError: naming the column and its possible types, or the column that it probably is.
    """
    rename, drop, convert, name_topic, add, nest = ways or IN_SPARK
    ignored = [name for name in columns if name not in SINK_FIELDS]
    near = {name: column for name in ignored if name not in written and (column := slip_of(name))}
    if "value" not in columns:
        for name in (name for name, column in near.items() if column == "value"):
            raise OptionError(
                "Required column 'value' not found",
                hint=f"Did you mean {name!r}? Rename it: {rename.format(name, 'value')}.",
            )
        other = next(iter(columns), "id")
        raise OptionError(
            "Required column 'value' not found",
            hint=f"Add one, for example with {add(other)}, or with all columns in it: {nest} and the option"
            " value.format=json."
            if value_format is None
            else f"Add one for value.format={value_format}, for example with all columns in it: {nest}.",
        )
    for name, column in near.items():
        if column not in columns and not (column == "topic" and topic is not None):
            raise OptionError(
                f"Column {name!r} is not {column!r}",
                hint=f"Rename it: {rename.format(name, column)}. Or leave it out: {drop.format(name)}.",
            )
    if topic is None and "topic" not in columns:
        raise OptionError(
            "The option 'topic' is required if there is no column 'topic'",
            hint=f"{name_topic}, or add a string column 'topic'.",
        )
    for name, remedy in _OF_NO_RECORD.items():
        if name not in written and columns.get(name, "").startswith("struct<reason"):
            raise OptionError(
                f"Column {name!r} can't be written, and rows that have it would be records of nulls",
                hint=f"{remedy}, and drop the column: {drop.format(name)}.",
            )
    if topic is not None and "topic" in columns and "offset" not in columns:
        log_once(
            logging.WARNING,
            "The option topic sends all rows to %s, whatever the column topic says. Leave one of them out",
            topic,
        )
    for name, kinds in SINK_FIELDS.items():
        kind = columns.get(name)
        if kind is not None and kind not in kinds:
            advice = f"Convert it, for example with {convert(name, kind)}."
            if kind == "timestamp_ntz":
                advice = f"It has no time zone. {advice}"
            raise OptionError(
                f"Column {name!r} has type {kind}, expected {' or '.join(kinds)}",
                hint=_or_format(name, kind, advice),
            )
    if ignored:
        log_once(
            logging.INFO if RECORD_FIELDS.keys() >= set(ignored) else logging.WARNING,
            "Ignored, since a record has no such columns: %s. It has %s",
            ", ".join(ignored),
            ", ".join(SINK_FIELDS),
        )


@cache
def slip_of(name: str) -> str | None:
    """The column of a sink that was probably meant by another name; None for one that has its own meaning.

    A number at its end counts columns.
    """
    lower = name.lower()
    for column in SINK_FIELDS if not name[-1:].isdigit() else ():
        is_doubled = _DOUBLED.sub(r"\1", lower) == column
        if is_slip(name, column) or is_doubled or lower == f"{column}s" or sorted(lower) == sorted(column):
            return column
    return None


def _or_format(name: str, kind: str, advice: str) -> str:
    """Advice about a column of another type, which may need no more than a format."""
    if name in ("key", "value") and kind.startswith(_STRUCTURED):
        return f"Give {name}.format, such as json. {advice.replace('Convert it', 'Or convert it', 1)}"
    return advice


def _from_read(name: str, kind: str) -> str | None:
    """Spark's expression for ``kind`` from a column as it is read; None if there is no simple one."""
    text = f"CAST({name} AS string)" if name in ("key", "value") and kind != "string" else name
    if name == "headers":
        return {"map": "map_from_entries(headers)", "string": "to_json(headers)"}.get(kind.partition("<")[0])
    if name in ("key", "value", "topic"):
        return f"from_json({text}, '...')" if kind.startswith(_NESTED) else f"CAST({text} AS {kind})"
    if (name, kind) == ("timestamp", "bigint"):
        return "unix_millis(timestamp)"
    to_times = ("string", "date", "timestamp_ntz")
    is_castable = kind in to_times if name == "timestamp" else kind == "string" or _is_number(kind)
    return f"CAST({name} AS {kind})" if is_castable else None


def _to_written(name: str, kind: str) -> str:
    """Spark's expression for a column as a sink takes it, or one that makes such a column."""
    if name in ("key", "value", "topic"):
        return f"to_json({name})" if kind.startswith(_NESTED) else f"CAST({name} AS string)"
    if name == "headers":
        if kind.startswith("map"):
            return (
                "transform(map_entries(headers), h -> struct(CAST(h.key AS string) AS key,"
                " CAST(CAST(h.value AS string) AS binary) AS value))"
            )
        if _FIELD.findall(kind) == ["value", "key"]:  # a cast would go by their places
            return (
                "transform(headers, h -> struct(CAST(h.key AS string) AS key, CAST(h.value AS binary) AS"
                " value))"
            )
        if _HEADERS_TO_CAST.fullmatch(kind):
            return f"CAST(headers AS {HEADERS_FIELD[1]})"
        return "array(struct('name' AS key, CAST('text' AS binary) AS value))"
    if name == "partition":
        return "CAST(partition AS int)" if kind == "string" or _is_number(kind) else "CAST(0 AS int)"
    if kind in _WHOLE_NUMBERS:
        return "timestamp_millis(timestamp)"  # as Kafka counts; CAST takes seconds
    if _is_number(kind):
        return "timestamp_seconds(timestamp)"
    if kind == "timestamp_ntz":
        return "CAST(timestamp AS timestamp_ltz)"  # in the session's time zone
    return "CAST(timestamp AS timestamp)" if kind in ("string", "date") else "current_timestamp()"


IN_SPARK = Ways(
    "df.withColumnRenamed({!r}, {!r})",
    "df.drop({!r})",
    _to_written,
    "Add .option('topic', 'name')",
    lambda name: f"df.selectExpr('CAST({_quoted(name)} AS string) AS value')",
    "df.selectExpr('struct(*) AS value')",
)
"""The expressions for a DataFrame."""


def _is_number(kind: str) -> bool:
    return kind in (*_WHOLE_NUMBERS, "float", "double") or kind.startswith("decimal")
