"""JSON as a column, of the fields that the user names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_kafkalog.errors import OptionError, SchemaError
from pyspark_kafkalog.extensions.typed_values.column_decoder import (
    ColumnDecoder,
    ColumnToDecode,
    ColumnValues,
)
from pyspark_kafkalog.extensions.typed_values.ddl import parse_ddl
from pyspark_kafkalog.extensions.typed_values.framing import framing_of
from pyspark_kafkalog.extensions.typed_values.json.decoder import DecodedJson, Decoder
from pyspark_kafkalog.extensions.typed_values.json.times import Zone
from pyspark_kafkalog.extensions.typed_values.json.times import zone as zone_named
from pyspark_kafkalog.extensions.typed_values.json.types import check_type, has_timestamps
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.options.settings import ReadOptions

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.typed_values.json_schema.decoder import DecodedBySchema, SchemaDecoder

_FEW = 1000
"""Values that take no time to speak of."""
_log = logging.getLogger("pyspark_kafkalog")


class JsonColumn(ColumnToDecode):
    """A column of JSON; its type is None as long as only the DataFrame's schema names it."""

    __slots__ = ()

    @property
    def types(self) -> dict[str, pa.DataType]:
        """See :attr:`.column_decoder.ColumnToDecode.types`."""
        if self.type is None and not self.format.is_registered:
            raise OptionError(
                f"Option '{self.name}.format' is {self.format.format}, which needs to know the fields",
                hint=f'Give {self.name}.schema="id bigint, name string", or in Spark the type of the column:'
                f' .schema("{self.name} struct<id: bigint, name: string>").',
            )
        return super().types

    def check_part(self, wanted: pa.DataType) -> None:
        """See :meth:`.column_decoder.ColumnToDecode.check_part`."""
        check_type(wanted, self.format.corrupt)
        given = pa.struct([field for field in wanted if field.name != self.format.corrupt])
        super().check_part(given)

    def decoder(self, registry: RegistryOptions | None, zone: str) -> ColumnDecoder:
        """See :meth:`.column_decoder.ColumnToDecode.decoder`."""
        return JsonDecoder(self, zone)


def json_column(column: ColumnFormat, options: ReadOptions) -> JsonColumn:
    """The decoding of a column; its type is known only if an option gives it.

    :raises OptionError: for a schema that can't be read, and for a time zone that is not known here.
    """
    check_zone(column)
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
    return JsonColumn.of(column, None, kind, options)


def check_zone(column: ColumnFormat) -> None:
    """Check the time zone that an option gives.

    :raises OptionError: if it is not known here.
    """
    if column.zone is not None and zone_named(column.zone) is None:
        raise OptionError(
            f"Option 'timeZone': there is no time zone {column.zone!r}",
            hint="Write, for example, Europe/Berlin or UTC.",
        )


class JsonDecoder(ColumnDecoder):
    """Decodes JSON.

    :param zone: the name of the time zone of times without one, unless an option gives another.
    :param make: makes the decoder of a type, a zone, and the name of the field for the text of corrupt
        values.
    :raises OptionError: if there is no such zone here.
    """

    left = "read as far as possible, with nulls for the rest"

    def __init__(
        self,
        column: ColumnToDecode,
        zone: str,
        make: Callable[[pa.DataType, Zone, str], Decoder | SchemaDecoder] = Decoder,
    ) -> None:
        super().__init__(column)
        self._framing = framing_of(column) if column.format.is_registered else None
        self._decoder: Decoder | SchemaDecoder | None = None
        self._has_said = False
        if column.type is None and column.id_columns:
            return
        kind = column.types[column.name]
        name = (column.format.zone or zone) if has_timestamps(kind) else "UTC"
        found = zone_named(name)
        if found is None:
            raise OptionError(
                f"There is no time zone {name!r} here, by which times in the {column.name} are read",
                hint="Install tzdata on this machine, or give the option timeZone.",
            )
        self._decoder = make(kind, found, column.format.corrupt)

    def decoded(
        self, values: ColumnValues
    ) -> tuple[DecodedJson | DecodedBySchema | None, dict[str, pa.Array]]:
        made: dict[str, pa.Array] = {}
        if self._framing is not None:
            values, keys = self._framing.find(values)
            made = {name: keys.column(kind) for name, kind in self._column.ids.items()}
        if self._decoder is None:
            return None, made
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
        return found, made
