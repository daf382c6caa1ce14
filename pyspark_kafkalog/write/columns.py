"""Arrow rows of users as a sink takes them: transformed, encoded, their columns checked and cast."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import HEADERS_FIELD
from pyspark_kafkalog.options.columns import (
    SINK_FIELDS,
    Ways,
    check_different,
    check_written_columns,
)
from pyspark_kafkalog.options.contracts import transforms_of
from pyspark_kafkalog.options.settings import WriteOptions
from pyspark_kafkalog.write.rows import RECORD
from pyspark_kafkalog.write.values import written_values_of

if TYPE_CHECKING:
    from pyspark_kafkalog.write.values import EncodedColumn

_NESTED = ("struct", "list", "large_list", "fixed_size_list", "map")
_TO_RETURN = f"Have the function return value, or more of {', '.join(SINK_FIELDS)}."


class Shaped:
    """Makes what a sink takes of rows of one schema, by the transform and the formats of a write.

    :param options: of the write.
    :param given: the columns of the rows.
    :param encoded: what encodes columns; None if that is not known yet, so that it is found here.
    :param ways: see :func:`.columns.check_written_columns`.
    :raises OptionError: if the transform can't be imported, or does not return the columns of records when it
        is called with no rows; or see :meth:`.values.WrittenValues.columns_of`.
    """

    def __init__(
        self,
        options: WriteOptions,
        given: pa.Schema,
        encoded: tuple[EncodedColumn, ...] | None = None,
        *,
        ways: Ways | None = None,
    ) -> None:
        self._topic, self._given = options.topic, given
        self._transform = transforms_of(options).load(given)
        schema = given if self._transform is None else self._transform.schema
        values = written_values_of(options)
        found = [pa.field(f.name, pa.binary()) if f.name in values.encoded else f for f in schema]
        # df.withColumn('value', struct('*')) has each column twice.
        self._written = {part for name in values.encoded for part in _parts(schema, name)}
        try:
            check_columns(
                pa.schema(found),
                self._topic,
                written=self._written,
                value_format=values.encoded.get("value"),
                ways=ways,
            )
        except OptionError as e:
            if self._transform is None:
                raise
            raise self._transform.error(
                f"returned columns that can't be written: {e.message}", kind=OptionError, hint=_TO_RETURN
            ) from None
        self.encoded = values.columns_of(options, schema) if encoded is None else encoded
        """The encoders of columns."""
        self._encode = values.encoding(self.encoded)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The records of ``rows``, of any number.

        :raises KafkaLogError: if the transform raises anything, or returns other columns, or values that a
            record can't hold.
        :raises InvalidRecordError: for a value that the schema of its column can't hold.
        """
        found = rows if self._transform is None else self._transform(_with_types(rows, self._given))
        found = found if self._encode is None else self._encode(found)
        try:
            return as_columns(found, self._topic, written=self._written)
        except OptionError as e:
            if self._transform is None:
                raise
            raise self._transform.error(f"returned what can't be written: {e.message}", hint=e.hint) from None


def _with_types(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``rows`` with the types of ``schema``: Spark's settings may give tasks larger ones, or other zones."""
    if rows.schema.types == schema.types:
        return rows
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _parts(schema: pa.Schema, name: str) -> Iterator[str]:
    """The names of the fields of a struct; none for another column, or one that there isn't."""
    for field in schema:
        if field.name == name and pa.types.is_struct(field.type):
            yield from (part.name for part in field.type)


def as_columns(rows: pa.RecordBatch, topic: str | None, *, written: Collection[str] = ()) -> pa.RecordBatch:
    """The columns of records with the types that Spark hands over.

    :param written: see :func:`.columns.check_written_columns`.
    :raises OptionError: if ``value`` is missing, a column occurs twice or has another type, or a time or a
        partition is too large.
    """
    names = check_columns(rows.schema, topic, written=written)
    return pa.RecordBatch.from_pydict({name: _as_column(name, rows.column(name)) for name in names})


def check_columns(
    schema: pa.Schema,
    topic: str | None,
    *,
    written: Collection[str] = (),
    value_format: str | None = None,
    ways: Ways | None = None,
) -> list[str]:
    """The names of the columns in ``schema`` that a sink takes.

    See :func:`.columns.check_written_columns`.

    :raises OptionError: if ``value`` is missing, or a column occurs twice, has another type, or a name that
        is nearly one of these.
    """
    names = [name for name in schema.names if name in SINK_FIELDS]
    check_different(names)
    kinds = {field.name: _spark_type(field.type) for field in schema}
    check_written_columns(
        kinds, topic=topic, written=written, value_format=value_format, ways=ways or IN_ARROW
    )
    return names


def _to_written(name: str, kind: str) -> str:
    """Arrow's expression for a column as a sink takes it, or one that makes such a column."""
    if name == "headers":
        return 'pa.array([[{"key": "name", "value": b"text"}], ...])'
    if name in ("key", "value", "topic"):
        if kind.startswith(_NESTED):
            return f'pa.array([json.dumps(each) for each in rows["{name}"].to_pylist()])'
        return f'rows["{name}"].cast(pa.string())'
    if name == "partition":
        return 'rows["partition"].cast(pa.int32())'
    if kind == "timestamp_ntz":
        return 'pc.assume_timezone(rows["timestamp"], "Europe/Berlin")'
    cast = 'rows["timestamp"].cast(pa.timestamp("ms", "UTC"))'
    # Kafka counts milliseconds, time.time() seconds.
    return f'{cast} if it counts milliseconds, or "s" if seconds' if "int" in kind else cast


IN_ARROW = Ways(
    "table.rename_columns({{{!r}: {!r}}})",
    "table.drop_columns([{!r}])",
    _to_written,
    "Name it: write(rows, 'orders')",
    lambda name: f'rows.append_column("value", rows["{name}"].cast(pa.string()))',
    'rows.append_column("value", rows.to_struct_array())',
)
"""The expressions for a table of pyarrow."""


def _as_column(name: str, column: pa.Array) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    try:
        if name == "timestamp":
            finer = column.type.unit == "ns"  # else a cast is refused if the time does not fit
            return column.cast(pa.timestamp("us", column.type.tz), safe=not finer)
        return column.cast(_TYPES[name]) if name in _TYPES else column
    except pa.ArrowException as e:
        raise OptionError(f"Column {name!r} has a value that a record can't hold: {e}") from None


_TYPES = {"partition": pa.int32(), **{name: RECORD.field(name).type for name in ("key", "value", "headers")}}


def _spark_type(kind: pa.DataType) -> str:
    """The type as Spark writes it, if a record can have it; else as Arrow does."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    for name, checks in _SPARK_TYPES.items():
        if any(check(kind) for check in checks):
            return name
    return str(kind)


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    item = kind.value_type
    kinds = [(field.name, _spark_type(field.type)) for field in item] if pa.types.is_struct(item) else []
    return {name for name, _ in kinds} == {"key", "value"} and {kind for _, kind in kinds} <= {
        "string",
        "binary",
    }


_SPARK_TYPES: Mapping[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "binary": (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
        pa.types.is_null,
    ),
    "string": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "int": (pa.types.is_integer,),
    "timestamp": (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,),
    "timestamp_ntz": (pa.types.is_timestamp,),
    HEADERS_FIELD[1]: (_is_headers,),
}
