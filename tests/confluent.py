"""Values as Confluent's serializers write them: by fastavro, with the id of their schema before them."""

from __future__ import annotations

import io
import struct
import uuid
from typing import Any

import fastavro


def body(schema: Any, value: Any) -> bytes:
    """The Avro of a value, without a prefix."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def prefixed(schema_id: int, schema: Any, value: Any) -> bytes:
    """The id of the schema before it (ConfluentIdPrefix)."""
    return b"\0" + struct.pack(">I", schema_id) + body(schema, value)


def guid_header(guid: str, name: str = "value") -> tuple[str, bytes]:
    """The header with the GUID of a schema (HeaderSchemaIdSerializer)."""
    return f"__{name}_schema_id", b"\x01" + uuid.UUID(guid).bytes


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """The schema of a record; a field is a type, or a tuple of type and default."""
    described = [
        {"name": field, "type": kind[0], "default": kind[1]}
        if isinstance(kind, tuple)
        else {"name": field, "type": kind}
        for field, kind in fields.items()
    ]
    return {"type": "record", "name": name, "fields": described}


MANY = {
    "flag": "boolean",
    "number": "int",
    "big": "long",
    "ratio": "float",
    "exact": "double",
    "text": "string",
    "raw": "bytes",
    "colour": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]},
    "digest": {"type": "fixed", "name": "Digest", "size": 4},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    "inner": record("Inner", x="int", y=["null", "string"]),
    "maybe": ["null", "Inner"],
    "items": {"type": "array", "items": "Inner"},
}
"""Fields of most types, for a record."""
