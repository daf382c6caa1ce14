"""Publish what the tasks of a job have staged: all at once, or nothing.

Under the lock of the log directory: undo what an earlier publish left unfinished;
skip a micro-batch that the ledger has, as :mod:`.ledger` tells; check the staged files; write the journal;
append and flush; commit by one rename. :mod:`.journal` says what this means for
readers and brokers, and after a crash.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from pyspark_kafkalog.errors import (
    KafkaLogError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.filesystem.durable import disk_errors, sync_folder
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.checkpoints import read_flushed, store_flushed
from pyspark_kafkalog.log.lock import PATIENCE_SECONDS, directory_lock
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.publish.appender import (
    PartitionLog,
    PendingBatches,
    append,
    batch_table,
    create_folder,
    new_partition,
    open_partition,
    pending_batches,
)
from pyspark_kafkalog.log.publish.existing import existing_partitions, numbers_of
from pyspark_kafkalog.log.publish.ledger import Provenance, QueryLedger
from pyspark_kafkalog.log.publish.staged_files import StagedFiles, sweep
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.segment.missing import behind_gaps
from pyspark_kafkalog.log.topic_settings import read_log_settings
from pyspark_kafkalog.model import LogSettings, OffsetRange, QueryBatch, TopicPartition, check_topic
from pyspark_kafkalog.model.kafka_uuid import random_uuid
from pyspark_kafkalog.staging import Staged

_log = logging.getLogger("pyspark_kafkalog")
_NO_HISTORY = Provenance()
_THREADS = 4
"""Partitions appended to at the same time: one is copied while others are flushed."""
Tombstones = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, np.ndarray]]
"""Gives the record batches that delete what groups have committed for partitions, by the partition of
``__consumer_offsets`` to append to."""


@dataclass(frozen=True, slots=True)
class Published:
    """The offsets that the records got; ``skipped`` if the micro-batch was published before.

    ``rolled`` says whether a segment has begun.
    """

    offsets: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    skipped: bool = False
    rolled: bool = False


def publish(
    root: str,
    staged: Sequence[Staged],
    batch: QueryBatch,
    configs: Mapping[str, str],
    *,
    num_partitions: int,
    history: Provenance = _NO_HISTORY,
    lock_timeout: float = 10,
    tombstones: Tombstones = lambda partitions: {},
    then: Callable[[Published, Callable[[], None]], None] = lambda *_: None,
) -> Published:
    """Append all records of the staged files to their partitions, visible at once; then remove the files.

    Records of a partition are appended in the order of ``staged``, and within a file in
    the order of staging. A failure before the commit leaves nothing visible; the staged
    files then stay for a retry, or for :func:`.staged_files.abort`.

    :param batch: the batch that they belong to; a micro-batch that the ledger has is skipped. All its
        staged files go afterwards, also those of other attempts.
    :param configs: of all topics; they take precedence over their own.
    :param num_partitions: the partitions of a topic that does not exist yet.
    :param history: what its query knows of the batch, and of the one before.
    :param tombstones: see :data:`Tombstones`. Called under the lock, if topics are new.
    :param then: is called, still under the lock, with what was published, and with what shows other writers
        that this one goes on. Must not raise.
    :param lock_timeout: seconds to wait for a broker; the wait for a writer lasts while it makes progress.
    :raises LogDirectoryLockedError: if a broker, or a writer that hangs, holds the directory.
    :raises LogDirectoryError: if staged files are gone or have changed, the disk is full, the directory and
        the checkpoint are not of one history, or the directory is not in order.
    :raises UnknownTopicOrPartitionError: for a partition that an existing topic does not have.
    :raises CorruptRecordError: if a partition is damaged before its end.
    """
    if not staged and batch.batch_id is None:
        return Published()
    if not staged:
        os.makedirs(root, exist_ok=True)
    with (
        disk_errors("Could not publish", root),
        directory_lock(root, lock_timeout, patience=PATIENCE_SECONDS) as progress,
    ):
        journal.recover(root)
        ledger = QueryLedger.find(root, batch, history)
        partitions = {section.topic_partition for task in staged for section in task.sections}
        settings = read_log_settings(root, {partition.topic for partition in partitions}, configs)
        is_published = ledger.is_published()
        existing = existing_partitions(root, partitions | ledger.written.keys())
        ledger = ledger.check_there(existing)
        if is_published:
            written = {
                p for p in partitions & ledger.to_compare.keys() if p.partition in existing.get(p.topic, ())
            }
            with disk_errors("Could not open", root):
                ledger.check_ends(_open_all(root, written, existing, settings, num_partitions, progress))
            published = Published(skipped=True)
        elif not staged:
            ledger.store()
            return Published()
        else:
            with StagedFiles(root, staged) as files:
                pending = _read_all(files, settings, progress)
                new = {partition.topic for partition in partitions} - existing.keys()
                forget_commits(
                    root, {TopicPartition(t, n) for t in new for n in range(num_partitions)}, tombstones
                )
                published = _append_at_once(
                    root, pending, existing, settings, num_partitions, ledger, progress
                )
        # The records are visible: nothing may raise from here on.
        sweep(root, batch.job, staged)
        then(published, progress)
        return published


def forget_commits(root: str, partitions: Collection[TopicPartition], tombstones: Tombstones) -> None:
    """Delete what groups have committed for partitions that are new, or about to go.

    The caller holds the directory's lock. A topic that was removed by hand has left its commits, which a
    group would take for those of a new topic with its name, and skip records.

    :raises GroupError: if a group that may be reading them has live members.
    """
    for holder, batch in tombstones(partitions).items() if partitions else ():
        append_batch(root, holder, batch, num_partitions=1)  # it exists


def append_batch(root: str, partition: TopicPartition, data: np.ndarray, num_partitions: int) -> OffsetRange:
    """Append one record batch to one partition, and flush it. The caller holds the directory's lock.

    A batch is either whole or a torn tail, which no reader sees and the next append cuts off. So this needs
    no journal, unless the topic is new and all its partitions must appear at once.

    :param num_partitions: of the topic, if it does not exist yet.
    :raises LogDirectoryError: if it can't be written, or the directory is not in order.
    :raises CorruptRecordError: if the partition is damaged before its end.
    """
    journal.recover(root)
    pending, settings = pending_batches(data), read_log_settings(root, {partition.topic})
    folder = os.path.join(root, str(partition))
    if not os.path.lexists(folder):
        alone = QueryLedger.find(root, QueryBatch("append"), _NO_HISTORY)
        existing = existing_partitions(root, {partition})
        published = _append_at_once(root, {partition: pending}, existing, settings, num_partitions, alone)
        return published.offsets[partition]
    of_topic = settings[partition.topic]
    read_flushed(root)
    appended: OffsetRange | None = None
    try:
        with disk_errors("Could not append", root), journal.unclean(root):
            log = _open_existing(LogRoot(open_folder(root)), partition, of_topic)
            appended = append(log, pending, of_topic, _append_time(settings), framed_last=True)
            store_flushed(root, {partition: appended.end})
    except Exception as e:
        if appended is None:
            raise
        # The batch is visible: an error now would say that it is not.
        _log.warning("Appended, but could not put the files of %s in order: %s", root, e)
    return appended


def _append_at_once(
    root: str,
    pending: Mapping[TopicPartition, PendingBatches],
    existing: Mapping[str, set[int]],
    settings: Mapping[str, LogSettings],
    num_partitions: int,
    ledger: QueryLedger,
    progress: Callable[[], None] = lambda: None,
) -> Published:
    """Create new partitions, append to all, and make it visible at once; or do nothing at all."""
    with disk_errors("Could not append", root, "Nothing was published."):
        logs = _open_all(root, pending.keys(), existing, settings, num_partitions, progress)
        ledger.check_ends(logs)
        append_time = _append_time(settings)
        try:
            unfinished = journal.begin(
                root,
                {partition: log.end() for partition, log in logs.items()},
                {partition: batches.listed() for partition, batches in pending.items()},
                ledger.batch,
                append_time,
                plan=ledger.history.plan.digest or "",
                written=ledger.written_with(pending, logs, settings, append_time),
            )
            offsets = _append_all(root, logs, pending, settings, append_time, progress)
            journal.commit(root, unfinished, {partition: end for partition, (_, end) in offsets.items()})
        except BaseException:
            _undo(root)
            raise
    return Published(offsets, rolled=any(_has_rolled(logs[p], end) for p, (_, end) in offsets.items()))


def _has_rolled(log: PartitionLog, end: int) -> bool:
    """Whether what was appended up to ``end`` has gone beyond the segment that was active before."""
    return log.active is None or log.active.next_offset < end


def _append_time(settings: Mapping[str, LogSettings]) -> int | None:
    """The timestamp, in ms, for records appended now to topics that set it; None if none does."""
    is_set = any(of_topic.log_append_time for of_topic in settings.values())
    return time.time_ns() // 1_000_000 if is_set else None


def _undo(root: str) -> None:
    """Undo a failed publish, if the disk allows it; else it stays hidden, and the next write undoes it."""
    try:
        journal.recover(root)
    except (OSError, KafkaLogError) as e:
        _log.warning("Could not undo a failed publish in %s; the next write will: %s", root, e)


def _read_all(
    files: StagedFiles, settings: Mapping[str, LogSettings], progress: Callable[[], None]
) -> dict[TopicPartition, PendingBatches]:
    """The record batches of all staged files, by partition."""
    parts: dict[TopicPartition, list[np.ndarray]] = defaultdict(list)
    for source, sections, batches in files.checked():
        table = batch_table(batches, source)
        for section in sections:
            check_topic(section.topic)
            first, stop = np.searchsorted(
                batches.position, [section.position, section.position + section.size]
            )
            parts[section.topic_partition].append(table[:, first:stop])
        progress()
    pending = {
        partition: PendingBatches(files.read, *np.concatenate(tables, axis=1))
        for partition, tables in parts.items()
    }
    for partition, to_append in pending.items():
        largest, segment_bytes = to_append.size.max(), settings[partition.topic].segment_bytes
        if largest > segment_bytes:
            raise RecordTooLargeError(
                f"A record batch of {largest} bytes exceeds segment.bytes = {segment_bytes}",
                topic_partition=partition,
                hint="Raise segment.bytes, or lower batch.size if it is larger.",
            )
    return pending


def _open_all(
    root: str,
    partitions: Collection[TopicPartition],
    existing: Mapping[str, set[int]],
    settings: Mapping[str, LogSettings],
    num_partitions: int,
    progress: Callable[[], None],
) -> dict[TopicPartition, PartitionLog]:
    """Every partition to append to, and all partitions of new topics."""
    log_root = LogRoot(open_folder(root))
    logs: dict[TopicPartition, PartitionLog] = {}
    for topic, wanted in sorted(numbers_of(partitions).items()):
        known = existing.get(topic)
        numbers = known or set(range(num_partitions))
        topic_id = random_uuid()
        if not wanted <= numbers:
            raise UnknownTopicOrPartitionError(
                f"No such partition: topic {topic!r} has {len(numbers)}",
                topic_partition=TopicPartition(topic, min(wanted - numbers)),
                hint="The option numPartitions applies to new topics; an existing one keeps its partitions.",
            )
        for number in sorted(wanted if known else numbers):
            partition = TopicPartition(topic, number)
            if known:
                logs[partition] = _open_existing(log_root, partition, settings[topic])
            else:
                logs[partition] = new_partition(os.path.join(root, str(partition)), topic_id)
            progress()
    return logs


def _append_all(
    root: str,
    logs: Mapping[TopicPartition, PartitionLog],
    pending: Mapping[TopicPartition, PendingBatches],
    settings: Mapping[str, LogSettings],
    append_time: int | None,
    progress: Callable[[], None],
) -> dict[TopicPartition, OffsetRange]:
    created = [log for log in logs.values() if log.created]
    for log in created:
        create_folder(log)
        progress()
    if created:
        sync_folder(root)
    with ThreadPoolExecutor(max_workers=_THREADS) as threads:
        appended = {
            partition: threads.submit(
                append, logs[partition], batches, settings[partition.topic], append_time, progress
            )
            for partition, batches in pending.items()
        }
    return {partition: offsets.result() for partition, offsets in appended.items()}


def _open_existing(root: LogRoot, partition: TopicPartition, settings: LogSettings) -> PartitionLog:
    name = str(partition)
    root.folder.check_inside(name)
    log = open_partition(root.folder.label(name), partition, settings, root.log_start_offset(partition))
    # Its source has had other records in a gap at the end of a backup.
    return replace(log, next_offset=behind_gaps(root.gaps(partition), log.next_offset))
