"""Commits to groups, and dies at a chosen step: see :mod:`tests.faults.steps`.

The number of the last commit that returned is in ``<folder>/done``.
"""

from __future__ import annotations

from pathlib import Path

import pandas  # noqa: F401 - pyarrow imports it with the first array, which each fork would pay for

from pyspark_kafkalog.extensions.log_groups import groups as groups_module
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.faults.steps import count_steps, serve

COMMITS = 14
OTHER = "other"
"""A group with one old commit, which compaction must keep."""
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def compact_early() -> None:
    """Compact logs of a kilobyte."""
    groups_module._CLEAN_BYTES = 1000


def run(folder: Path, kill_at: int) -> None:
    compact_early()
    (folder / "log").mkdir(exist_ok=True)
    write_topic_configs(str(folder / "log"), {"__consumer_offsets": {"segment.bytes": "600"}})
    count_steps(folder / "steps", kill_at)
    groups = DirectoryGroups.open([str(folder / "log")], num_partitions=1)
    for number in range(COMMITS):
        if number == 2:
            groups.commit(OTHER, {T0: CommittedOffset(7)})
            groups.commit("deleted", {T0: CommittedOffset(7)})
            groups.delete_group("deleted")
        groups.commit("query", {T0: CommittedOffset(number), T1: CommittedOffset(number)})
        (folder / "done").write_text(str(number))


if __name__ == "__main__":
    serve(run)
