"""The types that JSON can be read as."""

from __future__ import annotations

import pyarrow as pa

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.columns import inner_type
from pyspark_kafkalog.extensions.typed_values.ddl import ddl

_PLAIN = (
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()),
    *(pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us")),
)
MOST_DEPTH = 100
"""Types in one another."""


def check_type(kind: pa.DataType, corrupt: str) -> None:
    """Check the type of a column.

    :param corrupt: the name of the field that gets the text of corrupt rows.
    :raises OptionError: if it isn't a struct, or anything in it is of a type that JSON is not read as.
    """
    if not pa.types.is_struct(kind):
        raise OptionError(
            f"JSON is read as a struct, got {ddl(kind)}",
            hint='Give its fields: .schema("value struct<id: bigint, name: string>"). Other JSON can be read'
            " without the format, by from_json.",
        )
    _check(kind, "", 1)
    names = [field.name for field in kind]
    if corrupt in names and kind.field(corrupt).type != pa.string():
        raise OptionError(
            f"Field {corrupt!r} gets the text of corrupt values, so it must be a string, got"
            f" {ddl(kind.field(corrupt).type)}"
        )


def _check(kind: pa.DataType, path: str, depth: int) -> None:
    if depth > MOST_DEPTH:
        raise OptionError(f"Expected at most {MOST_DEPTH} types in one another")
    name = path.removeprefix(".") or "value"
    if pa.types.is_struct(kind):
        if any(b"variant" in (field.metadata or {}) for field in kind):  # as PySpark tells it from a struct
            raise _no_type("variant", name)
        names = [field.name for field in kind]
        if not names or len(names) > len(set(names)):
            twice = next((one for one in names if names.count(one) > 1), None)
            what = "no field" if twice is None else f"two fields {twice!r}"
            hint = "Give it one." if twice is None else "Leave one out, or give it another name."
            raise OptionError(f"The struct of {name!r} has {what}", hint=hint)
        for field in kind:
            _check(field.type, f"{path}.{field.name}", depth + 1)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        if pa.types.is_map(kind) and kind.key_type != pa.string():
            raise OptionError(f"Keys of maps in JSON are strings: {name!r} has {ddl(kind.key_type)}")
        _check(inner_type(kind), path, depth + 1)
    elif kind not in _PLAIN and not pa.types.is_decimal128(kind):
        raise _no_type(ddl(kind), name)


def _no_type(kind: str, name: str) -> OptionError:
    return OptionError(
        f"JSON can't be read as {kind}, the type of {name!r}", hint="Read it as a string, and convert that."
    )


def has_timestamps(kind: pa.DataType) -> bool:
    """Whether there are timestamps in it, for which a time zone counts."""
    if pa.types.is_struct(kind):
        return any(has_timestamps(field.type) for field in kind)
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return has_timestamps(inner_type(kind))
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)
