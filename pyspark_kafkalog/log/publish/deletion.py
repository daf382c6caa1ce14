"""Deletes partitions at once for readers, whatever kills the writer.

A journal of the deletion takes the name of that of a publish, so that readers hide the partitions as they
hide those of an unfinished publish: one rename makes all of them disappear. It can only go forward: each
step can be repeated, and the next writer does that (:func:`.journal.recover`), unless a broker may have
appended to the partitions since.

1. The folders get Kafka's names for partitions that are being deleted, ``<topic>-<n>.<32 hex>-delete``,
   which neither brokers nor readers take for partitions (``LocalLog.logDeleteDirName``).
2. What the root's checkpoints, the file of topic configurations and that about a backup say of them is taken
   out, and groups' offsets of them are deleted, since a topic of the same name would inherit it. For that the
   journal has record batches of tombstones, to append to ``__consumer_offsets``; repeated, they change
   nothing.
3. The renamed folders are removed. Where that fails, a broker does it when it starts.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress

import numpy as np

from pyspark_kafkalog.errors import KafkaLogError, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import sync_folder
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.backup_file import read_backup_file, write_backup_file
from pyspark_kafkalog.log.checkpoints import note_flushed, read_offsets, write_offsets
from pyspark_kafkalog.log.journal_file import Deletion
from pyspark_kafkalog.log.layout import OFFSET_CHECKPOINTS
from pyspark_kafkalog.log.publish.appender import append, open_partition, pending_batches
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.topic_configs import read_topic_configs, write_topic_configs
from pyspark_kafkalog.log.topic_settings import read_log_settings
from pyspark_kafkalog.model import TopicPartition

_LONGEST_NAME = 255

_log = logging.getLogger("pyspark_kafkalog")


def new_folders(root: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
    """The names that the folders of partitions get when they are deleted.

    :raises LogDirectoryError: if a file that tells of them can't be read, as it would not be rid of them.
    """
    for name in OFFSET_CHECKPOINTS:
        read_offsets(root, name)
    read_topic_configs(open_folder(root))
    read_backup_file(open_folder(root))
    return {partition: deleted_name(partition, uuid.uuid4().hex) for partition in sorted(partitions)}


def has_renamed_all(root: str, deletion: Deletion) -> bool:
    """Whether no partition is left under its name: brokers append to none of them any more."""
    return not any(os.path.lexists(os.path.join(root, str(partition))) for partition in deletion.folders)


def carry_out(root: str, deletion: Deletion) -> None:
    """Delete what the journal names, as far as it is still there. It can run again."""
    for partition, folder in deletion.folders.items():
        path = os.path.join(root, str(partition))
        if os.path.islink(path):
            os.unlink(path)
        elif os.path.lexists(path):
            os.replace(path, os.path.join(root, folder))
    sync_folder(root)
    _forget(root, deletion.folders.keys(), deletion.topics)
    _append_tombstones(root, deletion.tombstones)
    for folder in deletion.folders.values():
        path = os.path.join(root, folder)
        shutil.rmtree(path, ignore_errors=True)
        if os.path.lexists(path):
            _log.warning("The deleted partition's folder %s could not be removed", path)
    sync_folder(root)


def _forget(root: str, gone: Collection[TopicPartition], topics: Collection[str]) -> None:
    """Take partitions out of checkpoints and the file about a backup, and topics out of that of configs."""
    for name in OFFSET_CHECKPOINTS:
        with suppress(LogDirectoryError):  # a repair empties one that is malformed
            offsets = read_offsets(root, name)
            kept = {partition: offset for partition, offset in offsets.items() if partition not in gone}
            if len(kept) < len(offsets):
                write_offsets(root, name, kept)
    with suppress(LogDirectoryError):
        file = read_backup_file(open_folder(root))
        if file is not None and (rest := file.without(gone)) != file:
            write_backup_file(root, rest)
    forget_configs(root, topics)


def forget_configs(root: str, topics: Collection[str]) -> None:
    """Take topics out of the file of configurations, if that can be read."""
    with suppress(LogDirectoryError):
        configs = read_topic_configs(open_folder(root))
        if not configs.keys().isdisjoint(topics):
            write_topic_configs(root, {topic: configs[topic] for topic in configs.keys() - set(topics)})


def _append_tombstones(root: str, tombstones: Mapping[TopicPartition, np.ndarray]) -> None:
    """Append a record batch to each partition that is still there."""
    log_root = LogRoot(open_folder(root))
    for partition, data in tombstones.items():
        try:
            folder = log_root.find(partition)
            if folder is not None:
                # It has records, so its end does not depend on where the log starts.
                settings = read_log_settings(root, [partition.topic])[partition.topic]
                log = open_partition(folder.path, partition, settings, 0)
                appended = append(log, pending_batches(data), settings, framed_last=True)
                note_flushed(root, {partition: appended.end})
        except KafkaLogError as e:  # else a repair could not mend it
            _log.warning("Could not delete the offsets of groups in %s: %s", partition, e)


def deleted_name(partition: TopicPartition, mark: str) -> str:
    """The name of a partition's folder that a broker deletes when it starts; ``mark`` makes it unique.

    Kafka cuts the topic, so that the name is not too long for a file system
    (``LogManager.asyncDelete``, ``LocalLog.logDeleteDirName``).
    """
    suffix = f"-{partition.partition}.{mark}-delete"
    return partition.topic[: _LONGEST_NAME - len(suffix)] + suffix
