"""The partitions that a directory has. Its writers look for those that they need by name, and list it if one
is missing, so that what else is in the root costs nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from pyspark_kafkalog.log.layout import (
    BACKUP_FILE,
    JOURNAL_FILE,
    META_PROPERTIES_FILE,
    parse_partition_folder,
)
from pyspark_kafkalog.model import TopicPartition

_FURTHER = 10
"""Numbers behind a topic's last partition that are looked for, too: a topic that lacks one is listed."""
_MOST_TOPICS, _MOST_PARTITIONS = 20, 100
"""The most topics, and partitions of one, that are looked for by their names: a listing costs less."""


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


class TopicPartitions:
    """The partitions of topics, for tasks: others may write to the directory meanwhile. What was seen stays.

    Where brokers or a backup have been at work, or a topic is being made, the directory is listed: it may
    have only some of a topic's partitions, or hide some. It is listed once, for all topics that follow.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._found: dict[str, tuple[int, ...]] = {}
        self._listed: Mapping[str, tuple[int, ...]] | None = None

    def of(self, topic: str) -> tuple[int, ...]:
        """The partition numbers of a topic; none if it does not exist.

        :raises LogDirectoryError: if the directory can't be read.
        """
        if topic not in self._found:
            self._found[topic] = self._look_for(topic)
        return self._found[topic]

    def _look_for(self, topic: str) -> tuple[int, ...]:
        if self._listed is None:
            if len(self._found) < _MOST_TOPICS and (count := _count(self._root, topic)):
                return tuple(range(count))
            from pyspark_kafkalog.log.read.directory import LogDirectory

            self._listed = LogDirectory.open(self._root).topics()
        return self._listed.get(topic, ())


def _count(root: str, topic: str) -> int:
    """The number of a topic's partitions, from 0 on; 0 if that can't be told by their names."""
    if _is_special(root):
        return 0
    count = 0
    while count <= _MOST_PARTITIONS and _is_there(root, TopicPartition(topic, count)):
        count += 1
    # A topic that was made meanwhile has more of them now, and one that was deleted lacks the last.
    if not 0 < count <= _MOST_PARTITIONS or _is_special(root):
        return 0
    further = (os.path.join(root, f"{topic}-{count + number}") for number in range(_FURTHER))
    is_all = _is_there(root, TopicPartition(topic, count - 1)) and not any(map(os.path.lexists, further))
    return count if is_all else 0


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
