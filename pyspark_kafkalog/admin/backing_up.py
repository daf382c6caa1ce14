"""Backups of clusters, copies of directories, and their way back into a broker."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from pyspark_kafkalog.admin.source_options import source_options
from pyspark_kafkalog.backups.groups import offsets_partitions
from pyspark_kafkalog.backups.plan import BackedUpPartition, BackupRules
from pyspark_kafkalog.backups.run import Backup
from pyspark_kafkalog.codec.marker import marked_query
from pyspark_kafkalog.codec.offsets_topic import OFFSETS_TOPIC
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.log.read.root import open_root
from pyspark_kafkalog.log.write.adopting import AdoptedPartition
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.settings import PlaceOptions, Selection, place_options
from pyspark_kafkalog.places import (
    adopt_backup,
    follower_directory,
    follower_groups,
    open_groups,
    open_place,
)
from pyspark_kafkalog.reading.offsets import look_up_partitions

_DEFAULT_RULES = BackupRules()
_LEAST_FETCH = 64 << 10


def backup(
    options: Mapping[str, str],
    directory: str,
    rules: BackupRules = _DEFAULT_RULES,
    *,
    follow_until: threading.Event | None = None,
    progress: Callable[[int], None] = lambda size: None,
    failed: Callable[[BackedUpPartition], None] = lambda row: None,
) -> list[BackedUpPartition]:
    """Copy the record batches of a cluster's topics into a log directory, as a follower would.

    Offsets, timestamps, producer ids, leader epochs, markers, compression and topic ids are those of the
    source. It goes on where the last run ended, or was killed. Also saved are the configurations of topics
    and the offsets of consumer groups.

    What is wrong with one partition, in the source or in the directory, hinders none of the others.

    :param options: those of a reader, for brokers.
    :param directory: a local or mounted folder, which is made if it does not exist.
    :param follow_until: if given, go on until it is set. Partitions with a problem of the source are tried
        again; damage in the directory, or an error of its disk, ends it when the others are copied.
    :param progress: called, from any thread, with the number of bytes that were copied.
    :param failed: called, from any thread, with each partition whose problem is new.
    :return: what came of groups, if something is to be said of them, and of each partition, sorted; look for
        ``problem``, ``gaps`` and ``truncated``. The backup is complete only if no row has a ``problem``.
    :raises OptionError: for invalid options.
    :raises LogDirectoryError: if the directory is a broker's own or a backup of another cluster, or can't be
        written to.
    :raises BrokerError: if no broker answers.
    :raises GroupError: if a group of ``rules`` is known nowhere.
    """
    place = _options(options, rules)
    if place.brokers is None:
        raise OptionError("A backup is made of brokers", hint="Directories are copied by 'copy'.")
    if rules.since is not None or rules.until is not None:
        raise OptionError("A backup has no range of time", hint="Copy a part of it by 'copy'.")
    return _run(place, directory, rules, follow_until, progress, failed)


def copy(
    source: str,
    directory: str,
    rules: BackupRules = _DEFAULT_RULES,
    *,
    progress: Callable[[int], None] = lambda size: None,
) -> list[BackedUpPartition]:
    """Copy topics from one log directory into another, byte for byte as far as whole batches are taken.

    It is what :func:`backup` does with a cluster. A range of time begins and ends with whole batches. Offsets
    of groups are copied at any age.

    :param source: a path or URI.
    :raises OptionError: if both are the same folder.
    """
    place = _options({"path": source}, rules)
    if os.path.isdir(directory):
        for folder in (open_root(path).folder for path in place.paths):
            if folder.is_local and os.path.samefile(folder.path, directory):
                raise OptionError(
                    f"Expected another folder to copy to, got that of the source: {directory}",
                    hint="Name a new folder, or an earlier copy.",
                )
    return _run(place, directory, rules, None, progress)


def adopt(
    directory: str, log_dir: str, topics: Collection[str] = (), *, groups: bool = True, execute: bool = False
) -> list[AdoptedPartition]:
    """Put the partitions of a backup into the log directory of a stopped broker, as its own.

    The broker's topics exist, and are empty. Batches keep all but their leader epochs, which become those
    of a new topic. Offsets of groups go into the broker's ``__consumer_offsets``: of the partitions that are
    adopted, where the group has none. Interrupted, this can run again.

    :param topics: only these; () for all that are not internal.
    :param groups: False to leave them out.
    :param execute: False to only say what would be done.
    :return: the partitions, sorted; those with a ``problem`` are left alone.
    :raises OptionError: if there are groups, but no ``__consumer_offsets``; nothing is adopted then.
    :raises LogDirectoryLockedError: if the broker runs.
    """

    def before(partitions: Collection[TopicPartition]) -> None:
        # Once records are there, nothing tells them from the broker's own.
        if groups:
            _adopt_groups(directory, log_dir, partitions, execute=execute)

    return adopt_backup(directory, log_dir, topics, execute=execute, before=before)


def _options(options: Mapping[str, str], rules: BackupRules) -> PlaceOptions:
    place = source_options(options)
    if place.fetch is not None and rules.rate is not None:
        # Not more at once than a part of a second's share.
        most = max(int(rules.rate / rules.threads / 4), _LEAST_FETCH)
        fetch = replace(
            place.fetch, max_partition_fetch_bytes=min(place.fetch.max_partition_fetch_bytes, most)
        )
        place = replace(place, fetch=fetch)
    return place


def _run(
    place: PlaceOptions,
    directory: str,
    rules: BackupRules,
    follow_until: threading.Event | None,
    progress: Callable[[int], None],
    failed: Callable[[BackedUpPartition], None] = lambda row: None,
) -> list[BackedUpPartition]:
    if not os.path.exists(directory):  # what is wrong with the source leaves no folder behind
        look_up_partitions(open_place(place), Selection(topics=rules.topics))
    with follower_directory(directory) as target:
        groups, number = None, 0
        if rules.groups is None or rules.groups:
            groups = open_groups(place)
            number = offsets_partitions(open_place(place))
        run = Backup(
            lambda: open_place(place),
            target,
            rules,
            groups=groups,
            saved=follower_groups(directory, number),
            copied=progress,
            failed=failed,
        )
        return run.once() if follow_until is None else run.follow(follow_until)


def _adopt_groups(
    directory: str, log_dir: str, partitions: Collection[TopicPartition], *, execute: bool
) -> None:
    """Commit what the backup's groups have committed, where they have committed nothing in the broker.

    As in a restore, the markers of exactly-once queries are left out.
    """
    saved, groups = (follower_groups(root) for root in (directory, log_dir))
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
                " kafkalog offsets export DIR > offsets.json;"
                " kafkalog offsets import BROKERS offsets.json --execute",
            )
        if execute:
            groups.commit(group, new)
