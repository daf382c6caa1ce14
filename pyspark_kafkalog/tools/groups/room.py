"""``kafka.groups``: consumer groups and their offsets."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark_kafkalog import extensions
from pyspark_kafkalog.errors import BrokerError, OptionError
from pyspark_kafkalog.extensions.large_messages.options import assembler_settings
from pyspark_kafkalog.model import CommittedOffset, Group, Place, TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.model.rows import Rows
from pyspark_kafkalog.options.arguments import check_all, check_offsets, check_partitions, check_selection
from pyspark_kafkalog.options.settings import PlaceOptions, Selection, place_options, several_or_none
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.places import open_groups, open_report
from pyspark_kafkalog.tools.groups import consumer_groups, reset, safe_offsets
from pyspark_kafkalog.tools.groups.consumer_groups import GroupLag, GroupOffset
from pyspark_kafkalog.tools.groups.reset import ResetStep, ResetTo

if TYPE_CHECKING:
    from pyspark_kafkalog.client.kafka import Kafka
    from pyspark_kafkalog.tools.groups.safe_offsets import At

_log = logging.getLogger("pyspark_kafkalog")


class GroupAdmin:
    """``kafka.groups``: consumer groups, what they have committed, and their lag (ConsumerGroupCommand)."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._kafka.name})"

    @cached_property
    def _options(self) -> PlaceOptions:
        UserOptions(self._kafka.options, Use.ADMIN).check_names()
        return place_options(self._kafka.options, of_groups=True)

    @property
    def _are_in_zookeeper(self) -> bool:
        store = self._options.offsets_store
        return store is not None and store.is_alone

    @cached_property
    def _groups(self) -> GroupOffsets:
        return open_groups(self._options)

    @property
    def place(self) -> Place:
        """The place whose logs the groups read, for one report; for groups in ZooKeeper, the brokers that are
        registered there."""
        return open_report(self._options) if self._are_in_zookeeper else self._kafka.report_place

    @cached_property
    def _shown(self) -> GroupOffsets:
        """The groups for reports, which ask once."""
        return open_groups(self._options.of_report)

    def describe(self, names: Collection[str] | None = None) -> list[Group]:
        """The groups, or those in ``names``, sorted.

        The groups that hold the markers of exactly-once queries have ``marker`` as protocol type, and the
        query as protocol.

        :raises GroupError: if a named group does not exist.
        """
        return Rows(Group, consumer_groups.groups(self._shown, several_or_none(names)))

    def offsets(
        self,
        names: Collection[str] | None = None,
        selection: Selection | None = None,
        *,
        read_committed: bool = False,
    ) -> list[GroupOffset]:
        """The committed offsets of all groups, or those in ``names``, sorted by group, topic and partition.

        The offsets in ZooKeeper are shown, without lags, even if none of its brokers can be asked.

        :param selection: which partitions to include; by default all, internal ones too.
        :param read_committed: count lags to the last stable offsets, as read_committed consumers do.
        :raises GroupError: if a named group has committed nothing and does not exist.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist, and none of the groups has
            committed offsets for it.
        :raises KafkaLogError: if no group at all can be read.
        """

        check_selection(selection)

        def found(place: Place | None) -> list[GroupOffset]:
            rows = consumer_groups.group_offsets(
                place, self._shown, several_or_none(names), selection, read_committed=read_committed
            )
            return Rows(GroupOffset, rows)

        try:
            return found(self.place)
        except BrokerError as e:
            if not self._are_in_zookeeper:
                raise
            _log.warning("Lags are unknown: %s", e)
            return found(None)

    def lags(
        self,
        names: Collection[str] | None = None,
        selection: Selection | None = None,
        *,
        read_committed: bool = False,
    ) -> list[GroupLag]:
        """The lag of each group; see :meth:`offsets`. A negative lag counts as 0."""
        found = self.offsets(names, selection, read_committed=read_committed)
        return Rows(GroupLag, consumer_groups.lags(found))

    def committed(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The commits of ``group`` for all or these partitions; those without a commit are left out."""
        check_partitions(partitions)
        return self._groups.committed(group, partitions)

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit as a group without members. An error names the partitions that are not committed.

        :raises GroupError: if the group has live members, or can't be written to.
        """
        check_offsets(offsets, CommittedOffset, "CommittedOffset(23)")
        self._groups.commit(group, offsets)

    def plan_reset(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None,
        to: ResetTo,
        value: int = 0,
        *,
        large_messages: bool = False,
    ) -> list[ResetStep]:
        """The changes that a reset of ``group`` would make to each partition; nothing is changed.

        :param partitions: None means all existing partitions for which the group has committed.
        :param large_messages: for readers that reassemble large messages: go back to safe offsets, with the
            first wanted message in the metadata.
        :raises GroupError: if the group has live members, or a shift has no committed offset to start from.
        :raises UnknownTopicOrPartitionError: if a partition does not exist.
        """
        check_partitions(partitions)
        steps = reset.plan_reset(self.place, self._groups, group, partitions, to, value)
        return self._for_whole_messages(steps) if large_messages else steps

    def plan_import(
        self,
        wanted: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
        *,
        large_messages: bool = False,
    ) -> list[ResetStep]:
        """The changes by a commit of these offsets of each group; see :meth:`plan_reset`. Metadata is kept.

        A leader epoch is kept only if the log has it up to the offset. Offsets may come from another cluster,
        and consumers would refuse a leader whose epochs are lower (KIP-320).
        """
        steps = reset.plan_import(self.place, self._groups, wanted)
        return self._for_whole_messages(steps) if large_messages else steps

    def _for_whole_messages(self, steps: Collection[ResetStep]) -> list[ResetStep]:
        if self._are_in_zookeeper:
            raise OptionError("ZooKeeper keeps no metadata of commits, which groups of large messages need")
        settings = assembler_settings(UserOptions(self._kafka.options, Use.ADMIN))
        return reset.for_whole_messages(self._kafka.place, steps, settings)

    def safe_offsets(self, at: At) -> dict[TopicPartition, int]:
        """The offset of each partition where a reader must begin to miss no part of a large message.

        It is that of the first message segment of the oldest message that is not complete, or else the offset
        itself (LiKafkaConsumerImpl.safeOffsets). Keep it where you keep offsets outside of Kafka, for readers
        that do not look for earlier message segments: LinkedIn's consumer, or ``reassemble`` in a query with
        a new checkpoint. ``startingOffsets`` of a reader with ``large.message.enabled`` takes the offset
        itself.

        ::

            kafka.groups.safe_offsets([TopicPartition("scans", 0)])  # at the end of the log
            kafka.groups.safe_offsets({TopicPartition("scans", 0): 70})  # all below 70 is processed
            kafka.groups.safe_offsets(query)  # after its last micro-batch
            kafka.groups.safe_offsets("/checkpoints/scans")

        :param at: partitions; offsets by partition, below which all is processed; a streaming query; or path
            or URI of a query's checkpoint. For a query or its checkpoint: all topics that it reads, also with
            Spark's own ``kafka``, after the last complete micro-batch.
        :raises OptionError: for anything else, and for a query that has completed no micro-batch.
        :raises UnknownTopicOrPartitionError: if a partition does not exist.
        :raises DataLossError: if a log ends before an offset.
        :raises KafkaLogError: if the records before an offset, or the checkpoint, can't be read.
        """
        place = self.place
        settings = assembler_settings(UserOptions(self._kafka.options, Use.ADMIN))
        return safe_offsets.safe_offsets(place, safe_offsets.positions(place, at), settings)

    def reset(self, steps: Collection[ResetStep]) -> None:
        """Commit the planned offsets, one group after the other.

        :raises GroupError: if a group has live members by now, or its offsets can't be written.
        """
        example = "kafka.groups.reset(kafka.groups.plan_reset('etl', None, ResetTo.LATEST))"
        check_all(steps, ResetStep, example)
        reset.execute(self._groups, steps)

    def plan_deletion(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The commits that :meth:`delete`, or :meth:`delete_offsets` of these partitions, would delete.

        :raises GroupError: if there is no such group, or it holds an exactly-once marker.
        """
        check_partitions(partitions)
        consumer_groups.groups(self._groups, [group])
        extensions.check_no_marker(self._groups, group, "gone")
        return self._groups.committed(group, partitions)

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Delete what ``group`` has committed for ``partitions``.

        :raises GroupError: if a live member is subscribed to their topics, or the group holds an exactly-once
            marker.
        """
        check_partitions(partitions)
        consumer_groups.delete_offsets(self._groups, group, partitions)

    def delete(self, group: str) -> None:
        """Delete ``group`` and all its offsets.

        :raises GroupError: if it has live members, does not exist, or holds an exactly-once marker.
        """
        consumer_groups.delete_group(self._groups, group)
