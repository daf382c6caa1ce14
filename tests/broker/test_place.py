"""Brokers as a place: bounds, offsets by time and size, equal to kafka-python's, in few requests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from pyspark_kafkalog import connect
from pyspark_kafkalog.broker.cluster.pool import note_reached
from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.errors import BrokerConnectionError, UnknownTopicOrPartitionError
from pyspark_kafkalog.model import OffsetRange, Seen, StoredSize, TopicPartition, Watermarks
from tests.broker.reading import place
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_old import OldBroker
from tests.kafka_proxy import FETCH, LIST_OFFSETS, METADATA
from tests.kafka_service import KafkaService
from tests.log.partitions import offset_after_bytes

pytestmark = pytest.mark.broker

HOUR = 3_600_000


@pytest.fixture
def brokers(broker: Broker) -> Brokers:
    return place(broker.bootstrap)


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with three partitions."""
    name = f"place-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, 3)
    return name


def send(
    service: KafkaService, partition: TopicPartition, count: int, *, time_of: Callable[[int], int]
) -> None:
    producer = KafkaProducer(bootstrap_servers=service.bootstrap)
    for i in range(count):
        producer.send(partition.topic, b"%0100d" % i, partition=partition.partition, timestamp_ms=time_of(i))
    producer.flush()
    producer.close()


@pytest.fixture
def transactional(broker: Broker) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=uuid.uuid4().hex)
    producer.init_transactions()
    yield producer
    producer.close()


@pytest.mark.long
def test_bounds_of_what_is_empty_filled_and_cut(broker: Broker, brokers: Brokers, topic: str) -> None:
    filled, cut, empty = (TopicPartition(topic, number) for number in range(3))
    for partition in (filled, cut):
        send(broker, partition, 20, time_of=lambda i: i)
    broker.delete_records(topic, 12, partition=1)
    missing = [TopicPartition(topic, 3), TopicPartition("missing", 0)]
    for read_committed in (False, True):
        assert brokers.watermarks([filled, cut, empty, *missing], read_committed=read_committed) == {
            filled: Watermarks(0, 20, 20),
            cut: Watermarks(12, 20, 20),
            empty: Watermarks(0, 0, 0),
        }
    assert brokers.watermarks([], read_committed=True) == {}


def test_the_last_stable_offset_is_that_of_the_oldest_open_transaction(
    broker: Broker, brokers: Brokers, topic: str, transactional: KafkaProducer
) -> None:
    partition = TopicPartition(topic, 0)
    send(broker, partition, 5, time_of=lambda i: i)
    transactional.begin_transaction()
    for _ in range(3):
        transactional.send(topic, b"x", partition=0)
    transactional.flush()
    send(broker, partition, 2, time_of=lambda i: i)
    assert brokers.watermarks([partition], read_committed=True)[partition] == Watermarks(0, 10, 5)
    assert brokers.watermarks([partition], read_committed=False)[partition].high_watermark == 10
    transactional.commit_transaction()
    deadline = time.monotonic() + 30
    while brokers.watermarks([partition], read_committed=True)[partition] != Watermarks(0, 11, 11):
        assert time.monotonic() < deadline


@pytest.mark.long
def test_offsets_for_times_are_those_of_kafka_python(broker: Broker, brokers: Brokers, topic: str) -> None:
    up, down, empty = (TopicPartition(topic, number) for number in range(3))
    now = int(time.time() * 1000) - HOUR
    send(broker, up, 2_000, time_of=lambda i: now + 10 * i)
    send(broker, down, 2_000, time_of=lambda i: now - 10 * i)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    for timestamp in (0, now - 1, now, now + 5, now + 10_001, now + 19_990, now + 19_991, now + HOUR):
        times = dict.fromkeys([up, down, empty], timestamp)
        expected = consumer.offsets_for_times({KafkaTopicPartition(*p): timestamp for p in times})
        assert brokers.offsets_for_times(times) == {
            TopicPartition(p.topic, p.partition): None if found is None else found.offset
            for p, found in expected.items()
        }
    consumer.close()
    assert brokers.offsets_for_times({up: now + 10_001})[up] == 1_001
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-7"):
        brokers.offsets_for_times({up: 0, TopicPartition(topic, 7): 0})


@pytest.mark.long
def test_newest_timestamps_and_sizes(broker: Broker, brokers: Brokers, topic: str) -> None:
    filled, other, empty = (TopicPartition(topic, number) for number in range(3))
    now = int(time.time() * 1000) - HOUR
    send(broker, filled, 1_000, time_of=lambda i: now + (i * 37) % 1_000)
    send(broker, other, 10, time_of=lambda i: now - i)
    assert brokers.newest_timestamps([filled, other, empty]) == {filled: now + 999, other: now, empty: -1}
    sizes = brokers.mean_record_bytes([filled, empty, TopicPartition("missing", 0)])
    written = sum(file.stat().st_size for file in broker.partition_folder(topic, 0).glob("*.log"))
    assert sizes == {filled: pytest.approx(written / 1_000)}
    assert brokers.stored_sizes([filled, empty]) == {filled: StoredSize(written), empty: StoredSize(0)}
    missing = TopicPartition(topic, 9)
    assert brokers.oldest_timestamps([filled, empty, missing]) == {filled: now, empty: -1}


def test_sizes_on_several_brokers(cluster: Cluster) -> None:
    topic = f"place-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(topic, 6, replication_factor=2)
    wanted = [TopicPartition(topic, number) for number in range(6)]
    for partition in wanted:
        send(cluster, partition, 100, time_of=lambda i: i)
    sizes = place(cluster.proxied_bootstrap).mean_record_bytes(wanted)
    assert sizes.keys() == set(wanted)
    assert all(100 < size < 300 for size in sizes.values())


