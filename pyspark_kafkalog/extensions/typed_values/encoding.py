"""Columns of structs and other types as the bytes of keys and values.

The schema that a column is written by is looked up, or registered, where a write is planned; so tasks need
no registry, and what does not fit is refused before any row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.options import JSON, ColumnFormat, WrittenValueOptions
from pyspark_kafkalog.extensions.typed_values.to_json import check_json_type, to_json

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema

_TAGS = ("variant", "geometry", "geography")
"""Keys in the metadata of fields, as PySpark's to_arrow_type has them."""


@dataclass(frozen=True, slots=True)
class ColumnToEncode:
    """A column that is encoded: its format, type and schema. Sent to the tasks.

    ``type`` is that of the column. ``schema`` is what it is written by, with its id if that comes before
    each value; None for JSON, and for a column that is null in all rows.
    """

    format: ColumnFormat
    type: pa.DataType
    schema: RegisteredSchema | None

    @property
    def name(self) -> str:
        return self.format.column


def encoded_columns(
    values: WrittenValueOptions, topic: str | None, given: pa.Schema
) -> tuple[ColumnToEncode, ...]:
    """The columns that have a format; the registry is asked, or told, here.

    :param topic: that of all rows, if it is known.
    :param given: the columns of the rows.
    :raises OptionError: for columns that have no such form, and for a topic that isn't known before.
    :raises SchemaError: if a column does not fit the schema; it names the field.
    :raises SchemaRegistryError: if the registry has no schema, refuses one, or does not answer.
    """
    found = []
    for column in values.formats:
        if column.column not in given.names:
            if column.column == "key":
                raise OptionError(
                    f"Option 'key.format' is {column.format}, and there is no column 'key'",
                    hint="Leave it out, or add the column.",
                )
            continue  # which is refused for any format
        field = given.field(column.column)
        _check_known(field.type, field.name)
        field = field.with_type(_plain(field.type))
        schema = None
        if column.format == JSON:
            _check_json(column, field)
        elif not pa.types.is_null(field.type):
            from pyspark_kafkalog.extensions.typed_values.write_avro import written_schema

            schema = written_schema(column, field, values, topic)
        found.append(ColumnToEncode(column, field.type, schema))
    return tuple(found)


def _check_known(kind: pa.DataType, path: str) -> None:
    """Refuse types of Spark's that come as structs of their parts.

    :raises OptionError: naming the field.
    """
    parts = [kind.field(number) for number in range(kind.num_fields)]
    for part in parts:
        tag = next((tag for tag in _TAGS if tag.encode() in (part.metadata or {})), None)
        if tag is not None:
            raise OptionError(
                f"{path} is of type {tag}, which can't be written",
                hint="Convert it, for example with to_json or CAST(... AS string).",
            )
        _check_known(part.type, f"{path}.{part.name}")


def _check_json(column: ColumnFormat, field: pa.Field) -> None:
    kind = field.type
    if column.schema is not None:
        raise OptionError(f"Option '{column.column}.schema' is not for writing {JSON}", hint="Leave it out.")
    if pa.types.is_null(kind):
        return
    if not (pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_list(kind)):
        raise OptionError(
            f"Column {field.name!r} has type {kind}, expected a struct, an array or a map for {JSON}",
            hint=f"Make one, for example with struct(*) AS {field.name}. If it is encoded already, leave out"
            f" {column.column}.format.",
        )
    try:
        check_json_type(kind)
    except OptionError as e:
        raise OptionError(f"Column {field.name!r} can't be written: {e.message}", hint=e.hint) from None


class Encoding:
    """Encodes columns of rows, in a task.

    :param columns: what encodes each of them.
    """

    def __init__(self, columns: Iterable[ColumnToEncode]) -> None:
        self._encode = {column.name: _encoder(column) for column in columns}

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with these columns encoded.

        :raises InvalidRecordError: for a value that its schema can't hold; it names the field.
        """
        columns, fields = list(rows.columns), list(rows.schema)
        for number, name in enumerate(rows.schema.names):
            if name in self._encode:
                columns[number] = self._encode[name](_as_plain(columns[number]))
                fields[number] = pa.field(name, pa.binary())
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _as_plain(column: pa.Array) -> pa.Array:
    kind = _plain(column.type)
    if column.type == kind:
        return column
    return column.cast(_plain(column.type, keeps_dictionaries=True)).cast(kind)  # views have no other way


def _plain(kind: pa.DataType, *, keeps_dictionaries: bool = False) -> pa.DataType:
    """A type with the forms of text, bytes and lists that have small offsets, at any depth."""

    def of(kind: pa.DataType) -> pa.DataType:
        return _plain(kind, keeps_dictionaries=keeps_dictionaries)

    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(of(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(of(kind.key_type), kind.item_field.with_type(of(kind.item_type)), kind.keys_sorted)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(of(kind.value_type)))
    if pa.types.is_dictionary(kind):
        values = of(kind.value_type)
        return pa.dictionary(kind.index_type, values, kind.ordered) if keeps_dictionaries else values
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if any(is_bytes(kind) for is_bytes in _BYTES) else kind


_BYTES = (pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)


def _encoder(column: ColumnToEncode) -> Callable[[pa.Array], pa.Array]:
    if column.schema is None:
        return _as_json
    from pyspark_kafkalog.extensions.typed_values.write_avro import avro_encoder

    return avro_encoder(column.format, column.type, column.schema).encode


def _as_json(column: pa.Array) -> pa.Array:
    return to_json(column).cast(pa.binary())
