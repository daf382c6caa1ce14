"""Checkpoints of a local log root and of its partitions, read and replaced under the directory's lock."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from pyspark_kafkalog.filesystem.durable import replace
from pyspark_kafkalog.log.layout import (
    LEADER_EPOCH_CHECKPOINT,
    format_leader_epoch_checkpoint,
    format_offset_checkpoint,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
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


def read_epochs(folder: str) -> list[tuple[int, int]]:
    """The leader epochs of a partition, each with its first offset; none without a checkpoint.

    :raises LogDirectoryError: if it is malformed.
    """
    path = os.path.join(folder, LEADER_EPOCH_CHECKPOINT)
    return parse_leader_epoch_checkpoint(read_if_there(path), path)


def write_epochs(folder: str, epochs: Iterable[tuple[int, int]]) -> None:
    """Replace the leader epochs of a partition."""
    replace(os.path.join(folder, LEADER_EPOCH_CHECKPOINT), format_leader_epoch_checkpoint(epochs))


def read_if_there(path: str) -> bytes:
    """The content of a small file; empty if it does not exist."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
