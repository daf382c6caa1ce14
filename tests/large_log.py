"""A partition in memory whose message segments are made as LinkedIn's producer makes them."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.model import (
    EncodeSettings,
    Fetch,
    Origin,
    Seen,
    Slice,
    TopicPartition,
    Watermarks,
)

T0 = TopicPartition("t", 0)
SLICE = 10
DROPPED = pa.struct(
    [
        ("reason", pa.string()),
        ("messageId", pa.binary()),
        ("startingOffset", pa.int64()),
        ("segmentCount", pa.int32()),
        (
            "segments",
            pa.list_(pa.struct([("offset", pa.int64()), ("number", pa.int32()), ("value", pa.binary())])),
        ),
    ]
)
"""What PySpark makes of the type of the column ``dropped``."""


@dataclass(frozen=True)
class Message:
    """A large message of so many slices of ``SLICE`` bytes."""

    number: int
    count: int

    def segment(self, number: int) -> bytes:
        check = struct.pack(">I", self.number & 0xFFFFFFFF)
        prefix = struct.pack(">qqiii", 0, self.number, number, self.count, self.count * SLICE)
        return b"\0" + check + prefix + self.slice(number)

    def slice(self, number: int) -> bytes:
        return b"%05d%05d" % (self.number, number)

    @property
    def value(self) -> bytes:
        return b"".join(map(self.slice, range(self.count)))


@dataclass
class Log:
    """One partition in memory, a record batch for each of ``values``, from offset 0 on.

    A None is an offset without a record, as after compaction, or in an aborted transaction.
    """

    values: list[bytes | None]
    log_start: int = 0
    broken: set[int] = field(default_factory=set)
    fetched: set[int] = field(default_factory=set)
    """The offsets that were asked for."""

    def expect(self, partition: TopicPartition, seen: Seen) -> None:
        """Nothing contradicts it."""

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    def watermarks(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Watermarks]:
        end = len(self.values)
        return {T0: Watermarks(self.log_start, end, end)}

    def fetch(self, wanted: Fetch) -> Iterator[Slice]:
        offsets = wanted.offsets
        if offsets.start < self.log_start:
            raise DataLossError("Gone", topic_partition=wanted.partition, offset=offsets.start)
        self.fetched.update(range(*offsets))
        data = b"".join(self._batch(offset) for offset in range(*offsets) if self.values[offset] is not None)
        yield Slice(pa.py_buffer(data), walk(data).table, Origin())

    def _batch(self, offset: int) -> bytes:
        values = pa.array([self.values[offset]], pa.binary())
        records = pa.RecordBatch.from_pydict({"value": values, "timestamp": pa.array([0])})
        data = bytearray(encode(records, None, EncodeSettings(), topic_partition=T0).data)
        data[:8] = struct.pack(">q", offset)
        data[-3] ^= offset in self.broken
        return bytes(data)
