"""``kafka.topics``: topics and their partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark_kafkalog.client import partitions
from pyspark_kafkalog.client.partitions import EVERY_TOPIC, PartitionState, SegmentState
from pyspark_kafkalog.model.rows import Rows
from pyspark_kafkalog.model.topics import NewTopic, TopicDescription, Topics
from pyspark_kafkalog.options.arguments import check_selection
from pyspark_kafkalog.options.settings import Selection, several
from pyspark_kafkalog.places import open_topics
from pyspark_kafkalog.tools.topics import topic_changes
from pyspark_kafkalog.tools.topics.topic_changes import CreatedTopic, TopicChange, TopicToDelete

if TYPE_CHECKING:
    from pyspark_kafkalog.client.kafka import Kafka


class TopicAdmin:
    """``kafka.topics``: topics and their partitions (Kafka's TopicCommand, ConfigCommand, GetOffsetShell)."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._kafka.name})"

    @cached_property
    def _topics(self) -> Topics:
        return open_topics(self._kafka.place_options)

    def partitions(
        self, selection: Selection = EVERY_TOPIC, *, internal: bool = False
    ) -> list[PartitionState]:
        """Every partition of ``selection``, sorted.

        :param internal: include internal topics, such as ``__consumer_offsets``, even if not named.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist.
        """
        check_selection(selection)
        return Rows(PartitionState, partitions.topics(self._kafka.report_place, selection, internal=internal))

    def segments(self, selection: Selection = EVERY_TOPIC, *, internal: bool = False) -> list[SegmentState]:
        """Every segment of these partitions, in order; none for brokers, which don't show theirs.

        Parameters and errors are those of :meth:`partitions`.
        """
        check_selection(selection)
        return Rows(SegmentState, partitions.segments(self._kafka.place, selection, internal=internal))

    def describe(self, names: Collection[str] | None = None) -> list[TopicDescription]:
        """Topics, sorted: their configurations that are not Kafka's defaults, and where their partitions are.

        Brokers say who leads, and which replicas are in sync or offline; a directory, how many segments.

        :param names: by default all topics that are not internal.
        :raises UnknownTopicOrPartitionError: if a named topic does not exist.
        """
        selection = EVERY_TOPIC if names is None else Selection(topics=tuple(several(names)))
        topics = open_topics(self._kafka.place_options.of_report)
        return topics.describe(partitions.topics_of(self._kafka.report_place, selection))

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Each topic's own configurations, without those that it inherits; for topics that exist."""
        return self._topics.configs(several(topics))

    def create(
        self, new: Sequence[NewTopic], *, if_not_exists: bool = False, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics, and return them as they are then.

        :param if_not_exists: leave topics that exist as they are.
        :param validate_only: check the request, and create nothing.
        :raises TopicExistsError: if one exists, unless ``if_not_exists``.
        :raises OptionError: for illegal names, those of internal topics, numbers and configurations; then
            nothing is created.
        """
        return topic_changes.create_topics(
            self._kafka.place, self._topics, new, if_not_exists=if_not_exists, validate_only=validate_only
        )

    def plan_alteration(
        self,
        names: Collection[str],
        *,
        partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        if_exists: bool = False,
    ) -> list[TopicChange]:
        """The changes that :meth:`alter` would make; nothing is changed, but the place has checked them.

        :param partitions: the new number, which can only grow.
        :param configs: new values; None lets the topic inherit one.
        :param if_exists: leave out topics that don't exist.
        :raises OptionError: for fewer partitions, and for configurations that topics don't have.
        :raises UnknownTopicOrPartitionError: if a topic does not exist, unless ``if_exists``.
        """
        return topic_changes.plan_alteration(
            self._kafka.place,
            self._topics,
            several(names),
            partitions=partitions,
            configs=configs,
            if_exists=if_exists,
        )

    def alter(self, changes: Sequence[TopicChange]) -> None:
        """Carry out what :meth:`plan_alteration` gave."""
        topic_changes.alter_topics(self._topics, changes)

    def plan_deletion(self, names: Collection[str], *, if_exists: bool = False) -> list[TopicToDelete]:
        """The deletions that :meth:`delete` would do; nothing is changed.

        :param if_exists: leave out topics that don't exist.
        :raises OptionError: for an internal topic.
        :raises UnknownTopicOrPartitionError: if one does not exist, unless ``if_exists``.
        """
        return topic_changes.plan_deletion(self._kafka.report_place, several(names), if_exists=if_exists)

    def delete(self, deletion: Sequence[TopicToDelete]) -> None:
        """Delete the topics of :meth:`plan_deletion` with all their records, and their committed offsets.

        If it is killed in a directory, a topic may be left with fewer partitions: delete it again.

        :raises LogDirectoryLockedError: if a broker runs on the directory.
        """
        topic_changes.delete_topics(self._topics, deletion)
