"""Compact one partition: rewrite each segment with only the records to keep.

Like Kafka's cleaner, it keeps the offsets of records, and the bytes of batches that keep all their
records. Of other batches each run of consecutive records becomes a batch. Unlike Kafka's, it also cleans
the active segment, except for the last batch, so that the log ends where it did.

One rename replaces a segment, in the order of offsets. Its indexes are removed before, and are rebuilt
by whoever opens a segment without them. So a crash leaves a valid log: some segments are cleaned, and
the newer records of the same keys are still in later ones.

Source: Kafka's ``Cleaner``, ``MemoryRecords.filterTo``.
"""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.decode import DecodeLimits, decode
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.format import LEADER_EPOCH_V2, OFFSET
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.codec.walk import Batches, walk
from pyspark_kafkalog.codec.write_kernels import put_ints
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.log.durable import sync_folder, write_new
from pyspark_kafkalog.log.layout import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.log.write.active_segment import ActiveSegment, SegmentLimits, map_file
from pyspark_kafkalog.model import ALL_OFFSETS, EncodeSettings, TopicPartition

_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
_ROWS = pa.schema([(name, ROW_TYPES[name]) for name in ("offset", "key", "value", "headers", "timestamp")])
ONE_BATCH = EncodeSettings(batch_size=1 << 30, max_message_bytes=1 << 30)
"""Encodes all records as one batch."""


def log_bytes(folder: str) -> int:
    """Bytes of the segments in the folder."""
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(LOG_SUFFIX))


def clean(folder: str, partition: TopicPartition, keep: np.ndarray, index_interval_bytes: int) -> None:
    """Remove records; the caller holds the directory's lock.

    :param keep: offsets of the records to keep, rising. Transactional batches are always kept.
    :raises CorruptRecordError: at an invalid batch that would have to be rewritten; its segment and
        those after it stay as they were.
    """
    bases = []
    for name in os.listdir(folder):
        parsed = parse_segment_file(name)
        if parsed is not None and parsed[1].endswith(CLEANED_SUFFIX):
            os.unlink(os.path.join(folder, name))
        elif parsed is not None and parsed[1] == LOG_SUFFIX:
            bases.append(parsed[0])
    for base_offset in sorted(bases):
        is_last = base_offset == max(bases)
        data = map_file(os.path.join(folder, segment_file(base_offset, LOG_SUFFIX)))
        cleaned = _cleaned(data, partition, keep, is_last)
        if cleaned is not None and (cleaned.size or is_last):
            _replace(folder, base_offset, cleaned, index_interval_bytes)
        elif cleaned is not None:
            _remove(folder, base_offset)


def _cleaned(
    data: np.ndarray, partition: TopicPartition, keep: np.ndarray, is_last: bool
) -> np.ndarray | None:
    """The bytes of a segment that remain; None if all of them do."""
    batches = walk(data)
    if batches.end < data.size:
        raise CorruptRecordError(
            "Cannot compact the partition: expected a record batch, got other bytes",
            topic_partition=partition,
            position=batches.end,
        )
    kept = np.searchsorted(keep, batches.last_offset, "right") - np.searchsorted(keep, batches.base_offset)
    whole = batches.is_control | batches.is_transactional | (kept == batches.count)
    if is_last:
        whole[-1:] = True
    if whole.all():
        return None
    parts = [data[:0]]
    for row in np.flatnonzero(whole | (kept > 0)).tolist():
        position = int(batches.position[row])
        batch = data[position : position + int(batches.size[row])]
        parts += [batch] if whole[row] else _runs(batch, batches, row, partition, keep)
    return np.concatenate(parts)


def _runs(
    batch: np.ndarray, batches: Batches, row: int, partition: TopicPartition, keep: np.ndarray
) -> list[np.ndarray]:
    """The records of a batch to keep, as batches of consecutive ones."""
    limits = DecodeLimits(max_rows=max(int(batches.count[row]), 10_000))
    decoded = decode(
        batch, topic_partition=partition, offsets=ALL_OFFSETS, visible=None, schema=_ROWS, limits=limits
    )
    parts = []
    for rows, _ in decoded:
        offsets = rows.column("offset").to_numpy()
        wanted = np.flatnonzero(np.isin(offsets, keep))
        timestamps = rows.column("timestamp").cast(pa.int64()).to_numpy() // 1000
        records = rows.drop_columns(["timestamp"]).append_column("timestamp", pa.array(timestamps))
        for run in np.split(wanted, np.flatnonzero(np.diff(offsets[wanted]) != 1) + 1):
            if run.size:
                part = encode(records, run, ONE_BATCH, topic_partition=partition).data
                start = np.zeros(1, np.int64)
                put_ints(part, start + OFFSET, offsets[run[:1]], 8)
                put_ints(part, start + LEADER_EPOCH_V2, batches.leader_epoch[row : row + 1], 4)
                parts.append(part)
    return parts


def _replace(folder: str, base_offset: int, data: np.ndarray, index_interval_bytes: int) -> None:
    """Replace a segment and its indexes by ``data`` and new ones."""
    batches = walk(data)
    segment = ActiveSegment(base_offset)
    limits = SegmentLimits(data.size + 1, 1 << 62, index_interval_bytes)
    _, *indexes = segment.append(limits, batches.size, batches.last_offset, batches.max_timestamp)
    paths = {
        suffix: os.path.join(folder, segment_file(base_offset, suffix)) for suffix in (LOG_SUFFIX, *_INDEXES)
    }
    for path, content in zip(paths.values(), (data.tobytes(), *indexes), strict=True):
        write_new(path + CLEANED_SUFFIX, content)
    for suffix in _INDEXES:
        with suppress(FileNotFoundError):
            os.unlink(paths[suffix])
    sync_folder(folder)
    for path in paths.values():
        os.replace(path + CLEANED_SUFFIX, path)
    sync_folder(folder)


def _remove(folder: str, base_offset: int) -> None:
    """Remove an empty segment, its log last, as indexes alone are the trace of a lost one."""
    for suffix in (*_INDEXES, TXN_INDEX_SUFFIX, LOG_SUFFIX):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, segment_file(base_offset, suffix)))
    sync_folder(folder)
