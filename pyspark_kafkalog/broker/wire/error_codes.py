"""What brokers' error codes mean to a client (Kafka's Errors; kafka-python's classes)."""

from __future__ import annotations

from dataclasses import dataclass

from kafka import errors as kafka_errors

from pyspark_kafkalog.errors import (
    AuthorizationError,
    BrokerError,
    KafkaLogError,
    UnknownTopicOrPartitionError,
)

OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
UNSUPPORTED_VERSION = 35
INVALID_PRODUCER_EPOCH = 47
CONCURRENT_TRANSACTIONS = 51
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
"""Brokers before Kafka 2.7 answer INVALID_PRODUCER_EPOCH instead (KIP-588)."""

_REFRESH = {
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    9: "REPLICA_NOT_AVAILABLE",
    13: "NETWORK_EXCEPTION",
    56: "KAFKA_STORAGE_ERROR",
    72: "LISTENER_NOT_FOUND",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
}
_RETRY = {
    -1: "UNKNOWN_SERVER_ERROR",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    51: "CONCURRENT_TRANSACTIONS",
    70: "FETCH_SESSION_ID_NOT_FOUND",
    71: "INVALID_FETCH_SESSION_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    88: "UNSTABLE_OFFSET_COMMIT",
    89: "THROTTLING_QUOTA_EXCEEDED",
}
_RIGHTS = {
    29: "Grant the principal Describe and Read (to write: Write) on the topic in the cluster's ACLs.",
    30: "Grant the principal Read on the group in the cluster's ACLs.",
    31: "Grant the principal the required right on the cluster in its ACLs.",
    53: "Grant the principal Write on the transactional id in the cluster's ACLs.",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """An error code instead of an answer, for a partition or a group."""

    error_code: int


def is_retriable(code: int) -> bool:
    """Whether a retry may succeed."""
    return code in _RETRY or code in _REFRESH


def wants_refresh(code: int) -> bool:
    """Whether metadata must be looked up before a retry (Java's InvalidMetadataException)."""
    return code in _REFRESH


def name_of(code: int) -> str:
    """Kafka's name of an error code."""
    if code in _REFRESH or code in _RETRY:
        return _REFRESH.get(code) or _RETRY[code]
    message = kafka_errors.for_code(code).message
    return message if message and message != "UNKNOWN" else f"error code {code}"


def error_of(
    code: int,
    doing: str,
    *,
    broker: str | None = None,
    topic_partition: object | None = None,
    message: str | None = None,
    hint: str | None = None,
) -> KafkaLogError:
    """The error to raise for a code that no retry has cured."""
    kind: type[KafkaLogError] = BrokerError
    if code in _RIGHTS:
        kind, hint = AuthorizationError, _RIGHTS[code]
    elif code == UNKNOWN_TOPIC_OR_PARTITION:
        kind = UnknownTopicOrPartitionError
    detail = name_of(code) + (f" ({message})" if message else "")
    return kind(f"{doing}: {detail}", broker=broker, topic_partition=topic_partition, hint=hint)
