"""Requests to the leaders of partitions: one round per broker, all sent before any response is awaited."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from pyspark_kafkalog.broker.cluster.cluster import Cluster, at_once
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, Refused, error_of, is_retriable, wants_refresh
from pyspark_kafkalog.errors import AuthenticationError, BrokerConnectionError, KafkaLogError, together
from pyspark_kafkalog.model import TopicPartition

Answer = TypeVar("Answer")
_Failed: TypeAlias = BrokerConnectionError | AuthenticationError


NO_LEADER_HINT = "Start a broker that has it in sync: kafkalog topics describe shows where it is."
_MISSING = Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def call_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    make_requests: Callable[[Mapping[TopicPartition, int]], Sequence[Any]],
    read: Callable[[Sequence[Any]], Mapping[TopicPartition, Answer | Refused]],
    *,
    doing: str,
    min_version: int = 0,
    max_version: int | None = None,
    default: Answer | Refused = _MISSING,
    failures: dict[TopicPartition, KafkaLogError] | None = None,
    deadline: Deadline | None = None,
    separately: bool = False,
) -> dict[TopicPartition, Answer]:
    """Ask the leaders of partitions, in one round per broker; all are asked before any response is awaited.

    Partitions whose leader moved, or whose broker fails, are retried.

    :param make_requests: makes the requests to one broker, from partitions and their leader epochs
        (-1: unknown).
    :param read: finds each partition's answer, or its error code, in the responses.
    :param min_version: of the requests, as ``max_version``.
    :param default: the answer for a partition that the responses leave out.
    :param failures: takes the error of each partition that no retry cures, instead of raising it.
    :param deadline: for all attempts; by default request.timeout.ms, which a broker that does not answer
        takes for the first.
    :param separately: see :func:`_call_each`.
    :returns: the answers, without partitions that do not exist.
    :raises UnsupportedVersionError: if a broker has the requests in none of these versions.
    :raises KafkaLogError: for errors that no retry cures until then, with all partitions that have one.
    """
    answers: dict[TopicPartition, Answer] = {}
    lost: dict[TopicPartition, KafkaLogError] = {} if failures is None else failures

    def attempt(remaining: list[TopicPartition]) -> dict[TopicPartition, KafkaLogError]:
        errors: dict[TopicPartition, KafkaLogError] = {}
        final: dict[TopicPartition, KafkaLogError] = {}
        by_node, leaderless = leaders_of(cluster, remaining)
        leaderless = [p for p in leaderless if not cluster.metadata.is_gone(p)]
        outcomes = _call_each(
            cluster, by_node, make_requests, read, min_version, max_version, separately=separately
        )
        outcomes |= {partition: Refused(_why_leaderless(cluster, partition)) for partition in leaderless}
        for partition in [*leaderless, *(p for epochs in by_node.values() for p in epochs)]:
            outcome = outcomes.get(partition, default)
            if isinstance(outcome, Refused):
                errors[partition] = _refusal(outcome.error_code, doing, partition)
                if not is_retriable(outcome.error_code):
                    final[partition] = errors.pop(partition)
                elif wants_refresh(outcome.error_code):
                    cluster.forget([partition.topic])
            elif isinstance(outcome, BrokerConnectionError):
                errors[partition] = outcome
                cluster.forget([partition.topic])
            elif isinstance(outcome, AuthenticationError):
                final[partition] = outcome
            else:
                answers[partition] = outcome
        if final and failures is None:
            raise together(final)
        lost.update(final)
        return errors

    partitions = sorted(set(partitions))
    for partition in partitions:
        cluster.metadata.expect_unless_gone(partition)
    cluster.new_backoff(deadline).repeat_each(partitions, attempt, lost)
    if lost and failures is None:
        raise together(lost)
    return answers


def call_leaders_once(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    make_requests: Callable[[Mapping[TopicPartition, int]], Sequence[Any]],
    read: Callable[[Sequence[Any]], Mapping[TopicPartition, Answer | Refused]],
    *,
    deadline: Deadline,
    min_version: int = 0,
    max_version: int | None = None,
) -> dict[TopicPartition, Answer]:
    """Like :func:`call_leaders` without retries: partitions without an answer are left out.

    :param deadline: for everything.
    """
    try:
        by_node, _ = leaders_of(cluster, partitions, deadline=deadline)
    except BrokerConnectionError:  # no broker says in time who leads
        return {}
    outcomes = _call_each(cluster, by_node, make_requests, read, min_version, max_version, deadline)
    answers: dict[TopicPartition, Answer] = {}
    for partition, outcome in outcomes.items():
        if isinstance(outcome, AuthenticationError):
            raise outcome
        if isinstance(outcome, (Refused, BrokerConnectionError)):
            cluster.forget([partition.topic])
        else:
            answers[partition] = outcome
    return answers


def leaders_of(
    cluster: Cluster, partitions: Collection[TopicPartition], *, deadline: Deadline | None = None
) -> tuple[dict[int, dict[TopicPartition, int]], list[TopicPartition]]:
    """The partitions that each node leads, with their epochs, and those without a known leader."""
    by_node: dict[int, dict[TopicPartition, int]] = {}
    leaderless = []
    cluster.look_up({partition.topic for partition in partitions}, deadline=deadline)
    for partition in partitions:
        leader = cluster.metadata.leader(partition)
        if leader is not None and leader.node_id in cluster.metadata.brokers:
            by_node.setdefault(leader.node_id, {})[partition] = leader.epoch
        else:
            leaderless.append(partition)
    cluster.forget({partition.topic for partition in leaderless})
    return by_node, leaderless


def by_topic(
    partitions: Iterable[TopicPartition], item: Callable[[TopicPartition], Any] = itemgetter(1)
) -> dict[str, list[Any]]:
    """The partitions as requests list them: in order by topic, each as an ``item``, by default its number."""
    found: dict[str, list[Any]] = {}
    for partition in sorted(partitions):
        found.setdefault(partition.topic, []).append(item(partition))
    return found


def sizes_request(epochs: Mapping[TopicPartition, int]) -> Any:
    """A request for the sizes of these partitions (DescribeLogDirs)."""
    from kafka.protocol.admin import DescribeLogDirsRequest

    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = [kind(topic=topic, partitions=numbers) for topic, numbers in by_topic(epochs).items()]
    return DescribeLogDirsRequest(topics=topics)


def read_sizes(response: Any) -> dict[TopicPartition, int]:
    """The bytes of each partition in the response; empty if ACLs hide them."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for log_dir in response.results
        for topic in log_dir.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


