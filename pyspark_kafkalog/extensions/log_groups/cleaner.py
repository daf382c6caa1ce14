"""Compact one partition: rewrite each segment with only the records to keep.

Unlike a broker's cleaner, and :mod:`.cleanup.compaction`, it also cleans the active
segment, except for the last batch, so that the log ends where it did: these logs hardly ever roll.

Segments are replaced in the order of offsets, each by one rename. Its indexes are removed before, and
rebuilt when a segment is opened without them. So a crash leaves a valid log: some segments are cleaned, and
the newer records of the same keys are still in later ones. Kafka's steps (:mod:`.cleanup.replacing`) would
leave no ``.log`` for a moment, and the next writer would have to finish them before it appends.
"""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np

from pyspark_kafkalog.codec.filtering import BatchRules, filter_batches
from pyspark_kafkalog.codec.read_kernels import OFFSET
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import CorruptRecordError, OversizedRecordError
from pyspark_kafkalog.filesystem.durable import sync_folder
from pyspark_kafkalog.log.layout import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers
from pyspark_kafkalog.log.segment.recovery import offsets_of, remove_segment
from pyspark_kafkalog.log.segment.scan import Scan
from pyspark_kafkalog.log.segment.writer import ActiveSegment, SegmentLimits, SegmentWriter
from pyspark_kafkalog.model import EncodeSettings, TopicPartition

_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
_TOO_LARGE = "Nothing raises this limit here: the partition keeps all of its records."
ONE_BATCH = EncodeSettings(batch_size=1 << 30, max_message_bytes=1 << 30)
"""Encodes all records as one batch."""


def log_bytes(folder: str) -> int:
    """Bytes of the segments in the folder."""
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(LOG_SUFFIX))


def clean(folder: str, partition: TopicPartition, keep: np.ndarray, index_interval_bytes: int) -> None:
    """Remove records; the caller holds the directory's lock.

    :param keep: offsets of the records to keep, rising. Transactional batches are always kept.
    :raises CorruptRecordError: at an invalid batch; its segment and those after it stay as they were.
    """
    clear_leftovers(folder)
    bases = offsets_of(folder, LOG_SUFFIX)
    for base_offset in bases:
        is_last = base_offset == bases[-1]
        scan = Scan(os.path.join(folder, segment_file(base_offset, LOG_SUFFIX)), base_offset)
        cleaned = _cleaned(scan, partition, keep, is_last)
        if cleaned is not None and (cleaned.size or is_last):
            _replace(folder, base_offset, cleaned, index_interval_bytes)
        elif cleaned is not None:
            remove_segment(folder, base_offset)
            sync_folder(folder)


def _cleaned(scan: Scan, partition: TopicPartition, keep: np.ndarray, is_last: bool) -> np.ndarray | None:
    """The bytes of a segment that remain; None if all of them do."""
    parts, changed = [np.empty(0, np.uint8)], False
    for piece in scan:
        batches = piece.batches
        whole = batches.is_control | batches.is_transactional
        if is_last and scan.end == scan.size:
            whole[-1:] = True
        none = np.zeros(len(batches), bool)
        rules = BatchRules(whole, discarded=none, stays_empty=none, starts_horizon=none)
        try:
            filtered = filter_batches(
                piece.data, batches, rules, lambda indexed, owners: np.isin(indexed.table[OFFSET], keep)
            )
        except CorruptRecordError as e:
            raise CorruptRecordError(
                f"Cannot compact the partition: {e.message}",
                topic_partition=partition,
                position=piece.position + (e.position or 0),
            ) from None
        except OversizedRecordError as e:
            raise e.within(partition, None, piece.position).with_hint(_TOO_LARGE) from None
        parts.append(filtered.data.copy())  # the next piece takes the memory of this one
        changed = changed or filtered.changed
    if scan.fault is not None:
        raise CorruptRecordError(
            "Cannot compact the partition: expected a record batch, got other bytes",
            topic_partition=partition,
            position=scan.end,
        )
    return np.concatenate(parts) if changed else None


def _replace(folder: str, base_offset: int, data: np.ndarray, index_interval_bytes: int) -> None:
    """Replace a segment and its indexes by ``data`` and new ones."""
    batches = walk(data)
    limits = SegmentLimits.of_one(index_interval_bytes)
    with SegmentWriter(folder, limits, ActiveSegment(base_offset), ending=CLEANED_SUFFIX) as writer:
        writer.fit(batches.size, batches.last_offset, batches.max_timestamp)
        writer.write([data])
        writer.write_indexes()
        writer.flush()
    paths = {
        suffix: os.path.join(folder, segment_file(base_offset, suffix)) for suffix in (LOG_SUFFIX, *_INDEXES)
    }
    for suffix in _INDEXES:
        with suppress(FileNotFoundError):
            os.unlink(paths[suffix])
    sync_folder(folder)
    for path in paths.values():
        os.replace(path + CLEANED_SUFFIX, path)
    sync_folder(folder)
