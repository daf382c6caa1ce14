"""What a producer does about the error codes of a ProduceResponse (Kafka's Errors and Sender)."""

from __future__ import annotations

import enum

from pyspark_kafkalog.broker.wire.error_codes import wants_refresh


class Reaction(enum.Enum):
    """What becomes of a record batch that a broker has answered for."""

    DONE = enum.auto()
    """It is in the log."""
    RETRY = enum.auto()
    """It is sent again, to the same broker."""
    REFRESH = enum.auto()
    """It is sent again, once the leader has been looked up."""
    RETRY_BEHIND = enum.auto()
    """It is sent again if a batch before it is still to come, and else is :data:`FAIL`."""
    FAIL = enum.auto()
    """It cannot be written, now or later."""


_NO_ERROR = 0
_MESSAGE_TOO_LARGE = 10
_RECORD_LIST_TOO_LARGE = 18
_TOPIC_AUTHORIZATION_FAILED = 29
_CLUSTER_AUTHORIZATION_FAILED = 31
_OUT_OF_ORDER_SEQUENCE_NUMBER = 45
_DUPLICATE_SEQUENCE_NUMBER = 46
"""Of a batch that was sent twice, and whose offset the broker doesn't know any more."""
_RETRIED = {
    2: "CORRUPT_MESSAGE",
    7: "REQUEST_TIMED_OUT",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    89: "THROTTLING_QUOTA_EXCEEDED",
}
TOO_LARGE = frozenset({_MESSAGE_TOO_LARGE, _RECORD_LIST_TOO_LARGE})
DENIED = frozenset({_TOPIC_AUTHORIZATION_FAILED, _CLUSTER_AUTHORIZATION_FAILED})

_NEW_ID = "The next attempt takes a new producer id."
_HINTS = {
    -1: "The broker's own log tells more.",
    _MESSAGE_TOO_LARGE: "Lower kafka.batch.size below the topic's max.message.bytes, or raise that.",
    17: "Internal topics can't be written to.",
    _RECORD_LIST_TOO_LARGE: "Lower kafka.batch.size.",
    _TOPIC_AUTHORIZATION_FAILED: "Grant the principal Write on the topic in the cluster's ACLs.",
    _CLUSTER_AUTHORIZATION_FAILED: "Brokers before Kafka 2.8 want IdempotentWrite on the cluster: grant it,"
    " or set kafka.enable.idempotence to false.",
    32: "The topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms refuses a timestamp.",
    _OUT_OF_ORDER_SEQUENCE_NUMBER: "The leader doesn't hold what was acknowledged before, as after an unclean"
    f" leader election. {_NEW_ID}",
    43: "The topic's message.format.version is below 0.11, where writes can't be idempotent: raise it, or set"
    " kafka.enable.idempotence to false.",
    47: _NEW_ID,
    59: _NEW_ID,
    76: "zstd needs Kafka 2.1: change kafka.compression.type.",
    87: "A compacted topic takes no record without a key, for example.",
    90: _NEW_ID,
}


def reaction_to(code: int) -> Reaction:
    """What to do about a code."""
    if code in (_NO_ERROR, _DUPLICATE_SEQUENCE_NUMBER):
        return Reaction.DONE
    if code == _OUT_OF_ORDER_SEQUENCE_NUMBER:
        return Reaction.RETRY_BEHIND
    if wants_refresh(code):
        return Reaction.REFRESH
    return Reaction.RETRY if code in _RETRIED else Reaction.FAIL


def hint_for(code: int, records: int) -> str | None:
    """What a user can do about a code that ends a write, for a record batch of so many records."""
    if code in TOO_LARGE and records == 1:
        return (
            "Raise the topic's max.message.bytes, set kafka.compression.type, or split values: set"
            " large.message.enabled, and max.message.segment.bytes well below it."
        )
    return _HINTS.get(code)
