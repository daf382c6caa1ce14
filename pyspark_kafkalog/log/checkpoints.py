"""Checkpoints of a local log root and of its partitions, read and replaced under the directory's lock."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from pyspark_kafkalog.filesystem.durable import replace
from pyspark_kafkalog.filesystem.locate import local_folder
from pyspark_kafkalog.log.layout import (
    BACKUP_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_CHECKPOINT,
    format_leader_epoch_checkpoint,
    format_offset_checkpoint,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    readable_topic_id,
)
from pyspark_kafkalog.model import TopicPartition


def read_offsets(root: str, name: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint of the root, such as ``recovery-point-offset-checkpoint``; none without it.

    :raises LogDirectoryError: if it is malformed.
    """
    path = os.path.join(root, name)
    return parse_offset_checkpoint(read_if_there(path), path)


def write_offsets(root: str, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint of the root."""
    replace(os.path.join(root, name), format_offset_checkpoint(offsets))


def read_flushed(root: str) -> dict[str, dict[TopicPartition, int]]:
    """The checkpoints that :func:`store_flushed` changes, by name: those of a backup; none elsewhere.

    A writer reads them before it appends: once records are there, it is too late to refuse a malformed one.

    :raises LogDirectoryError: if one is malformed.
    """
    if not os.path.exists(os.path.join(root, BACKUP_FILE)):
        return {}
    return {name: read_offsets(root, name) for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)}


def store_flushed(root: str, ends: Mapping[TopicPartition, int]) -> None:
    """Store in the checkpoints of a backup that logs are on disk up to their new ``ends``.

    By them it tells what was torn from what is damaged, and that its last segments are missing. Other
    directories need none: a broker makes its own.

    :raises LogDirectoryError: if one is malformed.
    """
    for name, known in read_flushed(root).items():
        if {**known, **ends} != known:
            write_offsets(root, name, {**known, **ends})


def read_epochs(folder: str) -> list[tuple[int, int]]:
    """The leader epochs of a partition, each with its first offset; none without a checkpoint.

    :raises LogDirectoryError: if it is malformed.
    """
    path = os.path.join(folder, LEADER_EPOCH_CHECKPOINT)
    return parse_leader_epoch_checkpoint(read_if_there(path), path)


def write_epochs(folder: str, epochs: Iterable[tuple[int, int]]) -> None:
    """Replace the leader epochs of a partition."""
    replace(os.path.join(folder, LEADER_EPOCH_CHECKPOINT), format_leader_epoch_checkpoint(epochs))


def read_topic_id(folder: str) -> str:
    """The id of a partition's topic; empty before Kafka 2.8, or if it is malformed.

    :raises LogDirectoryError: if its file is large, or a link that leads out of the folder.
    """
    return readable_topic_id(read_if_there(os.path.join(folder, PARTITION_METADATA_FILE)))


def read_if_there(path: str) -> bytes:
    """The content of a small file; empty if it does not exist.

    :raises LogDirectoryError: if it is large, or a link that leads out of its folder.
    """
    return local_folder(os.path.dirname(path)).read(os.path.basename(path)) or b""
