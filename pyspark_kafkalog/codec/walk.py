"""Walk the headers of record batches and message sets, and find the next batch after damage."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum

import numpy as np

from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.buffers import Buffer, as_array
from pyspark_kafkalog.codec.checksums import crc32, crc32c
from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_V2,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    TRANSACTIONAL_BIT,
)
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import Slice

_CRC_BUDGET = 16
"""The bytes that a search for a valid batch may checksum, as a multiple of the buffer's size."""
_MIN_BUDGET = 1 << 20
_COST_OF_ONE = 4 << 10
"""The bytes that can be checksummed in the time that one candidate takes."""


class WalkStatus(IntEnum):
    """The reason why a walk ended."""

    END = kernels.END
    """The buffer ends there."""
    INCOMPLETE = kernels.INCOMPLETE
    """A partial batch is left, or under 17 bytes."""
    INVALID = kernels.INVALID
    """The next bytes cannot begin a batch: unknown magic, impossible size or offset."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The whole batches of a buffer, one element each in int64 arrays, and where the walk ended.

    For a v0 or v1 message set these are the outer messages: a field that the
    format lacks is -1. The base offset of a compressed one is only a lower
    bound (the previous last offset + 1, or 0), as the true one is inside.
    Checksums are not verified.
    """

    table: np.ndarray
    """The table of the arrays below: a row for each, in their order."""
    end: int
    """Position after the last whole batch."""
    status: WalkStatus
    needed: int
    """The whole size of the INCOMPLETE batch at ``end``; 0 if it is not known."""
    position: np.ndarray = field(init=False)
    size: np.ndarray = field(init=False)
    """Bytes of the whole batch, its log overhead included."""
    base_offset: np.ndarray = field(init=False)
    last_offset: np.ndarray = field(init=False)
    base_timestamp: np.ndarray = field(init=False)
    max_timestamp: np.ndarray = field(init=False)
    magic: np.ndarray = field(init=False)
    attributes: np.ndarray = field(init=False)
    producer_id: np.ndarray = field(init=False)
    producer_epoch: np.ndarray = field(init=False)
    base_sequence: np.ndarray = field(init=False)
    count: np.ndarray = field(init=False)
    """Records as the header claims; -1 for a compressed message."""
    leader_epoch: np.ndarray = field(init=False)
    crc: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        for name, column in zip(_COLUMNS, self.table, strict=True):
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return self.position.size

    def take(self, rows: np.ndarray) -> Batches:
        """The batches in ``rows``, in order, as if the others were not there."""
        return replace(self, table=self.table.take(rows, axis=1))

    def between(self, first: int, stop: int) -> Batches:
        """The batches from ``first`` to before ``stop``, at the same positions."""
        return replace(self, table=self.table[:, first:stop])

    def headers_of(self, first: int, last: int) -> np.ndarray:
        """The table of the batches ``first`` to ``last`` for a buffer that begins with the first of them."""
        table = self.table[:, first : last + 1]
        begin = int(self.position[first])
        if begin:
            table = table.copy()
            table[kernels.POSITION] -= begin
        return table

    @property
    def compression(self) -> np.ndarray:
        """Ids of Kafka's compression types; 5 to 7 are unknown."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> np.ndarray:
        marked: np.ndarray = (self.magic == 2) & (self.attributes & TRANSACTIONAL_BIT != 0)
        return marked

    @property
    def is_control(self) -> np.ndarray:
        marked: np.ndarray = (self.magic == 2) & (self.attributes & CONTROL_BIT != 0)
        return marked

    @property
    def first_timestamp(self) -> np.ndarray:
        """The timestamps of the first records, -1 where the header has something else in its place."""
        times = np.where(self.attributes & LOG_APPEND_TIME_BIT != 0, self.max_timestamp, self.base_timestamp)
        has_horizon = (self.magic == 2) & (self.attributes & DELETE_HORIZON_BIT != 0)
        return np.where(has_horizon, NO_TIMESTAMP, times)

    @property
    def is_misdated(self) -> np.ndarray:
        """Whether the largest timestamp is below that of the first record: only the records tell, then.

        Brokers put it right; other servers store what a producer sends, and Sarama before 1.45.1 sends 0.
        """
        wrong: np.ndarray = self.max_timestamp < self.first_timestamp
        return wrong

    @property
    def timestamp_type(self) -> np.ndarray:
        """-1 none (v0), 0 CreateTime, 1 LogAppendTime."""
        appended = self.attributes & LOG_APPEND_TIME_BIT != 0
        return np.where(self.magic == 0, NO_TIMESTAMP_TYPE, np.where(appended, LOG_APPEND_TIME, CREATE_TIME))


_STEP = 256
"""Batches whose headers become Python objects at a time."""

_COLUMNS = [column.name for column in fields(Batches) if not column.init]


def walk(buffer: Buffer, position: int = 0) -> Batches:
    """The batches of ``buffer`` from ``position`` on. Reads headers only, and never fails."""
    data = as_array(buffer)
    count = kernels.walk_batches(data, position, np.empty((kernels.BATCH_COLUMNS, 0), np.int64))[0]
    table = np.empty((kernels.BATCH_COLUMNS, count), np.int64)
    _, end, status, needed = kernels.walk_batches(data, position, table)
    return Batches(table, end, WalkStatus(status), needed)


def batches_of(piece: Slice) -> Batches:
    """The batches of a slice, of which all are whole. Their headers are not read again."""
    return Batches(piece.headers, piece.buffer.size, WalkStatus.END, 0)


def checksum(data: np.ndarray, position: int, size: int, magic: int) -> int:
    """The CRC that the batch ``data[position:position + size]`` should have in its header."""
    if magic == 2:
        return crc32c(data[position + ATTRIBUTES_V2 : position + size])
    return crc32(data[position + MAGIC : position + size])


def first_bad_checksum(data: np.ndarray, batches: Batches, first: int, stop: int) -> int:
    """The first of the batches ``first`` to ``stop`` whose CRC is wrong; ``stop`` if none is."""
    columns = (batches.position, batches.size, batches.magic, batches.crc)
    for row in range(first, stop, _STEP):
        step = zip(*(column[row : min(row + _STEP, stop)].tolist() for column in columns), strict=True)
        for bad, (position, size, magic, crc) in enumerate(step, row):
            if checksum(data, position, size, magic) != crc:
                return bad
    return stop


def right_checksums(data: np.ndarray, batches: Batches) -> np.ndarray:
    """Whether the CRC of each batch is right."""
    right = np.ones(len(batches), bool)
    row = first_bad_checksum(data, batches, 0, len(batches))
    while row < len(batches):
        right[row] = False
        row = first_bad_checksum(data, batches, row + 1, len(batches))
    return right


def check_batch(buffer: Buffer, position: int) -> bool:
    """Whether a whole batch with a valid header and the right CRC begins at ``position``."""
    return find_batch(buffer, position, stop=position + 1) is not None


def find_batch(
    buffer: Buffer, position: int, *, min_offset: int = 0, stop: int | None = None, strict: bool = False
) -> int | None:
    """Position of the next batch that is whole, valid by header and CRC, and of an offset >= ``min_offset``.

    The search begins at ``position``, and the batch begins before ``stop``. The offset is the one in
    the header: the base offset in v2, the last one in a compressed v0 or v1 message.
    Every few bytes that look like a batch could cost a checksum of the rest of the buffer, so the
    search gives up (None) when it has summed 16 times the buffer's size.

    :param strict: raise instead of giving up, for callers to whom None means that there is no batch.
    :raises CorruptRecordError: if a ``strict`` search gives up, with the position in the buffer.
    """
    data = as_array(buffer)
    stop = data.size if stop is None else stop
    budget = max(_CRC_BUDGET * data.size, _MIN_BUDGET)
    while budget > 0:
        position, size = kernels.next_frame(data, position, stop, min_offset)
        if position < 0:
            return None
        batches = walk(data[: position + size], position)
        if first_bad_checksum(data, batches, 0, 1) == 1:
            return position
        budget -= size + _COST_OF_ONE
        position += 1
    if strict:
        raise CorruptRecordError(
            "Gave up the search for a valid record batch: too many bytes look like one with a wrong checksum",
            position=position,
        )
    return None
