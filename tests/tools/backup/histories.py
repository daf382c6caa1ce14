"""Logs in directories, batch by batch: what a source has, and what becomes of it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EncodeSettings, LogSettings, OffsetRange, Origin, Slice, TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.tools.backup.copies.directory import BackupDirectory
from pyspark_kafkalog.tools.backup.copies.log import BackupLog
from pyspark_kafkalog.tools.backup.plan import BackupRules, Source
from pyspark_kafkalog.tools.backup.run import Backup
from pyspark_kafkalog.tools.backup.threads import Threads
from tests.log.partitions import offsets_read

T0 = TopicPartition("t", 0)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=200)
RECORDS = 5
"""In each batch."""


def batch(base_offset: int, epoch: int, mark: str = "") -> bytes:
    """A batch of RECORDS records, whose values say where they come from."""
    values = [f"{epoch} {offset} {mark}".encode() for offset in range(base_offset, base_offset + RECORDS)]
    timestamps = pa.array(range(1000 + base_offset, 1000 + base_offset + RECORDS))
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), "timestamp": timestamps})
    data = bytearray(encode(rows, None, EncodeSettings(), topic_partition=T0).data)
    data[:8] = struct.pack(">q", base_offset)
    data[12:16] = struct.pack(">i", epoch)
    return bytes(data)


def piece(data: bytes) -> Slice:
    return Slice(pa.py_buffer(data), walk(np.frombuffer(data, np.uint8)).table, Origin())


def make_log(
    root: Path,
    epochs: Sequence[tuple[int, int]],
    *,
    start: int = 0,
    topic_id: str = TOPIC_ID,
    partition: TopicPartition = T0,
    mark: str = "",
    marked_from: int = 0,
) -> None:
    """A partition with batches of these epochs, each from where the one before ends up to an offset.

    Those below ``marked_from`` have no mark.
    """
    root.mkdir(exist_ok=True, parents=True)
    with BackupLog.create(str(root / str(partition)), partition, SMALL, start, topic_id) as log:
        for epoch, end in epochs:
            for base_offset in range(log.next_offset, end, RECORDS):
                log.append(piece(batch(base_offset, epoch, mark if base_offset >= marked_from else "")))


def make_log_of(
    root: Path,
    batches: Sequence[bytes],
    *,
    start: int = 0,
    topic_id: str = TOPIC_ID,
    partition: TopicPartition = T0,
    settings: LogSettings = SMALL,
) -> None:
    """A partition with these batches."""
    root.mkdir(exist_ok=True, parents=True)
    with BackupLog.create(str(root / str(partition)), partition, settings, start, topic_id) as log:
        for data in batches:
            log.append(piece(data))


def backup_by_threads(
    place: object,
    directory: BackupDirectory,
    rules: BackupRules,
    *,
    saved: GroupOffsets | None = None,
    **more: Any,
) -> Backup:
    """A backup of what answers as a place does."""
    source = cast(Source, place)
    threads = Threads(lambda: source, directory, rules, saved, lambda size: None)
    return Backup(source, directory, rules, threads, saved=saved, **more)


def content(root: Path, partition: TopicPartition = T0) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((root / str(partition)).glob("*.log")))


def visible(root: Path, partition: TopicPartition = T0) -> list[int]:
    """The offsets that read_committed shows."""
    place = LogDirectory.open(str(root))
    marks = place.watermarks([partition], read_committed=True)[partition]
    wanted = OffsetRange(marks.log_start_offset, marks.last_stable_offset)
    return offsets_read(place, partition, wanted, read_committed=True)


def set_log_start(root: Path, offset: int, partition: TopicPartition = T0) -> None:
    (root / "log-start-offset-checkpoint").write_text(
        f"0\n1\n{partition.topic} {partition.partition} {offset}\n"
    )
