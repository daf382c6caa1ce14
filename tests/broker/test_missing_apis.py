"""Endpoints that speak Kafka's protocol and lack some of its APIs: what is only advice may be missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.errors import UnsupportedVersionError
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_topics
from tests.broker.fake_broker import VERSIONS
from tests.broker.scripted_cluster import Belief, ScriptedCluster, playing
from tests.kafka import Broker
from tests.tools.cli.running import run

CREATE_TOPICS = 19
OF_A_CONTROLLER = dict.fromkeys((1, 17, 18, 19, 32, 36, *range(52, 61), 62, 63), (0, 1))
"""What a controller of Kafka 4.3 answers to ApiVersions, as far as it matters."""
SAYS = r"This is a KRaft controller, which serves no records \(broker {}\)\. Give the port of the brokers'"


@pytest.fixture
def endpoint() -> Iterator[dict[str, str]]:
    """It has no DescribeConfigs and InitProducerId, and CreateTopics of Kafka 2.3."""
    versions = {**VERSIONS, CREATE_TOPICS: (0, 3)}
    with playing(ScriptedCluster({1: Belief(1, 0), 2: Belief(1, 0)}, versions)) as cluster:
        yield {"kafka.bootstrap.servers": cluster.bootstrap}


def test_configurations_are_not_known(endpoint: dict[str, str]) -> None:
    assert connect(endpoint).place.topic_config("t") == {}
    assert open_topics(place_options(endpoint)).config_names() == ()


def test_the_way_out_is_named(endpoint: dict[str, str]) -> None:
    brokers = place_options(endpoint).brokers
    assert brokers is not None
    with pytest.raises(UnsupportedVersionError, match=r"InitProducerId.*kafka\.enable\.idempotence to false"):
        cluster_of(brokers).producer_id()


def test_the_doctor_names_what_is_missing(endpoint: dict[str, str]) -> None:
    done = run("doctor", endpoint["kafka.bootstrap.servers"])
    assert done.code == 0, done.out
    for name, remedy in (
        ("DeleteRecords", "records end by the topic's retention"),
        ("InitProducerId", "Set kafka.enable.idempotence to false"),
        ("OffsetForLeaderEpoch", "noticed by its record batches alone"),
        ("DescribeConfigs", "Records are read and written without it"),
        ("CreateTopics v4", "give --partitions and --replication-factor"),
    ):
        assert re.search(f"it lacks {name}\n.*{remedy}", done.out), done.out


def test_a_controller_is_told_from_a_broker() -> None:
    with playing(ScriptedCluster({1: Belief(1, 0)}, OF_A_CONTROLLER)) as cluster:
        servers = cluster.bootstrap
        with pytest.raises(UnsupportedVersionError, match=SAYS.format(servers)):
            connect(servers).read("t")
        assert re.search(SAYS.format(servers), run("topics", servers).err)
        assert "This is a KRaft controller" in run("doctor", servers).out


@pytest.mark.broker
def test_a_real_controller_is_told(broker: Broker) -> None:
    text = (broker.folder / "server.properties").read_text()
    (servers,) = re.findall(r"CONTROLLER://(127\.0\.0\.1:\d+)", text)
    done = run("topics", servers)
    assert done.code == 3
    assert re.search(SAYS.format(servers), done.err)
