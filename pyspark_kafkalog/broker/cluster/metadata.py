"""A cluster's metadata: brokers, topics, and the leader of each partition (Kafka's Metadata).

The ids of a cluster and its topics reveal that a cluster was recreated.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from kafka.protocol.metadata import MetadataRequest

from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, is_retriable
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.kafka_uuid import uuid_to_text

MAX_VERSION = 12
NO_LEADER = -1
"""The node id of a partition that has no leader."""
PROVEN_AFTER = 5.0
"""Seconds for which brokers must contradict what is known about a topic or partition to be believed."""
_FORGOTTEN_AFTER = 30.0
"""Seconds after which a contradiction that no broker repeats no longer counts.

A silent broker delays the next answer for half of request.timeout.ms.
"""
_cluster_ids: WeakKeyDictionary[Connection, str | None] = WeakKeyDictionary()
"""A broker process belongs to one cluster, so an entry is valid while its connection is open."""


class Leader(NamedTuple):
    """The leader of a partition and its epoch; -1 for an unknown epoch."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as brokers describe it. ``topic_id`` has Kafka's base64 form; empty before Kafka 2.8."""

    topic_id: str
    leaders: dict[int, Leader]
    """The leaders by partition number, in order."""
    error_code: int
    """The error of a topic that the brokers cannot describe, or refuse to; else 0."""
    leaderless: Mapping[int, int] = field(default_factory=dict)
    """The error code of each partition without a leader, by its number."""


@dataclass(slots=True)
class _KnownTopic:
    """The newest known state of a topic, from a response or a plan: later states cannot be older."""

    topic_id: str = ""
    epochs: dict[int, int] = field(default_factory=dict)
    """The newest leader epoch of each partition, -1 if unknown."""


class _Missing(NamedTuple):
    """The claim that these partitions of a topic do not exist."""

    partitions: frozenset[int]


