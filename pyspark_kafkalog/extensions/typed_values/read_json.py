"""JSON as a column, of the fields that the user names."""

from __future__ import annotations

import logging

import pyarrow as pa

from pyspark_kafkalog.errors import OptionError, SchemaError
from pyspark_kafkalog.extensions.typed_values.column_decoder import (
    ColumnDecoder,
    ColumnToDecode,
    ColumnValues,
)
from pyspark_kafkalog.extensions.typed_values.ddl import parse_ddl
from pyspark_kafkalog.extensions.typed_values.json.decoder import DecodedJson, Decoder
from pyspark_kafkalog.extensions.typed_values.json.times import zone as zone_named
from pyspark_kafkalog.extensions.typed_values.json.types import check_type, has_timestamps
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat
from pyspark_kafkalog.options.settings import ReadOptions

_FEW = 1000
"""Values that take no time to speak of."""
_log = logging.getLogger("pyspark_kafkalog")


def json_column(column: ColumnFormat, options: ReadOptions) -> ColumnToDecode:
    """The decoding of a column; its type is known only if an option gives it.

    :raises OptionError: for a schema that can't be read, and for a time zone that is not known here.
    """
    if column.zone is not None and zone_named(column.zone) is None:
        raise OptionError(
            f"Option 'timeZone': there is no time zone {column.zone!r}",
            hint="Write, for example, Europe/Berlin or UTC.",
        )
    kind = None
    if column.schema is not None:
        try:
            kind = parse_ddl(column.schema)
        except SchemaError as e:
            raise OptionError(
                f"Option '{column.column}.schema': {e.message}",
                hint="Give fields as in Spark's DDL: id bigint, items array<struct<name: string>>. A"
                " StructType gives it by simpleString().",
            ) from None
        check_type(kind, column.corrupt)
    return ColumnToDecode.of(column, None, kind, options)


class JsonDecoder(ColumnDecoder):
    """Decodes JSON.

    :param zone: the name of the time zone of times without one, unless an option gives another.
    :raises OptionError: if there is no such zone here.
    """

    left = "read as far as possible, with nulls for the rest"

    def __init__(self, column: ColumnToDecode, zone: str) -> None:
        super().__init__(column)
        kind = column.types[column.name]
        name = (column.format.zone or zone) if has_timestamps(kind) else "UTC"
        found = zone_named(name)
        if found is None:
            raise OptionError(
                f"There is no time zone {name!r} here, by which times in the {column.name} are read",
                hint="Install tzdata on this machine, or give the option timeZone.",
            )
        self._decoder = Decoder(kind, found, column.format.corrupt)
        self._has_said = False

    def decoded(self, values: ColumnValues) -> tuple[DecodedJson, dict[str, pa.Array]]:
        found = self._decoder.decode(values.data, values.starts, values.sizes)
        slow, given = found.slow.total(), int((values.sizes >= 0).sum())
        if slow > max(given // 2, _FEW) and not self._has_said:
            self._has_said = True
            ((place, count),) = found.slow.most_common(1)
            _log.warning(
                "%s: %d of %d JSON values of column %r are of a rare form, and take longer than with"
                " from_json, %d of them for %s; docs/typed-values.md says what is rare",
                *(values.partition, slow, given, self._column.name, count, place),
            )
        return found, {}
