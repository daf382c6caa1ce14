"""A column as JSON."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pyspark_kafkalog.errors import InvalidRecordError, OptionError
from pyspark_kafkalog.extensions.typed_values.ddl import ddl
from pyspark_kafkalog.extensions.typed_values.encoding import ColumnToEncode
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat
from pyspark_kafkalog.extensions.typed_values.to_json import check_json_type, to_json


class JsonToEncode(ColumnToEncode):
    """A column that becomes JSON."""

    __slots__ = ()

    def encoder(self, prefix: bytes) -> Callable[[pa.Array], pa.Array]:
        """See :meth:`.encoding.ColumnToEncode.encoder`."""
        return _as_json


def json_to_encode(column: ColumnFormat, field: pa.Field) -> JsonToEncode:
    """The encoding of a column.

    :raises OptionError: if JSON has no such types.
    """
    kind = field.type
    if column.schema is not None:
        raise OptionError(f"Option '{column.column}.schema' is not for writing json", hint="Leave it out.")
    if not (pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_list(kind)):
        raise OptionError(
            f"Column {field.name!r} has type {ddl(kind)}, expected a struct, an array or a map for json",
            hint=f"Make one, for example with struct(*) AS {field.name}. If it is encoded already, leave out"
            f" {column.column}.format.",
        )
    try:
        check_json_type(kind)
    except OptionError as e:
        raise OptionError(f"Column {field.name!r} can't be written: {e.message}", hint=e.hint) from None
    return JsonToEncode(column, kind, None)


def _as_json(column: pa.Array) -> pa.Array:
    try:
        return to_json(column).cast(pa.binary())
    except pa.ArrowInvalid:
        raise InvalidRecordError("A value takes 2 GiB or more as JSON", hint="Write smaller ones.") from None
