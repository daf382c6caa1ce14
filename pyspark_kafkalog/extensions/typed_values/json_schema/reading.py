"""JSON as a column, of the fields that a JSON Schema describes; it is pinned when a query is planned."""

from __future__ import annotations

import logging
from functools import partial

import pyarrow as pa

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.column_decoder import ColumnDecoder
from pyspark_kafkalog.extensions.typed_values.json.decoder import Decoder
from pyspark_kafkalog.extensions.typed_values.json.reading import JsonColumn, JsonDecoder, check_zone
from pyspark_kafkalog.extensions.typed_values.json.times import Zone
from pyspark_kafkalog.extensions.typed_values.json.types import check_type
from pyspark_kafkalog.extensions.typed_values.json_schema.decoder import SchemaDecoder, part_of
from pyspark_kafkalog.extensions.typed_values.json_schema.types import JsonType, json_type
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from pyspark_kafkalog.extensions.typed_values.subjects import read_schema
from pyspark_kafkalog.options.settings import ReadOptions
from pyspark_kafkalog.options.user_options import log_once


class JsonSchemaColumn(JsonColumn):
    """A column of JSON; ``schema`` is the JSON Schema that it is read by."""

    __slots__ = ()

    def check_part(self, wanted: pa.DataType) -> None:
        """See :meth:`.column_decoder.ColumnToDecode.check_part`; the type that JSON is read as is another."""
        if pa.types.is_struct(wanted) and self.schema is not None:
            given = pa.struct([field for field in wanted if field.name != self.format.corrupt])
            super(JsonColumn, self).check_part(given)
            wanted = part_of(_type_of(self.schema), wanted).read_as
        check_type(wanted, self.format.corrupt)

    def decoder(self, registry: RegistryOptions | None, zone: str) -> ColumnDecoder:
        """See :meth:`.column_decoder.ColumnToDecode.decoder`."""
        assert self.schema is not None, "it has one"
        return JsonDecoder(self, zone, partial(_decoder, _type_of(self.schema)))


def json_schema_column(
    column: ColumnFormat, registry: RegistryOptions | None, options: ReadOptions
) -> JsonSchemaColumn:
    """The decoding of a column; the registry is asked for the schema unless an option gives one.

    :raises OptionError: for a schema that can't be read, or is that of several topics, and for a time zone
        that is not known here.
    :raises SchemaRegistryError: if the registry has none.
    """
    check_zone(column)
    schema = read_schema(column, registry, options)
    try:
        found = _type_of(schema)
    except SchemaError as e:
        raise column.unusable(e) from None
    for path, why in found.notes:
        log_once(logging.INFO, "%s.%s is read as JSON in a string: %s", column.column, path, why)
    return JsonSchemaColumn.of(column, schema, found.type, options)


def _type_of(schema: RegisteredSchema) -> JsonType:
    return json_type(schema.text, schema.named_references)


def _decoder(whole: JsonType, kind: pa.DataType, zone: Zone, corrupt: str) -> Decoder | SchemaDecoder:
    return SchemaDecoder(part_of(whole, kind), zone, corrupt)
