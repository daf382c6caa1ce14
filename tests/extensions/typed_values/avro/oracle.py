"""fastavro as an independent writer and reader, and what its values are as rows of ours.

It gets schemas without logical types, so that it writes and reads plain numbers and bytes.
"""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

Json = Any
"""A schema, as Python has its JSON."""
EPOCH = datetime.datetime(1970, 1, 1)


def plain(schema: Json) -> Json:
    """A schema without logical types."""
    if isinstance(schema, list):
        return [plain(branch) for branch in schema]
    if isinstance(schema, dict):
        return {
            key: [{**field, "type": plain(field["type"])} for field in value]
            if key == "fields"
            else plain(value)
            if key in ("type", "items", "values")
            else value
            for key, value in schema.items()
            if key not in ("logicalType", "precision", "scale")
        }
    return schema


def parsed(schema: Json) -> Any:
    return fastavro.parse_schema(json.loads(json.dumps(plain(schema))))


def encoded(schema: Any, value: Any) -> bytes:
    """``schema`` is :func:`parsed`."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def read(body: bytes, writer: Any, reader: Any) -> tuple[Any, int]:
    """The value, and how many bytes it takes; schemas are :func:`parsed`."""
    source = io.BytesIO(body)
    value = fastavro.schemaless_reader(
        source, writer, reader, return_record_name=True, return_named_type=True
    )
    return value, source.tell()


def expected(value: Any, schema: Json) -> Any:
    """What fastavro has read, or a default, as :func:`shown` shows a row of ``schema``."""
    if isinstance(schema, list):
        return _in_union(value, schema)
    if isinstance(value, tuple):
        value = value[1]
    if isinstance(schema, str):
        schema = {"type": schema}
    kind, logical = schema["type"], schema.get("logicalType")
    if isinstance(kind, dict | list):
        return expected(value, kind)
    if kind == "record":
        return {
            field["name"]: expected(value.get(field["name"], field.get("default")), field["type"])
            for field in schema["fields"]
        }
    if kind == "array":
        return [expected(item, schema["items"]) for item in value]
    if kind == "map":
        return {key: expected(item, schema["values"]) for key, item in value.items()}
    if kind in ("bytes", "fixed"):
        value = value.encode("latin-1") if isinstance(value, str) else value
        if logical == "decimal":
            unscaled = int.from_bytes(value, "big", signed=True)
            digits = tuple(map(int, str(abs(unscaled))))
            return Decimal((int(unscaled < 0), digits, -schema.get("scale", 0)))
    if kind == "float":
        value = float(np.int64(value).astype(np.float32) if isinstance(value, int) else np.float32(value))
    if kind == "double":
        value = float(value)
    if logical == "date":
        return EPOCH.date() + datetime.timedelta(days=value)
    if logical in ("timestamp-millis", "local-timestamp-millis"):
        value *= 1000
    if logical and "timestamp" in logical:
        at = EPOCH + datetime.timedelta(microseconds=value)
        return at if logical.startswith("local") else at.replace(tzinfo=datetime.timezone.utc)
    return _with_text(value)


def _with_text(value: Any) -> Any:
    """NaN as text, also in a record that is named where it is used again."""
    if isinstance(value, dict):
        return {name: _with_text(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_text(item) for item in value]
    return "NaN" if value != value else value


def _in_union(value: Any, union: list[Json]) -> Any:
    if value is None:
        return None
    others = [branch for branch in union if branch != "null"]
    if len(others) == 1:
        return expected(value, others[0])
    kinds = [kind_of(branch) for branch in others]
    if {*kinds} in ({"int", "long"}, {"float", "double"}):
        return expected(value, "double" if "float" in kinds else "long")
    branch = _branch(value, others)
    return {
        f"member{number}": expected(value, other) if number == branch else None
        for number, other in enumerate(others)
    }


def _branch(value: Any, others: list[Json]) -> int:
    """The number of the branch; the strategies make no unions of which the value doesn't tell it."""
    if isinstance(value, tuple):
        names = [other.get("name") if isinstance(other, dict) else None for other in others]
        if value[0] in names:
            return names.index(value[0])
        value = value[1]
    kinds = [kind_of(other) for other in others]
    possible: dict[type, tuple[str, ...]] = {
        bool: ("boolean",),
        int: ("int", "long"),
        float: ("float", "double"),
        str: ("string", "enum"),
        bytes: ("bytes", "fixed"),
        list: ("array",),
        dict: ("map", "record"),
    }
    return next(kinds.index(kind) for kind in possible[type(value)] if kind in kinds)


def kind_of(schema: Json) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


def shown(array: pa.Array) -> list[Any]:
    """The rows of a column as :func:`expected` gives them: maps as dicts, and NaN as text."""
    return [_shown(value, array.type) for value in array.to_pylist()]


def _shown(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _shown(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: _shown(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_shown(item, kind.value_type) for item in value]
    return "NaN" if value != value else value
