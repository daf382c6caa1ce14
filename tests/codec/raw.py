"""Record batches and messages byte by byte, so that a test can make any part of them wrong."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import google_crc32c
import numpy as np

from pyspark_kafkalog.codec.compression import compress

Headers = Sequence[tuple[bytes, bytes | None]]


def varint(value: int, *, bits: int = 64) -> bytes:
    """A zig-zag varint."""
    value = ((value << 1) ^ (value >> (bits - 1))) & ((1 << bits) - 1)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    value: bytes | None,
    *,
    key: bytes | None = None,
    delta: int = 0,
    timestamp_delta: int = 0,
    headers: Headers = (),
) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(delta) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(name) + sized(content) for name, content in headers)
    return varint(len(body)) + body


def batch(
    records: Sequence[bytes],
    *,
    base_offset: int = 0,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = 1_700_000_000_000,
    max_timestamp: int = 1_700_000_000_999,
    producer_id: int = -1,
    count: int | None = None,
    compression: int = 0,
    body: bytes | None = None,
) -> bytes:
    """A v2 batch with the right size and CRC around any content."""
    if body is None:
        body = compress(compression, np.frombuffer(b"".join(records), np.uint8))
    tail = (
        struct.pack(
            ">hiqqqhii",
            attributes | compression,
            len(records) - 1 if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            0,
            0,
            len(records) if count is None else count,
        )
        + body
    )
    return struct.pack(">qiibI", base_offset, len(tail) + 9, 0, 2, google_crc32c.value(tail)) + tail


def values(count: int, *, base_offset: int = 0, size: int = 10, **fields: int) -> bytes:
    """A v2 batch of this many records."""
    records = [record(b"%0*d" % (size, base_offset + i), delta=i) for i in range(count)]
    return batch(records, base_offset=base_offset, **fields)


def marker(producer_id: int, *, commit: bool, offset: int) -> bytes:
    """A control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    return batch([record(value, key=key)], base_offset=offset, attributes=0x30, producer_id=producer_id)


def message(
    value: bytes | None,
    *,
    offset: int = 0,
    magic: int = 1,
    key: bytes | None = None,
    attributes: int = 0,
    timestamp: int = 1_500_000_000_000,
    tail: bytes = b"",
) -> bytes:
    """A v0 or v1 message with the right size and CRC."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    body += tail
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(messages: Sequence[bytes], *, offset: int, compression: int = 1, **fields: int) -> bytes:
    """A compressed v0 or v1 message set."""
    value = compress(compression, np.frombuffer(b"".join(messages), np.uint8))
    attributes = fields.pop("attributes", 0) | compression
    return message(value, offset=offset, attributes=attributes, **fields)
