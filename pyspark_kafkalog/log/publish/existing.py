"""The partitions that a directory has. Its writers look for those that they need by name, and list it if one
is missing, so that what else is in the root costs nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable

from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.layout import (
    BACKUP_FILE,
    JOURNAL_FILE,
    META_PROPERTIES_FILE,
    parse_partition_folder,
)
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.model import TopicPartition

_FURTHER = 100
"""Numbers behind a topic's last partition that are looked for, too: a topic that lacks one is listed."""


def existing_partitions(root: str, wanted: Collection[TopicPartition]) -> dict[str, set[int]]:
    """The partition numbers of each topic: those of ``wanted`` and, unless all of them are there, all others.

    The caller holds the directory's lock: nothing is renamed meanwhile, and one listing does.
    """
    if all(_is_there(root, partition) for partition in wanted):
        return numbers_of(wanted)
    with os.scandir(root) as entries:
        found = (parse_partition_folder(entry.name) for entry in entries if entry.is_dir())
        return numbers_of(partition for partition in found if partition is not None)


def numbers_of(partitions: Iterable[TopicPartition]) -> dict[str, set[int]]:
    """The partition numbers of each topic."""
    numbers = defaultdict(set)
    for topic, number in partitions:
        numbers[topic].add(number)
    return numbers


def partitions_of_topic(root: str, topic: str) -> tuple[int, ...]:
    """The partition numbers of a topic, for a task: others may write to the directory meanwhile.

    Where brokers or a backup have been at work, or a topic is being made, the directory is listed: it may
    have only some of a topic's partitions, or hide some.

    :raises LogDirectoryError: if it can't be read.
    """
    log_root = LogRoot(open_folder(root))
    before = log_root.changed()
    if not _is_special(root):
        count = 0
        while _is_there(root, TopicPartition(topic, count)):
            count += 1
        further = (TopicPartition(topic, count + number) for number in range(1, _FURTHER))
        is_all = count > 0 and not any(_is_there(root, partition) for partition in further)
        if is_all and not _is_special(root) and log_root.changed() == before:
            return tuple(range(count))
    from pyspark_kafkalog.log.read.directory import LogDirectory

    return LogDirectory.open(root).topics([topic]).get(topic, ())


def _is_special(root: str) -> bool:
    names = (JOURNAL_FILE, BACKUP_FILE, META_PROPERTIES_FILE)
    return any(os.path.lexists(os.path.join(root, name)) for name in names)


def _is_there(root: str, partition: TopicPartition) -> bool:
    """Whether the partition has a folder of exactly its name."""
    name = str(partition)
    path, other = os.path.join(root, name), os.path.join(root, name.swapcase())
    if parse_partition_folder(name) != partition or not os.path.isdir(path):
        return False
    # Some file systems find it by another name, which is another topic's.
    return other == path or not (os.path.exists(other) and os.path.samefile(path, other))
