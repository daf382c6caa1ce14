"""Rows to a real broker, read back by kafka-python: every compression, way of acknowledging, and limit."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.partitioner.default import murmur2

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.produce import ids as produce_ids
from pyspark_kafkalog.broker.produce import topics
from pyspark_kafkalog.broker.produce.state import PartitionResult
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import (
    BrokerError,
    InvalidRecordError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.model import TopicPartition
from tests.broker.producing import (
    Record,
    connected,
    consume,
    digits,
    numbered,
    produce,
    rows,
    sink_of,
    stored,
    unused_topic,
    values_of,
)
from tests.codec.strategies import COMPRESSIONS
from tests.kafka import Broker, run_kafka_class
from tests.kafka_old import OldBroker

pytestmark = pytest.mark.broker

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@pytest.fixture
def cluster(broker: Broker) -> Cluster:
    return connected(broker.bootstrap)


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with three partitions."""
    name = unused_topic()
    broker.create_topic(name, 3)
    return name


def all_kinds(count: int) -> pa.RecordBatch:
    """Rows with and without keys, values, headers and timestamps, for three partitions."""
    chance = random.Random(1)
    some = [{"key": "h", "value": b"x"}, {"key": "h", "value": None}, {"key": "", "value": b""}]
    return rows(
        key=pa.array([chance.choice([None, b"", b"k%d" % i]) for i in range(count)], pa.binary()),
        value=pa.array([chance.choice([None, b"", b"v%d" % i * 20]) for i in range(count)], pa.binary()),
        headers=pa.array([chance.choice([None, [], some]) for _ in range(count)], HEADERS),
        timestamp=pa.array(
            [1_600_000_000_000_000 + i * 1000 for i in range(count)], pa.timestamp("us", "UTC")
        ),
        partition=pa.array([chance.choice([0, 1, 2]) for _ in range(count)], pa.int32()),
    )


