"""Three executors in three racks: each reads from the broker in its own. If that lags, no row is lost."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from tests.broker.producing import connected, produce, rows, unused_topic
from tests.faults.application import Application
from tests.kafka_cluster import Cluster
from tests.kafka_proxy import FETCH

pytestmark = [pytest.mark.broker, pytest.mark.soak]

PARTITIONS, COUNT = 12, 60_000
RACK = {"kafka.client.rack": "tests.faults.executor_rack:of_executor"}


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    output = tmp_path_factory.mktemp("application") / "output"
    arguments = "tests.faults.broker_application", "local-cluster[3,1,1024]"
    with contextlib.closing(Application(*arguments, output=output)) as application:
        assert application.receive() == "ready", application.output_tail()
        yield application


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """All of it is led by node 1."""
    topic = unused_topic()
    cluster.create_topic(topic, PARTITIONS)
    fill(cluster, topic, 0)
    for partition in range(PARTITIONS):
        if cluster.leader(topic, partition) != 1:
            cluster.move_leader(topic, partition, to=1)
    return topic


def fill(cluster: Cluster, topic: str, start: int) -> None:
    """Write the next ``COUNT`` numbers, spread over the partitions."""
    numbers = range(start, start + COUNT)
    batch = rows(value=[b"%d" % number for number in numbers], partition=[n % PARTITIONS for n in numbers])
    produce(connected(cluster.bootstrap), topic, [batch])


def read(application: Application, cluster: Cluster, topic: str, **options: str) -> dict[int, int]:
    """Check the rows, and give the bytes of fetches from each node."""
    for proxy in cluster.proxies.values():
        proxy.sent.clear()
    given = {"kafka.bootstrap.servers": cluster.proxied_bootstrap, "subscribe": topic, **options}
    application.send(json.dumps(["read", [given]]))
    numbers = json.loads(application.receive())
    assert isinstance(numbers, list), numbers
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(numbers) % COUNT == 0
    return {node: proxy.sent[FETCH] for node, proxy in cluster.proxies.items()}


def test_each_executor_reads_in_its_rack(application: Application, cluster: Cluster, topic: str) -> None:
    by_leader = read(application, cluster, topic)
    assert by_leader[2] + by_leader[3] < 0.05 * by_leader[1]
    by_rack = read(application, cluster, topic, **RACK)
    assert min(by_rack.values()) > 0.1 * sum(by_rack.values()), by_rack
    assert sum(by_rack.values()) < 1.2 * sum(by_leader.values())


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_replica_that_falls_behind_costs_no_row(
    application: Application, cluster: Cluster, topic: str, fault: str
) -> None:
    getattr(cluster, fault)(3)
    try:
        fill(cluster, topic, COUNT)
        read(application, cluster, topic, **RACK, **{"kafkaConsumer.pollTimeoutMs": "5000"})
    finally:
        cluster.heal()
