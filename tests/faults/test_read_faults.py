"""Reading a partition while brokers die, leaders move, connections break and records go.

Whatever happens in between, each offset of the range is read once and in order, or
the read ends in bounded time with an error that says what is lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaProducer

from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.errors import DataLossError, KafkaLogError
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from tests.broker.producing import unused_topic
from tests.broker.reading import batches, place
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_proxy import FETCH, LIST_OFFSETS, METADATA, Fault, cut, delay, repeat, reset, swallow
from tests.kafka_service import KafkaService

pytestmark = [pytest.mark.broker, pytest.mark.slow]

COUNT = 10_000
PIECE = 10_000
"""Bytes of a fetch: it takes some thirty to read the partition."""
OFFSETS = pa.schema([pa.field("offset", pa.int64())])
Steps = Mapping[int, Callable[[], Any]]


def fill(service: KafkaService, topic: str, start: int = 0) -> TopicPartition:
    """COUNT records in a partition, in small batches."""
    producer = KafkaProducer(bootstrap_servers=service.bootstrap, batch_size=2000, linger_ms=5)
    try:
        for number in range(start, start + COUNT):
            producer.send(topic, b"%010d" % number, partition=0)
        producer.flush()
    finally:
        producer.close()
    return TopicPartition(topic, 0)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("mortal"))
    yield broker
    broker.stop(kill=True)


@pytest.fixture
def own_broker(mortal: Broker) -> Broker:
    """A running broker that a test may kill."""
    if not mortal.running:
        mortal.start()
    return mortal


@pytest.fixture
def filled_own(own_broker: Broker) -> TopicPartition:
    topic = unused_topic()
    own_broker.create_topic(topic)
    return fill(own_broker, topic)


def offsets(brokers: Brokers, partition: TopicPartition, steps: Steps, **rules: Any) -> Iterator[int]:
    """What is read of the partition, with things done before some of the arrow batches."""
    given = OffsetRange(0, COUNT)
    for number, arrow_batch in enumerate(batches(brokers, partition, given, schema=OFFSETS, **rules)):
        yield from arrow_batch.column("offset").to_pylist()
        steps.get(number, lambda: None)()


def check_all(brokers: Brokers, partition: TopicPartition, steps: Steps, **rules: Any) -> None:
    assert list(offsets(brokers, partition, steps, **rules)) == list(range(COUNT))


@contextlib.contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


# Brokers


def test_a_broker_killed_and_started_again(own_broker: Broker, filled_own: TopicPartition) -> None:
    start = threading.Timer(0.5, own_broker.start)

    def die() -> None:
        own_broker.stop(kill=True)
        start.start()

    check_all(place(own_broker.bootstrap, max_partition_fetch_bytes=PIECE), filled_own, {5: die})
    start.join()


def test_a_broker_that_pauses(own_broker: Broker, filled_own: TopicPartition) -> None:
    wake = threading.Timer(2.5, lambda: os.kill(own_broker.pid, signal.SIGCONT))

    def pause() -> None:
        os.kill(own_broker.pid, signal.SIGSTOP)
        wake.start()

    ours = place(own_broker.bootstrap, {"request_timeout_ms": 500}, max_partition_fetch_bytes=PIECE)
    check_all(ours, filled_own, {5: pause})
    wake.join()


def test_a_broker_that_stays_away(own_broker: Broker, filled_own: TopicPartition) -> None:
    ours = place(
        own_broker.bootstrap,
        {"request_timeout_ms": 1000},
        max_partition_fetch_bytes=PIECE,
        poll_timeout_ms=3000,
    )
    read = offsets(ours, filled_own, {5: lambda: own_broker.stop(kill=True)})
    with ends_within(15), pytest.raises(KafkaLogError, match=r"refused") as raised:
        list(read)
    assert raised.value.topic_partition == str(filled_own)


def test_leaders_that_move(cluster: Cluster) -> None:
    topic = unused_topic()
    cluster.create_topic(topic)
    partition = fill(cluster, topic)
    moves = {step: lambda: cluster.move_leader(topic) for step in range(3, 20, 4)}
    check_all(place(cluster.bootstrap, max_partition_fetch_bytes=PIECE), partition, moves)


def test_a_leader_that_dies_for_good(cluster: Cluster) -> None:
    topic = unused_topic()
    cluster.create_topic(topic)
    partition = fill(cluster, topic)
    kill = {5: lambda: cluster.kill(cluster.leader(topic))}
    check_all(place(cluster.bootstrap, max_partition_fetch_bytes=PIECE), partition, kill)


# Connections


@pytest.mark.parametrize("api_key", [FETCH, LIST_OFFSETS, METADATA], ids=["fetch", "offsets", "metadata"])
@pytest.mark.parametrize(
    "fault",
    [reset(), reset(9), cut(0), cut(2), cut(40), cut(5000), repeat, delay(0.3), swallow],
    ids=[
        "reset",
        "reset within",
        "closed",
        "cut in the size",
        "cut in the header",
        "cut in the records",
        "repeated",
        "late",
        "swallowed",
    ],
)
def test_answers_that_are_lost(cluster: Cluster, filled: TopicPartition, api_key: int, fault: Fault) -> None:
    def strike() -> None:
        for proxy in cluster.proxies.values():
            proxy.strike(api_key, fault)

    ours = place(
        cluster.proxied_bootstrap,
        # Metadata is looked up all the time.
        {"request_timeout_ms": 1000, "metadata_max_age_ms": 0},
        max_partition_fetch_bytes=PIECE,
    )
    strike()
    ours.watermarks([filled], read_committed=False)
    check_all(ours, filled, dict.fromkeys((3, 10), strike) if api_key == FETCH else {})
    assert sum(proxy.pending for proxy in cluster.proxies.values()) < len(cluster.proxies)


@pytest.fixture(scope="module")
def filled(started_cluster: Cluster) -> TopicPartition:
    topic = unused_topic()
    started_cluster.create_topic(topic)
    return fill(started_cluster, topic)


def test_requests_that_are_lost(cluster: Cluster, filled: TopicPartition) -> None:
    def strike() -> None:
        for proxy in cluster.proxies.values():
            proxy.strike(FETCH, reset(), requests=True)

    ours = place(cluster.proxied_bootstrap, max_partition_fetch_bytes=PIECE)
    check_all(ours, filled, dict.fromkeys(range(0, 20, 4), strike))


def test_connections_that_are_all_reset(cluster: Cluster, filled: TopicPartition) -> None:
    def strike() -> None:
        for proxy in cluster.proxies.values():
            proxy.reset_all()

    ours = place(cluster.proxied_bootstrap, max_partition_fetch_bytes=PIECE)
    check_all(ours, filled, dict.fromkeys(range(0, 20, 4), strike))


def test_a_network_that_is_dead_for_a_while(cluster: Cluster, filled: TopicPartition) -> None:
    def hold() -> None:
        for proxy in cluster.proxies.values():
            proxy.hold()
            threading.Timer(2.5, proxy.heal).start()

    ours = place(cluster.proxied_bootstrap, {"request_timeout_ms": 500}, max_partition_fetch_bytes=PIECE)
    check_all(ours, filled, {5: hold})


def test_a_network_that_stays_dead(cluster: Cluster, filled: TopicPartition) -> None:
    def hold() -> None:
        for proxy in cluster.proxies.values():
            proxy.hold()

    ours = place(
        cluster.proxied_bootstrap,
        {"request_timeout_ms": 500},
        max_partition_fetch_bytes=PIECE,
        poll_timeout_ms=2000,
    )
    with ends_within(15), pytest.raises(KafkaLogError, match=r"pollTimeoutMs = 2000.*did not answer"):
        list(offsets(ours, filled, {5: hold}))


# Records


def test_a_topic_deleted_while_it_is_read(broker: Broker) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    partition = fill(broker, topic)
    ours = place(broker.bootstrap, max_partition_fetch_bytes=PIECE)
    with ends_within(15), pytest.raises(DataLossError, match=r"no longer exists|gone"):
        list(offsets(ours, partition, {5: lambda: broker.delete_topic(topic)}))


def test_a_topic_made_anew_while_it_is_read(broker: Broker) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    partition = fill(broker, topic)
    numbers: list[int] = []

    def read() -> None:
        ours = place(broker.bootstrap, max_partition_fetch_bytes=PIECE)
        for step, arrow_batch in enumerate(batches(ours, partition, OffsetRange(0, COUNT))):
            numbers.extend(map(int, arrow_batch.column("value").to_pylist()))
            if step == 5:
                broker.delete_topic(topic)
                broker.create_topic(topic)
                fill(broker, topic, start=COUNT)

    with ends_within(20), pytest.raises(DataLossError, match=r"created anew|no longer exists"):
        read()
    assert numbers == list(range(len(numbers))), "rows of the new topic were read for those of the old"


def test_retention_that_overtakes(broker: Broker) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    partition = fill(broker, topic)
    ours = place(broker.bootstrap, max_partition_fetch_bytes=PIECE)
    delete = {3: lambda: broker.delete_records(topic, 8000)}
    with pytest.raises(DataLossError, match="to 9999 are gone: the log now starts at offset 8000") as raised:
        list(offsets(ours, partition, delete))
    assert raised.value.offset is not None
    assert 0 < raised.value.offset < 8000


def test_retention_that_overtakes_and_may(broker: Broker) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    partition = fill(broker, topic)
    ours = place(broker.bootstrap, max_partition_fetch_bytes=PIECE)
    delete = {3: lambda: broker.delete_records(topic, 8000)}
    read = list(offsets(ours, partition, delete, fail_on_data_loss=False))
    first_lost = next(i for i, offset in enumerate(read) if i != offset)
    assert read == [*range(first_lost), *range(8000, COUNT)]
