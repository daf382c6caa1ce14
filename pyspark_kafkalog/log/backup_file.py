"""The file of a backup about its source: ``.kafkalog-backup`` in the log root, which brokers ignore.

JSON with a version, the source's cluster id, and for each partition the ranges of offsets that its
source had deleted before they could be copied; where the record batch begins in which the last of them ends,
or that follows it; when its copy was last complete, and up to which offset; if it is being replaced by a new
copy, where that begins; and where rows begin that were written to the copy, and are not its source's.

Where this file is, ``log-start-offset-checkpoint`` says of every partition where it begins, so that a first
segment behind that means that there was one before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from pyspark_kafkalog.errors import UNREADABLE, LogDirectoryError
from pyspark_kafkalog.filesystem import durable
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.locate import local_folder
from pyspark_kafkalog.log.layout import BACKUP_FILE, partition_of
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.model.topics import INTERNAL_TOPICS

_VERSION = 1
_Entry = TypeVar("_Entry")


class Complete(NamedTuple):
    """A moment at which a copy was complete: below ``offset`` it had all records that the source had at
    ``time``, except those that compaction took.

    The time is in ms, by the clock of the machine that copied; 0 if it is unknown.
    """

    time: int
    offset: int


@dataclass(slots=True)
class BackupFile:
    """The content of the file; ``cluster_id`` is None if the source has none."""

    cluster_id: str | None = None
    gaps: dict[TopicPartition, list[OffsetRange]] = field(default_factory=dict)
    next_batches: dict[TopicPartition, int] = field(default_factory=dict)
    """The base offset of the record batch in which the last gap ends, or that follows the gap."""
    complete: dict[TopicPartition, Complete] = field(default_factory=dict)
    renewed: dict[TopicPartition, int] = field(default_factory=dict)
    """The log start offsets of the new copies."""
    written: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset from which on a copy may have rows that its source never had."""

    def without(self, gone: Collection[TopicPartition]) -> BackupFile:
        """The file's content without the entries of these partitions."""

        def without_gone(entries: Mapping[TopicPartition, _Entry]) -> dict[TopicPartition, _Entry]:
            return {partition: entry for partition, entry in entries.items() if partition not in gone}

        return replace(
            self,
            gaps=without_gone(self.gaps),
            next_batches=without_gone(self.next_batches),
            complete=without_gone(self.complete),
            renewed=without_gone(self.renewed),
            written=without_gone(self.written),
        )


def read_backup_file(root: Folder) -> BackupFile | None:
    """The file's content; None if there is none.

    :raises LogDirectoryError: if it can't be understood.
    """
    data = root.read(BACKUP_FILE)
    if data is None:
        return None
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError(content["version"])
        cluster_id = content["cluster_id"]
        gaps = {
            partition_of(name): [OffsetRange(int(start), int(end)) for start, end in ranges]
            for name, ranges in content["gaps"].items()
        }
        complete = {
            partition_of(name): Complete(int(time), int(offset))
            for name, (time, offset) in content["complete"].items()
        }
        next_batches, renewed, written = (
            {partition_of(name): int(offset) for name, offset in content[each].items()}
            for each in ("next_batches", "renewed", "written")
        )
        return BackupFile(
            None if cluster_id is None else str(cluster_id), gaps, next_batches, complete, renewed, written
        )
    except UNREADABLE:
        raise LogDirectoryError(
            "Cannot understand the file about the backup",
            file=root.label(BACKUP_FILE),
            hint="Use the version of the package that wrote it.",
        ) from None


def write_backup_file(root: str, content: BackupFile) -> None:
    """Replace the file; the caller holds the directory's lock."""
    text = json.dumps(
        {
            "version": _VERSION,
            "cluster_id": content.cluster_id,
            "gaps": _by_name(content.gaps),
            "next_batches": _by_name(content.next_batches),
            "complete": _by_name(content.complete),
            "renewed": _by_name(content.renewed),
            "written": _by_name(content.written),
        },
        indent=1,
    )
    durable.replace(os.path.join(root, BACKUP_FILE), text.encode())


def store_written(root: str, starts: Mapping[TopicPartition, int]) -> None:
    """Store in a backup where rows will begin that are not its source's; the caller holds its lock.

    If they never come, the next run, which finds the log to end there, forgets it.
    """
    file = read_backup_file(local_folder(root))
    if file is None:
        return
    earlier = {
        partition: start
        for partition, start in starts.items()
        if partition.topic not in INTERNAL_TOPICS and start < file.written.get(partition, start + 1)
    }
    if earlier:
        write_backup_file(root, replace(file, written={**file.written, **earlier}))


def _by_name(found: Mapping[TopicPartition, object]) -> dict[str, object]:
    return {str(partition): found[partition] for partition in sorted(found)}
