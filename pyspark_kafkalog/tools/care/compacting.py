"""Compacts a partition of a log root that no one else uses, and updates the root's files about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

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
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.care.compaction import Compacted, CompactionSettings, LogBounds, compact


def compact_partition(
    root: str,
    partition: TopicPartition,
    settings: CompactionSettings,
    *,
    execute: bool,
    lock_timeout: float = 10,
    progress: Callable[[int], object] = lambda size: None,
) -> Compacted:
    """See :func:`.compaction.compact`. Without ``execute`` nothing is locked, and nothing changes.

    :param lock_timeout: seconds to wait for a broker or another writer.
    :raises LogDirectoryLockedError: if one holds the directory for longer.
    :raises LogDirectoryError: if a file can't be read or written.
    :raises CorruptRecordError: if a batch is damaged.
    """
    folder = os.path.join(root, str(partition))
    now_ms = time.time_ns() // 1_000_000
    local_folder(root).check_inside(str(partition))
    with disk_errors("Could not compact the partition", folder):
        if not execute:
            bounds = _bounds(root, partition)
            live = LogRoot(local_folder(root)).find_live(partition)  # a renewal is not finished here
            folder = folder if live is None else live.path
            return compact(
                folder, partition, settings, bounds, now_ms=now_ms, execute=False, progress=progress
            )
        with directory_lock(root, lock_timeout) as alive:

            def both(size: int) -> None:
                alive()
                progress(size)

            journal.recover(root)
            bounds = _bounds(root, partition)
            with journal.unclean(root):
                clear_leftovers(folder)
                done = compact(
                    folder, partition, settings, bounds, now_ms=now_ms, execute=True, progress=both
                )
                if done.passes:
                    _save_first_dirty_offset(root, partition, done.first_dirty_offset)
            return done


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
