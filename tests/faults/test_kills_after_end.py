"""All brokers are killed right after one answered EndTxn, before its markers: a part of ci/kill-matrix.

Nothing is polled in between: the kill follows the answer within milliseconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.extensions.exactly_once import committing
from pyspark_kafkalog.extensions.exactly_once.commit import PendingOffsetError
from tests.broker.producing import digits, unused_topic
from tests.extensions.exactly_once.writing import Query, shown, values
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_old import OldBroker
from tests.kafka_service import KafkaService, running

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(1200)]

SOON = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
ROUNDS = 4
KINDS: dict[str, Callable[[Path], Broker | Cluster | OldBroker]] = {
    **{
        f"transaction.version {version}": lambda folder, version=version: Broker(
            folder, SOON, format_options=("--feature", f"transaction.version={version}")
        )
        for version in (0, 1, 2)
    },
    "three brokers": lambda folder: Cluster(folder, SOON),
    "Kafka 2.8": OldBroker,
}


class DeadError(BaseException):
    """The driver is dead."""


@pytest.fixture(scope="module", params=KINDS)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaService]:
    with running(KINDS[request.param](tmp_path_factory.mktemp("service"))) as service:
        yield service


def kill(service: KafkaService) -> None:
    if isinstance(service, Cluster):
        for node in service.brokers:
            service.kill(node)
    elif isinstance(service, OldBroker):
        service.kill()
    else:
        assert isinstance(service, Broker)
        service.stop(kill=True)


def skips_markers(service: OldBroker, topic: str) -> bool:
    """Whether the coordinator was up before it knew the partitions: then those of a topic get no markers."""
    return any(
        "Couldn't find leader endpoint" in line and f"{topic}-" in line
        for line in service.output.read_text().splitlines()
    )


@pytest.mark.parametrize("driver_dies", [True, False], ids=["driver dead", "driver alive"])
def test_rows_are_shown_once(
    service: KafkaService, driver_dies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(ROUNDS):
        topic = unused_topic()
        service.make_topic(topic, 3, replication_factor=3 if isinstance(service, Cluster) else 1)
        options = {"kafka__request__timeout__ms": 10_000, "kafka__delivery__timeout__ms": 120_000}

        def write(batch: int, topic: str = topic, options: dict[str, int] = options, **more: str) -> None:
            folder = tmp_path / topic
            query = Query(service.bootstrap, topic, folder, query_id=topic, **options, **more)
            query.write([values(10, 10 * batch)], batch)

        batch = number % 2  # the query's first, or a later one
        if batch:
            write(0)

        def stop(step: str) -> None:
            if step == "ended":
                kill(service)
                if driver_dies:
                    raise DeadError

        monkeypatch.setattr(committing, "stop_at", stop)
        with contextlib.suppress(DeadError):
            write(batch)
        monkeypatch.undo()
        service.start()  # type: ignore[attr-defined]
        taken_for_aborted = False
        # Spark runs the micro-batch of a dead driver again; a living one goes on with the next.
        for following in range(batch if driver_dies else batch + 1, batch + 2):
            for attempt in range(3):
                try:
                    write(following)
                    break
                except PendingOffsetError:
                    assert isinstance(service, OldBroker)
                    assert skips_markers(service, topic)
                    write(following, failOnMissingMarker="false")
                    taken_for_aborted = not driver_dies  # as is said of the option
                    break
                except KafkaLogError:
                    assert attempt < 2
        expected = digits(10 * (batch + 2))
        if taken_for_aborted:
            del expected[10 * batch : 10 * (batch + 1)]
        assert sorted(shown(service.bootstrap, topic)) == expected
