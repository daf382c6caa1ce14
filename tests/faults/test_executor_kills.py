"""Python workers and executors killed -9 during their tasks: Spark tries again, and the rows are right.

What is read comes once. What is written comes at least once: a task that died may have written some.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.broker.producing import connected, consume, produce, rows, unused_topic
from tests.faults.application import Application
from tests.kafka_cluster import Cluster
from tests.kafka_proxy import FETCH, PRODUCE, delay

pytestmark = [pytest.mark.broker, pytest.mark.soak]

COUNT = 20_000
Victims = Callable[[Application], list[psutil.Process]]


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """Two executors of one core each, in separate JVMs."""
    output = tmp_path_factory.mktemp("application") / "output"
    arguments = "tests.faults.broker_application", "local-cluster[2,1,1024]"
    with contextlib.closing(Application(*arguments, output=output)) as application:
        assert application.receive() == "ready", application.output_tail()
        yield application


@pytest.fixture(
    params=[
        pytest.param(Application.python_workers, id="workers"),
        pytest.param(Application.executors, id="executor"),
    ]
)
def victims(request: pytest.FixtureRequest) -> Victims:
    return request.param


@pytest.fixture
def slowly(cluster: Cluster) -> dict[str, str]:
    """Options for an exchange of many small, slow pieces."""
    for proxy in cluster.proxies.values():
        proxy.strike(FETCH, delay(0.1), times=1_000_000)
        proxy.strike(PRODUCE, delay(0.1), times=1_000_000)
        proxy.requests.clear()
    return {
        "kafka.bootstrap.servers": cluster.proxied_bootstrap,
        "kafka.max.partition.fetch.bytes": "20000",
        "kafka.max.request.size": "20000",
        "kafka.batch.size": "2000",
    }


def killed_amid(
    application: Application, victims: Victims, cluster: Cluster, api_key: int, name: str, *arguments: Any
) -> Any:
    """The result of a function of the application, whose tasks lose processes after some requests."""
    application.send(json.dumps([name, arguments]))
    deadline = time.monotonic() + 120
    while sum(proxy.requests[api_key] for proxy in cluster.proxies.values()) < 8:
        assert time.monotonic() < deadline, application.output_tail()
        time.sleep(0.01)
    found = victims(application)
    assert found, "there is nothing to kill"
    # One of the two executors survives, as a lost one takes seconds to come back.
    for process in found[:1] if victims is Application.executors else found:
        process.kill()
    result = json.loads(application.receive())
    assert "error" not in (result or {}), result
    return result


@pytest.fixture
def topic(cluster: Cluster) -> str:
    topic = unused_topic()
    cluster.create_topic(topic, 3)
    return topic


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> str:
    numbers = rows(value=[b"%d" % number for number in range(COUNT)])
    produce(connected(cluster.bootstrap), topic, [numbers], batch_size=2000)
    return topic


def test_read(
    application: Application, victims: Victims, cluster: Cluster, filled: str, slowly: dict[str, str]
) -> None:
    options = slowly | {"subscribe": filled}
    read = killed_amid(application, victims, cluster, FETCH, "read", options)
    assert sorted(read) == list(range(COUNT))


def test_stream(
    application: Application,
    victims: Victims,
    cluster: Cluster,
    filled: str,
    slowly: dict[str, str],
    tmp_path: Path,
) -> None:
    options = slowly | {"subscribe": filled, "startingOffsets": "earliest"}
    read = killed_amid(application, victims, cluster, FETCH, "stream", options, str(tmp_path))
    assert sorted(read) == list(range(COUNT))


def test_write(
    application: Application, victims: Victims, cluster: Cluster, topic: str, slowly: dict[str, str]
) -> None:
    options = slowly | {"topic": topic}
    killed_amid(application, victims, cluster, PRODUCE, "write", options, COUNT, 4)
    written = [int(record.value or b"-1") for record in consume(cluster.bootstrap, topic)]
    assert set(written) == set(range(COUNT))
    assert len(written) < 3 * COUNT
