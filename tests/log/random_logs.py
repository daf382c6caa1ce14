"""Logs of random records for compaction: few keys, tombstones, transactions, producers, all compressions."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.encode import encode, put_checksums
from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_V2,
    COMPRESSION_NAMES,
    LEADER_EPOCH_V2,
    LOG_APPEND_TIME_BIT,
    NONE,
    PRODUCER_EPOCH_V2,
    ZSTD,
)
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.codec.write_kernels import put_ints
from pyspark_kafkalog.model import EncodeSettings, LogSettings, Origin, Slice, TopicPartition
from pyspark_kafkalog.tools.backup.copies.log import BackupLog
from tests.codec import raw
from tests.codec.strategies import Row, arrow_batch
from tests.log.partitions import control_batch

DAY_MS = 24 * 3600 * 1000


@dataclass
class RandomLog:
    """Makes the batches of a log that grows, one after another."""

    rng: random.Random
    keys: int
    compressions: Sequence[str]
    append_time: bool = False
    age_ms: int = 0
    magic: int = 2
    """Format of the batches below offset 150."""
    offset: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, rng: random.Random) -> RandomLog:
        return cls(
            rng,
            rng.choice((2, 10, 40)),
            rng.choice((COMPRESSION_NAMES, *((name,) for name in COMPRESSION_NAMES))),
            rng.random() < 0.2,
            rng.choice((0, 0, 2 * DAY_MS)),
            rng.choice((2, 2, 2, 1, 0)),
        )

    def batches(self, count: int) -> list[bytes]:
        return [self._batch() for _ in range(count)]

    def _batch(self) -> bytes:
        if self.magic < 2 and self.offset < 150:
            return self._messages()
        rng = self.rng
        kind = rng.choice(("plain", "plain", "idempotent", "transaction", "transaction", "marker"))
        if kind == "marker" and self.open:
            producer_id = rng.choice(sorted(self.open))
            self.open.discard(producer_id)
            made = control_batch(self.offset, producer_id, commit=rng.random() < 0.5)
            self.offset += 1
            return self._at_present(made)
        if kind == "transaction":
            producer_id = rng.randrange(1, 4)
            self.open.add(producer_id)
        elif kind == "idempotent":
            producer_id = rng.randrange(10, 14)
        else:
            producer_id = -1
        rows = [self._row() for _ in range(rng.choice((1, 2, 3, 10)))]
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        self.sequences[producer_id] = sequence + len(rows)
        settings = EncodeSettings(
            batch_size=1 << 20,
            compression=rng.choice(self.compressions),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=kind == "transaction",
        )
        data = encode(arrow_batch(rows), None, settings, topic_partition=TopicPartition("t", 0)).data
        if self.append_time:
            batches = walk(data)
            attributes = batches.attributes | LOG_APPEND_TIME_BIT
            put_ints(data, batches.position + ATTRIBUTES_V2, attributes, 2)
            put_checksums(data, batches.position, batches.size)
        made = struct.pack(">q", self.offset) + bytes(data)[8:]
        self.offset += len(rows)
        return made

    def _messages(self) -> bytes:
        """A v0 or v1 message, or several compressed as one."""
        rng = self.rng
        compression = COMPRESSION_NAMES.index(rng.choice(self.compressions))
        compression = 1 if compression == ZSTD else compression
        rows = [self._row() for _ in range(1 if compression == NONE else rng.choice((1, 2, 5)))]
        first = self.offset
        self.offset += len(rows)
        appended = LOG_APPEND_TIME_BIT if self.append_time and self.magic == 1 else 0
        messages = [
            raw.message(
                row.value,
                # Kafka's cleaner fails if the last message of a round has no key.
                key=row.key or b"key-0",
                magic=self.magic,
                offset=number if self.magic == 1 and compression != NONE else first + number,
                timestamp=row.timestamp,
                attributes=appended,
            )
            for number, row in enumerate(rows)
        ]
        if compression == NONE:
            return messages[0]
        latest = max(row.timestamp for row in rows)
        return raw.wrapper(
            messages,
            offset=self.offset - 1,
            compression=compression,
            magic=self.magic,
            timestamp=latest,
            attributes=appended,
        )

    def _at_present(self, marker: bytes) -> bytes:
        """The marker with the time of the log's records, so that its producer is as active as they are."""
        data = np.frombuffer(bytearray(marker), np.uint8)
        batches = walk(data)
        times = np.array([self._time()])
        put_ints(data, batches.position + 27, times, 8)
        put_ints(data, batches.position + 35, times, 8)
        put_ints(data, batches.position + LEADER_EPOCH_V2, np.array([0]), 4)
        put_ints(data, batches.position + PRODUCER_EPOCH_V2, np.array([0]), 2)
        put_checksums(data, batches.position, batches.size)
        return bytes(data)

    def _time(self) -> int:
        return (
            time.time_ns() // 1_000_000 - self.age_ms - 3_600_000 + self.offset * 10 + self.rng.randrange(100)
        )

    def _row(self) -> Row:
        rng = self.rng
        key = None if rng.random() < 0.03 else b"key-%d" % rng.randrange(self.keys)
        value = None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 5, 60)))
        headers = [("h", b"1"), ("i", None)] if rng.random() < 0.1 else None
        return Row(key, value, headers, self._time())


def append(folder: Path, partition: TopicPartition, batches: Sequence[bytes], segment_bytes: int) -> None:
    """Append batches to a partition as a backup does; it is made if need be."""
    settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=200)
    opened = (
        BackupLog.open(str(folder), partition, settings, 0)
        if folder.exists()
        else BackupLog.create(str(folder), partition, settings, 0)
    )
    with opened as log:
        for batch in batches:
            log.append(Slice(pa.py_buffer(batch), walk(batch).table, Origin("memory", 0)))
