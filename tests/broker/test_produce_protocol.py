"""Our ProduceRequest is, byte for byte, kafka-python's, and copies no record batch."""

from __future__ import annotations

import pytest
from kafka.protocol.producer import ProduceRequest

from pyspark_kafkalog.broker.produce.protocol import (
    MAX_VERSION,
    MIN_VERSION,
    produce_request,
    refusal,
)
from pyspark_kafkalog.model import TopicPartition

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)


def encoded_by_kafka_python(
    version: int, acks: int, timeout_ms: int, topics: dict[str, dict[int, bytes]]
) -> bytes:
    topic_data = ProduceRequest.TopicProduceData
    return bytes(
        ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                topic_data(
                    name=topic,
                    partition_data=[
                        topic_data.PartitionProduceData(index=index, records=records)
                        for index, records in partitions.items()
                    ],
                )
                for topic, partitions in topics.items()
            ],
        ).encode(version=version)
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 300_000])
def test_one_partition(version: int, size: int) -> None:
    records = b"x" * size
    pieces = produce_request(version, -1, 30_000, [(TopicPartition("topic", 7), memoryview(records))])
    assert b"".join(pieces) == encoded_by_kafka_python(version, -1, 30_000, {"topic": {7: records}})


@pytest.mark.parametrize("version", VERSIONS)
def test_many_partitions_of_several_topics(version: int) -> None:
    topics = {
        name: {index: f"{name}-{index}".encode() for index in range(count)}
        for name, count in (("a", 1), ("b" * 249, 200), ("c.d_e-f", 3))
    }
    batches = [
        (TopicPartition(topic, index), memoryview(records))
        for topic, partitions in topics.items()
        for index, records in partitions.items()
    ]
    expected = encoded_by_kafka_python(version, 1, 5, topics)
    assert b"".join(produce_request(version, 1, 5, batches)) == expected
    by_turns = sorted(batches, key=lambda batch: batch[0].partition)
    topics_again = {topic: topics[topic] for topic in dict.fromkeys(p.topic for p, _ in by_turns)}
    assert b"".join(produce_request(version, 1, 5, by_turns)) == encoded_by_kafka_python(
        version, 1, 5, topics_again
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_record_batches_are_pieces_of_their_own(version: int) -> None:
    records = [memoryview(bytes(10)) for _ in range(3)]
    pieces = produce_request(
        version, 0, 1, [(TopicPartition("t", i), data) for i, data in enumerate(records)]
    )
    assert [id(piece) for piece in pieces if isinstance(piece, memoryview)] == [id(data) for data in records]


@pytest.mark.parametrize(("code", "limit"), [(10, "max.message.bytes"), (18, "segment.bytes")])
def test_hints_name_the_limit_that_was_exceeded(code: int, limit: str) -> None:
    for records, hint in ((1, f"Raise the topic's {limit}"), (2, f"below the topic's {limit}")):
        assert hint in (refusal(code, None, records, 10, TopicPartition("t", 0)).hint or "")


@pytest.mark.parametrize(
    ("code", "says"),
    [(44, "kafka.request.timeout.ms"), (8, "a disk is full"), (45, "producers that were idle")],
)
def test_hints_know_what_other_services_mean(code: int, says: str) -> None:
    hint = refusal(code, None, 1, 10, TopicPartition("t", 0)).hint or ""
    assert says in hint
    assert "create.topic.policy" not in hint
