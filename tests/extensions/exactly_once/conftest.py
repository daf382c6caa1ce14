"""Topics and queries of their own for tests of transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog.extensions.exactly_once import committing
from tests.broker.producing import unused_topic
from tests.extensions.exactly_once.writing import Query
from tests.kafka import Broker
from tests.kafka_service import running


@pytest.fixture
def proven_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a single broker says is asked for again after 0.2 seconds, not 5: it was not paused."""
    monkeypatch.setattr(committing, "PROVEN_AFTER", 0.2)


@pytest.fixture
def topic(broker: Broker) -> str:
    name = unused_topic()
    broker.create_topic(name, 3)
    return name


@pytest.fixture
def driver(broker: Broker, topic: str, tmp_path: Path) -> Callable[..., Query]:
    """Makes drivers of one query, all with the same checkpoint."""

    def make(**options: object) -> Query:
        where = str(options.pop("bootstrap", broker.bootstrap))
        return Query(where, topic, tmp_path / "checkpoint", query_id=topic, **options)

    return make


@pytest.fixture(params=[2, *(pytest.param(old, marks=pytest.mark.soak) for old in (0, 1))])
def of_each_version(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker that a test may stop, of each ``transaction.version``; the newest is the default."""
    if request.param == 2:
        yield request.getfixturevalue("stoppable_broker")
        return
    options = ("--feature", f"transaction.version={request.param}")
    with running(Broker(tmp_path / "broker", format_options=options)) as broker:
        yield broker
