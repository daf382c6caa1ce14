"""Publish what the tasks of a job staged: all of it at one moment, or nothing.

Under the lock of the log directory: undo what an earlier publish left unfinished;
skip a micro-batch that the ledger has; check the staged files; write the journal;
append and flush; commit by one rename. See :mod:`.journal` for what that means to
readers, to brokers, and after a crash.
"""

from __future__ import annotations

import base64
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import (
    LogDirectoryError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.log import journal
from pyspark_kafkalog.log.appender import (
    LogSettings,
    PartitionLog,
    PendingBatches,
    append,
    create_folder,
    new_partition,
    open_partition,
)
from pyspark_kafkalog.log.durable import sync_folder
from pyspark_kafkalog.log.journal import PublishedBatch
from pyspark_kafkalog.log.layout import (
    LOG_START_OFFSET_CHECKPOINT,
    parse_offset_checkpoint,
    parse_partition_folder,
)
from pyspark_kafkalog.log.lock import directory_lock
from pyspark_kafkalog.log.staging import StagedFile, abort, read_staged, sweep
from pyspark_kafkalog.model import OffsetRange, TopicPartition, check_topic

__all__ = ["LogSettings", "Published", "PublishedBatch", "abort", "publish"]

_THREADS = 4
"""Partitions appended to at a time: one is copied while others are flushed to disk."""


@dataclass(frozen=True, slots=True)
class Published:
    """The offsets that the records got; ``skipped`` if the micro-batch had been published before."""

    offsets: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    skipped: bool = False


def publish(
    root: str,
    staged: Sequence[StagedFile],
    *,
    job: str,
    settings: LogSettings,
    num_partitions: int,
    batch: PublishedBatch | None = None,
    lock_timeout: float = 10,
) -> Published:
    """Append all records of the staged files to their partitions, visible at once; then remove the files.

    Records of a partition are appended in the order of ``staged``, each file's in
    the order in which they were staged. Whatever fails before the commit leaves
    nothing visible; the staged files then stay for a retry, or for :func:`abort`.

    :param job: whose staged files are not needed afterwards, whichever tasks they are of.
    :param num_partitions: how many partitions a topic gets that does not exist yet.
    :param batch: the micro-batch that this is; one that the ledger has is skipped.
    :param lock_timeout: seconds to wait for another writer.
    :raises LogDirectoryLockedError: if a broker, or another writer all that time, holds the directory.
    :raises LogDirectoryError: for staged files that are gone or have changed; a full disk; a checkpoint
        older than the directory; a directory that is not in order.
    :raises UnknownTopicOrPartitionError: for a partition that an existing topic does not have.
    :raises CorruptRecordError: if a partition to append to is damaged in its middle.
    """
    if not staged:
        return Published()
    with directory_lock(root, lock_timeout):
        journal.recover(root)
        if batch is not None and journal.is_published(root, batch):
            sweep(root, job)
            return Published(skipped=True)
        pending = _read_all(root, staged, settings)
        offsets = _append_at_once(root, pending, settings, num_partitions, batch)
        sweep(root, job)
        return Published(offsets)


def append_batch(
    root: str, partition: TopicPartition, data: np.ndarray, settings: LogSettings, num_partitions: int
) -> OffsetRange:
    """Append one record batch to one partition, and flush it. The caller holds the directory's lock.

    A batch is whole or it is a torn tail, which no reader sees and the next append cuts off: that needs
    no journal, unless the topic is new and all its partitions have to be there at once.

    :param num_partitions: how many the topic gets if it does not exist yet.
    :raises LogDirectoryError: if it can't be written, or the directory is not in order.
    :raises CorruptRecordError: if the partition is damaged in its middle.
    """
    journal.recover(root)
    batches = walk(data)
    pending = PendingBatches(
        [data],
        np.zeros_like(batches.position),
        batches.position,
        batches.size,
        batches.last_offset - batches.base_offset + 1,
        batches.max_timestamp,
        batches.attributes,
    )
    folder = os.path.join(root, str(partition))
    if not os.path.lexists(folder):
        return _append_at_once(root, {partition: pending}, settings, num_partitions, None)[partition]
    _check_inside(root, folder)
    try:
        with journal.unclean(root):
            log = open_partition(folder, partition, settings, _log_start_offsets(root).get(partition, 0))
            return append(log, pending, settings, time.time_ns() // 1_000_000)
    except OSError as e:
        raise LogDirectoryError(f"Could not append: {e.strerror}", file=e.filename or root) from e


def _append_at_once(
    root: str,
    pending: Mapping[TopicPartition, PendingBatches],
    settings: LogSettings,
    num_partitions: int,
    batch: PublishedBatch | None,
) -> dict[TopicPartition, OffsetRange]:
    """Append to all partitions, new ones made, and make it visible at one moment; or nothing at all."""
    logs = _open_all(root, pending.keys(), settings, num_partitions)
    try:
        entries = journal.begin(root, {partition: log.end for partition, log in logs.items()}, batch)
        offsets = _append_all(root, logs, pending, settings)
        journal.commit(root, entries)
    except BaseException as e:
        journal.recover(root)
        if isinstance(e, OSError):
            raise LogDirectoryError(
                f"Could not append: {e.strerror}", file=e.filename or root, hint="Nothing was published."
            ) from e
        raise
    return offsets


def _read_all(
    root: str, staged: Sequence[StagedFile], settings: LogSettings
) -> dict[TopicPartition, PendingBatches]:
    """What the staged files hold for each partition."""
    files: list[np.ndarray] = []
    parts: dict[TopicPartition, list[np.ndarray]] = defaultdict(list)
    for source, file in enumerate(staged):
        data, batches = read_staged(root, file)
        files.append(data)
        table = np.stack(
            [
                np.full_like(batches.position, source),
                batches.position,
                batches.size,
                batches.last_offset - batches.base_offset + 1,
                batches.max_timestamp,
                batches.attributes,
            ]
        )
        for section in file.sections:
            partition = TopicPartition(check_topic(section.topic), section.partition)
            first, stop = np.searchsorted(
                batches.position, [section.position, section.position + section.size]
            )
            parts[partition].append(table[:, first:stop])
    pending = {
        partition: PendingBatches(files, *np.concatenate(tables, axis=1))
        for partition, tables in parts.items()
    }
    for partition, its in pending.items():
        if its.size.max() > settings.segment_bytes:
            raise RecordTooLargeError(
                f"A record batch of {its.size.max()} bytes, over segment.bytes = {settings.segment_bytes}",
                topic_partition=partition,
            )
    return pending


def _open_all(
    root: str, partitions: Collection[TopicPartition], settings: LogSettings, num_partitions: int
) -> dict[TopicPartition, PartitionLog]:
    """Every partition that is to be appended to or, if its topic is new, to be made."""
    existing = _existing_partitions(root)
    log_starts = _log_start_offsets(root)
    logs: dict[TopicPartition, PartitionLog] = {}
    for topic in sorted({partition.topic for partition in partitions}):
        known = {number for name, number in existing if name == topic}
        numbers = known or set(range(num_partitions))
        asked = {partition.partition for partition in partitions if partition.topic == topic}
        if not asked <= numbers:
            raise UnknownTopicOrPartitionError(
                f"No such partition: topic {topic!r} has {len(numbers)}",
                topic_partition=TopicPartition(topic, min(asked - numbers)),
                hint="The option numPartitions is about new topics; an existing one keeps what it has.",
            )
        for number in sorted(asked if known else numbers):
            partition = TopicPartition(topic, number)
            folder = os.path.join(root, str(partition))
            if known:
                _check_inside(root, folder)
                logs[partition] = open_partition(folder, partition, settings, log_starts.get(partition, 0))
            else:
                logs[partition] = new_partition(folder)
    return logs


def _append_all(
    root: str,
    logs: Mapping[TopicPartition, PartitionLog],
    pending: Mapping[TopicPartition, PendingBatches],
    settings: LogSettings,
) -> dict[TopicPartition, OffsetRange]:
    topic_ids: dict[str, str] = defaultdict(_new_topic_id)
    for partition, log in logs.items():
        if log.created:
            create_folder(log, topic_ids[partition.topic])
    if topic_ids:
        sync_folder(root)
    now_ms = time.time_ns() // 1_000_000
    with ThreadPoolExecutor(max_workers=_THREADS) as threads:
        appended = {
            partition: threads.submit(append, logs[partition], batches, settings, now_ms)
            for partition, batches in pending.items()
        }
    return {partition: offsets.result() for partition, offsets in appended.items()}


def _existing_partitions(root: str) -> set[TopicPartition]:
    with os.scandir(root) as entries:
        found = (parse_partition_folder(entry.name) for entry in entries if entry.is_dir())
        return {partition for partition in found if partition is not None}


def _log_start_offsets(root: str) -> dict[TopicPartition, int]:
    path = os.path.join(root, LOG_START_OFFSET_CHECKPOINT)
    try:
        with open(path, "rb") as file:
            return parse_offset_checkpoint(file.read(), path)
    except FileNotFoundError:
        return {}


def _check_inside(root: str, folder: str) -> None:
    inside = os.path.join(os.path.realpath(root), "")
    if not os.path.realpath(folder).startswith(inside):
        raise LogDirectoryError(
            "A partition's folder is a link that leads out of the log directory", file=folder
        )


def _new_topic_id() -> str:
    """A random topic id, as Kafka's Uuid.randomUuid makes and prints it."""
    while True:
        topic_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not topic_id.startswith("-"):
            return topic_id
