"""The commits of one run at a time for a consumer group."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from pyspark_kafkalog.extensions.exactly_once.options import TransactionOptions
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.options.contracts import delivery_of
from pyspark_kafkalog.options.settings import WriteOptions


class SoleCommits(Protocol):
    """The commits of one run at a time: of runs with the same name, the first to commit excludes those that
    have read before, or the last to begin those before it.
    """

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """The :meth:`CommittedOffsets.committed` with ``require_stable``. Called once, and first."""

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """Commit for some of these partitions. False if the group has other commits than this run has read
        and made, or another run has begun: then nothing is committed.
        """


class SoleDirectoryCommits:
    """The commits of one run in a directory. Each commit holds the directory's lock."""

    def __init__(self, root: str, group: str) -> None:
        self._groups, self._group = DirectoryGroups.open(root), group
        self._known: dict[TopicPartition, tuple[int, str] | None] = {}

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """See :meth:`SoleCommits.committed`."""
        found = self._groups.committed(self._group, partitions)
        self._known = {p: found[p].said if p in found else None for p in partitions}
        return found

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """See :meth:`SoleCommits.commit`."""
        is_known = self._groups.commit_after(self._group, offsets, self._known)
        self._known |= {partition: committed.said for partition, committed in offsets.items()}
        return is_known


def open_sole_commits(options: WriteOptions, group: str, name: str) -> SoleCommits:
    """The commits of one run at a time for ``group``.

    :param options: of a write that is exactly once.
    :param name: what the runs have in common that exclude each other.
    """
    if options.brokers is None:
        return SoleDirectoryCommits(options.root, group)
    from pyspark_kafkalog.tools.redrive.fenced_commits import FencedCommits

    transactions = delivery_of(options)
    assert options.produce is not None
    assert isinstance(transactions, TransactionOptions), "it is exactly once"
    return FencedCommits(options.brokers, options.produce, transactions, group, name)
