"""Make, change and delete the topics of a log directory, under its lock.

New partitions appear at once: the journal of a publish without records hides them until all their folders
are on disk. Deleted ones go one after the other, and a topic's lowest number last: what a kill leaves is a
topic with fewer partitions, which the next deletion removes. What says something of a partition goes before
it, so that a new one of its name inherits nothing. Kafka's ``LogManager.getOrCreateLog``,
``LogManager.asyncDelete``.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from pyspark_kafkalog.errors import OptionError, TopicExistsError, UnknownTopicOrPartitionError
from pyspark_kafkalog.filesystem.durable import disk_errors, sync_folder
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.layout import deleted_folder, is_deleted_folder
from pyspark_kafkalog.log.lock import PATIENCE_SECONDS, directory_lock
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.publish.appender import create_folder, new_partition
from pyspark_kafkalog.log.publish.existing import numbers_of
from pyspark_kafkalog.log.publish.publish import Tombstones, append_batch, forget_commits
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.topic_configs import forget_topic_configs, read_topic_configs, write_topic_configs
from pyspark_kafkalog.model import QueryBatch, TopicPartition, check_topic
from pyspark_kafkalog.model.kafka_uuid import random_uuid

LOCK_SECONDS = 10.0
"""Seconds to wait for a broker that may be about to stop."""
_NO_QUERY = QueryBatch("topics")
"""The batch of a publish that no query has: no ledger knows it."""

_log = logging.getLogger("pyspark_kafkalog")


@contextmanager
def _locked(root: str, doing: str, *, validate_only: bool = False) -> Iterator[None]:
    """Lock the directory, and put in order what earlier writers have left unfinished.

    :param validate_only: only name the errors: nothing is locked, and nothing changes.
    """
    with disk_errors(f"Could not {doing}", root):
        if validate_only:
            yield
            return
        with directory_lock(root, LOCK_SECONDS, patience=PATIENCE_SECONDS):
            journal.recover(root)
            _remove_deleted(root)
            yield


def create_topics(
    root: str,
    new: Mapping[str, tuple[int, Mapping[str, str]]],
    tombstones: Tombstones = lambda partitions: {},
    *,
    validate_only: bool = False,
) -> None:
    """Create topics, each with a number of partitions and its configurations: all, or none.

    :param tombstones: called under the lock with the new partitions.
    :raises TopicExistsError: if one exists already.
    :raises LogDirectoryLockedError: if a broker runs on the directory.
    """
    with _locked(root, "create topics", validate_only=validate_only):
        existing = _existing(root)
        for topic in sorted(new):
            if check_topic(topic) in existing:
                raise TopicExistsError(f"Topic {topic} exists already", file=root)
        if validate_only:
            return
        made = {
            TopicPartition(topic, number): topic_id
            for topic, (partitions, _) in new.items()
            for topic_id in [random_uuid()]
            for number in range(partitions)
        }
        forget_commits(root, made, tombstones)
        _make(root, made, {topic: dict(configs) for topic, (_, configs) in new.items()})


def add_partitions(root: str, topic: str, count: int, *, validate_only: bool = False) -> None:
    """Let a topic have ``count`` partitions; the new ones appear at once, and are empty.

    :raises OptionError: if it has as many already.
    :raises UnknownTopicOrPartitionError: if there is no such topic.
    """
    with _locked(root, "add partitions", validate_only=validate_only):
        numbers = _numbers(root, topic)
        if count <= max(numbers):
            raise OptionError(
                f"Topic {topic} has {max(numbers) + 1} partitions, which is not below {count}",
                hint="Partitions can only be added.",
            )
        if validate_only:
            return
        topic_id = LogDirectory.open(root).topic_ids([topic])[topic]
        missing = sorted(set(range(count)) - numbers)
        _make(root, {TopicPartition(topic, number): topic_id for number in missing}, {})


def delete_topics(
    root: str,
    topics: Collection[str],
    tombstones: Tombstones,
) -> None:
    """Delete topics with all their partitions, and groups' offsets of them. If interrupted, it can run again.

    :param tombstones: called under the lock with the partitions.
    :raises UnknownTopicOrPartitionError: if one does not exist; then nothing is deleted.
    :raises LogDirectoryError: if a file that tells of partitions is malformed; then nothing is deleted.
    """
    with _locked(root, "delete topics"):
        numbers = {topic: _numbers(root, topic) for topic in topics}
        partitions = {TopicPartition(topic, number) for topic in numbers for number in numbers[topic]}
        batches = tombstones(partitions)
        _forget(root, ())  # reads all, so that what is malformed is refused
        with journal.unclean(root):
            for holder, batch in batches.items():
                append_batch(root, holder, batch, num_partitions=1)  # it exists
            _forget(root, partitions)
            for partition in sorted(partitions, reverse=True):
                _set_aside(os.path.join(root, str(partition)), os.path.join(root, deleted_folder(partition)))
            sync_folder(root)
        _remove_deleted(root)


def _forget(root: str, gone: Collection[TopicPartition]) -> None:
    """Take partitions out of all files that tell of them, and their topics out of that of configurations.

    :raises LogDirectoryError: if one is malformed.
    """
    journal.forget(root, gone)
    forget_topic_configs(root, {partition.topic for partition in gone})


def _set_aside(folder: str, name: str) -> None:
    """Give a partition's folder a name that neither brokers nor readers take for a partition."""
    if os.path.islink(folder):
        os.unlink(folder)
        return
    shutil.rmtree(name, ignore_errors=True)  # another topic's, if it begins with as many same characters
    os.rename(folder, name)


