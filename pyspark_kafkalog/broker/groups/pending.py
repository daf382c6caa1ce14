"""The transactions that hold back what a group commits: who to look for if one stays open (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import DescribeProducersRequest, ListTransactionsRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import by_topic, call_leaders_once
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import Refused
from pyspark_kafkalog.codec.offsets_topic import offsets_partition
from pyspark_kafkalog.errors import KafkaLogError, listed
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.groups import PendingOffsetsError
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC

_WITHIN = 2.0
"""Seconds to find out who holds the transaction: only an error's words depend on it."""
_NAMED = 5
"""The number of transactions that an error lists."""


def pending_error(cluster: Cluster, group: str, deadline: Deadline) -> PendingOffsetsError:
    """The error of committed offsets of ``group`` that are not final; it names the open transactions.

    Brokers tell from Kafka 2.8 on, and the ids of transactions from 3.0 on, to those who may read
    ``__consumer_offsets`` and describe the transactional ids. A partition of it holds several groups, so
    one of several transactions may be another group's.
    """
    deadline = Deadline.after(_WITHIN).bounded_by(deadline)
    producers: Collection[int] = ()
    names: Mapping[int, str] = {}
    try:
        producers = sorted(_open_producers(cluster, group, deadline))
        names = _transactional_ids(cluster, producers, deadline) if producers else {}
    except KafkaLogError:
        pass  # it says less
    holders = [
        f"transactional id {names[producer]!r} (producer id {producer})"
        if producer in names
        else f"producer id {producer}"
        for producer in producers
    ]
    of = f": {listed(holders, _NAMED)}" if holders else ""
    return PendingOffsetsError(
        f"Group {group!r} has commits in a transaction that stays open (UNSTABLE_OFFSET_COMMIT){of}",
        hint="It ends with its application, or at its transaction.timeout.ms; kafka-transactions.sh aborts"
        " one that hangs. Until then give the offsets as startingOffsets.",
    )


def _open_producers(cluster: Cluster, group: str, deadline: Deadline) -> set[int]:
    """The producers with an open transaction in the group's partition of ``__consumer_offsets``."""
    numbers = cluster.topics([OFFSETS_TOPIC], agreement=deadline.left).get(OFFSETS_TOPIC, ())
    if not numbers:
        return set()
    partition = TopicPartition(OFFSETS_TOPIC, offsets_partition(group, len(numbers)))

    def requests(partitions: Mapping[TopicPartition, int]) -> Sequence[Any]:
        kind = DescribeProducersRequest.TopicRequest
        topics = [kind(name=name, partition_indexes=found) for name, found in by_topic(partitions).items()]
        return [DescribeProducersRequest(topics=topics)]

    found = call_leaders_once(cluster, [partition], requests, _read_producers, deadline=deadline)
    return found.get(partition, set())


def _read_producers(responses: Sequence[Any]) -> dict[TopicPartition, set[int] | Refused]:
    return {
        TopicPartition(topic.name, answer.partition_index): Refused(answer.error_code)
        if answer.error_code
        else {state.producer_id for state in answer.active_producers if state.current_txn_start_offset >= 0}
        for topic in responses[0].topics
        for answer in topic.partitions
    }


def _transactional_ids(cluster: Cluster, producers: Collection[int], deadline: Deadline) -> dict[int, str]:
    """The transactional ids of these producers, as far as they are known."""
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=list(producers))
    found: dict[int, str] = {}
    for node_id in list(cluster.metadata.brokers):
        try:
            response = cluster.call_broker(node_id, request, deadline)
        except KafkaLogError:
            continue
        found.update({state.producer_id: state.transactional_id for state in response.transaction_states})
    return found