def as_records(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """What a consumer should get, without offsets, by partition."""
    found = [
        (
            row["partition"],
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"] or ()],
            row["timestamp"].timestamp() * 1000,
        )
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda record: record[0])


def without_offsets(records: list[Record]) -> list[tuple[Any, ...]]:
    return [(r.partition, r.key, r.value, r.headers, r.timestamp) for r in records]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_rows_arrive_as_they_are(broker: Broker, cluster: Cluster, topic: str, compression: str) -> None:
    batch = all_kinds(2000)
    results = produce(cluster, topic, [batch], compression=compression, batch_size=2000)
    assert without_offsets(consume(broker.bootstrap, topic)) == as_records(batch)
    for number in range(3):
        partition = TopicPartition(topic, number)
        batches = stored(broker.partition_folder(*partition))
        count = int(batches.count.sum())
        assert results[partition] == PartitionResult(count, len(batches), 0, count - 1)
        assert len(batches) > 10
        assert set(batches.compression) == {COMPRESSIONS.index(compression)}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_an_old_broker_takes_them_too(old_broker: OldBroker, compression: str) -> None:
    topic = unused_topic()
    old_broker.make_topic(topic, 3)
    batch = all_kinds(500)
    produce(connected(old_broker.bootstrap), topic, [batch], compression=compression, batch_size=1000)
    assert without_offsets(consume(old_broker.bootstrap, topic)) == as_records(batch)


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_a_topic_in_an_old_format_takes_no_idempotent_writes(old_broker: OldBroker, version: str) -> None:
    topic = unused_topic()
    old_broker.make_topic(topic, 1, {"message.format.version": version})
    cluster = connected(old_broker.bootstrap)
    with pytest.raises(
        BrokerError, match=r"UNSUPPORTED_FOR_MESSAGE_FORMAT.*set kafka\.enable\.idempotence to false"
    ):
        produce(cluster, topic, [numbered(5)])
    produce(cluster, topic, [numbered(5)], enable_idempotence=False)
    assert values_of(old_broker.bootstrap, topic) == digits(5)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_brokers_store_our_bytes(broker: Broker, cluster: Cluster, topic: str, compression: str) -> None:
    """Recompressed batches would have other checksums, and cost a broker more than anything else."""
    sent: list[np.ndarray] = []
    with sink_of(cluster, compression=compression, batch_size=1000) as sink:
        for batch in (numbered(1000), numbered(1000, 1000)):
            records = rows(value=batch.column("value"), timestamp=pa.array([1] * 1000, pa.int64()))
            partition = TopicPartition(topic, 0)
            encoded = encode(records, None, sink.settings(partition), topic_partition=partition)
            sent.append(walk(encoded.data).crc)
            sink.append(partition, encoded)
        sink.finish()
    batches = stored(broker.partition_folder(topic, 0))
    assert batches.crc.tolist() == np.concatenate(sent).tolist()
    assert batches.base_offset.tolist() == [0, *(batches.last_offset[:-1] + 1).tolist()]


@pytest.mark.parametrize(
    "options",
    [
        {"acks": -1, "enable_idempotence": True},
        {"acks": -1, "enable_idempotence": False},
        {"acks": 1, "enable_idempotence": False},
        {"acks": 0, "enable_idempotence": False},
        {"acks": -1, "enable_idempotence": True, "max_in_flight": 1},
        {"acks": -1, "enable_idempotence": True, "buffer_memory": 0},
    ],
    ids=str,
)
def test_all_ways_of_acknowledging(broker: Broker, cluster: Cluster, options: dict[str, Any]) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    arrow_batches = [numbered(2000, start) for start in range(0, 20_000, 2000)]
    results = produce(cluster, topic, arrow_batches, batch_size=1000, **options)
    assert values_of(broker.bootstrap, topic) == digits(20_000)
    batches = stored(broker.partition_folder(topic, 0))
    assert results[TopicPartition(topic, 0)] == PartitionResult(
        20_000, len(batches), *((0, 19_999) if options["acks"] else (-1, -1))
    )
    assert (set(batches.producer_id) == {-1}) is not options["enable_idempotence"]


def test_tasks_of_a_process_go_on_with_one_producer_id(broker: Broker, cluster: Cluster) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    for start in (0, 1000, 2000):
        produce(cluster, topic, [numbered(1000, start)], batch_size=1000)
    batches = stored(broker.partition_folder(topic, 0))
    assert values_of(broker.bootstrap, topic) == digits(3000)
    assert len(set(batches.producer_id)) == 1
    assert batches.base_sequence.tolist() == batches.base_offset.tolist()


def test_an_id_whose_last_batches_are_in_doubt_is_not_used_again(broker: Broker, cluster: Cluster) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    produce(cluster, topic, [numbered(10)])
    with sink_of(cluster) as sink:
        sink.settings(TopicPartition(topic, 0))
    produce(cluster, topic, [numbered(10, 10)])
    batches = stored(broker.partition_folder(topic, 0))
    assert len(set(batches.producer_id)) == 2
    assert batches.base_sequence.tolist() == [0, 0]


def test_sequence_numbers_begin_anew_after_the_largest(broker: Broker, cluster: Cluster) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    producer_id = produce_ids.ProducerId(*cluster.producer_id(), broker.cluster_id)
    producer_id.sequences[TopicPartition(topic, 0)] = 2**31 - 1500
    produce_ids.give_back(cluster.options, producer_id)
    for start in (0, 1000, 2000):
        produce(cluster, topic, [numbered(1000, start)], batch_size=1000)
    assert values_of(broker.bootstrap, topic) == digits(3000)
    assert stored(broker.partition_folder(topic, 0)).base_sequence[-1] < 1500


def test_topics_come_from_a_column(broker: Broker, cluster: Cluster) -> None:
    topics = [unused_topic() for _ in range(3)]
    for topic in topics:
        broker.create_topic(topic)
    results = produce(cluster, None, [rows(topic=topics * 100, value=[str(i) for i in range(300)])])
    for number, topic in enumerate(topics):
        assert values_of(broker.bootstrap, topic) == [b"%d" % i for i in range(number, 300, 3)]
        assert results[TopicPartition(topic, 0)] == PartitionResult(100, 1, 0, 99)


def test_keys_nulls_and_partitioners_choose_as_for_a_directory(
    broker: Broker, cluster: Cluster, topic: str
) -> None:
    keys = [b"key-%d" % i for i in range(100)]
    produce(cluster, topic, [rows(key=pa.array(keys, pa.binary()), value=["keyed"] * 100)])
    produce(cluster, topic, [rows(value=["x" * 100] * 300)], batch_size=5000)
    produce(cluster, topic, [rows(key=["a", None], value=["asked"] * 2)], partitioner=last_if_keyed)
    records = consume(broker.bootstrap, topic)
    for record in (r for r in records if r.value == b"keyed"):
        assert record.partition == (murmur2(record.key) & 0x7FFFFFFF) % 3
    assert {r.partition for r in records if r.value == b"x" * 100} == {0, 1, 2}
    assert [(r.partition, r.key) for r in records if r.value == b"asked"] == [(0, None), (2, b"a")]


def last_if_keyed(key: bytes | None, every: list[int], available: list[int]) -> int:
    return every[-1] if key else every[0]


def test_batches_are_kept_to_the_topics_size(broker: Broker, cluster: Cluster) -> None:
    topic = unused_topic()
    broker.create_topic(topic, configs={"max.message.bytes": 2000})
    produce(cluster, topic, [numbered(1000)])
    assert values_of(broker.bootstrap, topic) == digits(1000)
    assert 1500 < stored(broker.partition_folder(topic, 0)).size.max() <= 2000


@pytest.mark.parametrize(
    ("configs", "options", "limit"),
    [
        ({"max.message.bytes": 2000}, {}, r"the topic's max\.message\.bytes = 2000"),
        ({}, {"max_request_size": 3000}, r"kafka\.max\.request\.size = 3000"),
    ],
)
def test_a_record_too_large_is_refused_before_any_is_sent(
    broker: Broker, cluster: Cluster, configs: dict[str, Any], options: dict[str, Any], limit: str
) -> None:
    topic = unused_topic()
    broker.create_topic(topic, configs=configs)
    batch = rows(value=["fits", "x" * 4000])
    with pytest.raises(RecordTooLargeError, match=rf"exceeds {limit}.*{topic}-0.*Raise"):
        produce(cluster, topic, [batch], **options)
    assert values_of(broker.bootstrap, topic) == []
    produce(cluster, topic, [batch], compression="zstd", **options)
    assert values_of(broker.bootstrap, topic) == [b"fits", b"x" * 4000], "what counts is the size as sent"


def test_a_limit_that_was_lowered_behind_our_back(broker: Broker, cluster: Cluster) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    produce(cluster, topic, [numbered(1)])
    with broker.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "1500"})])
    with pytest.raises(RecordTooLargeError, match=rf"MESSAGE_TOO_LARGE.*{topic}-0.*Lower"):
        produce(cluster, topic, [numbered(1000)])
    produce(cluster, topic, [numbered(1000, 1)])
    assert values_of(broker.bootstrap, topic) == digits(1001)


