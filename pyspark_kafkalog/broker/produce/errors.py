"""How a producer reacts to the error codes of a ProduceResponse (Kafka's Errors and Sender)."""

from __future__ import annotations

import enum

from pyspark_kafkalog.broker.wire.error_codes import wants_refresh


class Reaction(enum.Enum):
    """What happens to a record batch after a broker's response."""

    DONE = enum.auto()
    """It is in the log."""
    RETRY = enum.auto()
    """It is sent again, to the same broker."""
    REFRESH = enum.auto()
    """It is sent again, after the leader has been looked up."""
    RETRY_BEHIND = enum.auto()
    """It is sent again if a batch before it is still to be written; otherwise it is :data:`FAIL`."""
    FAIL = enum.auto()
    """It can never be written."""


_NO_ERROR = 0
_MESSAGE_TOO_LARGE = 10
_RECORD_LIST_TOO_LARGE = 18
_TOPIC_AUTHORIZATION_FAILED = 29
_CLUSTER_AUTHORIZATION_FAILED = 31
_OUT_OF_ORDER_SEQUENCE_NUMBER = 45
_DUPLICATE_SEQUENCE_NUMBER = 46
"""The code for a batch that was sent twice, and whose offset the broker no longer knows."""
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
    -1: "See the broker's own log.",
    _MESSAGE_TOO_LARGE: "Lower kafka.batch.size below the topic's max.message.bytes, or raise the latter.",
    17: "Internal topics cannot be written to.",
    _RECORD_LIST_TOO_LARGE: "Lower kafka.batch.size.",
    _TOPIC_AUTHORIZATION_FAILED: "Grant the principal Write on the topic in the cluster's ACLs.",
    _CLUSTER_AUTHORIZATION_FAILED: "Brokers before Kafka 2.8 require IdempotentWrite on the cluster: grant"
    " it, or set kafka.enable.idempotence to false.",
    32: "The topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms refuses a timestamp.",
    _OUT_OF_ORDER_SEQUENCE_NUMBER: "The leader lacks records acknowledged before, as after an unclean leader"
    f" election. {_NEW_ID}",
    43: "The topic's message.format.version is below 0.11, so writes cannot be idempotent: raise it, or set"
    " kafka.enable.idempotence to false.",
    47: _NEW_ID,
    59: _NEW_ID,
    76: "zstd needs Kafka 2.1: change kafka.compression.type.",
    87: "For example, a compacted topic accepts only records with keys.",
    90: _NEW_ID,
}


def reaction_to(code: int) -> Reaction:
    """How to react to a code."""
    if code in (_NO_ERROR, _DUPLICATE_SEQUENCE_NUMBER):
        return Reaction.DONE
    if code == _OUT_OF_ORDER_SEQUENCE_NUMBER:
        return Reaction.RETRY_BEHIND
    if wants_refresh(code):
        return Reaction.REFRESH
    return Reaction.RETRY if code in _RETRIED else Reaction.FAIL


def hint_for(code: int, records: int) -> str | None:
    """What a user can do about a code that ends a write; ``records`` is the size of the record batch."""
    if code in TOO_LARGE and records == 1:
        return (
            "Raise the topic's max.message.bytes, set kafka.compression.type, or split values: set"
            " large.message.enabled, and max.message.segment.bytes well below it."
        )
    return _HINTS.get(code)
