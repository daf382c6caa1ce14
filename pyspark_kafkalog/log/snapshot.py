"""Producer snapshots: what a broker knows of the producers of a partition at an offset.

::

    int16 version 1, uint32 CRC-32C of what follows, int32 count, then 46 bytes a producer:
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
    int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1

Source: Kafka's ``ProducerStateManager``, ``ProducerSnapshot``.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

from pyspark_kafkalog.codec.checksums import crc32c

_HEADER = struct.Struct(">hII")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_FROM = 6
_VERSION = 1


class ProducerEntry(NamedTuple):
    """A producer's state; -1 stands for what is unknown (Kafka's ProducerStateEntry).

    ``last_sequence``, ``last_offset`` and ``offset_delta`` are those of its last batch of data.
    """

    producer_id: int
    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    first_offset: int = -1
    """The first offset of its open transaction."""


def parse_snapshot(data: bytes) -> list[ProducerEntry] | None:
    """The producers in a ``.snapshot`` file; None if it is invalid."""
    if len(data) < _HEADER.size:
        return None
    version, crc, count = _HEADER.unpack_from(data)
    entries = data[_HEADER.size :]
    if version != _VERSION or len(entries) != count * _ENTRY.size or crc != crc32c(data[_CRC_FROM:]):
        return None
    return [ProducerEntry(*entry) for entry in _ENTRY.iter_unpack(entries)]


def format_snapshot(entries: Collection[ProducerEntry]) -> bytes:
    """Inverse of :func:`parse_snapshot`."""
    header = _HEADER.pack(_VERSION, 0, len(entries))
    body = header[_CRC_FROM:] + b"".join(_ENTRY.pack(*entry) for entry in entries)
    return _HEADER.pack(_VERSION, crc32c(body), len(entries)) + body[len(header) - _CRC_FROM :]
