"""Deletes records of whole log directories: retention, when asked for and after commits, and DeleteRecords.

Sources: Kafka's ``LogManager.cleanupLogs``, ``Partition.deleteRecordsOnLeader``,
``ReplicaManager.deleteRecordsOnLocalLog``.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from pyspark_kafkalog.errors import (
    UNREADABLE,
    CorruptRecordError,
    KafkaLogError,
    LogDirectoryError,
    OptionError,
    UnknownTopicOrPartitionError,
    no_such_partition,
)
from pyspark_kafkalog.extensions.cleanup.retention import Deletion, RetentionRules, delete, plan_deletion
from pyspark_kafkalog.filesystem.durable import disk_errors, replace
from pyspark_kafkalog.filesystem.locate import local_folder, open_folder
from pyspark_kafkalog.log.lock import PATIENCE_SECONDS, directory_lock
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.read.partition import Partition
from pyspark_kafkalog.log.read.root import LogRoot, open_root
from pyspark_kafkalog.log.segment.leftovers import clear_leftovers
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.model import HIGH_WATERMARK, TopicPartition
from pyspark_kafkalog.model.topics import INTERNAL_TOPICS
from pyspark_kafkalog.options.user_options import names_like

CHECK_MS = 300_000
"""The pause between looks at partitions without new segments: log.retention.check.interval.ms."""
_CHECKED_FILE = ".kafkalog-retention"
"""The file with the time at which retention last looked at each topic: JSON, ms by topic."""
_LOCK_SECONDS = 10
_ACTION = "Could not delete records"
_Open = Callable[[LogRoot, TopicPartition], Partition]
Deletions = tuple[list[Deletion], dict[TopicPartition, KafkaLogError]]
"""The deletions of partitions, and the errors of those that can't tell: these stay as they are."""

_log = logging.getLogger("pyspark_kafkalog")


def retain(
    paths: Sequence[str],
    topics: Collection[str] | None,
    configs: Mapping[str, str],
    *,
    execute: bool,
    progress: Callable[[], None] = lambda: None,
) -> Deletions:
    """Delete what is due in local log directories; what each partition loses, also where that is nothing.

    :param topics: None for all.
    :param configs: take precedence over the topics' own.
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
    due = partial(_due, wanted, configs)
    return _together([_carried_out([root], due, execute, progress) for root in roots])


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
        raise no_such_partition(missing, file=", ".join(paths))

    def below(root: LogRoot, open_partition: _Open) -> Deletions:
        own = {partition: offset for partition, offset in offsets.items() if holders[partition] is root}
        return _below(own, root, open_partition)

    # A directory that is named twice must not wait for itself.
    wanted = [root for root in roots if any(holders[partition] is root for partition in offsets)]
    return _carried_out(wanted, below, execute)


def retain_after_commit(
    root: str,
    topics: Collection[str],
    configs: Mapping[str, str],
    progress: Callable[[], None] = lambda: None,
    *,
    rolled: bool,
) -> None:
    """Delete what is due in the topics that a commit has written. Never raises: their records are visible.

    The caller holds the directory's lock.

    Looks at them if a segment has rolled, or after :data:`CHECK_MS`. If anything fails, the next commit tries
    again.
    """
    try:
        own = read_topic_configs(open_folder(root))
        limited = {t for t in topics if RetentionRules.of(t, {**own.get(t, {}), **configs}).have_limits}
        now = _now()
        checked = _read_checked(root) if limited else {}
        if rolled:
            due = limited
        else:
            due = {topic for topic in limited if not 0 <= now - checked.get(topic, -1) < CHECK_MS}
        if not due:
            return
        log_root = LogRoot(open_folder(root))
        with disk_errors(_ACTION, root):
            deletions, failures = _due(due, configs, log_root, _in_order)
            delete(log_root, deletions, progress)
        for deletion in deletions:
            if deletion.segments:
                _log.info(
                    "Deleted %d segments of %s, %d bytes (%s); the log now starts at offset %d",
                    deletion.segments,
                    deletion.partition,
                    deletion.stored_bytes,
                    ", ".join(deletion.reasons),
                    deletion.new_start,
                )
        for partition, error in failures.items():
            _log.warning("Published, but could not apply retention to %s: %s", partition, error)
        failed = {partition.topic for partition in failures}
        found = {**checked, **dict.fromkeys(due, now)}
        _write_checked(root, {topic: at for topic, at in found.items() if topic not in failed})
    except Exception as e:
        with suppress(OSError):  # so that the next commit looks again
            os.unlink(os.path.join(root, _CHECKED_FILE))
        _log.warning("Published, but could not apply retention in %s; the next commit will try: %s", root, e)


def _due(
    topics: Collection[str], configs: Mapping[str, str], root: LogRoot, open_partition: _Open
) -> Deletions:
    """The deletion from each partition of these topics."""
    own = read_topic_configs(root.folder)
    now = _now()

    def planned(partition: TopicPartition) -> Deletion | None:
        rules = RetentionRules.of(partition.topic, {**own.get(partition.topic, {}), **configs})
        return plan_deletion(open_partition(root, partition), rules, now)

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
        return plan_deletion(opened, RetentionRules(), _now(), below=below)

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

        planned = [plan(root, _in_order) for root in roots]
        for root, (deletions, _) in zip(roots, planned, strict=True):
            delete(root, deletions, advance)
        return _together(planned)


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


def _in_order(root: LogRoot, partition: TopicPartition) -> Partition:
    """The partition, with what a crash left in its folder cleared; the caller holds the directory's lock."""
    opened = _partition(root, partition)
    clear_leftovers(opened.folder.label())
    return opened


def _now() -> int:
    return time.time_ns() // 1_000_000


def _read_checked(root: str) -> dict[str, int]:
    """The time (ms) of the last look at each topic; an unreadable file has none."""
    try:
        content = json.loads(local_folder(root).read(_CHECKED_FILE) or b"{}")
        return {str(topic): int(checked) for topic, checked in content.items()}
    except (OSError, LogDirectoryError, *UNREADABLE):
        return {}


def _write_checked(root: str, checked: Mapping[str, int]) -> None:
    replace(os.path.join(root, _CHECKED_FILE), json.dumps(checked).encode())
