"""The control plane of one cluster: connections, metadata, and calls that outlive the failure of a broker.

What a broker's failure means and what is done about it follows Kafka's
NetworkClient and Fetcher: metadata is looked up again when a leader has moved,
and a question is asked again after a pause that grows (retry.backoff.ms to
retry.backoff.max.ms), for request.timeout.ms at most.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.producer import InitProducerIdRequest

from pyspark_kafkalog.broker.backoff import Backoff
from pyspark_kafkalog.broker.connection import Connection
from pyspark_kafkalog.broker.error_codes import (
    LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_of,
    is_retriable,
    wants_refresh,
)
from pyspark_kafkalog.broker.metadata import MAX_VERSION, Leader, Metadata, metadata_request
from pyspark_kafkalog.broker.pool import ConnectionPool
from pyspark_kafkalog.broker.sockets import Address
from pyspark_kafkalog.errors import (
    AuthorizationError,
    BrokerConnectionError,
    KafkaLogError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions

UNKNOWN_LOOKS = 3
"""How often fresh metadata must lack a partition for it not to exist: brokers hear of a new one in turn."""
_TOPIC = 2
"""Of DescribeConfigs' resource types."""
_TO_GET_PRODUCER_IDS = (
    "Grant the principal Write on the topic in the cluster's ACLs (before Kafka 2.8 IdempotentWrite on the"
    " cluster, too), or set kafka.enable.idempotence to false."
)
"""KIP-679."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Refused:
    """A partition's error code in an answer."""

    error_code: int


_UNTOLD = Refused(UNKNOWN_TOPIC_OR_PARTITION)


class Coordinator(NamedTuple):
    """The broker that coordinates a group."""

    node_id: int
    address: Address