class _Older(NamedTuple):
    """The claim that the leader epochs of partitions are these, which are older than the known ones.

    A deposed leader makes it, a broker that is cut off, and a whole cluster that went back.
    """

    epochs: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A claim of brokers that contradicts what is known."""

    claim: object
    since: float
    last: float
    """The time at which the claim was last made."""
    nodes: frozenset[int | None]
    """The brokers that have made the claim."""
    needed: int
    """The least number of brokers that have to make it."""


@dataclass(slots=True)
class Metadata:
    """The brokers and topics of a cluster, as far as their answers can be trusted.

    A broker that was paused, cut off or has just started answers with old metadata. So leader epochs
    only rise (KIP-320), and a topic counts as deleted or recreated, or a cluster as set back, only
    after brokers have said nothing else for some seconds, two brokers if there are two. Until then
    the known state stands. A broker that is cut off lists only itself: the brokers that were
    known before still count.
    """

    brokers: dict[int, Address] = field(default_factory=dict)
    """The brokers as listed last; while something is in doubt, none is removed."""
    topics: dict[str, Topic] = field(default_factory=dict)
    _seen: dict[str, _KnownTopic] = field(default_factory=dict)
    _doubts: dict[str, _Doubt] = field(default_factory=dict)
    _gone: dict[TopicPartition, float] = field(default_factory=dict)
    """Partitions that have proved not to exist of late, and when."""
    _behind: set[int | None] = field(default_factory=set)
    """The brokers whose last response had a leader epoch older than the known one."""
    _unlisted: dict[int, float] = field(default_factory=dict)
    """The brokers that are no longer listed, and since when."""
    generation: int = 0
    """Rises with each response that changes the known state."""
    _last: tuple[Any, Collection[str] | None] = (None, None)
    """The last response that changed nothing, and the topics requested."""

    def leader(self, partition: TopicPartition) -> Leader | None:
        """The leader; None for an unknown partition.

        It is :data:`NO_LEADER` if a newer epoch was seen than that of the last response.
        """
        topic = self.topics.get(partition.topic)
        leader = None if topic is None else topic.leaders.get(partition.partition)
        seen = self.newest_epoch(partition)
        return (
            leader if leader is None or leader.epoch < 0 or leader.epoch >= seen else Leader(NO_LEADER, seen)
        )

    def deleted(self, topics: Collection[str]) -> None:
        """Note that the cluster has deleted topics on our request, which needs no proof."""
        for topic in topics:
            self.topics.pop(topic, None)
            self._seen.pop(topic, None)
            self._doubts.pop(topic, None)

    def expect(self, partition: TopicPartition, topic_id: str = "", leader_epoch: int = -1) -> None:
        """Want proof, from now on, for a missing partition, another topic id or an older leader epoch."""
        self._gone.pop(partition, None)
        seen = self._seen.get(partition.topic)
        if seen is None or _differ(seen.topic_id, topic_id):
            self.topics.pop(partition.topic, None)
            seen = self._seen[partition.topic] = _KnownTopic(topic_id)
        seen.topic_id = seen.topic_id or topic_id
        if seen.epochs.get(partition.partition, -2) < leader_epoch:
            seen.epochs[partition.partition] = leader_epoch
            self._last = None, None

    def expect_unless_gone(self, partition: TopicPartition) -> None:
        """Like :meth:`expect`, but a partition that has just proved not to exist needs no second proof."""
        if partition not in self._gone:
            self.expect(partition)

    def is_gone(self, partition: TopicPartition) -> bool:
        """Whether an expected partition has proved not to exist."""
        seen = self._seen.get(partition.topic)
        return seen is None or partition.partition not in seen.epochs

    def is_recreated(self, topic: str, topic_id: str) -> bool:
        """Whether the topic of this name is known to have another id than this one."""
        known = self.topics.get(topic)
        return known is not None and _differ(topic_id, known.topic_id)

    def in_doubt(self, topics: Collection[str]) -> set[str]:
        """The topics that brokers claim to be gone, or to be another topic, against the known state."""
        return {
            name
            for name in self._doubts.keys() & set(topics)
            if not (isinstance(self._doubts[name].claim, _Older) and self._seen[name].topic_id)
        }

    def contradicting_brokers(self, topics: Collection[str] | None) -> set[int | None]:
        """The brokers that contradict the known state of these topics, or of any topic."""
        names = self._doubts.keys() if topics is None else self._doubts.keys() & topics
        return self._behind.union(*(self._doubts[name].nodes for name in names))

    def learn(
        self,
        response: Any,
        requested: Collection[str] | None,
        *,
        node_id: int | None = None,
        now: float = 0.0,
    ) -> None:
        """Take in a response to :func:`metadata_request`.

        :param requested: the topics that were requested, None for all.
        :param node_id: the broker that responded, None if unknown.
        :param now: seconds of a monotonic clock.
        """
        if response is self._last[0] and requested == self._last[1]:
            return
        before = dict(self.topics), self.brokers
        # A broker that has just started may know none (Java ignores that, too).
        listed = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self.brokers = {**self.brokers, **listed}
        self._behind.discard(node_id)
        described = {topic.name: _topic(topic) for topic in response.topics if topic.name}
        known = self._seen.keys() | self.topics.keys()
        for name in known | described.keys() if requested is None else requested:
            topic = described.get(name)
            if topic is not None and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topic = None
            self._learn(name, topic, node_id, now)
        if listed and not any(now - doubt.last <= _FORGOTTEN_AFTER for doubt in self._doubts.values()):
            self._unlisted |= dict.fromkeys(self.brokers.keys() - listed.keys(), now)
            self.brokers = listed
        is_news = before != (self.topics, self.brokers)
        self.generation += is_news
        is_consistent = not (is_news or self._doubts or node_id in self._behind)
        self._last = (response, requested) if is_consistent else (None, None)

    def needed(self, now: float) -> int:
        """The number of brokers that have to agree, at ``now``, against what is known."""
        self._unlisted = {
            node: since
            for node, since in self._unlisted.items()
            if now - since <= _FORGOTTEN_AFTER and node not in self.brokers
        }
        return min(len(self.brokers) + len(self._unlisted), 2)

    def _learn(self, name: str, topic: Topic | None, node_id: int | None, now: float) -> None:
        if topic is not None and topic.error_code and not topic.leaders:
            # The error says nothing about the topic itself.
            if name not in self.topics or not is_retriable(topic.error_code):
                self.topics[name] = topic
                self._doubts.pop(name, None)
            return
        claim = self._contradiction(name, topic)
        if claim is not None:
            if not self._is_proven(name, claim, node_id, now):
                if topic is not None and self._is_of_some_partitions(name, claim):
                    self.topics[name] = self._newest(name, topic, node_id)  # the others are as described
                return
            self._drop(name, claim, now)
        self._doubts.pop(name, None)
        if topic is None:
            self.topics.pop(name, None)
        else:
            self.topics[name] = self._newest(name, topic, node_id)

    def _is_of_some_partitions(self, name: str, claim: object) -> bool:
        """Whether a claim that is not believed leaves the topic's other partitions as described."""
        if isinstance(claim, _Older):
            return bool(self._seen[name].topic_id)  # without, it may be another topic
        return isinstance(claim, _Missing) and name not in self.topics

    def _drop(self, name: str, claim: object, now: float) -> None:
        """Forget what a proven claim denies."""
        epochs = self._seen[name].epochs
        if isinstance(claim, _Older):
            epochs.update(claim.epochs)
            self._behind -= self._doubts[name].nodes  # they were right
            return
        denied = claim.partitions if isinstance(claim, _Missing) else epochs.keys()
        self._gone = {p: since for p, since in self._gone.items() if now - since <= _FORGOTTEN_AFTER}
        self._gone.update((TopicPartition(name, number), now) for number in denied)
        remaining = {number: epoch for number, epoch in epochs.items() if number not in denied}
        if remaining:
            self._seen[name].epochs = remaining
        else:
            del self._seen[name]

    def _contradiction(self, name: str, topic: Topic | None) -> object | None:
        """The contradiction of a response to the known state; None if there is none."""
        seen = self._seen.get(name)
        if seen is None:
            return None
        if topic is None:
            return "gone"
        if _differ(seen.topic_id, topic.topic_id):
            return topic.topic_id
        missing = seen.epochs.keys() - topic.leaders.keys()
        if missing:
            return _Missing(frozenset(missing))
        older = frozenset(
            (number, leader.epoch)
            for number, leader in topic.leaders.items()
            if -1 < leader.epoch < seen.epochs.get(number, -1)
        )
        return _Older(older) if older else None

    def _is_proven(self, name: str, claim: object, node_id: int | None, now: float) -> bool:
        doubt = self._doubts.get(name)
        needed = self.needed(now)
        if doubt is not None and now - doubt.last <= _FORGOTTEN_AFTER:
            needed = max(needed, doubt.needed)
        if doubt is None or doubt.claim != claim or now - doubt.last > _FORGOTTEN_AFTER:
            doubt = _Doubt(claim, now, now, frozenset(), needed)
        doubt = self._doubts[name] = _Doubt(claim, doubt.since, now, doubt.nodes | {node_id}, needed)
        # A broker known only by its bootstrap address may be one of the others.
        brokers = max(len(doubt.nodes - {None}), 1)
        return now - doubt.since >= PROVEN_AFTER and brokers >= needed

    def _newest(self, name: str, topic: Topic, node_id: int | None) -> Topic:
        """The topic, with the known leader in place of any older one, partition by partition."""
        seen = self._seen.setdefault(name, _KnownTopic())
        seen.topic_id = topic.topic_id or seen.topic_id
        known = self.topics.get(name)
        leaders = {}
        for number, leader in topic.leaders.items():
            newest = seen.epochs.get(number, -1)
            if -1 < leader.epoch < newest:
                self._behind.add(node_id)
                leader = known.leaders.get(number, leader) if known is not None else leader
            seen.epochs[number] = max(newest, leader.epoch)
            if self._gone:
                self._gone.pop(TopicPartition(name, number), None)
            leaders[number] = leader
        return replace(topic, leaders=leaders)

    def newest_epoch(self, partition: TopicPartition) -> int:
        """The newest leader epoch of a partition that is not disproved; -1 if none is known."""
        seen = self._seen.get(partition.topic)
        return -1 if seen is None else seen.epochs.get(partition.partition, -1)