@pytest.mark.long
def test_a_quota_is_heeded(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """The broker lets 1 MB pass, the quota of ten seconds, and then throttles after each request."""
    topic = unused_topic()
    broker.create_topic(topic)
    at = ["--bootstrap-server", broker.bootstrap, "--entity-type", "clients", "--entity-name", topic]
    run_kafka_class("kafka.admin.ConfigCommand", *at, "--alter", "--add-config", "producer_byte_rate=100000")
    ours = connected(broker.bootstrap, client_id=topic, request_timeout_ms=500)
    caplog.set_level(logging.DEBUG, "pyspark_kafkalog")
    begun = time.monotonic()
    rows = numbered(1300, size=1000)
    produce(ours, topic, [rows], batch_size=100_000, max_request_size=110_000, request_timeout_ms=500)
    assert time.monotonic() - begun > 1.5
    assert "Lost the connection" not in caplog.text
    assert values_of(broker.bootstrap, topic) == digits(1300, 1000)


def test_rows_may_name_a_partition_that_has_just_come(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = unused_topic()
    broker.create_topic(topic, 1)
    produce(cluster, topic, [rows(value=["first"])])
    with broker.admin() as admin:
        admin.create_partitions({topic: 3})
    produce(cluster, topic, [rows(value=["second", "third"], partition=pa.array([2, 0], pa.int32()))])
    assert [(r.partition, r.value) for r in consume(broker.bootstrap, topic)] == [
        (0, b"first"),
        (0, b"third"),
        (2, b"second"),
    ]
    with broker.admin() as admin:
        admin.create_partitions({topic: 4})
    with sink_of(cluster) as sink:
        assert sink.partition_count(topic) == 3
        assert sink.has_partition(TopicPartition(topic, 3))
        with monkeypatch.context() as patched:
            patched.setattr(cluster, "refresh", None)
            assert sink.has_partition(TopicPartition(topic, 3)), "it is known by now"
    monkeypatch.setattr(topics, "_CREATION_TIMEOUT", 0.3)
    caplog.set_level(logging.DEBUG, "pyspark_kafkalog")
    with pytest.raises(InvalidRecordError, match=r"partition 4, but topic .* has 4"):
        produce(cluster, topic, [rows(value=["x"], partition=pa.array([4], pa.int32()))])
    assert f"Looking for partition 4 of topic {topic!r}, which has 4, counted from 0" in caplog.text
    assert "Create it" not in caplog.text


def test_what_a_broker_refuses_names_partition_and_reason(broker: Broker, cluster: Cluster) -> None:
    topic = unused_topic()
    broker.create_topic(topic, configs={"cleanup.policy": "compact"})
    with pytest.raises(BrokerError, match=rf"INVALID_RECORD.*{topic}-0.*compacted topic"):
        produce(cluster, topic, [numbered(10)])
    keyed = rows(key=["k"], value=["v"])
    assert produce(cluster, topic, [keyed])[TopicPartition(topic, 0)].records == 1


def test_a_topic_that_does_not_exist(broker: Broker) -> None:
    cluster = connected(broker.bootstrap, request_timeout_ms=1500)
    with pytest.raises(UnknownTopicOrPartitionError, match=r"'no-such-topic'.*auto\.create\.topics\.enable"):
        produce(cluster, "no-such-topic", [numbered(1)])


@pytest.mark.soak
def test_a_topic_may_be_made_at_first_sight(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker({"auto.create.topics.enable": "true", "num.partitions": 2})
    broker.start()
    topic = unused_topic()
    results = produce(connected(broker.bootstrap), topic, [numbered(1000)], batch_size=1000)
    assert results.keys() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert sorted(filter(None, values_of(broker.bootstrap, topic))) == digits(1000)


def test_nothing_to_write(cluster: Cluster, topic: str) -> None:
    assert produce(cluster, topic, []) == {}
    assert produce(cluster, topic, [numbered(0)]) == {}
