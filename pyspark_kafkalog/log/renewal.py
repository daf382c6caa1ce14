"""Put a new copy of a partition in the place of an old one, so that a crash leaves the one or the other.

1. The new copy grows in a folder with a name that brokers give to what they delete, and readers ignore.
2. When all of it is on disk, ``.kafkalog-backup`` notes that it replaces the old one. Readers take it for the
   partition from then on.
3. The old folder gets such a name, too, and the new one takes its place.
4. The note goes, and the old folder with it.

After a crash, the next writer to open the directory completes 3 and 4, or removes a copy not yet noted.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

from pyspark_kafkalog.filesystem.durable import sync_folder
from pyspark_kafkalog.filesystem.locate import local_folder
from pyspark_kafkalog.log.backup_file import BackupFile, read_backup_file, write_backup_file
from pyspark_kafkalog.log.checkpoints import read_offsets, write_offsets
from pyspark_kafkalog.log.layout import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_CHECKPOINT,
    new_copy,
    set_aside,
)
from pyspark_kafkalog.model import TopicPartition

_OF_ENDS = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)
"""Checkpoints that say how far the old copy goes: the new one may end sooner."""


def new_folder(root: str, partition: TopicPartition) -> str:
    """The folder in which the new copy of a partition grows."""
    return os.path.join(root, new_copy(partition))


def finish(root: str) -> BackupFile | None:
    """Put all new copies that are noted in the places of the old ones; what the file about the backup then
    says. Interrupted, this can run again. The caller holds the directory's lock.

    A broker that has started on the directory has removed them, and goes on with the old ones.

    :raises LogDirectoryError: if that file, or a checkpoint, is malformed.
    """
    file = read_backup_file(local_folder(root))
    if file is None or os.path.exists(os.path.join(root, META_PROPERTIES_FILE)):
        return file
    for partition, start in sorted(file.renewed.items()):
        for name in _OF_ENDS:
            _enter(root, name, partition, None)
        _exchange(root, partition)
        _enter(root, LOG_START_OFFSET_CHECKPOINT, partition, start or None)
        renewed = {other: at for other, at in file.renewed.items() if other != partition}
        file = replace(file, renewed=renewed)
        write_backup_file(root, file)
        remove_leftovers(root, partition)
    return file


def _enter(root: str, name: str, partition: TopicPartition, offset: int | None) -> None:
    """Change a partition's entry in a checkpoint of the root; with None it has none."""
    known = read_offsets(root, name)
    offsets = {other: at for other, at in known.items() if other != partition}
    if offset is not None:
        offsets[partition] = offset
    if offsets != known:
        write_offsets(root, name, {other: offsets[other] for other in sorted(offsets)})


def _exchange(root: str, partition: TopicPartition) -> None:
    new, live, old = new_folder(root, partition), os.path.join(root, str(partition)), _old(root, partition)
    if os.path.isdir(new):
        if os.path.isdir(live):
            shutil.rmtree(old, ignore_errors=True)
            os.rename(live, old)
            sync_folder(root)
        os.rename(new, live)
        sync_folder(root)


def remove_leftovers(root: str, partition: TopicPartition) -> None:
    """Remove what a renewal, which is not noted any more or not yet, has left beside the partition."""
    for folder in (new_folder(root, partition), _old(root, partition)):
        if os.path.isdir(folder):
            shutil.rmtree(folder)


def _old(root: str, partition: TopicPartition) -> str:
    return os.path.join(root, set_aside(partition, "old"))
