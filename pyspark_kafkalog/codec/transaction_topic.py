"""Keys and values of ``__transaction_state``, as transaction coordinators write them.

Both open with an int16, the version::

    key                            value
    transactionalId string         producerId int64; producerEpoch int16; timeoutMs int32; status int8;
                                   partitions nullable array of
                                      topic string, partitions array of int32
                                   lastUpdateTimestamp, startTimestamp int64

Version 1 is flexible (KIP-915); what KIP-890 added to it, in tagged fields, is skipped. A null value is
a tombstone.

Sources: Kafka's ``TransactionLogKey.json``, ``TransactionLogValue.json``, ``TransactionState``.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_kafkalog.codec.fields import Fields
from pyspark_kafkalog.model import TopicPartition

_STATUSES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The state of a transactional id; times are ms, a start of -1 if no transaction is open.

    ``status`` is Kafka's name of it, or its number if that is unknown.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: str
    partitions: tuple[TopicPartition, ...]
    last_update_timestamp: int
    start_timestamp: int


def decode_transactional_id(key: bytes) -> str:
    """:raises CorruptRecordError: with the position, if the key is cut off or of an unknown version."""
    data = Fields(key)
    data.version("TransactionLogKey", 0, flexible=1)
    return data.string()


def decode_transaction(value: bytes) -> TransactionState:
    """:raises CorruptRecordError: with the position, if the value is cut off or of an unknown version."""
    data = Fields(value)
    data.version("TransactionLogValue", 1, flexible=1)

    def of_topic() -> tuple[str, list[int]]:
        topic, numbers = data.string(), data.array(data.int32)
        data.skip_tagged_fields()
        return topic, numbers

    producer_id, producer_epoch = data.int64(), data.int16()
    timeout_ms, status = data.int32(), data.int8()
    topics = data.array(of_topic)
    return TransactionState(
        producer_id,
        producer_epoch,
        timeout_ms,
        _STATUSES[status] if 0 <= status < len(_STATUSES) else str(status),
        tuple(TopicPartition(topic, number) for topic, numbers in topics for number in numbers),
        last_update_timestamp=data.int64(),
        start_timestamp=data.int64(),
    )
