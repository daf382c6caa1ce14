"""Kafka 2.8 with ZooKeeper: older versions of every request, no newest timestamps."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pytest
from kafka import KafkaProducer

from pyspark_kafkalog.model import OffsetRange, TopicPartition
from tests.broker.producing import connected, consume, digits, numbered, produce, rows, unused_topic
from tests.broker.reading import offsets_of, place
from tests.broker.reading import rows as rows_read
from tests.kafka_old import OldBroker

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_writes_and_reads(old_broker: OldBroker, compression: str) -> None:
    topic = unused_topic()
    old_broker.make_topic(topic, 3)
    results = produce(connected(old_broker.bootstrap), topic, [numbered(5000)], compression=compression)
    assert sum(result.records for result in results.values()) == 5000
    assert sorted(record.value or b"" for record in consume(old_broker.bootstrap, topic)) == digits(5000)
    ours = place(old_broker.bootstrap)
    read = [rows_read(ours, TopicPartition(topic, number)) for number in ours.topics()[topic]]
    assert sorted(row[3] for row in chain.from_iterable(read)) == digits(5000)


def test_bounds_times_and_topic_ids(old_broker: OldBroker) -> None:
    topic = unused_topic()
    old_broker.make_topic(topic)
    partition = TopicPartition(topic, 0)
    times = pa.array([1_000_000, 2_000_000, 3_000_000], pa.timestamp("us", "UTC"))
    written = rows(value=[b"a", b"b", b"c"], timestamp=times)
    produce(connected(old_broker.bootstrap), topic, [written])
    ours = place(old_broker.bootstrap)
    (bounds,) = ours.watermarks([partition], read_committed=True).values()
    assert (bounds.log_start_offset, bounds.high_watermark) == (0, 3)
    assert ours.offsets_for_times({partition: 1500}) == {partition: 1}
    assert ours.offsets_for_times({partition: 3500}) == {partition: None}
    assert ours.newest_timestamps([partition]) == {}
    assert ours.topic_ids([topic]).keys() == {topic}
    assert offsets_of(ours, partition, OffsetRange(1, 2)) == [1]


def test_read_committed(old_broker: OldBroker) -> None:
    topic = unused_topic()
    old_broker.make_topic(topic)
    producer = KafkaProducer(bootstrap_servers=old_broker.bootstrap, transactional_id=topic)
    producer.init_transactions()
    for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.send(topic, value).get(10)
        end()
    producer.close()
    ours, partition = place(old_broker.bootstrap), TopicPartition(topic, 0)
    assert [row[3] for row in rows_read(ours, partition, read_committed=True)] == [b"kept"]
    assert [row[3] for row in rows_read(ours, partition, read_committed=False)] == [b"kept", b"dropped"]
