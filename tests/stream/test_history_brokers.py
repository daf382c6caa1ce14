"""A stream notices that a broker's disk went back and has grown again, and takes no new leader for that."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kafka import KafkaProducer

from pyspark_kafkalog.codec.batch_identity import header_of
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.stream.history import Shared
from tests.broker.producing import unused_topic
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.stream.test_history import Query, go_on

pytestmark = pytest.mark.broker


def query_of(bootstrap: str, query: Query | None = None) -> Query:
    place = open_place(place_options({"kafka.bootstrap.servers": bootstrap}))
    return Query(place) if query is None else replace(query, place=place)


def add(bootstrap: str, topic: str, count: int, partitions: int = 1) -> None:
    """Produce to each partition, by a producer that knows nothing of the log."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", retries=30)
    try:
        for number in range(count * partitions):
            producer.send(topic, b"%d" % number, partition=number % partitions)
        producer.flush(30)
    finally:
        producer.close()


def set_back(folder: Path, older: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(older, folder)


@dataclass
class Run:
    """A query and its stream, which goes on or is started again after a change."""

    broker: Broker
    topic: str
    goes_on: bool

    def __post_init__(self) -> None:
        self.query = query_of(self.broker.bootstrap)
        self.stream = self.query.run(subscribe=self.topic)

    def start_again(self) -> None:
        if not self.goes_on:
            self.query = query_of(self.broker.bootstrap, self.query)
            self.stream = self.query.run(subscribe=self.topic)


def started(broker: Broker, topic: str) -> list[Run]:
    return [Run(broker, topic, goes_on) for goes_on in (True, False)]


@pytest.mark.soak
def test_a_disk_that_went_back_and_has_grown_again(new_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker, topic, older = new_broker(), unused_topic(), tmp_path / "older"
    t0 = TopicPartition(topic, 0)
    broker.start()
    (folder,) = broker.create_topic(topic)
    add(broker.bootstrap, topic, 10)
    broker.stop()
    shutil.copytree(folder, older)
    broker.start()
    add(broker.bootstrap, topic, 20)
    runs = started(broker, topic)
    for run in runs:
        assert go_on(run.stream, {t0: 0}) == {t0: 30}
    broker.stop()
    broker.start()
    add(broker.bootstrap, topic, 5)
    for run in runs:
        run.start_again()
        assert go_on(run.stream, {t0: 30}) == {t0: 35}, "a leader that only starts again has lost nothing"
        run.query.clock.now += 10
        assert run.stream.next_offsets({t0: 35}) == {t0: 35}
    broker.stop()
    set_back(folder, older)
    broker.start()
    add(broker.bootstrap, topic, 50)
    for run in runs:
        run.start_again()
        with pytest.raises(
            DataLossError, match=rf"LOG_WENT_BACK.*up to 35 in leader epoch .*ends at 10.*{t0}"
        ):
            run.stream.next_offsets({t0: 35})
    broker.stop()


@pytest.mark.soak
def test_a_cluster_that_went_back_with_its_metadata(
    new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """Topic id and offsets fit, only the leader epoch is older."""
    broker, topic, older = new_broker(), unused_topic(), tmp_path / "older"
    t0 = TopicPartition(topic, 0)
    broker.start()
    broker.create_topic(topic)
    add(broker.bootstrap, topic, 10)
    broker.stop()
    shutil.copytree(broker.log_dir, older)
    for _ in range(3):  # each start begins a leader epoch
        broker.start()
        add(broker.bootstrap, topic, 10)
        broker.stop()
    broker.start()
    runs = started(broker, topic)
    for run in runs:
        assert go_on(run.stream, {t0: 0}) == {t0: 40}
        run.query.clock.now += 10
        assert run.stream.next_offsets({t0: 40}) == {t0: 40}
    broker.stop()
    set_back(Path(broker.log_dir), older)
    broker.start()
    add(broker.bootstrap, topic, 50)
    for run in runs:
        run.start_again()
        with pytest.raises(DataLossError, match=rf"LOG_WENT_BACK.*leader epoch .*cluster is back at .*{t0}"):
            run.stream.next_offsets({t0: 40})
    broker.stop()


@pytest.mark.long
def test_a_cold_copy_that_has_come_to_the_same_leader_epoch(
    new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """A broker that is put back whole begins the very epochs again that it had before."""
    broker, topic, older = new_broker(), unused_topic(), tmp_path / "older"
    partitions = [TopicPartition(topic, number) for number in range(2)]
    broker.start()
    broker.create_topic(topic, 2)
    add(broker.bootstrap, topic, 10, 2)
    broker.stop()
    shutil.copytree(broker.log_dir, older)
    broker.start()
    add(broker.bootstrap, topic, 20, 2)
    runs, offsets = started(broker, topic), dict.fromkeys(partitions, 30)
    for run in runs:
        assert go_on(run.stream, dict.fromkeys(partitions, 0)) == offsets
        run.query.clock.now += 10
        assert run.stream.next_offsets(offsets) == offsets
    epochs = runs[0].query.place.leader_epochs(partitions)
    broker.stop()
    set_back(Path(broker.log_dir), older)
    broker.start()
    add(broker.bootstrap, topic, 50, 2)
    for run in runs:
        run.start_again()
        with pytest.raises(DataLossError, match=rf"LOG_WENT_BACK.*batch at offset 29 is not .*{topic}-0"):
            go_on(run.stream, offsets)  # a running stream when it has read on, at the next note
        assert run.query.place.leader_epochs(partitions) == epochs
    broker.stop()


def test_batches_of_any_size_are_looked_at(broker: Broker) -> None:
    """Where they do not fit into one request, one by one."""
    topic = unused_topic()
    partitions = [TopicPartition(topic, number) for number in range(5)]
    broker.create_topic(topic, 5)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", linger_ms=100)
    for partition, size in enumerate([10, 100_000, 900_000, 20_000]):
        for number in range(3):
            producer.send(topic, bytes(size), partition=partition, timestamp_ms=1000 * number)
    producer.flush(30)
    producer.close()
    place = query_of(broker.bootstrap).place
    found = place.batches_at(dict.fromkeys(partitions, 2))
    assert list(found) == partitions[:4]
    for partition, header in found.items():
        assert header.base_offset <= header.last_offset == 2
        assert header.max_timestamp == 2000
        pieces = place.fetch(Fetch(partition, OffsetRange(2, 3)))
        assert header == header_of(batches_of(next(pieces))), "whatever follows it"
    assert place.batches_at(dict.fromkeys(partitions, 2)) == found
    assert place.batches_at(dict.fromkeys(partitions, 3)) == {}
    with broker.admin() as admin:
        admin.delete_records({partitions[0]: 3})
    assert list(place.batches_at(dict.fromkeys(partitions, 2))) == partitions[1:4]


@pytest.mark.soak
def test_what_a_broker_deletes_and_compacts_is_no_other_log(new_broker: Callable[..., Broker]) -> None:
    settings = {
        "log.cleaner.backoff.ms": 200,
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 500,
        "log.segment.delete.delay.ms": 100,
    }
    broker = new_broker(settings)
    broker.start()
    cleaned = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100"}
    compacted, retained, cut, marked = topics = [unused_topic() for _ in range(4)]
    for topic, configs in {
        compacted: cleaned | {"max.compaction.lag.ms": "200"},
        retained: {"retention.ms": "3600000", "segment.ms": "100"},
        cut: {},
        marked: {},
    }.items():
        broker.create_topic(topic, 1, configs)

    def fill(timestamp_ms: int) -> None:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=100)
        for topic in (compacted, retained, cut):
            for number in range(30):
                key = b"%d" % (number % 20)
                producer.send(topic, bytes(99), key=key, partition=0, timestamp_ms=timestamp_ms)
        producer.flush(30)
        producer.close()
        writer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=marked)
        writer.init_transactions()
        writer.begin_transaction()
        writer.send(marked, b"x", partition=0)
        writer.commit_transaction()
        writer.close()

    now_ms = time.time_ns() // 1_000_000
    fill(now_ms - 3_590_000)  # retention takes it in ten seconds
    query = query_of(broker.bootstrap)
    stream = query.run(subscribe=",".join(topics))
    partitions = [TopicPartition(topic, 0) for topic in topics]
    offsets = dict.fromkeys(partitions, 0)
    while offsets[partitions[3]] < 2:  # its marker comes after the commit
        offsets = go_on(stream, offsets)
    query.clock.now += 10
    assert stream.next_offsets(offsets) == offsets
    noted = {partition: query.shared[partition].batch for partition in partitions}
    assert all(noted.values())
    assert noted[partitions[3]].records == 1, "the marker"
    fill(now_ms)
    with broker.admin() as admin:
        admin.delete_records({partitions[2]: 35})
    deadline = time.monotonic() + 60
    while True:
        wanted = {partition: batch.last_offset for partition, batch in noted.items()}
        left = query.place.batches_at(wanted)
        if left.keys() == {partitions[0], partitions[3]} and left[partitions[0]] != noted[partitions[0]]:
            break
        assert time.monotonic() < deadline, left
        time.sleep(0.5)
    again = query_of(broker.bootstrap, query)
    ends = go_on(again.run(subscribe=",".join(topics)), offsets)
    assert all(ends[partition] > offsets[partition] for partition in partitions)
    broker.stop()


@pytest.mark.long
def test_leaders_that_change(cluster: Cluster) -> None:
    topic, shared = unused_topic(), list[Shared]()
    partitions = [TopicPartition(topic, number) for number in range(3)]
    cluster.create_topic(topic, 3)
    query = query_of(cluster.bootstrap)
    stream = query.run(subscribe=topic)
    offsets = dict.fromkeys(partitions, 0)
    changes: list[Callable[[], object]] = [
        lambda: cluster.move_leader(topic, 1),
        lambda: cluster.kill(cluster.leader(topic, 1)),
        cluster.heal,
        lambda: cluster.move_leader(topic, 1),
    ]
    for number, change in enumerate(changes):
        add(cluster.bootstrap, topic, 10, 3)
        offsets = go_on(stream, offsets)
        change()
        query.clock.now += 10
        assert stream.next_offsets(offsets) == offsets
        shared.append(query.shared)
        if number % 2:
            query = query_of(cluster.bootstrap, query)
            stream = query.run(subscribe=topic)
    add(cluster.bootstrap, topic, 10, 3)
    assert go_on(stream, offsets) == dict.fromkeys(partitions, 50)
    assert shared[-1][partitions[1]].leader_epoch > shared[0][partitions[1]].leader_epoch >= 0
