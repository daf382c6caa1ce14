"""The control plane of one cluster: connections, metadata, and calls that survive the failure of a broker.

How failures are handled follows Kafka's NetworkClient and Fetcher: metadata is
looked up again when a leader has moved, and a request is retried after growing
pauses (retry.backoff.ms to retry.backoff.max.ms), for request.timeout.ms at most.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from kafka.protocol.metadata import CoordinatorType

from pyspark_kafkalog.broker.cluster.metadata import (
    MAX_VERSION,
    Identity,
    Leader,
    Metadata,
    Topic,
    identity_in,
    metadata_request,
)
from pyspark_kafkalog.broker.cluster.pool import ConnectionPool
from pyspark_kafkalog.broker.wire.backoff import Backoff, Repeated
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, error_of, is_retriable
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerConnectionError,
    KafkaLogError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions

TOPIC_RESOURCE = 2
"""The type of a topic among the resources that have configurations."""
ADDED_BY_TOPIC = 1
"""The source of a configuration that was set for the topic itself (DYNAMIC_TOPIC_CONFIG)."""
_AT_ONCE = 50
"""The number of brokers that are asked at the same time."""
_TO_GET_PRODUCER_IDS = (
    "Grant the principal Write on the topic in the cluster's ACLs (before Kafka 2.8 IdempotentWrite on the"
    " cluster, too), or set kafka.enable.idempotence to false."
)
"""The rights of an idempotent producer (KIP-679)."""


Answer = TypeVar("Answer")
_Asked = TypeVar("_Asked")


class Coordinator(NamedTuple):
    """The broker that coordinates a group, or the transactions of an id."""

    node_id: int
    address: Address


class Cluster:
    """Brokers of one cluster. For one thread; see :func:`cluster_of`."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self.metadata = Metadata()
        self.bytes_per_offset: dict[TopicPartition, float] = {}
        """The bytes that an offset of each partition took in its last fetch."""
        self._refreshed: dict[str, float] = {}
        """The time at which each topic was last looked up."""
        self.coordinators: dict[tuple[CoordinatorType, str], Coordinator] = {}
        """The last known coordinator of each group, and of each transactional id."""
        self.coordinators_named_by: dict[tuple[CoordinatorType, str], Address] = {}
        """The broker that named each coordinator."""
        self.doubted: dict[tuple[CoordinatorType, str], list[Address]] = {}
        """The brokers that are asked last, at the next look-up of each coordinator."""
        self.answered_by: int | None = None
        """The broker that :meth:`call` last asked; None for a bootstrap server."""
        self._stale: set[int | None] = set()
        """The broker that repeated metadata which had proved wrong; empty after an answer with news."""
        self._pool = ConnectionPool(options)
        self._repeated: Repeated | None = None

    # Connections

    def connection(self, node_id: int, *, deadline: Deadline | None = None) -> Connection:
        """A connection to a broker, for the caller alone until :meth:`release`. One attempt.

        :param deadline: for the attempt; by default each step has the timeout of its option.
        :raises BrokerConnectionError: if it fails; :meth:`refresh` before another attempt.
        :raises AuthenticationError: if credentials or certificates are not accepted.
        """
        address = self.metadata.brokers.get(node_id)
        if address is None:
            raise BrokerConnectionError(f"The cluster's metadata has no broker {node_id} now")
        return self._pool.take(address, node_id, deadline=deadline)

    def coordinator_connection(self, coordinator: Coordinator, *, deadline: Deadline) -> Connection:
        """Like :meth:`connection`, to a broker that metadata need not know yet."""
        return self._pool.take(coordinator.address, coordinator.node_id, deadline=deadline)

    def any_connection(self, *, deadline: Deadline | None = None, last: Sequence[Address] = ()) -> Connection:
        """A connection to any broker, for the caller alone until :meth:`release`.

        Known brokers and the bootstrap servers are tried in turn, for request.timeout.ms at most.

        :param deadline: for everything, instead of request.timeout.ms.
        :param last: addresses to try after all others, in this order.
        :raises BrokerConnectionError: if none can be reached.
        :raises AuthenticationError: if credentials or certificates are not accepted.
        """
        return self._pool.take_any(self.metadata.brokers, deadline=deadline, last=last)

    def release(self, connection: Connection) -> None:
        """Return a connection; one with requests in flight is closed."""
        self._pool.release(connection)

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    # Metadata

    def start_over(self) -> None:
        """Forget what is known of the cluster, except the connections: what it says next is believed."""
        self.metadata = Metadata()
        self._refreshed.clear()
        self._stale.clear()

    def refresh(
        self,
        topics: Collection[str] | None = None,
        *,
        create: bool = False,
        avoid: Collection[int | None] = (),
        deadline: Deadline | None = None,
    ) -> None:
        """Look up brokers and the leaders of these topics' partitions, or of all topics'.

        Brokers that contradict what is known about a topic are asked last, see :class:`Metadata`.

        :param create: whether brokers may create missing topics, if they are configured to.
        :param avoid: brokers to ask after the others, but before those that contradict.
        :param deadline: as in :meth:`call`.
        """
        contradicting = self.metadata.contradicting_brokers(topics)
        response = self.call(
            metadata_request(topics, create=create),
            doing="Looking up metadata",
            max_version=MAX_VERSION,
            avoid=[*set(avoid) - contradicting, *contradicting],
            deadline=deadline,
        )
        now = time.monotonic()
        self.metadata.learn(response, topics, node_id=self.answered_by, now=now)
        self._drop_old_addresses()
        if topics is None:
            self._refreshed = dict.fromkeys(self.metadata.topics, now)
        else:
            self._refreshed.update(dict.fromkeys(topics, now))

    def _drop_old_addresses(self) -> None:
        """Close connections to addresses where brokers no longer listen."""
        brokers = self.metadata.brokers
        self._pool.retain(brokers.values())
        for key, (node_id, address) in list(self.coordinators.items()):
            if brokers.get(node_id, address) != address:
                del self.coordinators[key]

    def leader(self, partition: TopicPartition, *, deadline: Deadline | None = None) -> Leader | None:
        """The leader of a partition, None if it does not exist; not older than metadata.max.age.ms.

        :param deadline: as in :meth:`call`.
        """
        self.look_up([partition.topic], deadline=deadline)
        return self.metadata.leader(partition)

    def forget(self, topics: Iterable[str]) -> None:
        """Discard what is known about these topics: they are looked up before the next use."""
        for topic in topics:
            self._refreshed.pop(topic, None)

    def topics(
        self, names: Collection[str] | None = None, *, agreement: float | None = None
    ) -> dict[str, tuple[int, ...]]:
        """The partition numbers of every topic, internal ones included, or of ``names``; looked up now.

        Without ``names`` the result may include deleted topics until the deletion is certain: other
        users' topics come and go all the time, and topics that matter are requested by name.

        :param agreement: seconds for brokers to agree on ``names``; by default request.timeout.ms.
        :raises KafkaLogError: if the brokers refuse to describe one of ``names``, for example by ACLs.
        """
        if names is None:
            self.refresh()
            known: Mapping[str, Topic] = self.metadata.topics
        else:
            known = self.described(names, agreement=agreement)
            for name, topic in sorted(known.items()):
                if topic.error_code and not is_retriable(topic.error_code):
                    raise error_of(topic.error_code, f"Looking up topic {name}")
        return {name: tuple(topic.leaders) for name, topic in sorted(known.items())}

    def described(self, names: Collection[str], *, agreement: float | None = None) -> dict[str, Topic]:
        """The topics among ``names`` that exist, or that the brokers can't or won't describe; looked up now.

        :param agreement: as in :meth:`topics`.
        """
        self._refresh_until_agreed(names, agreement)
        known = self.metadata.topics
        return {name: known[name] for name in names if name in known}

    def topic_ids(self, topics: Collection[str], *, agreement: float | None = None) -> dict[str, str]:
        """The ids of those topics that exist, looked up now; empty strings before Kafka 2.8.

        :param agreement: as in :meth:`topics`.
        """
        return {name: topic.topic_id for name, topic in self.described(topics, agreement=agreement).items()}

    def _refresh_until_agreed(self, topics: Collection[str], agreement: float | None) -> None:
        """Repeat :meth:`refresh` while brokers contradict what is known about these topics.

        A contradiction that arises only later does not matter: the topic was as known when this began.
        """

        def attempt(remaining: list[str]) -> dict[str, KafkaLogError]:
            self.refresh(remaining)
            error = BrokerConnectionError(
                "A broker reports that a topic was deleted or recreated, which is not confirmed yet",
                hint="If that lasts, check that the other brokers are up and reachable.",
            )
            return dict.fromkeys(self.metadata.in_doubt(remaining), error)

        self.new_backoff(None if agreement is None else Deadline.after(agreement)).repeat_each(
            topics, attempt
        )

    def new_backoff(self, deadline: Deadline | None = None) -> Backoff:
        """Pauses between attempts until a deadline, by default for request.timeout.ms."""
        return Backoff(
            self.options,
            deadline or Deadline.after_ms(self.options.request_timeout_ms),
            repeated=self._repeated,
        )

    @contextmanager
    def repeating(self, seconds: float) -> Iterator[Repeated]:
        """Repeat calls within the context as a whole, for so many seconds more than each takes."""
        self._repeated = Repeated(seconds)
        try:
            yield self._repeated
        finally:
            self._repeated = None

    def look_up(self, topics: Iterable[str], *, deadline: Deadline | None = None) -> None:
        """Look up the topics that are forgotten, or were last looked up before metadata.max.age.ms.

        A broker that is cut off from the others repeats the same metadata forever: if that was wrong,
        another broker is asked.
        """
        oldest = time.monotonic() - self.options.metadata_max_age_ms / 1000
        stale = {topic for topic in topics if self._refreshed.get(topic, -1e9) < oldest}
        if stale:
            known, was_wrong = self.metadata.generation, not stale <= self._refreshed.keys()
            self.refresh(stale, avoid=self._stale, deadline=deadline)
            is_repeated = was_wrong and known == self.metadata.generation
            self._stale = {self.answered_by} if is_repeated else set()

    # Calls

    def call(
        self,
        request: Any,
        *,
        doing: str,
        error_code: Callable[[Any], int] = lambda response: 0,
        max_version: int | None = None,
        avoid: Collection[int | None] = (),
        deadline: Deadline | None = None,
    ) -> Any:
        """Ask any broker, and another one if it fails, is silent or responds with a retriable error.

        While there are other brokers, a silent one gets half of the time that is left.

        :param doing: what the request is for: an error's message begins with it.
        :param error_code: finds the error code in a response.
        :param avoid: brokers to ask last, in this order.
        :param deadline: for everything; by default each step has request.timeout.ms.
        """
        backoff = self.new_backoff(deadline)
        brokers = self.metadata.brokers
        last = [brokers[node] for node in avoid if node in brokers]

        def attempt() -> Any:
            connection = self.any_connection(deadline=deadline, last=last)
            last[:] = [*(address for address in last if address != connection.address), connection.address]
            self.answered_by = connection.node_id
            longest = self.options.request_timeout_ms / 1000
            patience = min(longest, backoff.deadline.left)
            if set(self.metadata.brokers.values()) - set(last):
                patience /= 2
            # A connection that was slow to open is worth the wait for a response.
            patience = max(patience, longest / 4)
            try:
                response = connection.call(
                    request, max_version=max_version, deadline=deadline, stall=patience
                )
                with connection.reading():
                    code = error_code(response)
            except BrokerConnectionError as e:
                return e
            finally:
                self.release(connection)
            if not code:
                return response
            error = error_of(code, doing, broker=str(connection.address))
            if not is_retriable(code) or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise error
            return error

        return backoff.repeat(attempt, first_contact=lambda: not self.metadata.brokers)

    def call_brokers(
        self, request: Any, *, doing: str, error_code: Callable[[Any], int]
    ) -> tuple[dict[int, Any], dict[int, KafkaLogError]]:
        """Ask every broker, each for request.timeout.ms, and again those that fail for another reason.

        :returns: responses by node, and the error of each that gives none.
        """
        answers: dict[int, Any] = {}
        backoff = self.new_backoff()

        def ask(node_id: int) -> Any:
            deadline = Deadline.after_ms(self.options.request_timeout_ms)
            try:
                return self.call_broker(node_id, request, deadline)
            except (BrokerConnectionError, AuthenticationError) as e:
                return e

        while True:
            self.refresh([])
            failures: dict[int, KafkaLogError] = {}
            again: KafkaLogError | None = None
            asked = sorted(self.metadata.brokers.keys() - answers.keys())
            for node_id, answer in zip(asked, at_once(ask, asked), strict=True):
                if not isinstance(answer, KafkaLogError):
                    code = error_code(answer)
                    if not code:
                        answers[node_id] = answer
                        continue
                    answer = error_of(code, doing, broker=str(self.metadata.brokers[node_id]))
                    again = answer if is_retriable(code) else again
                elif isinstance(answer, BrokerConnectionError):
                    again = answer
                failures[node_id] = answer
            if again is None:
                return answers, failures
            try:
                backoff.pause(again)
            except KafkaLogError:
                return answers, failures

    def call_broker(self, node_id: int, request: Any, deadline: Deadline) -> Any:
        """Ask one broker, once.

        :raises BrokerConnectionError: if it can't be reached, or does not answer in time.
        """
        connection = self.connection(node_id, deadline=deadline)
        try:
            return connection.call(request, deadline=deadline)
        finally:
            self.release(connection)

    def identity(self, topics: Collection[str], *, deadline: Deadline) -> Identity:
        """The cluster's identity now, with those of these topics that exist.

        :param deadline: for everything.
        """
        response = self.call(
            metadata_request(topics, create=False),
            doing="Looking up the cluster id",
            max_version=MAX_VERSION,
            deadline=deadline,
        )
        return identity_in(response, topics)

    def producer_id(self, *, deadline: Deadline | None = None) -> tuple[int, int]:
        """A new id and its epoch, for an idempotent producer without transactions (InitProducerId).

        :param deadline: as in :meth:`call`.
        """
        from kafka.protocol.producer import InitProducerIdRequest

        try:
            response = self.call(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2147483647),
                doing="Getting a producer id",
                error_code=lambda response: int(response.error_code),
                max_version=4,
                deadline=deadline,
            )
        except AuthorizationError as e:
            raise AuthorizationError(e.message, broker=e.broker, hint=_TO_GET_PRODUCER_IDS) from None
        return response.producer_id, response.producer_epoch

    def topic_config(
        self, topic: str, *, overrides_only: bool = False, deadline: Deadline | None = None
    ) -> dict[str, str] | None:
        """A topic's configs, inherited ones included; None if the broker does not give them.

        That happens if ACLs hide them, if the broker does not know of a new topic yet, or lacks the API.

        :param overrides_only: leave out inherited ones.
        :param deadline: as in :meth:`call`.
        """
        try:
            response = self.call(
                configs_request([topic]),
                doing=f"Looking up the configs of topic {topic}",
                error_code=lambda response: int(response.results[0].error_code),
                deadline=deadline,
            )
        except (AuthorizationError, UnknownTopicOrPartitionError, UnsupportedVersionError):
            return None
        return {
            config.name: config.value
            for config in response.results[0].configs
            if config.value is not None and not (overrides_only and config.config_source != ADDED_BY_TOPIC)
        }


