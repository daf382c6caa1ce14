"""What librdkafka's consumer reads from a topic: an implementation that shares nothing with ours."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition


class Record(NamedTuple):
    """A record without its offset."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def consume(
    bootstrap: str, topic: str, partitions: Collection[int], *, committed: bool = True
) -> dict[int, dict[int, Record]]:
    """All records of these partitions, in order, by their offsets."""
    consumer = _consumer(bootstrap, uuid.uuid4().hex, committed=committed)
    found: dict[int, dict[int, Record]] = {number: {} for number in partitions}
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        left = set(partitions)
        while left:
            message = consumer.poll(30)
            assert message is not None, f"nothing came for partitions {left} of {topic}"
            error = message.error()
            if error is None:
                found[message.partition()][message.offset()] = _record(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise AssertionError(error)
    finally:
        consumer.close()
    return found


def next_of_group(bootstrap: str, group: str, topic: str, partition: int) -> Record | None:
    """The first record that a consumer of the group gets, which goes on where it has committed."""
    consumer = _consumer(bootstrap, group, committed=True)
    try:
        consumer.assign([TopicPartition(topic, partition)])
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        if error is None:
            return _record(message)
        assert error.code() == KafkaError._PARTITION_EOF
        return None
    finally:
        consumer.close()


def _consumer(bootstrap: str, group: str, *, committed: bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "error",
        }
    )


def _record(message: Message) -> Record:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(message.key(), message.value(), headers, message.timestamp()[1])
