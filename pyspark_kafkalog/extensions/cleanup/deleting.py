"""Deletes records of whole log directories: what retention says, and DeleteRecords.

Sources: Kafka's ``LogManager.cleanupLogs``, ``Partition.deleteRecordsOnLeader``,
``ReplicaManager.deleteRecordsOnLocalLog``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from pyspark_kafkalog.errors import (
    CorruptRecordError,
    KafkaLogError,
    LogDirectoryError,
    OptionError,
    UnknownTopicOrPartitionError,
    no_such_partition,
)
from pyspark_kafkalog.extensions.cleanup.policies import DeletePolicy
from pyspark_kafkalog.extensions.cleanup.retention import Deletion, RetentionRules, delete, plan_deletion
from pyspark_kafkalog.filesystem.durable import disk_errors
from pyspark_kafkalog.log.lock import PATIENCE_SECONDS, directory_lock
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.read.partition import Partition
from pyspark_kafkalog.log.read.root import LogRoot, open_root
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.model import HIGH_WATERMARK, TopicPartition
from pyspark_kafkalog.model.topics import INTERNAL_TOPICS
from pyspark_kafkalog.options.user_options import names_like, partitions_like

_LOCK_SECONDS = 10
_ACTION = "Could not delete records"
_Open = Callable[[LogRoot, TopicPartition], Partition]
Deletions = tuple[list[Deletion], dict[TopicPartition, KafkaLogError]]
"""The deletions of partitions, and the errors of those that can't tell: these stay as they are."""


def retain(
    paths: Sequence[str],
    topics: Collection[str] | None,
    configs: Mapping[str, str],
    policy: DeletePolicy | None = None,
    *,
    execute: bool,
    progress: Callable[[], None] = lambda: None,
) -> Deletions:
    """Delete what is due in local log directories; what each partition loses, also where that is nothing.

    :param topics: None for all.
    :param configs: take precedence over the topics' own.
    :param policy: names segments, too.
    :param execute: else nothing is changed.
    :raises LogDirectoryError: if a directory can't be changed.
    :raises LogDirectoryLockedError: if a broker or another writer holds it.
    :raises UnknownTopicOrPartitionError: if a named topic does not exist.
    """
    roots = [_local_root(path) for path in paths]
    existing = {partition.topic for root in roots for partition in root.live_partitions()}
    for topic in sorted(set(topics or ()) - existing):
        hint = names_like([topic], existing, "topic")
        raise UnknownTopicOrPartitionError(f"No such topic: {topic}", file=", ".join(paths), hint=hint)
    wanted = existing if topics is None else topics
    plan = partial(due, wanted, configs, policy)
    return _together([_carried_out([root], plan, execute, progress) for root in roots])


def delete_records(
    paths: Sequence[str], offsets: Mapping[TopicPartition, int], *, execute: bool
) -> Deletions:
    """Raise log start offsets, and delete the segments below; an offset that is gone already changes nothing.

    :param offsets: for each partition the first to keep, or :data:`.model.HIGH_WATERMARK`.
    :raises OptionError: for an offset above the high watermark, or an internal or compacted topic: then
        nothing is changed.
    :raises UnknownTopicOrPartitionError: if a partition does not exist.
    """
    roots = [_local_root(path) for path in paths]
    holders = {partition: root for root in roots for partition in root.live_partitions()}
    if missing := offsets.keys() - holders.keys():
        raise no_such_partition(missing, hint=partitions_like(missing, holders), file=", ".join(paths))

    def below(root: LogRoot, open_partition: _Open) -> Deletions:
        own = {partition: offset for partition, offset in offsets.items() if holders[partition] is root}
        return _below(own, root, open_partition)

    # A directory that is named twice must not wait for itself.
    wanted = [root for root in roots if any(holders[partition] is root for partition in offsets)]
    return _carried_out(wanted, below, execute)


def due(
    topics: Collection[str],
    configs: Mapping[str, str],
    policy: DeletePolicy | None,
    root: LogRoot,
    open_partition: _Open,
) -> Deletions:
    """The deletion from each partition of these topics.

    :param configs: take precedence over the topics' own.
    :param policy: names segments, too.
    """
    own = read_topic_configs(root.folder)
    now = now_ms()

    def planned(partition: TopicPartition) -> Deletion | None:
        rules = RetentionRules.of(partition.topic, {**own.get(partition.topic, {}), **configs})
        return plan_deletion(open_partition(root, partition), rules, now, policy=policy)

    return _each((p for p in root.live_partitions() if p.topic in topics), planned)


