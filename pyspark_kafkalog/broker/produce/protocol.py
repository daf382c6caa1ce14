"""ProduceRequest, versions 3 to 11, as pieces to be sent one after the other, and reactions to error codes.

Each record batch is its own piece, so that its bytes go from where they were
encoded to the socket without a copy; kafka-python's encoder copies them twice.
A producer reacts to the codes of a ProduceResponse like Kafka's Sender.
"""

from __future__ import annotations

import enum
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping

from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, error_of, wants_refresh
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import TopicPartition

MIN_VERSION = 3
"""The first that carries v2 record batches (KIP-98)."""
MAX_VERSION = 11
"""Later versions are for transactions of KIP-890 and name topics by their ids."""
_FIRST_FLEXIBLE = 9


def produce_request(
    version: int,
    acks: int,
    timeout_ms: int,
    batches: Iterable[tuple[TopicPartition, memoryview]],
    *,
    transactional_id: str | None = None,
) -> list[bytes | memoryview]:
    """The body of the request, without its header; one record batch per partition.

    transactional_id, acks, timeout_ms, [name, [index, records]]; from version 9 on
    lengths are varints of length + 1, and every struct ends in its tagged fields (KIP-482).
    """
    by_topic: defaultdict[str, list[tuple[int, memoryview]]] = defaultdict(list)
    for partition, records in batches:
        by_topic[partition.topic].append((partition.partition, records))
    flexible = version >= _FIRST_FLEXIBLE
    size = _compact_size if flexible else _size
    end_of_struct = b"\0" if flexible else b""

    def string(text: str) -> bytes:
        data = text.encode()
        return (size(len(data)) if flexible else struct.pack(">h", len(data))) + data

    no_string = b"\0" if flexible else b"\xff\xff"
    small = bytearray(no_string if transactional_id is None else string(transactional_id))
    small += struct.pack(">hi", acks, timeout_ms) + size(len(by_topic))
    pieces: list[bytes | memoryview] = []
    for topic, partitions in by_topic.items():
        small += string(topic) + size(len(partitions))
        for index, records in partitions:
            small += struct.pack(">i", index) + size(len(records))
            pieces += (bytes(small), records)
            small = bytearray(end_of_struct)
        small += end_of_struct
    small += end_of_struct
    return [*pieces, bytes(small)]


def _size(size: int) -> bytes:
    return struct.pack(">i", size)


def _compact_size(size: int) -> bytes:
    rest = size + 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class Reaction(enum.Enum):
    """The way of a record batch after a broker's response."""

    DONE = enum.auto()
    """The batch is in the log."""
    RETRY = enum.auto()
    """The batch is sent again, to the same broker."""
    REFRESH = enum.auto()
    """The batch is sent again, after the leader has been looked up."""
    RETRY_BEHIND = enum.auto()
    """The batch is sent again if one before it is still to be written; otherwise this is :data:`FAIL`."""
    FAIL = enum.auto()
    """The batch can never be written."""


_RETRIED = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}
"""Error codes that are retried without a look at metadata; other requests retry others."""
_NEW_ID = "The next attempt takes a new producer id."
_HINTS: Mapping[int, str] = {
    ErrorCode.BROKER_NOT_AVAILABLE: "Redpanda answers so while a disk is full.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Internal topics cannot be written to.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Grant the principal Write on the topic in the cluster's ACLs.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Brokers before Kafka 2.8 require IdempotentWrite on the cluster:"
    " grant it, or set kafka.enable.idempotence to false.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The topic's message.format.version is below 0.11, so writes"
    " cannot be idempotent: raise it, or set kafka.enable.idempotence to false.",
    ErrorCode.POLICY_VIOLATION: "Azure Event Hubs answers so if it is asked for more than its throughput for"
    " longer than kafka.request.timeout.ms: raise that, or write by fewer tasks. Redpanda does in recovery"
    " mode.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The leader lacks records acknowledged before, as after an"
    " unclean leader election; Redpanda before 24.2 has also forgotten producers that were idle."
    f" {_NEW_ID}",
    ErrorCode.INVALID_PRODUCER_EPOCH: _NEW_ID,
    ErrorCode.UNKNOWN_PRODUCER_ID: _NEW_ID,
    ErrorCode.PRODUCER_FENCED: _NEW_ID,
}


def reaction_to(code: int) -> Reaction:
    """The reaction to an error code."""
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Reaction.DONE
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return Reaction.RETRY_BEHIND
    if wants_refresh(code):
        return Reaction.REFRESH
    return Reaction.RETRY if code in _RETRIED else Reaction.FAIL


def refusal(
    code: int, message: str | None, records: int, size: int, partition: TopicPartition
) -> KafkaLogError:
    """The error for a code that ends the write of a record batch of so many records and bytes.

    :param message: the broker's own words.
    """
    hint = _HINTS.get(code)
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE) and records == 1:
        limit = "segment.bytes" if code == ErrorCode.RECORD_LIST_TOO_LARGE else "max.message.bytes"
        hint = (
            f"Raise the topic's {limit}, set kafka.compression.type, or split values: set"
            " large.message.enabled, and max.message.segment.bytes well below it."
        )
    count = "1 record" if records == 1 else f"{records} records"
    doing = f"A broker refused a record batch of {count}, {size} bytes"
    return error_of(code, doing, topic_partition=partition, message=message, hint=hint)
