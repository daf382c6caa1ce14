"""Whatever happens to brokers and connections, each record is read once, in order, or an error says why."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator

import pytest

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition
from tests.broker.reading import batches, offsets_of, place
from tests.broker.test_fetch import numbers, write
from tests.kafka import Broker, Listener
from tests.kafka_process import free_ports
from tests.kafka_proxy import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    Fault,
    Proxy,
    cut,
    delay,
    repeat,
    reset,
    send_twice,
    swallow,
)

pytestmark = pytest.mark.broker

COUNT = 5_000


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Proxy]]:
    proxy = Proxy()
    (port,) = free_ports(1)
    proxy.target = port
    broker = Broker(
        tmp_path_factory.mktemp("proxied") / "broker",
        listeners=[Listener("PROXIED", "PLAINTEXT", port, proxy.address)],
    )
    broker.start()
    yield broker, proxy
    broker.stop(kill=True)
    proxy.stop()


@pytest.fixture
def proxy(behind_proxy: tuple[Broker, Proxy]) -> Iterator[Proxy]:
    yield behind_proxy[1]
    behind_proxy[1].heal()


@pytest.fixture(scope="module")
def partition(behind_proxy: tuple[Broker, Proxy]) -> TopicPartition:
    partition = TopicPartition(f"faults-{uuid.uuid4().hex[:12]}", 0)
    behind_proxy[0].create_topic(partition.topic)
    write(behind_proxy[0], partition, numbers(COUNT), batch_size=5_000)
    return partition


@pytest.mark.long
@pytest.mark.parametrize(
    ("api_key", "fault", "requests"),
    [
        (api_key, fault, requests)
        for api_key in (FETCH, LIST_OFFSETS, METADATA)
        for fault, requests in (
            (reset(), False),
            (reset(), True),
            (reset(at=3), False),
            (cut(at=50), False),
            (delay(0.3), False),
            (delay(1.2), False),
            (swallow, False),
            (repeat, False),
            (send_twice, True),
        )
    ],
)
def test_responses_that_are_lost_late_cut_or_doubled(
    proxy: Proxy, partition: TopicPartition, api_key: int, fault: Fault, requests: bool
) -> None:
    brokers = place(
        proxy.address,
        {"client_id": uuid.uuid4().hex, "request_timeout_ms": 800},
        max_partition_fetch_bytes=20_000,
        fetch_max_wait_ms=100,
    )
    reading = batches(brokers, partition, OffsetRange(0, COUNT))
    proxy.strike(api_key, fault, times=1, requests=requests)
    seen = next(reading).column("offset").to_pylist()
    proxy.strike(api_key, fault, times=2, requests=requests)
    seen += [offset for batch in reading for offset in batch.column("offset").to_pylist()]
    assert seen == list(range(COUNT))
    proxy.heal()
    assert offsets_of(brokers, partition) == list(range(COUNT))


def test_all_connections_are_reset_again_and_again(proxy: Proxy, partition: TopicPartition) -> None:
    brokers = place(proxy.address, {"client_id": uuid.uuid4().hex}, max_partition_fetch_bytes=20_000)
    seen: list[int] = []
    for batch in batches(brokers, partition):
        seen += batch.column("offset").to_pylist()
        proxy.reset_all()
    assert seen == list(range(COUNT))


def test_a_network_that_is_dead_for_a_while(proxy: Proxy, partition: TopicPartition) -> None:
    options = {"client_id": uuid.uuid4().hex, "request_timeout_ms": 1_000}
    brokers = place(proxy.address, options, max_partition_fetch_bytes=20_000, fetch_max_wait_ms=100)
    reading = batches(brokers, partition)
    seen = next(reading).column("offset").to_pylist()
    proxy.hold()
    healing = threading.Timer(2.5, proxy.heal)
    healing.start()
    seen += [offset for batch in reading for offset in batch.column("offset").to_pylist()]
    healing.join()
    assert seen == list(range(COUNT))


def test_a_network_that_stays_dead(proxy: Proxy, partition: TopicPartition) -> None:
    options = {"client_id": uuid.uuid4().hex, "request_timeout_ms": 500}
    brokers = place(proxy.address, options, poll_timeout_ms=3_000, fetch_max_wait_ms=100)
    assert brokers.watermarks([partition], read_committed=False)
    proxy.hold()
    began = time.monotonic()
    with pytest.raises(KafkaLogError, match=r"kafkaConsumer.pollTimeoutMs = 3000.*did not answer within"):
        list(brokers.fetch(Fetch(partition, OffsetRange(0, COUNT))))
    assert 2 < time.monotonic() - began < 40


@pytest.mark.long
def test_a_broker_killed_while_it_is_read_and_started_again(stoppable_broker: Broker) -> None:
    broker, partition = stoppable_broker, TopicPartition(f"killed-{uuid.uuid4().hex[:12]}", 0)
    broker.create_topic(partition.topic)
    write(broker, partition, numbers(20_000), batch_size=5_000)
    brokers = place(broker.bootstrap, max_partition_fetch_bytes=20_000)
    reading = batches(brokers, partition)
    seen = next(reading).column("offset").to_pylist()
    broker.stop(kill=True)
    starting = threading.Timer(2, broker.start)
    starting.start()
    try:
        seen += [offset for batch in reading for offset in batch.column("offset").to_pylist()]
    finally:
        starting.join()
    assert seen == list(range(20_000))
