"""A stream notices that a broker's disk went back and has grown again, and takes no new leader for that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaProducer

from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.streams.history import Shared
from tests.broker.producing import unused_topic
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.streams.test_history import Query, go_on

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


@pytest.mark.parametrize("is_running", [False, True])
def test_a_disk_that_went_back_and_has_grown_again(
    new_broker: Callable[..., Broker], tmp_path: Path, is_running: bool
) -> None:
    broker, topic, older = new_broker(), unused_topic(), tmp_path / "older"
    t0 = TopicPartition(topic, 0)
    options = {"subscribe": topic}
    broker.start()
    (folder,) = broker.create_topic(topic)
    add(broker.bootstrap, topic, 10)
    broker.stop()
    shutil.copytree(folder, older)
    broker.start()
    add(broker.bootstrap, topic, 20)
    query = query_of(broker.bootstrap)
    stream = query.run(**options)
    assert go_on(stream, {t0: 0}) == {t0: 30}
    broker.stop()
    broker.start()
    add(broker.bootstrap, topic, 5)
    if not is_running:
        query = query_of(broker.bootstrap, query)
        stream = query.run(**options)
    assert go_on(stream, {t0: 30}) == {t0: 35}, "a leader that only starts again has lost nothing"
    query.clock.now += 10
    assert stream.next_offsets({t0: 35}) == {t0: 35}
    broker.stop()
    set_back(folder, older)
    broker.start()
    add(broker.bootstrap, topic, 50)
    if not is_running:
        query = query_of(broker.bootstrap, query)
        stream = query.run(**options)
    with pytest.raises(DataLossError, match=rf"LOG_WENT_BACK.*up to 35 in leader epoch .*ends at 10.*{t0}"):
        stream.next_offsets({t0: 35})
    broker.stop()


@pytest.mark.parametrize("is_running", [False, True])
def test_a_cluster_that_went_back_with_its_metadata(
    new_broker: Callable[..., Broker], tmp_path: Path, is_running: bool
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
    query = query_of(broker.bootstrap)
    stream = query.run(subscribe=topic)
    assert go_on(stream, {t0: 0}) == {t0: 40}
    query.clock.now += 10
    assert stream.next_offsets({t0: 40}) == {t0: 40}
    broker.stop()
    set_back(Path(broker.log_dir), older)
    broker.start()
    add(broker.bootstrap, topic, 50)
    if not is_running:
        query = query_of(broker.bootstrap, query)
        stream = query.run(subscribe=topic)
    with pytest.raises(DataLossError, match=rf"LOG_WENT_BACK.*leader epoch .*cluster is back at .*{t0}"):
        stream.next_offsets({t0: 40})
    broker.stop()


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
