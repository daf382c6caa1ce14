"""Opens the log of a partition that follows, if it is whole and that of its topic."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.durable import disk_errors
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.checkpoints import read_offsets
from pyspark_kafkalog.log.layout import (
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_CHECKPOINT,
    parse_partition_metadata,
)
from pyspark_kafkalog.log.lock import partition_lock
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.segment.missing import GIVE_UP, missing_in_backup
from pyspark_kafkalog.log.segment.recovery import offsets_of
from pyspark_kafkalog.log.segment.scan import MAX_OFFSET
from pyspark_kafkalog.model import LogSettings, OffsetRange, TopicPartition
from pyspark_kafkalog.tools.backup.copies.log import BackupLog, has_batches
from pyspark_kafkalog.tools.backup.copies.truncation import cut_unflushed, truncate

_LOCK_TIMEOUT = 10.0


def open_log(
    root: str,
    partition: TopicPartition,
    settings: LogSettings,
    *,
    start: int,
    topic_id: str,
    recovery_point: int,
    was_clean: bool = False,
) -> BackupLog:
    """The log of a partition in a root that this process, or the driver of its job, holds.

    :param start: the log start offset, as checkpointed; a log without records begins there.
    :param topic_id: its topic's id, which a log without records gets if it has none; empty if not known.
    :param recovery_point: the offset below which all is on disk, as checkpointed.
    :param was_clean: whether the directory was shut down cleanly: all that is there is on disk, then.
    :raises LogDirectoryError: if it is damaged, lacks its first segment, or has records but no topic id,
        although that is known.
    """
    folder = os.path.join(root, str(partition))
    open_folder(root).check_inside(str(partition))
    bases = offsets_of(folder, LOG_SUFFIX) if os.path.lexists(folder) else []
    lacks_id = bool(topic_id) and not topic_id_in(open_folder(root), partition)
    if not has_batches(folder):
        if bases != [start] or lacks_id:
            if bases:
                truncate(folder, 0)  # segments without batches, where the log no longer begins
            return BackupLog.create(folder, partition, settings, start, topic_id)
    elif bases[0] > start:
        raise lost_start(folder, partition, OffsetRange(start, bases[0]))
    elif lacks_id:
        raise LogDirectoryError(
            f"Expected the topic id {topic_id}, got records without one",
            file=os.path.join(folder, PARTITION_METADATA_FILE),
            hint="If the source had no topic ids when they were copied, and the topic has not been recreated"
            f" since then, write the lines 'version: 0' and 'topic_id: {topic_id}' into the file. Otherwise,"
            " move the folder away.",
        )
    known = MAX_OFFSET if was_clean else recovery_point
    return BackupLog.open(folder, partition, settings, start, recovery_point=known, was_clean=was_clean)


@contextmanager
def task_log(
    root: str, partition: TopicPartition, settings: LogSettings, *, start: int, topic_id: str, was_clean: bool
) -> Iterator[BackupLog]:
    """The log of a partition for a task of a job whose driver holds the root; a clean end closes it cleanly.

    Another attempt at the same task may still run: this waits for its end. If a write or a flush fails, what
    was not flushed is cut off.
    """
    with (
        disk_errors("Could not write the backup", root),
        partition_lock(root, str(partition), _LOCK_TIMEOUT),
    ):
        recovery_point = read_offsets(root, RECOVERY_POINT_CHECKPOINT).get(partition, 0)
        log = None
        try:
            with open_log(
                root,
                partition,
                settings,
                start=start,
                topic_id=topic_id,
                recovery_point=recovery_point,
                was_clean=was_clean,
            ) as log:
                if was_clean:
                    recovery_point = max(recovery_point, log.next_offset)
                yield log
        except OSError as e:
            if e.errno == errno.EIO and not was_clean if log is None else log.has_failed:
                cut_unflushed(os.path.join(root, str(partition)), recovery_point)
            raise


def lost_start(
    folder: str, partition: TopicPartition, offsets: OffsetRange, hint: str = GIVE_UP
) -> LogDirectoryError:
    """The error of a partition that begins with these offsets, which none of its segments has."""
    return LogDirectoryError(
        missing_in_backup(offsets),
        topic_partition=partition,
        offset=offsets.start,
        file=folder,
        hint=hint,
    )


def topic_id_in(root: Folder, partition: TopicPartition) -> str | None:
    """The id of the partition's topic, empty if it has none; None if the partition is not in the root."""
    folder = LogRoot(root).find(partition)
    if folder is None:
        return None
    data = folder.read(PARTITION_METADATA_FILE)
    return "" if data is None else parse_partition_metadata(data, folder.label(PARTITION_METADATA_FILE))
