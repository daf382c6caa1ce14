"""Message sets: the formats magic 0 and 1, as Kafka's AbstractLegacyRecordBatch reads them.

A message may be a wrapper: its value is a compressed message set. In magic 0
the offsets inside are the real ones. In magic 1 they are relative: the wrapper
has the offset of its last message. The wrapper's timestamp type counts for all
inside, and with LogAppendTime so does its timestamp (KIP-32).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.buffers import Stage
from pyspark_kafkalog.codec.compression import Content, decompress, readable
from pyspark_kafkalog.codec.format import (
    KEY_SIZE_V0,
    KEY_SIZE_V1,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
)
from pyspark_kafkalog.codec.pieces import NOT_A_MESSAGE, message_pieces
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

    :raises LargerError: if a wrapper holds more than ``max_bytes``.
    :raises CorruptRecordError: without a place, if a wrapper is not valid.
    """
    start = stage.size
    if not batches.compression[row]:
        position = int(batches.position[row])
        stage.append(data[position : position + int(batches.size[row])])
        table = outer_messages(batches, np.array([row]))
        table[kernels.MESSAGE] = start
        return table
    compression, value, magic = _wrapped(data, batches, row)
    decompress(compression, value, magic=magic, max_bytes=max_bytes, stage=stage)
    inner = walk(stage.data, start)
    if inner.status is not WalkStatus.END:
        raise CorruptRecordError(NOT_A_MESSAGE)
    wrapper = _Wrapper(batches, row)
    wrapper.check(stage.data, inner, check_crcs=check_crcs)
    return wrapper.table(inner)


def staged_pieces(
    data: np.ndarray, batches: Batches, row: int, stage: Stage, *, window: int, largest: int, check_crcs: bool
) -> Iterator[np.ndarray]:
    """The tables of :func:`stage_message` for a wrapper that is too large to be staged whole, piece by piece.

    It is read twice, as its offsets follow from that of its last message.

    :raises OversizedRecordError: without a place, at a message of more than ``largest`` bytes.
    """
    compression, value, magic = _wrapped(data, batches, row)
    value = readable(compression, value, magic)
    wrapper = _Wrapper(batches, row)
    with Content(compression, value, max_block=largest) as content:
        for inner in message_pieces(content, stage, window=window, largest=largest):
            wrapper.check(stage.data, inner, check_crcs=check_crcs)
    with Content(compression, value, max_block=largest) as content:
        for inner in message_pieces(content, stage, window=window, largest=largest):
            yield wrapper.table(inner)


class _Wrapper:
    """The wrapper of compressed messages: what they must have in common, and their real offsets."""

    def __init__(self, batches: Batches, row: int) -> None:
        self._batches = batches
        self._row = row
        self._first = self._last = -1
        """Offsets of the first and the last message that were checked, as they are stored."""

    def check(self, data: np.ndarray, inner: Batches, *, check_crcs: bool) -> None:
        """Check consecutive messages, of which all are in ``data``."""
        if not len(inner):
            raise CorruptRecordError("A compressed message set is empty")
        if (inner.magic > 1).any() or inner.compression.any():
            raise CorruptRecordError(
                "A compressed message set holds a record batch or another compressed set"
            )
        if (np.diff(inner.last_offset, prepend=self._last) <= 0).any():
            raise CorruptRecordError("The offsets in a compressed message set do not rise")
        if check_crcs and first_bad_checksum(data, inner, 0, len(inner)) < len(inner):
            raise CorruptRecordError("CRC mismatch in a message of a compressed message set")
        self._first = int(inner.last_offset[0]) if self._first < 0 else self._first
        self._last = int(inner.last_offset[-1])

    def table(self, inner: Batches) -> np.ndarray:
        """The table of some messages, once all of them were checked."""
        batches, row = self._batches, self._row
        magic, attributes = int(batches.magic[row]), int(batches.attributes[row])
        base = _base(magic, int(batches.last_offset[row]), self._last)
        if base + self._first < batches.base_offset[row]:
            raise CorruptRecordError("The offsets in a compressed message set overlap those before it")
        if row + 1 < len(batches) and base + self._last >= batches.base_offset[row + 1]:
            raise CorruptRecordError("The offsets in a compressed message set overlap those after it")
        table = outer_messages(inner, np.arange(len(inner)))
        table[kernels.MESSAGE_OFFSET] += base
        if attributes & LOG_APPEND_TIME_BIT and magic == 1:
            table[kernels.MESSAGE_TIMESTAMP] = np.where(
                inner.magic == 0, NO_TIMESTAMP, batches.max_timestamp[row]
            )
        return table


def _wrapped(data: np.ndarray, batches: Batches, row: int) -> tuple[int, np.ndarray, int]:
    """The compression of a wrapper, its value, and its format."""
    message = data[batches.position[row] :][: batches.size[row]]
    magic, view = int(batches.magic[row]), memoryview(message)  # type: ignore[arg-type]
    at = KEY_SIZE_V0 if magic == 0 else KEY_SIZE_V1
    at += 4 + max(int.from_bytes(view[at : at + 4], "big", signed=True), 0)
    size = int.from_bytes(view[at : at + 4], "big", signed=True)
    if at + 4 + size != len(view) or size < 0:
        raise CorruptRecordError("The value of a compressed message does not end where the message ends")
    return int(batches.compression[row]), message[at + 4 :], magic


def _base(magic: int, offset: int, last_inner: int) -> int:
    """The base of the offsets in a wrapper of ``offset``: they are real in magic 0, relative in magic 1.

    Old librdkafka sent wrappers of offset 0, which then is the base.
    """
    if last_inner > offset and (magic == 0 or offset > 0):
        raise CorruptRecordError(
            f"Offset {last_inner} in a compressed message set is above its last offset {offset}"
        )
    return 0 if magic == 0 or offset == 0 else offset - last_inner
