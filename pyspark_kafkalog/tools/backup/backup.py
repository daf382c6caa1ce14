"""Backups of clusters and directories, and their way back into a broker."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Collection
from dataclasses import replace

from pyspark_kafkalog.client.partitions import topics_of
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.exactly_once.group_marker import marked_query
from pyspark_kafkalog.extensions.log_groups.groups import NUM_PARTITIONS, DirectoryGroups
from pyspark_kafkalog.filesystem.hadoop import is_in
from pyspark_kafkalog.log.read.root import open_root
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC
from pyspark_kafkalog.options.settings import PlaceOptions, Selection, place_options
from pyspark_kafkalog.places import open_groups, open_place
from pyspark_kafkalog.read.partitions import look_up_partitions
from pyspark_kafkalog.tools.backup.copies import adopt as adopting
from pyspark_kafkalog.tools.backup.copies.adopt import AdoptedPartition
from pyspark_kafkalog.tools.backup.copies.directory import BackupDirectory, open_backup
from pyspark_kafkalog.tools.backup.copying import Executor
from pyspark_kafkalog.tools.backup.groups import offsets_partitions
from pyspark_kafkalog.tools.backup.plan import BackedUpPartition, BackupRules
from pyspark_kafkalog.tools.backup.run import Backup
from pyspark_kafkalog.tools.backup.threads import Threads

_LEAST_FETCH = 64 << 10


def backup(
    source: PlaceOptions,
    directory: str,
    rules: BackupRules,
    *,
    follow_until: threading.Event | None = None,
    progress: Callable[[int], None] = lambda size: None,
    failed: Callable[[BackedUpPartition], None] = lambda row: None,
    executor: Callable[[BackupDirectory], Executor] | None = None,
) -> list[BackedUpPartition]:
    """Copy the record batches of topics into a log directory, as a follower would.

    See :meth:`.kafka.LogCare.backup`.

    :param executor: makes what copies the partitions, and tells no ``progress``; None for threads.
    """
    if source.brokers is not None and not rules.is_whole:
        raise OptionError(
            "A backup of brokers has no range of time", hint="Back up all, and copy a part of the backup."
        )
    for folder in (open_root(path).folder for path in source.paths):
        if folder.is_local and is_in(directory, folder.path):
            is_same = os.path.realpath(directory) == os.path.realpath(folder.path)
            raise OptionError(
                f"Expected another folder to copy to, got {'that of' if is_same else 'one in'} the source:"
                f" {directory}",
                hint="Name a new folder elsewhere, or an earlier copy.",
            )
    place = _slowed(source, rules)
    if not os.path.exists(directory):  # what is wrong with the source leaves no folder behind
        look_up_partitions(open_place(place), rules.selection)
    with open_backup(directory) as target:
        groups, number, stored = None, 0, open_place(place)
        if rules.groups is None or rules.groups:
            groups = open_groups(place)
            number = offsets_partitions(stored)
        saved = _groups_of_copy(directory, number)
        copying = (
            Threads(lambda: open_place(place), target, rules, saved, progress, place.max_record_bytes)
            if executor is None
            else executor(target)
        )
        run = Backup(stored, target, rules, copying, groups=groups, saved=saved, failed=failed)
        return run.once() if follow_until is None else run.follow(follow_until)


def _slowed(place: PlaceOptions, rules: BackupRules) -> PlaceOptions:
    """The place; with a rate, no fetch takes more than a part of a second's share."""
    if place.fetch is None or rules.rate is None:
        return place
    most = max(int(rules.rate / rules.threads / 4), _LEAST_FETCH)
    most = min(place.fetch.max_partition_fetch_bytes, most)
    return replace(place, fetch=replace(place.fetch, max_partition_fetch_bytes=most))


def adopt(
    directory: str,
    log_dir: str,
    topics: Collection[str] = (),
    *,
    exclude: Collection[str] = (),
    groups: bool = True,
    execute: bool = False,
) -> list[AdoptedPartition]:
    """Put the partitions of a backup into the log directory of a stopped broker, as its own.

    See :meth:`.kafka.LogCare.adopt`.
    """

    def before(partitions: Collection[TopicPartition]) -> None:
        # Once records are there, nothing tells them from the broker's own.
        if groups:
            _adopt_groups(directory, log_dir, partitions, execute=execute)

    if exclude:
        selection = Selection(topics=tuple(topics) or None, exclude=tuple(exclude))
        topics = topics_of(open_place(place_options({"path": directory})), selection)
        if not topics:
            return []
    return adopting.adopt(directory, log_dir, topics, execute=execute, before=before)


def _adopt_groups(
    directory: str, log_dir: str, partitions: Collection[TopicPartition], *, execute: bool
) -> None:
    """Commit what the backup's groups have committed, where they have committed nothing in the broker.

    As in a restore, the markers of exactly-once queries are left out.
    """
    saved, groups = (_groups_of_copy(root) for root in (directory, log_dir))
    has_topic = bool(open_place(place_options({"path": log_dir})).topics([OFFSETS_TOPIC]))
    for group in saved.group_ids():
        commits = saved.committed(group, partitions)
        if marked_query(group, commits.values()) is not None:
            continue
        known = groups.committed(group, partitions)
        # All leader epochs of the broker's logs will be 0.
        new = {
            partition: replace(offset, leader_epoch=0, commit_timestamp=-1)
            for partition, offset in commits.items()
            if partition not in known
        }
        if new and not has_topic:
            raise OptionError(
                f"The broker has no {OFFSETS_TOPIC} yet: nothing was adopted",
                hint="Adopt without groups (--no-groups), start the broker, and give it the groups by:"
                f" kafkalog offsets export {shlex.quote(directory)} > offsets.json;"
                " kafkalog offsets import BROKERS offsets.json --execute",
            )
        if execute:
            groups.commit(group, new)


def _groups_of_copy(root: str, num_partitions: int = 0) -> GroupOffsets:
    """The consumer groups of a log root whose lock this process holds. Their offsets never expire.

    :param num_partitions: of their topic, if it is new; 0 for Kafka's default.
    """
    return DirectoryGroups.open(
        root, retention_minutes=None, num_partitions=num_partitions or NUM_PARTITIONS, lock_timeout=None
    )
