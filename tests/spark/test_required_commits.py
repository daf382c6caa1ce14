"""With commitOffsets=required a stream outlives the failover of its group's coordinator."""

from __future__ import annotations

import uuid

import pytest
from kafka import KafkaProducer
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.kafka_cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TIMEOUT_MS = 10_000


@pytest.mark.parametrize(
    "is_paused", [pytest.param(False, id="killed"), pytest.param(True, id="paused", marks=pytest.mark.soak)]
)
def test_a_coordinator_that_goes(cluster: Cluster, is_paused: bool) -> None:
    topic = group = f"required-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(topic, 1)
    source = DefaultSource(
        {
            "kafka.bootstrap.servers": cluster.proxied_bootstrap,
            # A coordinator that is silent for half of that is looked up again.
            "kafka.request.timeout.ms": str(TIMEOUT_MS),
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.group.id": group,
            "commitOffsets": "required",
        }
    )
    reader = source.streamReader(StructType([StructField("value", BinaryType())]))
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    bootstrap = tuple(cluster.proxied_bootstrap.split(","))
    groups = BrokerGroups(ConnectionOptions(bootstrap, request_timeout_ms=TIMEOUT_MS))

    def finish(start: dict, end: int) -> dict:
        with KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            producer.send(topic, b"value").get(60)
        found = reader.latestOffset(start, limit)
        assert found == {topic: {"0": end}}
        assert reader.latestOffset(found, limit) == found, "a commit that fails would be raised here"
        return found

    end = finish(start, 1)
    coordinator = groups.describe([group])[group].coordinator
    if is_paused:
        cluster.pause(coordinator)
    else:
        cluster.kill(coordinator)
    finish(end, 2)
    assert groups.committed(group)[TopicPartition(topic, 0)].offset == 2
