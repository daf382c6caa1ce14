"""Columns of structs and other types as the bytes of keys and values.

The schema that a column is written by is looked up, or registered, where a write is planned; so tasks need
no registry, and what does not fit is refused before any row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.options import JSON, ColumnFormat, WrittenValueOptions

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema

_TAGS = ("variant", "geometry", "geography")
"""Keys in the metadata of fields, as PySpark's to_arrow_type has them."""


_HEADERS = ROW_TYPES["headers"]


@dataclass(frozen=True, slots=True)
class ColumnToEncode(ABC):
    """A column that is encoded: its format, type and schema. Sent to the tasks. A subclass is a format.

    ``type`` is that of the column. ``schema`` is what it is written by, with its id if that comes before
    each value; None for a format without.
    """

    format: ColumnFormat
    type: pa.DataType
    schema: RegisteredSchema | None

    @property
    def name(self) -> str:
        return self.format.column

    @abstractmethod
    def encoder(self, prefix: bytes) -> Callable[[pa.Array], pa.Array]:
        """The function that makes bytes of the values, in a task.

        :param prefix: the bytes that come before each value that isn't null.
        """

    @property
    def message(self) -> bytes:
        """The bytes behind the key of a schema that name a message in it, as Protobuf has them."""
        return b""


class _Nulls(ColumnToEncode):
    """A column that is null in all rows."""

    __slots__ = ()

    def encoder(self, prefix: bytes) -> Callable[[pa.Array], pa.Array]:
        return lambda column: column.cast(pa.binary())


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
        found.append(_column_to_encode(column, field, values, topic))
    return tuple(found)


def _column_to_encode(
    column: ColumnFormat, field: pa.Field, values: WrittenValueOptions, topic: str | None
) -> ColumnToEncode:
    if pa.types.is_null(field.type):
        return _Nulls(column, field.type, None)
    if column.is_by_json_schema:
        from pyspark_kafkalog.extensions.typed_values.json_schema.writing import json_schema_to_encode

        return json_schema_to_encode(column, field, values, topic)
    if column.encoding == "protobuf":
        from pyspark_kafkalog.extensions.typed_values.protobuf.writing import protobuf_to_encode

        return protobuf_to_encode(column, field, values, topic)
    if column.encoding == JSON:
        from pyspark_kafkalog.extensions.typed_values.json.writing import json_to_encode

        return json_to_encode(column, field)
    from pyspark_kafkalog.extensions.typed_values.avro.writing import avro_to_encode

    return avro_to_encode(column, field, values, topic)


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


class Encoding:
    """Encodes columns of rows, in a task.

    :param columns: what encodes each of them.
    """

    def __init__(self, columns: Iterable[ColumnToEncode]) -> None:
        found = tuple(columns)
        self._encode = {column.name: column.encoder(_prefix(column)) for column in found}
        self._headers = {
            column.name: _header(column)
            for column in found
            if column.format.id_in_header and column.schema is not None
        }

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with these columns encoded.

        :raises InvalidRecordError: for a value that its schema can't hold; it names the field.
        """
        columns, fields = list(rows.columns), list(rows.schema)
        for number, name in enumerate(rows.schema.names):
            if name in self._encode:
                columns[number] = self._encode[name](_as_plain(columns[number]))
                fields[number] = pa.field(name, pa.binary())
        encoded = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        for name, header in self._headers.items():
            encoded = _with_header(encoded, name, header)
        return encoded


def _header(column: ColumnToEncode) -> bytes:
    """The header with the GUID of a column's schema."""
    assert column.schema is not None, "the format has one"
    assert column.schema.guid is not None, "it was looked up"
    return b"\x01" + column.schema.guid.bytes + column.message


def _with_header(rows: pa.RecordBatch, column: str, header: bytes) -> pa.RecordBatch:
    """``rows`` with the key of a column's schema in a header, in place of another one's."""
    from pyspark_kafkalog.extensions.large_messages.header_lists import HeaderLists

    name, number = f"__{column}_schema_id", rows.schema.get_field_index("headers")
    given = pa.nulls(rows.num_rows, _HEADERS) if number < 0 else _as_plain(rows.column(number)).cast(_HEADERS)
    has_value = rows.column(column).is_valid().to_numpy(zero_copy_only=False)
    values = np.tile(np.frombuffer(header, np.uint8), (int(has_value.sum()), 1))
    headers = HeaderLists.of(given).without(name, has_value).with_last(name, values, has_value).column()
    if number < 0:
        return rows.append_column("headers", headers)
    return rows.set_column(number, "headers", headers)


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


def _prefix(column: ColumnToEncode) -> bytes:
    if not column.format.is_registered or column.schema is None or column.format.id_in_header:
        return b""
    from pyspark_kafkalog.extensions.typed_values.framing import prefix_of

    return prefix_of(column.format, column.schema) + column.message
