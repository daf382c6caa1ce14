"""Topics and queries of their own for tests of transactions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.producing import unused_topic
from tests.broker.transactions.writing import Query
from tests.kafka import Broker


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
