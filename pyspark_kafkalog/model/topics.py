"""The topics of a place, to make, change and delete; :class:`.model.Place` is where they are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import check_topic
from pyspark_kafkalog.model.rows import INT, NOTE, SIZE, STRING, Kind, column

CLEANUP_POLICY = "cleanup.policy"
OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
INTERNAL_TOPICS = frozenset(
    {OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state", "__remote_log_metadata"}
)
"""Topics of brokers themselves, left out unless they are named: Kafka's Topic.INTERNAL_TOPICS, and the one
in which brokers with tiered storage say what is in it."""


def check_writable(topic: str) -> str:
    """The topic after :func:`check_topic`, if it isn't an internal one, to which brokers alone write."""
    if check_topic(topic) in INTERNAL_TOPICS:
        raise OptionError(
            f"{topic} is an internal topic: brokers that load foreign records from it fail",
            hint="Name another topic. kafkalog offsets and kafkalog restore commit the offsets of groups.",
        )
    return topic


def cleanup_policies(configs: Mapping[str, str]) -> set[str]:
    """The policies of a topic's ``cleanup.policy``, in any case (Kafka's LogConfig); else ``delete``."""
    return {name.strip().lower() for name in configs.get(CLEANUP_POLICY, "delete").split(",")} - {""}


_NODES = Kind(text=lambda nodes: ",".join(map(str, nodes)) or None)
"""The ids of brokers."""
OWN_CONFIG = "DYNAMIC_TOPIC_CONFIG"
"""The source of a configuration that was set for the topic itself."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. None leaves a number to the place: brokers have defaults, a directory takes 1.

    ``configs`` are the topic's own configurations, by Kafka's names.
    """

    topic: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A configuration of a topic that is not Kafka's default.

    ``source`` says who has set it, in Kafka's words (ConfigEntry.ConfigSource): ``DYNAMIC_TOPIC_CONFIG`` is
    the topic's own, the others are inherited from brokers. ``value`` is None for a password.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    name: str = field(metadata=column(STRING, "CONFIG"))
    value: str | None = field(metadata=column(STRING, "VALUE"))
    source: str = field(metadata=column(STRING, "SOURCE"))


@dataclass(frozen=True, slots=True)
class TopicPartitionInfo:
    """A partition's brokers, by their ids.

    ``leader`` is None if there is none, and in a directory, which has no replicas either. ``isr`` are the
    replicas in sync, ``offline`` those whose broker or disk is gone. ``leader_epoch`` and ``stored_bytes``,
    those of the leader's log, are None where the place does not say. Brokers don't report ``segments``.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    leader: int | None = field(default=None, metadata=column(INT, "LEADER"))
    leader_epoch: int | None = field(default=None, metadata=column(INT, "EPOCH"))
    replicas: tuple[int, ...] = field(default=(), metadata=column(_NODES, "REPLICAS", if_any=True))
    isr: tuple[int, ...] = field(default=(), metadata=column(_NODES, "ISR", if_any=True))
    offline: tuple[int, ...] = field(default=(), metadata=column(_NODES, "OFFLINE", if_any=True))
    stored_bytes: int | None = field(default=None, metadata=column(SIZE, "SIZE"))
    segments: int | None = field(default=None, metadata=column(INT, "SEGMENTS", if_any=True))
    note: str = field(default="", metadata=column(NOTE, "NOTE", if_any=True))


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, and where its partitions are.

    ``configs`` are those that are not Kafka's defaults, None if brokers don't show them. ``topic_id`` is
    empty where the place knows none.
    """

    topic: str
    topic_id: str
    configs: tuple[ConfigEntry, ...] | None
    partitions: tuple[TopicPartitionInfo, ...]


class Topics(Protocol):
    """The topics of a place. With ``validate_only`` a request is checked, and nothing is changed."""

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Each topic's own configurations, without those that it inherits; for topics that exist."""

    def describe(self, topics: Collection[str]) -> list[TopicDescription]:
        """The ``topics`` that exist, sorted."""

    def config_names(self) -> Collection[str]:
        """The names of configurations that topics can have here; empty if the place does not say."""

    def create(self, new: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics. A directory creates all or none; a cluster those that the error does not name.

        :raises TopicExistsError: if one exists already.
        """

    def delete(self, topics: Collection[str]) -> None:
        """Delete topics with all their records, and groups' offsets of them.

        If interrupted, it can run again.

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
