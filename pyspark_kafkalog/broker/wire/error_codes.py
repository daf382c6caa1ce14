"""Brokers' error codes: names, what a client does about each, and what users are told (Kafka's Errors).

Where a code means something else in one request, that stands beside the request.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kafka import errors as kafka_errors

from pyspark_kafkalog.errors import (
    AuthorizationError,
    BrokerError,
    FencedError,
    GroupError,
    KafkaLogError,
    RecordTooLargeError,
    TransactionError,
    UnknownTopicOrPartitionError,
)


class Retry(enum.Enum):
    """The condition under which a retry may succeed."""

    NEVER = enum.auto()
    PAUSED = enum.auto()
    """A pause."""
    REFRESHED = enum.auto()
    """A pause, and a look at metadata (Java's InvalidMetadataException)."""
    REDIRECTED = enum.auto()
    """A pause, and a look who the coordinator is."""


_NEVER, _PAUSED, _REFRESHED, _REDIRECTED = Retry


def _fails(
    number: int, hint: str, error: type[KafkaLogError] = BrokerError
) -> tuple[int, Retry, type[KafkaLogError], str]:
    return number, _NEVER, error, hint


class AbortableTransactionError(BrokerError):
    """A broker did not take a part of the open transaction, which can only be aborted (KIP-890, KIP-1050)."""


class ErrorCode(enum.IntEnum):
    """Each code that this package knows: number, retry, the error that tells of it, and its hint."""

    retry: Retry
    error: type[KafkaLogError]
    hint: str | None

    def __new__(
        cls,
        number: int,
        retry: Retry = Retry.NEVER,
        error: type[KafkaLogError] = BrokerError,
        hint: str | None = None,
    ) -> ErrorCode:
        code = int.__new__(cls, number)
        code._value_ = number
        code.retry, code.error, code.hint = retry, error, hint
        return code

    UNKNOWN_SERVER_ERROR = -1, _PAUSED, BrokerError, "See the broker's own log."
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = (
        *(3, _REFRESHED, UnknownTopicOrPartitionError),
        "Check its name and number: kafkalog topics shows what there is.",
    )
    LEADER_NOT_AVAILABLE = 5, _REFRESHED
    NOT_LEADER_OR_FOLLOWER = 6, _REFRESHED
    REQUEST_TIMED_OUT = 7, _PAUSED
    BROKER_NOT_AVAILABLE = 8, _PAUSED
    REPLICA_NOT_AVAILABLE = 9, _REFRESHED
    MESSAGE_TOO_LARGE = _fails(
        10,
        "Lower kafka.batch.size below the topic's max.message.bytes, or raise the latter.",
        RecordTooLargeError,
    )
    OFFSET_METADATA_TOO_LARGE = _fails(
        12, "The brokers' offset.metadata.max.bytes limits the metadata.", GroupError
    )
    NETWORK_EXCEPTION = 13, _REFRESHED
    COORDINATOR_LOAD_IN_PROGRESS = 14, _PAUSED
    COORDINATOR_NOT_AVAILABLE = 15, _REDIRECTED
    NOT_COORDINATOR = 16, _REDIRECTED
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = _fails(
        18,
        "Lower kafka.batch.size below the topic's segment.bytes, or raise the latter.",
        RecordTooLargeError,
    )
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = _fails(
        23, "Its members must have one protocol and an assignor in common.", GroupError
    )
    INVALID_GROUP_ID = _fails(24, "Choose another kafka.group.id.", GroupError)
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = _fails(
        26,
        "Change kafka.session.timeout.ms to be within the brokers' group.min.session.timeout.ms and"
        " group.max.session.timeout.ms.",
        GroupError,
    )
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = _fails(
        28,
        "Brokers cannot write the commit: check offset.metadata.max.bytes, and message.max.bytes"
        " of __consumer_offsets.",
        GroupError,
    )
    TOPIC_AUTHORIZATION_FAILED = _fails(
        29,
        "Grant the principal Describe and Read (to write: Write) on the topic in the cluster's ACLs.",
        AuthorizationError,
    )
    GROUP_AUTHORIZATION_FAILED = _fails(
        30, "Grant the principal Read on the group in the cluster's ACLs.", AuthorizationError
    )
    CLUSTER_AUTHORIZATION_FAILED = _fails(
        31, "Grant the principal the required right on the cluster in its ACLs.", AuthorizationError
    )
    INVALID_TIMESTAMP = _fails(
        32,
        "The topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms refuses a timestamp.",
    )
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = _fails(38, "Give at most as many replicas as there are brokers.")
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41, _PAUSED
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = _fails(
        44, "The brokers' create.topic.policy.class.name or alter.config.policy.class.name refuses it."
    )
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    """A batch was sent twice, and the broker no longer knows its offset."""
    INVALID_PRODUCER_EPOCH = 47, _NEVER, FencedError
    """The producer is fenced, too: brokers before Kafka 2.7 know no PRODUCER_FENCED (KIP-588)."""
    INVALID_TXN_STATE = 48, _NEVER, AbortableTransactionError
    """The code is also for record batches, to clients that do not know TRANSACTION_ABORTABLE."""
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = _fails(
        50,
        "Lower kafka.transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms.",
        TransactionError,
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        _PAUSED,
        BrokerError,
        "An earlier transaction does not end. The broker may be cut off from the controllers, or one that"
        " has its partitions may be down: see that all are up and reach each other.",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = _fails(
        53, "Grant the principal Write on the transactional id in the cluster's ACLs.", AuthorizationError
    )
    OPERATION_NOT_ATTEMPTED = 55
    """The code of a request's other partitions, if one is refused."""
    KAFKA_STORAGE_ERROR = 56, _REFRESHED
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = _fails(69, "Check its name, and that it is a consumer group.", GroupError)
    FETCH_SESSION_ID_NOT_FOUND = 70, _PAUSED
    INVALID_FETCH_SESSION_EPOCH = 71, _PAUSED
    LISTENER_NOT_FOUND = 72, _REFRESHED
    TOPIC_DELETION_DISABLED = _fails(73, "Set the brokers' delete.topic.enable.")
    FENCED_LEADER_EPOCH = 74, _REFRESHED
    UNKNOWN_LEADER_EPOCH = 75, _REFRESHED
    UNSUPPORTED_COMPRESSION_TYPE = _fails(76, "zstd needs Kafka 2.1: change kafka.compression.type.")
    OFFSET_NOT_AVAILABLE = 78, _PAUSED
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = _fails(81, "The brokers' group.max.size limits its members.", GroupError)
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = _fails(87, "For example, a compacted topic accepts only records with keys.")
    UNSTABLE_OFFSET_COMMIT = 88, _PAUSED
    THROTTLING_QUOTA_EXCEEDED = 89, _PAUSED
    PRODUCER_FENCED = 90, _NEVER, FencedError
    UNKNOWN_TOPIC_ID = 100, _REFRESHED
    INCONSISTENT_TOPIC_ID = 103, _REFRESHED
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = (
        111,
        _PAUSED,
        GroupError,
        "Give each query and each consumer a kafka.group.instance.id of its own. That of a member that was"
        " killed is free after the brokers' group.consumer.session.timeout.ms.",
    )
    UNSUPPORTED_ASSIGNOR = _fails(
        112,
        "See the brokers' group.consumer.assignors, or leave kafka.group.remote.assignor out.",
        GroupError,
    )
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120, _NEVER, AbortableTransactionError


@dataclass(frozen=True, slots=True)
class Refused:
    """An error code instead of an answer, for a partition or a group."""

    error_code: int


def is_retriable(code: int) -> bool:
    """Whether a retry may succeed."""
    return _retry(code) is not Retry.NEVER


def wants_refresh(code: int) -> bool:
    """Whether metadata must be looked up before a retry."""
    return _retry(code) is Retry.REFRESHED


def wants_coordinator(code: int) -> bool:
    """Whether the coordinator must be looked up before a retry."""
    return _retry(code) is Retry.REDIRECTED


def name_of(code: int) -> str:
    """Kafka's name of an error code."""
    if (known := _known(code)) is not None:
        return known.name
    message = kafka_errors.for_code(code).message
    return message if message and message != "UNKNOWN" else f"error code {code}"


def error_of(
    code: int,
    doing: str,
    *,
    broker: str | None = None,
    topic_partition: object | None = None,
    message: str | None = None,
    rest: str = "",
    hint: str | None = None,
) -> KafkaLogError:
    """The error to raise for a code that no retry has cured.

    :param message: the broker's own words.
    :param rest: what else there is to say, after the code.
    :param hint: instead of the code's own.
    """
    known = _known(code)
    kind, own_hint = (known.error, known.hint) if known is not None else (BrokerError, None)
    detail = name_of(code) + (f" ({message})" if message else "") + rest
    return kind(f"{doing}: {detail}", broker=broker, topic_partition=topic_partition, hint=hint or own_hint)


def _known(code: int) -> ErrorCode | None:
    try:
        return ErrorCode(code)
    except ValueError:
        return None


def _retry(code: int) -> Retry:
    known = _known(code)
    return Retry.NEVER if known is None else known.retry
