"""Put a new copy of a partition in the place of an old one, so that a crash leaves the one or the other.

1. The new copy grows in a folder with a name that brokers give to what they delete, and readers ignore.
2. When all of it is on disk, ``.kafkalog-backup`` notes that it replaces the old one. Readers take it for the
   partition from then on.
3. The old folder gets such a name, too, and the new one takes its place.
4. The note goes, and the old folder with it.

After a crash, the next writer to open the directory completes 3 and 4, or removes a copy not yet noted.
"""

from __future__ import annotations

import os
import shutil

from pyspark_kafkalog.filesystem.durable import sync_folder
from pyspark_kafkalog.log.layout import new_copy, set_aside
from pyspark_kafkalog.model import TopicPartition


def new_folder(root: str, partition: TopicPartition) -> str:
    """Where the new copy of a partition grows."""
    return os.path.join(root, new_copy(partition))


def exchange(root: str, partition: TopicPartition) -> None:
    """Put the new copy, which is noted, in the place of the old one. Interrupted, this can run again."""
    new, live, old = new_folder(root, partition), os.path.join(root, str(partition)), _old(root, partition)
    if os.path.isdir(new):
        if os.path.isdir(live):
            shutil.rmtree(old, ignore_errors=True)
            os.rename(live, old)
            sync_folder(root)
        os.rename(new, live)
        sync_folder(root)


def remove_leftovers(root: str, partition: TopicPartition) -> None:
    """Remove what a renewal, which is not noted any more or not yet, has left beside the partition."""
    for folder in (new_folder(root, partition), _old(root, partition)):
        if os.path.isdir(folder):
            shutil.rmtree(folder)


def _old(root: str, partition: TopicPartition) -> str:
    return os.path.join(root, set_aside(partition, "old"))
