"""The consumer groups of a place: questions, commits and membership; their rows are in :mod:`.model`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from pyspark_kafkalog.errors import GroupError, KafkaLogError
from pyspark_kafkalog.model import Assigned, CommittedOffset, Group, TopicPartition

OWN_PREFIX = "kafkalog-"
"""Begins the names of groups that hold a marker of exactly-once writes, and of transactional ids: for the
cluster's ACLs.
"""


class PendingOffsetsError(GroupError):
    """Pending offsets: those of a group are part of a transaction that stays open."""


class CommittedOffsets(Protocol):
    """The committed offsets of consumer groups."""

    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """The commits of ``group`` for all or these partitions; those without a commit are left out.

        What an open transaction commits does not count yet. With ``require_stable`` brokers wait for its end.

        :raises PendingOffsetsError: if it stays open.
        """


class TakesCommits(Protocol):
    """The groups to which a query commits the offsets that it has processed."""

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, as_they_are: bool = False
    ) -> None:
        """See :meth:`GroupOffsets.commit`."""


class GroupOffsets(CommittedOffsets, TakesCommits, Protocol):
    """The consumer groups of a place and what they have committed: ``__consumer_offsets``."""

    def group_ids(self) -> tuple[str, ...]:
        """The ids of all groups, sorted.

        :raises KafkaLogError: if some can't be listed.
        """

    def try_group_ids(self) -> tuple[tuple[str, ...], list[KafkaLogError]]:
        """The ids of all groups that can be listed, sorted, and the errors of those that can't.

        :raises KafkaLogError: if none can be.
        """

    def describe(self, groups: Collection[str]) -> Mapping[str, Group | KafkaLogError]:
        """The ``groups`` that exist, or the error of the one that can't be read."""

    def committed_by(
        self, groups: Collection[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaLogError]:
        """The commits of each of many groups, or the error of the one that can't be read."""

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, as_they_are: bool = False
    ) -> None:
        """Commit as a group without members: all partitions, or those that the error does not name.

        A ``leader_epoch`` of -1 is replaced by the partition's, if the place knows it.

        :param as_they_are: leave a leader epoch of -1 as it is.
        :raises GroupError: if the group has live members, or can't be written to.
        """

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Delete the commits of ``group`` for these partitions; those without one are ignored.

        :raises GroupError: if a live member is subscribed to their topics.
        """

    def delete_group(self, group: str) -> None:
        """Delete a group.

        :raises GroupError: if it has live members, or does not exist.
        """


class Membership(Protocol):
    """A member of a consumer group that reads in steps; its assignment changes only between them.

    Its heartbeats have a thread of their own. While a step holds the member, its assignment stays: the group
    waits, for kafka.max.poll.interval.ms.
    """

    def subscribe(self, counts: Mapping[str, int]) -> None:
        """Join with these topics, of so many partitions, or join again if they have changed.

        :raises GroupError: if the group is not one of consumers of these topics.
        """

    def hold(self, wait: float) -> Assigned | None:
        """Begin a step: the assignment stays until :meth:`release`. None if the group has assigned nothing
        after ``wait`` seconds, or is about to assign again; then no step has begun.

        A member that may have been away for longer than the session timeout asks the group first.

        :raises GroupError: if the group has gone on without the member during a step, unless it is to rejoin.
        :raises KafkaLogError: if the group can't be joined, or has not answered for long.
        """

    def release(self) -> None:
        """End a step: what it has read is processed, and committed."""

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], assigned: Assigned) -> bool:
        """Commit as this member, during a step with this assignment.

        Returns whether it is committed: if not, the member has lost its assignment, and is to rejoin.

        :raises GroupError: as :meth:`hold`, or if brokers refuse an offset.
        """

    def leave(self) -> None:
        """Leave the group, so that it need not wait for the session timeout; a static member stays."""
