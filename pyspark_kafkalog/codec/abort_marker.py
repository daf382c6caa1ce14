"""The marker that aborts a transaction: a control batch of one record (Kafka's ``EndTransactionMarker``)."""

from __future__ import annotations

import struct

from pyspark_kafkalog.codec.checksums import crc32c
from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_V2,
    CONTROL_ABORT,
    CONTROL_BIT,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
)

MARKER_SIZE = 78
"""Bytes of each."""
_HEADER = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")
_KEY = struct.pack(">hh", 0, CONTROL_ABORT)
_VALUE = struct.Struct(">hi")


def abort_marker(
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    *,
    offset: int,
    leader_epoch: int,
    timestamp: int,
) -> bytes:
    """The record batch at ``offset``; ``timestamp`` in ms."""
    value = _VALUE.pack(0, coordinator_epoch)
    # Attributes and both deltas are 0, as is the number of headers; the varints are small.
    record = bytes([0, 0, 0, 2 * len(_KEY)]) + _KEY + bytes([2 * len(value)]) + value + bytes(1)
    record = bytes([2 * len(record)]) + record
    checked = (
        _CHECKED.pack(
            TRANSACTIONAL_BIT | CONTROL_BIT, 0, timestamp, timestamp, producer_id, producer_epoch, -1, 1
        )
        + record
    )
    size = ATTRIBUTES_V2 + len(checked) - LOG_OVERHEAD
    return _HEADER.pack(offset, size, leader_epoch, 2, crc32c(checked)) + checked