def _below(offsets: Mapping[TopicPartition, int], root: LogRoot, open_partition: _Open) -> Deletions:
    """The deletions if these are to be the log start offsets."""
    own = read_topic_configs(root.folder)

    def planned(partition: TopicPartition) -> Deletion | None:
        offset = offsets[partition]
        _check_deletable(partition, own.get(partition.topic, {}))
        opened = open_partition(root, partition)
        segments = opened.segments()
        end = max(opened.log_end_offset(segments), opened.log_start_offset(segments))
        if not HIGH_WATERMARK <= offset <= end:
            raise OptionError(
                f"Cannot delete records before offset {offset}: the high watermark is {end}",
                topic_partition=partition,
                hint=f"Give an offset from 0 to {end}, or {HIGH_WATERMARK} for the high watermark.",
            )
        below = end if offset == HIGH_WATERMARK else offset
        return plan_deletion(opened, RetentionRules(), now_ms(), below=below)

    return _each(offsets, planned)


def _each(
    partitions: Iterable[TopicPartition], planned: Callable[[TopicPartition], Deletion | None]
) -> Deletions:
    """The plan for each partition, except those whose folder or files can't be used."""
    deletions: list[Deletion] = []
    failures: dict[TopicPartition, KafkaLogError] = {}
    for partition in sorted(partitions):
        try:
            with disk_errors(_ACTION, str(partition)):
                deletion = planned(partition)
        except (LogDirectoryError, CorruptRecordError) as e:
            failures[partition] = e
            continue
        if deletion is not None:
            deletions.append(deletion)
    return deletions, failures


def _check_deletable(partition: TopicPartition, configs: Mapping[str, str]) -> None:
    if partition.topic in INTERNAL_TOPICS:
        raise OptionError("Cannot delete records of an internal topic", topic_partition=partition)
    if not RetentionRules.of(partition.topic, configs).deletes:
        raise OptionError(
            "Cannot delete records of a topic with cleanup.policy=compact",
            topic_partition=partition,
            hint="Add delete to its cleanup.policy with kafkalog topics alter.",
        )


def _carried_out(
    roots: Sequence[LogRoot],
    plan: Callable[[LogRoot, _Open], Deletions],
    execute: bool = True,
    progress: Callable[[], None] = lambda: None,
) -> Deletions:
    """Plan and, with ``execute``, delete under the directories' locks: nothing if a plan is refused."""
    paths = [root.folder.label() for root in roots]
    with disk_errors(_ACTION, ", ".join(paths)), ExitStack() as stack:
        if not execute:
            return _together([plan(root, _partition) for root in roots])
        locks = [
            stack.enter_context(directory_lock(path, _LOCK_SECONDS, patience=PATIENCE_SECONDS))
            for path in paths
        ]
        for path in paths:
            journal.recover(path)

        def advance() -> None:
            for shown in locks:
                shown()
            progress()

        planned = [plan(root, partition_in_order) for root in roots]
        return _together(carry_out(root, found, advance) for root, found in zip(roots, planned, strict=True))


def carry_out(root: LogRoot, planned: Deletions, progress: Callable[[], None]) -> Deletions:
    """Carry out the deletions of a root; those that fail are among the errors, and can be planned again."""
    done: list[Deletion] = []
    failures = dict(planned[1])
    for deletion in planned[0]:
        try:
            with disk_errors(_ACTION, deletion.folder):
                delete(root, deletion, progress)
        except LogDirectoryError as e:
            failures[deletion.partition] = e
        else:
            done.append(deletion)
    return done, failures


def _together(found: Iterable[Deletions]) -> Deletions:
    deletions: list[Deletion] = []
    failures: dict[TopicPartition, KafkaLogError] = {}
    for more, failed in found:
        deletions += more
        failures |= failed
    return deletions, failures


def _local_root(path: str) -> LogRoot:
    root = open_root(path)
    if not root.folder.is_local:
        raise LogDirectoryError(
            "Records can be deleted only in a local or mounted folder", file=root.folder.label()
        )
    return root


def _partition(root: LogRoot, partition: TopicPartition) -> Partition:
    folder = root.find_live(partition)
    if folder is None:
        raise no_such_partition([partition])
    return Partition(partition, folder, root.log_start_offset, checkpointed=root.start_in_checkpoint)


def partition_in_order(root: LogRoot, partition: TopicPartition) -> Partition:
    """The partition, with what a crash left in its folder cleared; the caller holds the directory's lock."""
    opened = _partition(root, partition)
    clear_leftovers(opened.folder.label())
    return opened


def now_ms() -> int:
    """The time, ms since 1970."""
    return time.time_ns() // 1_000_000