class Cluster:
    """Brokers that know each other. For one thread; see :func:`cluster_of`."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self.metadata = Metadata()
        self.bytes_per_offset: dict[TopicPartition, float] = {}
        """What the offsets of each partition took where it was fetched last."""
        self._refreshed: dict[str, float] = {}
        """When each topic was looked up."""
        self.coordinators: dict[str, Coordinator] = {}
        """The brokers that coordinate groups, as they were found last."""
        self._pool = ConnectionPool(options)

    # Connections

    def connection(self, node_id: int, *, timeout: float | None = None) -> Connection:
        """A connection to a broker, for the caller alone until :meth:`release`. One attempt.

        :param timeout: seconds for it; by default each step has that of the options.
        :raises BrokerConnectionError: if there is none; :meth:`refresh` before another attempt.
        :raises AuthenticationError: if credentials or certificates are not accepted.
        """
        address = self.metadata.brokers.get(node_id)
        if address is None:
            raise BrokerConnectionError(f"Broker {node_id} is not in the cluster's metadata now")
        return self._pool.take(address, node_id, timeout=timeout)

    def coordinator_connection(self, coordinator: Coordinator, *, timeout: float) -> Connection:
        """As :meth:`connection`, to a broker that metadata need not know yet."""
        return self._pool.take(coordinator.address, coordinator.node_id, timeout=timeout)

    def any_connection(self, *, timeout: float | None = None) -> Connection:
        """A connection to any broker, for the caller alone until :meth:`release`.

        Known brokers and the bootstrap servers are tried in turn, for request.timeout.ms at most.

        :param timeout: seconds for all of it instead.
        :raises BrokerConnectionError: if none can be reached.
        :raises AuthenticationError: if credentials or certificates are not accepted.
        """
        return self._pool.take_any(self.metadata.brokers, timeout=timeout)

    def release(self, connection: Connection) -> None:
        """Give back a connection; one with requests in flight is closed."""
        self._pool.release(connection)

    def close(self) -> None:
        """Close the connections that nobody has taken."""
        self._pool.close()

    # Metadata

    def refresh(
        self,
        topics: Collection[str] | None = None,
        *,
        create: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Look up brokers and the leaders of these topics' partitions, or of all.

        :param create: whether brokers may create topics that don't exist, if they are set up for it.
        :param timeout: as of :meth:`call`.
        """
        response = self.call(
            metadata_request(topics, create=create),
            doing="Looking up metadata",
            max_version=MAX_VERSION,
            timeout=timeout,
        )
        self.metadata.learn(response, topics)
        now = time.monotonic()
        if topics is None:
            self._refreshed = dict.fromkeys(self.metadata.topics, now)
        else:
            self._refreshed.update(dict.fromkeys(topics, now))

    def leader(self, partition: TopicPartition, *, timeout: float | None = None) -> Leader | None:
        """Who leads a partition; None if it doesn't exist. Looked up if need be (metadata.max.age.ms).

        :param timeout: as of :meth:`call`.
        """
        self._look_up([partition.topic], timeout=timeout)
        return self.metadata.leader(partition)

    def forget(self, topics: Iterable[str]) -> None:
        """What is known of these topics is wrong: look them up before the next use."""
        for topic in topics:
            self._refreshed.pop(topic, None)

    def topics(self, names: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
        """Every topic, internal ones too, with its partition numbers, or those of ``names``; looked up now.

        :raises KafkaLogError: if the brokers won't tell of one of ``names``, as by the ACLs.
        """
        self.refresh(names)
        known = sorted(self.metadata.topics.items())
        for name, topic in known:
            if (
                names is not None
                and name in names
                and topic.error_code
                and not is_retriable(topic.error_code)
            ):
                raise error_of(topic.error_code, f"Looking up topic {name}")
        return {name: tuple(topic.leaders) for name, topic in known if names is None or name in names}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of those topics that exist, looked up now; empty of brokers older than Kafka 2.8."""
        self.refresh(topics)
        known = self.metadata.topics
        return {name: known[name].topic_id for name in topics if name in known}

    def _new_backoff(self, timeout: float | None = None) -> Backoff:
        return Backoff(self.options, self.options.request_timeout_ms / 1000 if timeout is None else timeout)

    def _look_up(self, topics: Iterable[str], *, timeout: float | None = None) -> None:
        oldest = time.monotonic() - self.options.metadata_max_age_ms / 1000
        stale = {topic for topic in topics if self._refreshed.get(topic, -1e9) < oldest}
        if stale:
            self.refresh(stale, timeout=timeout)

    # Calls

    def call(
        self,
        request: Any,
        *,
        doing: str,
        error_code: Callable[[Any], int] = lambda response: 0,
        max_version: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Ask any broker, and again if it fails or answers with an error that a retry may mend.

        :param doing: what the request is for, to begin an error's message.
        :param error_code: finds the error code in a response.
        :param timeout: seconds for all of it; by default each step has request.timeout.ms.
        """
        backoff = self._new_backoff(timeout)
        bound = None if timeout is None else backoff
        while True:
            connection = self.any_connection(timeout=_left(bound))
            trouble: KafkaLogError
            try:
                response = connection.call(request, max_version=max_version, timeout=_left(bound))
                code = error_code(response)
                if not code:
                    return response
                trouble = error_of(code, doing, broker=str(connection.address))
                if not is_retriable(code) or code == UNKNOWN_TOPIC_OR_PARTITION:
                    raise trouble
            except BrokerConnectionError as e:
                trouble = e
            finally:
                self.release(connection)
            backoff.pause(trouble, first_contact=not self.metadata.brokers)

    def call_brokers(
        self, request: Any, *, doing: str, error_code: Callable[[Any], int], timeout: float
    ) -> dict[int, Any]:
        """Ask every broker that there is, and those again that fail or answer with an error; by node.

        :param timeout: seconds for all of it.
        """
        backoff = self._new_backoff(timeout)
        answers: dict[int, Any] = {}
        while True:
            trouble: KafkaLogError | None = None
            self.refresh([], timeout=backoff.remaining)
            for node_id in self.metadata.brokers.keys() - answers.keys():
                try:
                    response = self._ask_one(node_id, request, backoff.remaining)
                except BrokerConnectionError as e:
                    trouble = e
                    continue
                code = error_code(response)
                if not code:
                    answers[node_id] = response
                    continue
                trouble = error_of(code, doing, broker=str(self.metadata.brokers[node_id]))
                if not is_retriable(code):
                    raise trouble
            if trouble is None:
                return answers
            backoff.pause(trouble)

    def _ask_one(self, node_id: int, request: Any, timeout: float) -> Any:
        connection = self.connection(node_id, timeout=timeout)
        try:
            return connection.call(request, timeout=timeout)
        finally:
            self.release(connection)

    def call_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[Mapping[TopicPartition, int]], Sequence[Any]],
        read: Callable[[Sequence[Any]], Mapping[TopicPartition, Answer | Refused]],
        *,
        doing: str,
        min_version: int = 0,
        max_version: int | None = None,
        untold: Answer | Refused = _UNTOLD,
    ) -> dict[TopicPartition, Answer]:
        """Ask the leaders of partitions, each broker once, and all before any answer is awaited.

        Partitions whose leader moved, or whose broker fails, are asked for again.

        :param ask: makes the requests to one broker, from partitions and their leader epochs (-1: unknown).
        :param read: tells each partition's answer, or error code, from the responses to them.
        :param min_version: of the requests, and ``max_version``.
        :param untold: the answer of a partition of which a broker says nothing.
        :returns: the answers; without partitions that don't exist.
        :raises UnsupportedVersionError: if a broker doesn't know the requests in these versions.
        :raises KafkaLogError: for an error that no retry mends within request.timeout.ms.
        """
        backoff = self._new_backoff()
        answers: dict[TopicPartition, Answer] = {}
        missed: Counter[TopicPartition] = Counter()
        remaining = sorted(set(partitions))
        while remaining:
            trouble: KafkaLogError | None = None
            by_node, leaderless = self._by_leader(remaining)
            for partition in leaderless:
                trouble = self._no_leader(partition, doing)
                missed[partition] += self.metadata.leader(partition) is None
            outcomes = self._ask_each(by_node, ask, read, min_version, max_version)
            for partition in [p for epochs in by_node.values() for p in epochs]:
                outcome = outcomes.get(partition, untold)
                if isinstance(outcome, Refused):
                    trouble = error_of(outcome.error_code, doing, topic_partition=partition)
                    if not is_retriable(outcome.error_code):
                        raise trouble
                    if wants_refresh(outcome.error_code):
                        self.forget([partition.topic])
                elif isinstance(outcome, BrokerConnectionError):
                    trouble = outcome
                    self.forget([partition.topic])
                else:
                    answers[partition] = outcome
            remaining = [p for p in remaining if p not in answers and missed[p] < UNKNOWN_LOOKS]
            if remaining and trouble is not None:
                backoff.pause(trouble)
        return answers

    def ask_leaders(
        self,
        partitions: Collection[TopicPartition],
        ask: Callable[[Mapping[TopicPartition, int]], Sequence[Any]],
        read: Callable[[Sequence[Any]], Mapping[TopicPartition, Answer | Refused]],
        *,
        timeout: float,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> dict[TopicPartition, Answer]:
        """As :meth:`call_leaders`, but only once: without the partitions of which no leader tells then.

        :param timeout: seconds for all of it.
        """
        backoff = self._new_backoff(timeout)
        by_node, _ = self._by_leader(partitions, timeout=timeout)
        outcomes = self._ask_each(by_node, ask, read, min_version, max_version, backoff)
        answers: dict[TopicPartition, Answer] = {}
        for partition, outcome in outcomes.items():
            if isinstance(outcome, (Refused, BrokerConnectionError)):
                self.forget([partition.topic])
            else:
                answers[partition] = outcome
        return answers

    def _by_leader(
        self, partitions: Collection[TopicPartition], *, timeout: float | None = None
    ) -> tuple[dict[int, dict[TopicPartition, int]], list[TopicPartition]]:
        """By node the partitions that it leads, with their epochs; and those to be looked up again."""
        by_node: dict[int, dict[TopicPartition, int]] = {}
        leaderless = []
        self._look_up({partition.topic for partition in partitions}, timeout=timeout)
        for partition in partitions:
            leader = self.metadata.leader(partition)
            if leader is not None and leader.node_id in self.metadata.brokers:
                by_node.setdefault(leader.node_id, {})[partition] = leader.epoch
            else:
                leaderless.append(partition)
        self.forget({partition.topic for partition in leaderless})
        return by_node, leaderless

    def _no_leader(self, partition: TopicPartition, doing: str) -> KafkaLogError:
        topic = self.metadata.topics.get(partition.topic)
        if topic is None or partition.partition not in topic.leaders:
            code = topic.error_code if topic is not None else 0
            trouble = error_of(code or UNKNOWN_TOPIC_OR_PARTITION, doing, topic_partition=partition)
            if code and not is_retriable(code):
                raise trouble
            return trouble
        return error_of(LEADER_NOT_AVAILABLE, doing, topic_partition=partition)

    def _ask_each(
        self,
        by_node: Mapping[int, Mapping[TopicPartition, int]],
        ask: Callable[[Mapping[TopicPartition, int]], Sequence[Any]],
        read: Callable[[Sequence[Any]], Mapping[TopicPartition, Answer | Refused]],
        min_version: int,
        max_version: int | None,
        bound: Backoff | None = None,
    ) -> dict[TopicPartition, Answer | Refused | BrokerConnectionError]:
        outcomes: dict[TopicPartition, Answer | Refused | BrokerConnectionError] = {}
        taken: list[tuple[Connection, Mapping[TopicPartition, int]]] = []
        try:
            for node_id, epochs in by_node.items():
                try:
                    connection = self.connection(node_id, timeout=_left(bound))
                    taken.append((connection, epochs))
                    for request in ask(epochs):
                        connection.send(
                            request, min_version=min_version, max_version=max_version, timeout=_left(bound)
                        )
                except BrokerConnectionError as e:
                    outcomes.update(dict.fromkeys(epochs, e))
            for connection, epochs in taken:
                if connection.closed:  # it failed above
                    continue
                try:
                    responses = [
                        connection.receive(timeout=_left(bound)) for _ in range(connection.in_flight)
                    ]
                    outcomes.update(read(responses))
                except BrokerConnectionError as e:
                    outcomes.update(dict.fromkeys(epochs, e))
        finally:
            for connection, _ in taken:
                self.release(connection)
        return outcomes

    def producer_id(self) -> tuple[int, int]:
        """A new id and its epoch, for an idempotent producer without transactions (InitProducerId)."""
        try:
            response = self.call(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2147483647),
                doing="Asking for a producer id",
                error_code=lambda response: int(response.error_code),
                max_version=4,
            )
        except AuthorizationError as e:
            raise AuthorizationError(e.message, broker=e.broker, hint=_TO_GET_PRODUCER_IDS) from None
        return response.producer_id, response.producer_epoch

    def topic_config(self, topic: str) -> dict[str, str] | None:
        """A topic's configs, those that are set elsewhere included; None if the broker doesn't tell.

        So it is if the ACLs don't let us see them, or if it has not heard of a new topic.
        """
        resource = DescribeConfigsRequest.DescribeConfigsResource
        try:
            response = self.call(
                DescribeConfigsRequest(
                    resources=[resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=None)]
                ),
                doing=f"Asking for the configs of topic {topic}",
                error_code=lambda response: int(response.results[0].error_code),
            )
        except (AuthorizationError, UnknownTopicOrPartitionError):
            return None
        return {
            config.name: config.value for config in response.results[0].configs if config.value is not None
        }


def _left(bound: Backoff | None) -> float | None:
    return None if bound is None else bound.remaining


class _Clusters(threading.local):
    def __init__(self) -> None:
        self.by_options: dict[ConnectionOptions, Cluster] = {}


_clusters = _Clusters()


def cluster_of(options: ConnectionOptions) -> Cluster:
    """The cluster that this thread talks to under these options, with the connections that it has open."""
    cluster = _clusters.by_options.get(options)
    if cluster is None:
        cluster = _clusters.by_options[options] = Cluster(options)
    return cluster


def _forget() -> None:
    _clusters.by_options.clear()


# A forked process must not talk through the sockets of its parent.
os.register_at_fork(after_in_child=_forget)
