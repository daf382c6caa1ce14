"""With kafka.client.rack a consumer is served by the replica in its rack (KIP-392)."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.model import TopicPartition
from tests.broker.producing import connected, numbered, produce, unused_topic
from tests.broker.reading import offsets_of, place
from tests.kafka_cluster import Cluster
from tests.kafka_proxy import FETCH

pytestmark = [pytest.mark.broker, pytest.mark.slow]

COUNT = 20_000


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    topic = unused_topic()
    cluster.create_topic(topic)
    produce(connected(cluster.bootstrap), topic, [numbered(COUNT, size=100)], batch_size=16_000)
    for proxy in cluster.proxies.values():
        proxy.sent.clear()
    return TopicPartition(topic, 0)


def fetched_from(cluster: Cluster) -> set[int]:
    """The nodes that gave more than answers without records."""
    return {node for node, proxy in cluster.proxies.items() if proxy.sent[FETCH] > 10_000}


def test_the_leader_without_a_rack(cluster: Cluster, partition: TopicPartition) -> None:
    assert offsets_of(place(cluster.proxied_bootstrap), partition) == list(range(COUNT))
    assert fetched_from(cluster) == {cluster.leader(partition.topic)}


def test_the_follower_in_the_rack(cluster: Cluster, partition: TopicPartition) -> None:
    follower = cluster.leader(partition.topic) % 3 + 1
    ours = place(cluster.proxied_bootstrap, client_rack=f"rack-{follower}", max_partition_fetch_bytes=100_000)
    assert offsets_of(ours, partition) == list(range(COUNT))
    assert fetched_from(cluster) == {follower}


def test_the_leader_once_the_follower_is_gone(cluster: Cluster, partition: TopicPartition) -> None:
    leader = cluster.leader(partition.topic)
    follower = leader % 3 + 1
    ours = place(cluster.proxied_bootstrap, client_rack=f"rack-{follower}", max_partition_fetch_bytes=100_000)
    cluster.kill(follower)
    assert offsets_of(ours, partition) == list(range(COUNT))
    assert fetched_from(cluster) == {leader}
