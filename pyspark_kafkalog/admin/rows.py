"""Dataclasses as plain values and as Arrow tables, under the names that views and JSON show."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.model import Group

if TYPE_CHECKING:
    import pyarrow as pa


def plain(value: Any) -> Any:
    """A dataclass or named tuple, or a list of them, as dicts and lists in camel case, ready for JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        row = {camel_case(name): plain(getattr(value, name)) for name in names}
        if isinstance(value, Group):
            row["coordinator"] = value.coordinator if value.coordinator >= 0 else None
            row["state"] = value.state or None
        return row
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {camel_case(name): plain(item) for name, item in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def camel_case(name: str) -> str:
    """``log_start_offset`` as ``logStartOffset``."""
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), name)


MAX_MS = (2**63 - 1) // 1000
"""The greatest time that a timestamp in microseconds can hold."""


def arrow_types(columns: Mapping[str, str]) -> dict[str, pa.DataType]:
    """The Arrow types of the columns of a view, which :data:`~pyspark_kafkalog.options.views.VIEWS` gives."""
    import pyarrow as pa

    assigned = pa.struct([("topic", pa.string()), ("partition", pa.int32())])
    member = pa.struct(
        [
            ("memberId", pa.string()),
            ("clientId", pa.string()),
            ("host", pa.string()),
            ("partitions", pa.list_(pa.field("element", assigned))),
        ]
    )
    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return {name: types.get(kind, pa.list_(pa.field("element", member))) for name, kind in columns.items()}


def to_table(rows: Iterable[Any], columns: dict[str, pa.DataType]) -> pa.Table:
    """Dataclasses as an Arrow table; timestamps beyond its range are null."""
    import pyarrow as pa

    values = [plain(row) for row in rows]
    arrays = {}
    for name, kind in columns.items():
        column = [row[name] for row in values]
        if pa.types.is_timestamp(kind):
            shown = [None if ms is None or ms > MAX_MS else ms * 1000 for ms in column]
            arrays[name] = pa.array(shown, kind)
        else:
            arrays[name] = pa.array(column, kind)
    return pa.table(arrays, schema=pa.schema(list(columns.items())))