def _refusal(code: int, doing: str, partition: TopicPartition) -> KafkaLogError:
    if code != ErrorCode.LEADER_NOT_AVAILABLE:
        return error_of(code, doing, topic_partition=partition)
    return error_of(code, doing, topic_partition=partition, message="no leader", hint=NO_LEADER_HINT)


def _why_leaderless(cluster: Cluster, partition: TopicPartition) -> int:
    topic = cluster.metadata.topics.get(partition.topic)
    if topic is not None and partition.partition in topic.leaders:
        return topic.leaderless.get(partition.partition) or ErrorCode.LEADER_NOT_AVAILABLE
    return (topic.error_code if topic is not None else 0) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _call_each(
    cluster: Cluster,
    by_node: Mapping[int, Mapping[TopicPartition, int]],
    make_requests: Callable[[Mapping[TopicPartition, int]], Sequence[Any]],
    read: Callable[[Sequence[Any]], Mapping[TopicPartition, Answer | Refused]],
    min_version: int,
    max_version: int | None,
    deadline: Deadline | None = None,
    *,
    separately: bool = False,
) -> dict[TopicPartition, Answer | Refused | _Failed]:
    """The answers of the brokers about these partitions.

    :param separately: ask each broker from a thread of its own, so that none that is silent, or hard to
        reach, takes the time of another.
    """
    if separately and len(by_node) > 1:
        parts = at_once(
            lambda node: _call_each(
                cluster, {node: by_node[node]}, make_requests, read, min_version, max_version, deadline
            ),
            by_node,
        )
        return {partition: outcome for part in parts for partition, outcome in part.items()}
    outcomes: dict[TopicPartition, Answer | Refused | _Failed] = {}
    taken: list[tuple[Connection, Mapping[TopicPartition, int]]] = []
    try:
        for node_id, epochs in by_node.items():
            try:
                connection = cluster.connection(node_id, deadline=deadline)
                taken.append((connection, epochs))
                for request in make_requests(epochs):
                    connection.send(
                        request, min_version=min_version, max_version=max_version, deadline=deadline
                    )
            except (BrokerConnectionError, AuthenticationError) as e:
                outcomes.update(dict.fromkeys(epochs, e))
        for connection, epochs in taken:
            if connection.closed:  # failed above
                continue
            try:
                responses = [connection.receive(deadline=deadline) for _ in range(connection.in_flight)]
                with connection.reading():
                    outcomes.update(read(responses))
            except BrokerConnectionError as e:
                outcomes.update(dict.fromkeys(epochs, e))
    finally:
        for connection, _ in taken:
            cluster.release(connection)
    return outcomes
