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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.extensions.typed_values.registries.contract import ApicurioId, Key

NO_KEY = -1
GLUE_HEADER = 18
"""Bytes before a value."""
LARGEST = 64 << 20
"""Bytes of a value that zlib is undone for."""
_GLUE_VERSION, _PLAIN, _ZLIB = 3, 0, 5
_CONTENT_TYPE = re.compile(
    rb"avro/binary\+([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
)


@dataclass(frozen=True, slots=True)
class Framed:
    """The values without what is before them: ``data[start:start + size]``, a size of -1 for null.

    ``numbers`` is the place of each row's key in ``keys``; :data:`NO_KEY` for none, and then ``corrupt`` may
    say why. ``starts`` and ``sizes`` of such a row are those of the whole value.
    """

    data: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    numbers: np.ndarray
    keys: Sequence[Key]
    corrupt: Mapping[int, str] = field(default_factory=dict)


def by_number(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, width: int) -> Framed:
    """Values with a zero and an id of ``width`` bytes before them: 4 as Confluent's, or 8 as Apicurio's.

    :param data: uint8; ``starts`` and ``sizes``, int64, are within it.
    """
    numbers = np.full(sizes.size, NO_KEY, np.int64)
    rows = np.flatnonzero(sizes > width)
    rows = rows[data[starts[rows]] == 0]
    found = np.zeros(rows.size, np.uint64)
    for byte in range(1, width + 1):
        found = found << np.uint64(8) | data[starts[rows] + byte]
    unique, numbers[rows] = np.unique(found, return_inverse=True)
    return _behind(data, starts, sizes, numbers, unique.tolist(), width + 1)


def by_glue(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, *, largest: int = LARGEST) -> Framed:
    """Values with AWS Glue's header before them, which may be compressed.

    :param data: uint8; ``starts`` and ``sizes``, int64, are within it.
    :param largest: the most bytes of a value that was compressed.
    """
    numbers = np.full(sizes.size, NO_KEY, np.int64)
    rows = np.flatnonzero(sizes >= GLUE_HEADER)
    compression = data[starts[rows] + 1]
    is_framed = (data[starts[rows]] == _GLUE_VERSION) & ((compression == _PLAIN) | (compression == _ZLIB))
    rows, compression = rows[is_framed], compression[is_framed]
    ids = np.ascontiguousarray(data[starts[rows][:, None] + np.arange(2, GLUE_HEADER)])
    found = pa.Array.from_buffers(pa.binary(16), rows.size, [None, pa.py_buffer(ids)]).dictionary_encode()
    numbers[rows] = found.indices.to_numpy()
    keys = [uuid.UUID(bytes=each) for each in found.dictionary.to_pylist()]
    framed = _behind(data, starts, sizes, numbers, keys, GLUE_HEADER)
    return _inflated(framed, rows[compression == _ZLIB], largest, (starts, sizes))


def _behind(
    data: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    numbers: np.ndarray,
    keys: Sequence[Key],
    width: int,
) -> Framed:
    before = width * (numbers >= 0)
    return Framed(data, starts + before, sizes - before, numbers, keys)


def _inflated(framed: Framed, rows: np.ndarray, largest: int, whole: tuple[np.ndarray, np.ndarray]) -> Framed:
    if not rows.size:
        return framed
    starts, sizes, numbers = framed.starts, framed.sizes, framed.numbers
    parts, end, corrupt = [framed.data], framed.data.size, dict[int, str]()
    for row in rows.tolist():
        text, why = _undone(framed.data[starts[row] : starts[row] + sizes[row]].tobytes(), largest)
        if why:
            corrupt[row] = f"expected a value that zlib compressed: {why}"
            numbers[row] = NO_KEY
            starts[row], sizes[row] = whole[0][row], whole[1][row]
            continue
        parts.append(np.frombuffer(text, np.uint8))
        starts[row], sizes[row] = end, len(text)
        end += len(text)
    return Framed(np.concatenate(parts), starts, sizes, numbers, framed.keys, corrupt)


def _undone(value: bytes, largest: int) -> tuple[bytes, str]:
    """The bytes that zlib compressed; and why they can't be had, if they can't."""
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(value, largest)
    except zlib.error:
        return b"", "it has other bytes"
    if not stream.eof:
        return b"", "it is cut off" if len(text) < largest else f"it has more than {largest} bytes"
    return text, "bytes follow it" if stream.unused_data else ""


def glue_header(key: Key) -> bytes:
    """The bytes before a value that is not compressed, for AWS Glue."""
    assert isinstance(key, uuid.UUID), "Glue's ids are such"
    return bytes([_GLUE_VERSION, _PLAIN]) + key.bytes


def _confluent(value: bytes) -> Key | None:
    if len(value) == 5 and value[0] == 0:
        return int.from_bytes(value[1:], "big")
    return uuid.UUID(bytes=value[1:]) if len(value) == 17 and value[0] == 1 else None


def _global_id(value: bytes) -> Key | None:
    return _apicurio("globalId", value)


def _content_id(value: bytes) -> Key | None:
    return _apicurio("contentId", value)


def _apicurio(name: str, value: bytes) -> Key | None:
    return ApicurioId(name, int.from_bytes(value, "big")) if len(value) == 8 and value[0] < 128 else None


def _azure(value: bytes) -> Key | None:
    found = _CONTENT_TYPE.fullmatch(value)
    return None if found is None else uuid.UUID(found.group(1).decode())


def header_keys(column: str) -> Mapping[str, Callable[[bytes], Key | None]]:
    """The headers that may have the key of a column's schema, each with what reads it; None: it has none."""
    found: dict[str, Callable[[bytes], Key | None]] = {
        f"__{column}_schema_id": _confluent,
        f"apicurio.{column}.globalId": _global_id,
        f"apicurio.{column}.contentId": _content_id,
    }
    return {**found, "content-type": _azure} if column == "value" else found
