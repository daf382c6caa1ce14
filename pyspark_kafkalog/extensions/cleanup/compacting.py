"""Compacts a partition of a log root that no one else uses, and updates the root's files about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from pyspark_kafkalog.extensions.cleanup.compaction import (
    Cleanable,
    Compacted,
    Compaction,
    CompactionSettings,
    LogBounds,
    cleanable,
)
from pyspark_kafkalog.extensions.cleanup.history import History, StoredBatches
from pyspark_kafkalog.extensions.cleanup.unfinished import TimeLimit
from pyspark_kafkalog.filesystem.durable import disk_errors
from pyspark_kafkalog.filesystem.locate import local_folder
from pyspark_kafkalog.log.checkpoints import read_offsets, write_offsets
from pyspark_kafkalog.log.layout import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
)
from pyspark_kafkalog.log.lock import directory_lock
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.read.partition import Partition
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.read.times import largest_timestamp
from pyspark_kafkalog.log.segment.index import TXN_ENTRY
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers
from pyspark_kafkalog.log.segment.scan import MAX_OFFSET
from pyspark_kafkalog.log.segment.segment import Segment
from pyspark_kafkalog.model import TopicPartition

_ACTION = "Could not compact the partition"


def compact_partition(
    root: str,
    partition: TopicPartition,
    settings: CompactionSettings,
    *,
    execute: bool,
    lock_timeout: float = 10,
    progress: Callable[[int], object] = lambda size: None,
) -> Compacted:
    """See :class:`.compaction.Compaction`. Without ``execute`` nothing is locked, and nothing changes.

    :param lock_timeout: seconds to wait for a broker or another writer.
    :raises LogDirectoryLockedError: if one holds the directory for longer.
    :raises LogDirectoryError: if a file can't be read or written.
    :raises CorruptRecordError: if a batch is damaged.
    """
    local_folder(root).check_inside(str(partition))
    with disk_errors(_ACTION, os.path.join(root, str(partition))):
        if not execute:
            live = LogRoot(local_folder(root)).find_live(partition)  # a renewal is not finished here
            folder = os.path.join(root, str(partition)) if live is None else live.path
            return _compaction(root, folder, partition, settings, progress).plan()
        with directory_lock(root, lock_timeout) as alive:

            def both(size: int) -> None:
                alive()
                progress(size)

            journal.recover(root)
            return compact_held(root, partition, settings, both)[0]


def compact_held(
    root: str,
    partition: TopicPartition,
    settings: CompactionSettings,
    progress: Callable[[int], object],
    limit: TimeLimit | None = None,
) -> tuple[Compacted, bool]:
    """See :meth:`.compaction.Compaction.run`. The caller holds the directory's lock, and its journal is
    recovered.

    :raises LogDirectoryError: if a file can't be read or written.
    """
    folder = os.path.join(root, str(partition))
    with disk_errors(_ACTION, folder):
        compaction = _compaction(root, folder, partition, settings, progress)
        with journal.unclean(root):
            clear_leftovers(folder)
            done, is_all = compaction.run(limit)
            if done.passes:
                _save_first_dirty_offset(root, partition, done.first_dirty_offset)
        return done, is_all


def cleanable_now(root: LogRoot, partition: TopicPartition, settings: CompactionSettings) -> Cleanable | None:
    """The part of a partition that may be compacted, by its listing and its indexes; None without it.

    It is no less than what the batches say, as open transactions are not looked for.

    :raises OSError: if files can't be read, or vanish meanwhile.
    """
    folder = root.find_live(partition)
    if folder is None:
        return None
    log = Partition(partition, folder, root.log_start_offset, checkpointed=root.start_in_checkpoint)
    segments = log.segments(fresh=True)
    if len(segments) < 2:
        return None
    bounds = _bounds(root.folder.label(), partition)
    closed = [StoredBatches(s.file, s.base_offset, s.size, s.mtime_ns, 0, 0) for s in segments[:-1]]
    end = log.log_end_offset(segments)
    history = History(closed, segments[-1].base_offset, end, end, np.empty(0, TXN_ENTRY), [])
    start = bounds.first_dirty_offset or 0
    for stored, segment in zip(closed, segments, strict=False):
        if stored.base_offset < start and stored not in history.reaching(start):
            continue
        if settings.min_compaction_lag_ms > 0:
            stored.latest_timestamp = largest_timestamp(log, segment)
        if settings.max_compaction_lag_ms < MAX_OFFSET:
            stored.first_timestamp = _first_timestamp(segment)
    return cleanable(history, settings, bounds, _now_ms())


def _first_timestamp(segment: Segment) -> int:
    """The largest timestamp (ms) of the first batch of a segment."""
    with segment.open() as opened:
        for window in opened.sound_windows(0):
            return int(window.batches.max_timestamp[0])
    return -1


def _compaction(
    root: str,
    folder: str,
    partition: TopicPartition,
    settings: CompactionSettings,
    progress: Callable[[int], object],
) -> Compaction:
    return Compaction(folder, partition, settings, _bounds(root, partition), _now_ms(), progress)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _bounds(root: str, partition: TopicPartition) -> LogBounds:
    return LogBounds(
        read_offsets(root, LOG_START_OFFSET_CHECKPOINT).get(partition, 0),
        read_offsets(root, HIGH_WATERMARK_CHECKPOINT).get(partition),
        read_offsets(root, CLEANER_CHECKPOINT).get(partition),
    )


def _save_first_dirty_offset(root: str, partition: TopicPartition, offset: int) -> None:
    offsets = read_offsets(root, CLEANER_CHECKPOINT)
    if offsets.get(partition) != offset:
        write_offsets(root, CLEANER_CHECKPOINT, {**offsets, partition: offset})
