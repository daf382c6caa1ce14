"""The topics of a place, to make, change and delete; :class:`.model.Place` is where they are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import check_topic

CLEANUP_POLICY = "cleanup.policy"
INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata"}
)
"""Topics of brokers themselves, left out unless they are named: Kafka's Topic.INTERNAL_TOPICS, and the one
in which brokers with tiered storage say what is in it."""


def check_writable(topic: str) -> str:
    """As :func:`check_topic`; :class:`OptionError` for an internal topic, too: brokers alone write to it."""
    if check_topic(topic) in INTERNAL_TOPICS:
        raise OptionError(
            f"{topic} is an internal topic: brokers that load foreign records from it fail",
            hint="Name another topic. kafkalog offsets and kafkalog restore commit the offsets of groups.",
        )
    return topic


def cleanup_policies(configs: Mapping[str, str]) -> set[str]:
    """What a topic's ``cleanup.policy`` lists, in any case (Kafka's LogConfig); ``delete`` without it."""
    return {name.strip().lower() for name in configs.get(CLEANUP_POLICY, "delete").split(",")}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. None leaves a number to the place: brokers have defaults, a directory takes 1.

    ``configs`` are the topic's own configurations, by Kafka's names.
    """

    topic: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


class Topics(Protocol):
    """The topics of a place. With ``validate_only`` a request is checked, and nothing is changed."""

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Each topic's own configurations, without those that it inherits; for topics that exist."""

    def config_names(self) -> Collection[str]:
        """The names of configurations that topics can have here; empty if the place does not say."""

    def create(self, new: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics. A directory creates all or none; a cluster those that the error does not name.

        :raises TopicExistsError: if one exists already.
        """

    def delete(self, topics: Collection[str]) -> None:
        """Delete topics with all their records. A directory deletes them all at once for readers.

        :raises UnknownTopicOrPartitionError: if one does not exist.
        """

    def add_partitions(self, topic: str, count: int, *, validate_only: bool = False) -> None:
        """Let a topic have ``count`` partitions, more than now."""

    def alter_configs(
        self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set configurations of a topic, and drop those whose value is None; the others stay."""


class ClusterTopics(Topics, Protocol):
    """The topics of a cluster, whose brokers hear of changes one after the other."""

    def check_configs_alterable(self) -> None:
        """:raises UnsupportedVersionError: if configurations can't be changed by Kafka's requests."""

    def leader_configs(self, expected: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str | None]]:
        """Each topic's configurations as all its leaders know them; None for what it inherits.

        :param expected: values that the leaders must have by then, for each topic to ask about.
        :raises BrokerConnectionError: if they don't have them in time, or one does not answer.
        """