def at_once(ask: Callable[[_Asked], Answer], brokers: Collection[_Asked]) -> list[Answer]:
    """The answers of ``ask`` for all ``brokers``, in order. Each broker has a thread of its own, so that none
    that is silent, or hard to reach, takes the time of another.
    """
    if len(brokers) < 2:
        return [ask(broker) for broker in brokers]
    with ThreadPoolExecutor(min(len(brokers), _AT_ONCE), "kafkalog-ask") as threads:
        return list(threads.map(ask, brokers))


def configs_request(topics: Collection[str]) -> Any:
    """DescribeConfigs, with all configurations of each topic."""
    from kafka.protocol.admin import DescribeConfigsRequest

    kind = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            kind(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
            for topic in sorted(topics)
        ]
    )


class _Clusters(threading.local):
    def __init__(self) -> None:
        self.by_options: dict[ConnectionOptions, Cluster] = {}


_clusters = _Clusters()


def cluster_of(options: ConnectionOptions) -> Cluster:
    """The cluster of this thread for these options, with its open connections."""
    cluster = _clusters.by_options.get(options)
    if cluster is None:
        cluster = _clusters.by_options[options] = Cluster(options)
    return cluster


def _forget() -> None:
    _clusters.by_options.clear()


# A forked process must not use its parent's sockets.
os.register_at_fork(after_in_child=_forget)
