"""What a cluster says of itself: brokers, topics, and who leads each partition (Kafka's Metadata)."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka.protocol.metadata import MetadataRequest

from pyspark_kafkalog.broker.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from pyspark_kafkalog.broker.sockets import Address
from pyspark_kafkalog.model import TopicPartition

MAX_VERSION = 12
NOBODY = -1
"""Stands for the broker of a partition that has no leader."""


class Leader(NamedTuple):
    """Who leads a partition, and since which epoch; an epoch of -1 is not known."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as brokers describe it. ``topic_id`` is in Kafka's base64 form, empty before Kafka 2.8."""

    topic_id: str
    leaders: dict[int, Leader]
    """By partition number, in order."""
    error_code: int
    """Other than 0 where the brokers can't tell, or won't."""


@dataclass(slots=True)
class Metadata:
    """What was learnt of a cluster so far."""

    brokers: dict[int, Address] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Who leads; None for a partition that is not known."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.leaders.get(partition.partition)

    def learn(self, response: Any, asked: Collection[str] | None) -> None:
        """Take in a response to :func:`metadata_request`."""
        self.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        told = {topic.name: _topic(topic) for topic in response.topics}
        known = (
            {} if asked is None else {name: self.topics[name] for name in self.topics if name not in asked}
        )
        known.update((n, t) for n, t in told.items() if t.error_code != UNKNOWN_TOPIC_OR_PARTITION)
        self.topics = known


def metadata_request(topics: Collection[str] | None, *, create: bool) -> Any:
    """Ask for these topics, or for all; only if ``create`` may brokers make one that is not there."""
    asked = None
    if topics is not None:
        asked = [MetadataRequest.MetadataRequestTopic(topic_id=None, name=name) for name in sorted(topics)]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=create)


def _topic(topic: Any) -> Topic:
    leaders = {p.partition_index: Leader(p.leader_id, p.leader_epoch) for p in topic.partitions}
    return Topic(_base64(topic.topic_id), dict(sorted(leaders.items())), topic.error_code)


def _base64(topic_id: uuid.UUID | None) -> str:
    """As Kafka's Uuid prints it: URL-safe, without padding."""
    return "" if topic_id is None else base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