def _remove_deleted(root: str) -> None:
    """Remove the folders of deleted partitions. Where that fails, a broker does it when it starts."""
    for path in [os.path.join(root, name) for name in os.listdir(root) if is_deleted_folder(name)]:
        shutil.rmtree(path, ignore_errors=True)
        if os.path.lexists(path):
            _log.warning("The deleted partition's folder %s could not be removed", path)


def alter_configs(
    root: str, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Set configurations of a topic, and drop those whose value is None.

    :raises UnknownTopicOrPartitionError: if there is no such topic.
    """
    with _locked(root, "change configurations", validate_only=validate_only):
        _numbers(root, topic)
        if validate_only:
            return
        configs = read_topic_configs(open_folder(root)).get(topic, {})
        merged: dict[str, str | None] = {**configs, **changes}
        _set_configs(root, {topic: {name: value for name, value in merged.items() if value is not None}})


def _existing(root: str) -> dict[str, set[int]]:
    """The partition numbers of each topic, without those that an unfinished change hides."""
    log_root = LogRoot(open_folder(root))
    partitions = log_root.live_partitions()
    hidden = {partition for partition, end in log_root.unpublished().items() if end is None}
    return numbers_of(partitions - hidden)


def _numbers(root: str, topic: str) -> set[int]:
    numbers = _existing(root).get(topic)
    if not numbers:
        raise UnknownTopicOrPartitionError(f"No such topic: {topic}", file=root)
    return numbers


def _set_configs(root: str, topics: Mapping[str, dict[str, str]]) -> None:
    """Replace all configurations of these topics."""
    before = read_topic_configs(open_folder(root))
    after = {topic: configs for topic, configs in {**before, **topics}.items() if configs}
    if after != before:
        write_topic_configs(root, after)


def _make(root: str, partitions: Mapping[TopicPartition, str], configs: Mapping[str, dict[str, str]]) -> None:
    """Make the folders of new partitions, given with the ids of their topics, visible at once.

    :param configs: of new topics; if the topics don't come to be, neither do these.
    """
    logs = {
        partition: new_partition(os.path.join(root, str(partition)), topic_id)
        for partition, topic_id in partitions.items()
    }
    ends = {partition: log.end() for partition, log in logs.items()}
    unfinished = journal.begin(root, ends, {}, _NO_QUERY, configured=configs.keys())
    try:
        for log in logs.values():
            create_folder(log)
        _set_configs(root, configs)
        sync_folder(root)
        journal.commit(root, unfinished)
    except BaseException:
        journal.recover(root)
        raise
