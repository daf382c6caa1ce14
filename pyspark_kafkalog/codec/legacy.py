"""Message sets: the formats magic 0 and 1, as Kafka's AbstractLegacyRecordBatch reads them.

A message may be a wrapper: its value is a compressed message set. In magic 0
the offsets inside are the real ones. In magic 1 they are relative: the wrapper
has the offset of its last message. The wrapper's timestamp type counts for all
inside, and with LogAppendTime so does its timestamp (KIP-32).
"""

from __future__ import annotations

import numpy as np

from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.buffers import Stage
from pyspark_kafkalog.codec.compression import decompress
from pyspark_kafkalog.codec.format import (
    COMPRESSION_MASK,
    KEY_SIZE_V0,
    KEY_SIZE_V1,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
)
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, first_bad_checksum, walk
from pyspark_kafkalog.errors import CorruptRecordError


def outer_messages(batches: Batches, rows: np.ndarray) -> np.ndarray:
    """The uncompressed ``rows`` of a walk as a table of messages (see :mod:`.read_kernels`)."""
    table = np.empty((kernels.MESSAGE_COLUMNS, rows.size), np.int64)
    table[kernels.MESSAGE] = batches.position[rows]
    table[kernels.MESSAGE_SIZE] = batches.size[rows]
    table[kernels.MESSAGE_MAGIC] = batches.magic[rows]
    table[kernels.MESSAGE_OFFSET] = batches.last_offset[rows]
    table[kernels.MESSAGE_TIMESTAMP] = batches.max_timestamp[rows]
    return table


def stage_message(
    data: np.ndarray, batches: Batches, row: int, stage: Stage, *, max_bytes: int, check_crcs: bool
) -> np.ndarray:
    """Put one message, or the messages of one wrapper, on ``stage``; their table, with positions there.

    Their keys and values are not checked.

    :raises CorruptRecordError: without a place, if a wrapper is not valid.
    """
    message = data[batches.position[row] :][: batches.size[row]]
    magic, offset = int(batches.magic[row]), int(batches.last_offset[row])
    attributes = int(batches.attributes[row])
    start = stage.size
    if not attributes & COMPRESSION_MASK:
        stage.append(message)
        table = outer_messages(batches, np.array([row]))
        table[kernels.MESSAGE] = start
        return table
    value = _wrapped(message, magic)
    decompress(attributes & COMPRESSION_MASK, value, magic=magic, max_bytes=max_bytes, stage=stage)
    inner = walk(stage.data, start)
    _check_inner(inner)
    if check_crcs and first_bad_checksum(stage.data, inner, 0, len(inner)) < len(inner):
        raise CorruptRecordError("CRC mismatch in a message of a compressed message set")
    table = outer_messages(inner, np.arange(len(inner)))
    table[kernels.MESSAGE_OFFSET] += _base(magic, offset, int(inner.last_offset[-1]))
    if table[kernels.MESSAGE_OFFSET, 0] < batches.base_offset[row]:
        raise CorruptRecordError("The offsets in a compressed message set overlap those before it")
    if row + 1 < len(batches) and table[kernels.MESSAGE_OFFSET, -1] >= batches.base_offset[row + 1]:
        raise CorruptRecordError("The offsets in a compressed message set overlap those after it")
    if attributes & LOG_APPEND_TIME_BIT and magic == 1:
        table[kernels.MESSAGE_TIMESTAMP] = np.where(
            inner.magic == 0, NO_TIMESTAMP, batches.max_timestamp[row]
        )
    return table


def _wrapped(message: np.ndarray, magic: int) -> np.ndarray:
    """The value of a wrapper."""
    data = memoryview(message)  # type: ignore[arg-type]
    at = KEY_SIZE_V0 if magic == 0 else KEY_SIZE_V1
    at += 4 + max(int.from_bytes(data[at : at + 4], "big", signed=True), 0)
    size = int.from_bytes(data[at : at + 4], "big", signed=True)
    if at + 4 + size != len(data) or size < 0:
        raise CorruptRecordError("The value of a compressed message does not end where the message ends")
    return message[at + 4 :]


def _check_inner(inner: Batches) -> None:
    if inner.status is not WalkStatus.END:
        raise CorruptRecordError("A compressed message set holds bytes that are not a message")
    if not len(inner):
        raise CorruptRecordError("A compressed message set is empty")
    if (inner.magic > 1).any() or inner.compression.any():
        raise CorruptRecordError("A compressed message set holds a record batch or another compressed set")
    if (np.diff(inner.last_offset) <= 0).any():
        raise CorruptRecordError("The offsets in a compressed message set do not rise")


def _base(magic: int, offset: int, last_inner: int) -> int:
    """What to add to the offsets in a wrapper of ``offset``: they are real in magic 0, relative in magic 1.

    Old librdkafka sent wrappers of offset 0, which then is the base.
    """
    if last_inner > offset and (magic == 0 or offset > 0):
        raise CorruptRecordError(
            f"Offset {last_inner} in a compressed message set is above its last offset {offset}"
        )
    return 0 if magic == 0 or offset == 0 else offset - last_inner
