"""Repairs log directories that a crash or a disk has damaged; a dry run unless told otherwise."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark_kafkalog.log.care.partition_repair import RepairedPartition, RepairMode
from pyspark_kafkalog.log.care.repair import RepairedDirectory
from pyspark_kafkalog.log.care.repair import repair as repair_directory
from pyspark_kafkalog.log.write.steps import RepairStep
from pyspark_kafkalog.model import TopicPartition

__all__ = ["RepairStep", "RepairedDirectory", "RepairedPartition", "repair"]


def repair(
    path: str,
    partitions: Collection[TopicPartition] | None = None,
    *,
    execute: bool = False,
    salvage: bool = False,
    discard: bool = False,
    progress: Callable[[int], None] = lambda size: None,
) -> RepairedDirectory:
    """Repair a local log directory as a broker that starts after a crash does.

    A broker then starts on it without recovery. Each log is cut at its first record batch that is not
    valid. What is cut is kept in the file ``.kafkalog-cut`` in the partition's folder.

    :param partitions: those to repair; None for all.
    :param execute: change files. Without it this only says what it would do.
    :param salvage: keep all valid record batches after damage, too. Offsets then have gaps.
    :param discard: don't keep what is cut.
    :param progress: called with the number of bytes that were read.
    :raises LogDirectoryLockedError: if a broker or a writer holds the directory.
    :raises LogDirectoryError: if there is no such directory, or an unfinished publish can't be undone.
    :raises OptionError: if it is not a local log directory.
    :raises UnknownTopicOrPartitionError: if one of ``partitions`` is not there.
    """
    mode = RepairMode(execute=execute, salvage=salvage, discard=discard)
    return repair_directory(path, partitions, mode, progress=progress)
