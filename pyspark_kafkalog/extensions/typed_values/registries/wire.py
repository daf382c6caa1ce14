"""The keys of schemas in values and headers of records, as serializers of each registry write them.

| serializer | where | bytes |
|---|---|---|
| Confluent | prefix | 0, id (4 bytes) |
| Confluent | header ``__value_schema_id`` | 0, id (4 bytes), or 1, GUID (16 bytes) |
| AWS Glue | prefix | 3, compression (0: none, 5: zlib), id of the schema version (16 bytes) |
| Apicurio | prefix | 0, id (4 bytes; 8 with ``Legacy8ByteIdHandler``) |
| Apicurio | header ``apicurio.value.globalId``, ``apicurio.value.contentId`` | id (8 bytes) |
| Azure | header ``content-type`` | ``avro/binary+``, id in hexadecimal digits |

All numbers are big-endian; the headers of keys have ``key`` in place of ``value``.
"""

from __future__ import annotations

import re
import uuid
import zlib

from pyspark_kafkalog.extensions.typed_values.registries.contract import ApicurioId, Key

GLUE_HEADER = 18
"""Bytes before a value."""
GLUE_VERSION, PLAIN, ZLIB = 3, 0, 5
_CONTENT_TYPE = re.compile(
    rb"avro/binary\+([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
)


def confluent_key(text: bytes) -> Key | None:
    """The key of Confluent's that bytes begin with, if they do."""
    if text[:1] == b"\0" and len(text) >= 5:
        return int.from_bytes(text[1:5], "big")
    return uuid.UUID(bytes=text[1:17]) if text[:1] == b"\1" and len(text) >= 17 else None


def glue_key(text: bytes) -> Key | None:
    """The key that the header before a value has, if it is one of AWS Glue's."""
    is_header = len(text) == GLUE_HEADER and text[0] == GLUE_VERSION and text[1] in (PLAIN, ZLIB)
    return uuid.UUID(bytes=text[2:]) if is_header else None


def glue_header(key: Key | None) -> bytes:
    """The bytes before a value that is not compressed, for AWS Glue."""
    assert isinstance(key, uuid.UUID), "Glue's ids are such"
    return bytes([GLUE_VERSION, PLAIN]) + key.bytes


def undone(value: bytes, largest: int) -> tuple[bytes, str]:
    """The bytes that zlib compressed, and why they can't be had, if they can't.

    :param largest: the most of them.
    """
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(value, largest)
        is_more = not stream.eof and bool(stream.decompress(stream.unconsumed_tail, 1))
    except zlib.error:
        return b"", "its compressed body is damaged"
    if is_more:
        return b"", f"its compressed body has more than {largest} bytes after decompression"
    if not stream.eof:
        return b"", "its compressed body ends too early"
    return text, "bytes follow its compressed body" if stream.unused_data else ""


def apicurio_key(text: bytes) -> Key | None:
    """The id that the 5 or 9 bytes before a value have, if they are Apicurio's.

    No id is 0: where one of 4 bytes would be, it is the first half of one of 8 bytes.
    """
    return int.from_bytes(text[1:], "big") or None if text[:1] == b"\0" else None


def global_id(text: bytes) -> Key | None:
    """The id in a header of Apicurio's."""
    return _apicurio("globalId", text)


def content_id(text: bytes) -> Key | None:
    """The id in a header of Apicurio's."""
    return _apicurio("contentId", text)


def _apicurio(name: str, text: bytes) -> Key | None:
    return ApicurioId(name, int.from_bytes(text, "big")) if len(text) == 8 and text[0] < 128 else None


def azure_key(text: bytes) -> Key | None:
    """The id in the header of Azure's."""
    found = _CONTENT_TYPE.fullmatch(text)
    return None if found is None else uuid.UUID(found.group(1).decode())