@pytest.mark.long
def test_how_far_bytes_reach(broker: Broker, brokers: Brokers, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    send(broker, partition, 30_000, time_of=lambda i: i)
    size = sum(file.stat().st_size for file in broker.partition_folder(topic, 0).glob("*.log"))
    for start in (0, 7_777):
        offsets = OffsetRange(start, 30_000)
        for share in (0.1, 0.5, 0.9):
            max_bytes = int((30_000 - start) / 30_000 * size * share)
            found = offset_after_bytes(brokers, partition, offsets, max_bytes)
            assert (found - start) / (30_000 - start) == pytest.approx(share, abs=0.05)
        assert offset_after_bytes(brokers, partition, offsets, 2 * size) == 30_000
        assert start < offset_after_bytes(brokers, partition, offsets, 1) < start + 1_000
    assert offset_after_bytes(brokers, partition, OffsetRange(5, 8), 1 << 30) == 8


@pytest.mark.parametrize("partitions", [3, 200])
def test_requests_do_not_grow_with_partitions(cluster: Cluster, partitions: int) -> None:
    topic = f"place-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(topic, partitions, replication_factor=1)
    brokers = place(cluster.proxied_bootstrap, {"client_id": topic})
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    brokers.watermarks(wanted, read_committed=True)
    counted = [proxy.requests for proxy in cluster.proxies.values()]
    for counts in counted:
        counts.clear()
    assert len(brokers.watermarks(wanted, read_committed=True)) == partitions
    assert [counts[LIST_OFFSETS] for counts in counted] == [3, 3, 3]
    assert len(brokers.watermarks(wanted, read_committed=False)) == partitions
    assert [counts[LIST_OFFSETS] for counts in counted] == [5, 5, 5]
    assert len(brokers.offsets_for_times(dict.fromkeys(wanted, 0))) == partitions
    assert [counts[LIST_OFFSETS] for counts in counted] == [6, 6, 6]
    assert sum(counts[METADATA] for counts in counted) == 0
    assert list(brokers.topics()[topic]) == list(range(partitions))
    assert len(brokers.topic_ids([topic])[topic]) == 22
    assert sum(counts[METADATA] for counts in counted) == 2
    cluster.delete_topic(topic)  # a broker that other tests start again would have to recover it


@pytest.mark.long
def test_each_of_few_tasks_fetches_from_one_leader(cluster: Cluster) -> None:
    """There are as many as brokers, and partitions are dealt out in turn."""
    topic = f"place-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(topic, 12, replication_factor=1)
    for number in range(12):
        send(cluster, TopicPartition(topic, number), 20, time_of=lambda i: i)
    kafka = connect(cluster.proxied_bootstrap)
    shares = kafka.plan(topic, options={"maxPartitions": "3"}, columns=["partition", "offset"])
    found = []
    for share in shares:
        for proxy in cluster.proxies.values():
            proxy.requests.clear()
        rows = share.read().read_all().to_pylist()
        assert rows == sorted(rows, key=lambda row: (row["partition"], row["offset"]))
        found += rows
        assert [proxy.requests[FETCH] > 0 for proxy in cluster.proxies.values()].count(True) == 1
    assert len(shares) == 3
    assert sorted((row["partition"], row["offset"]) for row in found) == [
        (number, offset) for number in range(12) for offset in range(20)
    ]


@pytest.mark.long
def test_a_topic_made_anew_while_nobody_looked_is_told_in_seconds(broker: Broker, topic: str) -> None:
    """From its offsets alone: it ends before what was read of the old one."""
    partition = TopicPartition(topic, 0)
    send(broker, partition, 5, time_of=lambda i: 1000 * i)
    again, begun = place(broker.bootstrap, {"client_id": topic}), time.monotonic()
    again.expect(partition, Seen(end=100))
    assert again.end_offsets([partition], read_committed=False) == {partition: 5}
    assert time.monotonic() - begun < 60, "not for kafkaConsumer.pollTimeoutMs"


@pytest.mark.soak
def test_bounds_are_found_where_the_leaders_went(cluster: Cluster) -> None:
    topic = f"place-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(topic, 3)
    brokers = place(cluster.proxied_bootstrap)
    wanted = [TopicPartition(topic, number) for number in range(3)]
    brokers.watermarks(wanted, read_committed=False)
    for number in range(3):
        cluster.move_leader(topic, number)
    assert len(brokers.watermarks(wanted, read_committed=False)) == 3
    cluster.kill(1)
    assert len(brokers.watermarks(wanted, read_committed=False)) == 3


def test_lookups_are_repeated_as_often_as_asked_for() -> None:
    brokers = place("127.0.0.1:1", {"request_timeout_ms": 100}, num_retries=4, retry_interval_ms=200)
    note_reached(brokers._cluster.options)
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError):
        brokers.topics()
    assert 0.6 < time.monotonic() - began < 30


def test_a_broker_of_old(old_broker: OldBroker) -> None:
    topic = f"place-{uuid.uuid4().hex[:12]}"
    old_broker.make_topic(topic, 2)
    partition, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    send(old_broker, partition, 100, time_of=lambda i: 1_000 + i)
    brokers = place(old_broker.bootstrap)
    assert brokers.topics()[topic] == (0, 1)
    assert brokers.topic_ids([topic])[topic] == ""
    assert brokers.watermarks([partition, empty], read_committed=True) == {
        partition: Watermarks(0, 100, 100),
        empty: Watermarks(0, 0, 0),
    }
    assert brokers.offsets_for_times({partition: 1_050, empty: 0}) == {partition: 50, empty: None}
    assert brokers.newest_timestamps([partition]) == {}
    assert brokers.mean_record_bytes([partition]).keys() == {partition}
