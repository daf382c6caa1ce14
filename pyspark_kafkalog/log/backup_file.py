"""What a backup is a backup of: ``.kafkalog-backup`` in the log root, which brokers ignore.

JSON with a version, the source's cluster id, and for each partition the ranges of offsets that its
source had deleted before they could be copied.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.durable import replace
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.layout import BACKUP_FILE, partition_of
from pyspark_kafkalog.model import OffsetRange, TopicPartition

_VERSION = 1


@dataclass(slots=True)
class BackupFile:
    """The content of the file; ``cluster_id`` is None if the source has none."""

    cluster_id: str | None = None
    gaps: dict[TopicPartition, list[OffsetRange]] = field(default_factory=dict)


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
        return BackupFile(None if cluster_id is None else str(cluster_id), gaps)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise LogDirectoryError(
            "Cannot understand the file about the backup",
            file=root.label(BACKUP_FILE),
            hint="Use the version of the package that wrote it.",
        ) from None


def write_backup_file(root: str, content: BackupFile) -> None:
    """Replace the file; the caller holds the directory's lock."""
    gaps = {str(partition): list(map(list, content.gaps[partition])) for partition in sorted(content.gaps)}
    text = json.dumps({"version": _VERSION, "cluster_id": content.cluster_id, "gaps": gaps}, indent=1)
    path = os.path.join(root, BACKUP_FILE)
    replace(path, text.encode(), path + ".tmp")
