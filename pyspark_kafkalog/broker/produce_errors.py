"""What a producer does about each error code of a ProduceResponse (Kafka's Errors and Sender)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Reaction(enum.Enum):
    """What becomes of a record batch that a broker has answered for."""

    DONE = enum.auto()
    """It is in the log."""
    RETRY = enum.auto()
    """It is sent again, to the same broker."""
    REFRESH = enum.auto()
    """It is sent again, once the leader has been looked up (Java's InvalidMetadataException)."""
    RETRY_BEHIND = enum.auto()
    """It is sent again if a batch before it is still to come, and else is :data:`FAIL`."""
    FAIL = enum.auto()
    """It cannot be written, now or later."""


@dataclass(frozen=True, slots=True)
class ProduceError:
    """An error code, by Kafka's name; ``hint`` is for those that end in front of a user."""

    name: str
    reaction: Reaction
    hint: str = ""


_RIGHTS = "Grant the principal {} in the cluster's ACLs."
_SEQUENCE = (
    "The leader doesn't hold what it acknowledged before, as after an unclean leader election. "
    "The next attempt takes a new producer id."
)
_NEW_ID = "The next attempt takes a new producer id."
_TOO_LARGE = "Lower kafka.batch.size, or raise the topic's max.message.bytes."
_BY_CODE = {
    -1: ProduceError("UNKNOWN_SERVER_ERROR", Reaction.FAIL, "The broker's own log tells more."),
    0: ProduceError("NONE", Reaction.DONE),
    2: ProduceError("CORRUPT_MESSAGE", Reaction.RETRY),
    3: ProduceError("UNKNOWN_TOPIC_OR_PARTITION", Reaction.REFRESH),
    5: ProduceError("LEADER_NOT_AVAILABLE", Reaction.REFRESH),
    6: ProduceError("NOT_LEADER_OR_FOLLOWER", Reaction.REFRESH),
    7: ProduceError("REQUEST_TIMED_OUT", Reaction.RETRY),
    9: ProduceError("REPLICA_NOT_AVAILABLE", Reaction.REFRESH),
    10: ProduceError("MESSAGE_TOO_LARGE", Reaction.FAIL, _TOO_LARGE),
    13: ProduceError("NETWORK_EXCEPTION", Reaction.REFRESH),
    17: ProduceError("INVALID_TOPIC_EXCEPTION", Reaction.FAIL, "Internal topics can't be written to."),
    18: ProduceError("RECORD_LIST_TOO_LARGE", Reaction.FAIL, "Lower kafka.batch.size."),
    19: ProduceError("NOT_ENOUGH_REPLICAS", Reaction.RETRY),
    20: ProduceError("NOT_ENOUGH_REPLICAS_AFTER_APPEND", Reaction.RETRY),
    21: ProduceError("INVALID_REQUIRED_ACKS", Reaction.FAIL),
    29: ProduceError("TOPIC_AUTHORIZATION_FAILED", Reaction.FAIL, _RIGHTS.format("Write on the topic")),
    31: ProduceError(
        "CLUSTER_AUTHORIZATION_FAILED",
        Reaction.FAIL,
        "Brokers before Kafka 2.8 want IdempotentWrite on the cluster: grant it, or set"
        " kafka.enable.idempotence to false.",
    ),
    32: ProduceError(
        "INVALID_TIMESTAMP",
        Reaction.FAIL,
        "The topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms refuses a timestamp.",
    ),
    42: ProduceError("INVALID_REQUEST", Reaction.FAIL),
    43: ProduceError("UNSUPPORTED_FOR_MESSAGE_FORMAT", Reaction.FAIL),
    44: ProduceError("POLICY_VIOLATION", Reaction.FAIL),
    45: ProduceError("OUT_OF_ORDER_SEQUENCE_NUMBER", Reaction.RETRY_BEHIND, _SEQUENCE),
    # A batch that was sent twice, and of which the broker doesn't know the offset any more.
    46: ProduceError("DUPLICATE_SEQUENCE_NUMBER", Reaction.DONE),
    47: ProduceError("INVALID_PRODUCER_EPOCH", Reaction.FAIL, _NEW_ID),
    56: ProduceError("KAFKA_STORAGE_ERROR", Reaction.REFRESH),
    59: ProduceError("UNKNOWN_PRODUCER_ID", Reaction.FAIL, _NEW_ID),
    74: ProduceError("FENCED_LEADER_EPOCH", Reaction.REFRESH),
    75: ProduceError("UNKNOWN_LEADER_EPOCH", Reaction.REFRESH),
    76: ProduceError(
        "UNSUPPORTED_COMPRESSION_TYPE", Reaction.FAIL, "zstd needs Kafka 2.1: change kafka.compression.type."
    ),
    87: ProduceError(
        "INVALID_RECORD", Reaction.FAIL, "A compacted topic takes no record without a key, for example."
    ),
    89: ProduceError("THROTTLING_QUOTA_EXCEEDED", Reaction.RETRY),
    90: ProduceError("PRODUCER_FENCED", Reaction.FAIL, _NEW_ID),
}
TOO_LARGE = frozenset({10, 18})


def error_of(code: int) -> ProduceError:
    """What is known of an error code; one that is not among those of Produce fails."""
    return _BY_CODE.get(code) or ProduceError(f"error code {code}", Reaction.FAIL)