def _differ(known: str, reported: str) -> bool:
    """Whether these are the ids of two topics; an empty id is unknown."""
    return bool(known and reported) and known != reported


def metadata_request(topics: Collection[str] | None, *, create: bool) -> Any:
    """A request for these topics, or for all; with ``create``, brokers may create missing ones."""
    requested = None
    if topics is not None:
        requested = [
            MetadataRequest.MetadataRequestTopic(topic_id=None, name=name) for name in sorted(topics)
        ]
    return MetadataRequest(topics=requested, allow_auto_topic_creation=create)


def _topic(topic: Any) -> Topic:
    leaders = {p.partition_index: Leader(p.leader_id, p.leader_epoch) for p in topic.partitions}
    leaderless = {p.partition_index: p.error_code for p in topic.partitions if p.leader_id < 0}
    return Topic(base64_id(topic.topic_id), dict(sorted(leaders.items())), topic.error_code, leaderless)


def base64_id(topic_id: uuid.UUID | None) -> str:
    """The id as Kafka's Uuid prints it: URL-safe base64 without padding."""
    return "" if topic_id is None else uuid_to_text(topic_id)


class Identity(NamedTuple):
    """A cluster's id, None before Kafka 0.10.1, and the ids of topics in it, empty before Kafka 2.8."""

    cluster_id: str | None
    topic_ids: dict[str, str]


def identity_in(response: Any, topics: Collection[str]) -> Identity:
    """The identity in a response to :func:`metadata_request`, without topics that do not exist."""
    metadata = Metadata()
    metadata.learn(response, topics)
    return Identity(response.cluster_id, {name: topic.topic_id for name, topic in metadata.topics.items()})


def cluster_id_at(connection: Connection, *, deadline: Deadline) -> str | None:
    """The id of the cluster behind this connection, asked for once.

    :raises BrokerConnectionError: if no response comes.
    """
    if connection not in _cluster_ids:
        request = metadata_request([], create=False)
        response = connection.call(request, max_version=MAX_VERSION, deadline=deadline)
        _cluster_ids[connection] = response.cluster_id
    return _cluster_ids[connection]
