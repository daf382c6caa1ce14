"""Fixtures that cost seconds and are shared by all tests: a Spark session, Kafka brokers of several kinds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from tests.kafka import Broker, spark_kafka_connector_jars
from tests.kafka_cluster import Cluster
from tests.kafka_old import OldBroker
from tests.kafka_secure import SecureBroker
from tests.kafka_service import KafkaService, running
from tests.sessions import OF_SHORT_LIVED_JVMS, local_session

# How long an example takes depends on what else the machine does, and says nothing of the code.
settings.register_profile("kafkalog", deadline=None)
settings.load_profile("kafkalog")

os.environ.setdefault("JAVA_TOOL_OPTIONS", " ".join(OF_SHORT_LIVED_JVMS))

BROKERS = pytest.StashKey[list[Broker]]()
"""The brokers that a test made for itself."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pauses", type=int, default=3, help="how often each leader is paused (a soak: 20)")


@pytest.fixture
def pauses(request: pytest.FixtureRequest) -> int:
    """How often tests that pause a leader do so."""
    return request.config.getoption("--pauses")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session whose workers run this very interpreter, also from a virtualenv that is not active.

    It has Spark's own ``kafka`` too, which tests compare with: a process has one JVM, with its first jars.
    """
    jars = spark_kafka_connector_jars()
    session = local_session("tests", tmp_path_factory.mktemp("spark"), jars=jars)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker for tests that use topics of their own and never stop it."""
    with running(Broker(tmp_path_factory.mktemp("broker"))) as broker:
        yield broker


@pytest.fixture(scope="module")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture
def cluster(started_cluster: Cluster) -> Iterator[Cluster]:
    """Three running brokers, which a test may kill, and a proxy before each; healed for the next test."""
    yield started_cluster
    started_cluster.heal()


@pytest.fixture(scope="session")
def old_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldBroker]:
    """A running broker of Kafka 2.8."""
    with running(OldBroker(tmp_path_factory.mktemp("old-broker"))) as broker:
        yield broker


@pytest.fixture(scope="session")
def secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A running broker that asks who its clients are."""
    with running(SecureBroker(tmp_path_factory.mktemp("secure") / "broker")) as broker:
        yield broker


@pytest.fixture
def new_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Broker]]:
    """Makes brokers, not started yet, that a test may stop and start, kill, and plant files in."""
    brokers = request.node.stash.setdefault(BROKERS, [])

    def make(settings: Mapping[str, object] | None = None) -> Broker:
        brokers.append(Broker(tmp_path / f"broker-{len(brokers)}", settings))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.stop(kill=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Show what the brokers of a failed test logged."""
    report = yield
    if report.failed:
        shared = [its for its in getattr(item, "funcargs", {}).values() if isinstance(its, KafkaService)]
        for service in {*shared, *item.stash.get(BROKERS, [])}:
            report.sections.append((f"log of {service.bootstrap}", service.output_tail()))
    return report
