"""What a place tells of its consumer groups, and takes for them; what they are is in :mod:`.model`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import CommittedOffset, Group, TopicPartition


class CommittedOffsets(Protocol):
    """What consumer groups have committed."""

    def committed(
        self, group: str, partitions: Collection[TopicPartition] | None = None, *, settled: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """The commits of ``group`` for all or these partitions; those without a commit are left out.

        What an open transaction commits does not count yet. With ``settled`` brokers wait for its end.
        """


class GroupOffsets(CommittedOffsets, Protocol):
    """The consumer groups of a place and what they have committed: ``__consumer_offsets``."""

    def group_ids(self) -> tuple[str, ...]:
        """All groups, sorted."""

    def describe(self, groups: Collection[str]) -> dict[str, Group]:
        """Those of ``groups`` that exist."""

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
