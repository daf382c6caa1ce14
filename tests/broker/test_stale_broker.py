"""A broker that is cut off from the others and answers: its metadata leads nowhere, so another is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions
from tests.broker.fake_broker import METADATA, VERSIONS, Received
from tests.broker.scripted_cluster import Belief, ScriptedCluster, playing

PARTITION = TopicPartition("t", 0)
DEAD = 3
STALE = Belief(leader=DEAD, epoch=5)
LEADER = Belief(leader=2, epoch=6)
NO_EPOCHS = {18: (0, 3), 3: (0, 6), 1: (4, 8), 2: (1, 3)}
"""Versions of brokers before Kafka 2.1."""


@pytest.fixture(params=[None, NO_EPOCHS], ids=["epochs", "no epochs"])
def place(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    """The metadata of broker 1, the only one connected."""
    versions = {"versions": request.param} if request.param else {}
    cluster = ScriptedCluster({1: STALE, 2: LEADER}, **versions, dead={DEAD: "127.0.0.1:1"})
    with playing(cluster):
        options = ConnectionOptions(
            (cluster.brokers[1].address,),
            request_timeout_ms=1_500,
            retry_backoff_ms=5,
            retry_backoff_max_ms=50,
            reconnect_backoff_ms=5,
        )
        place = Brokers(options, FetchOptions(poll_timeout_ms=1_500, num_retries=1))
        assert place.topics(["t"]) == {"t": (0,)}
        yield place


def test_bounds_are_looked_up(place: Brokers) -> None:
    assert place.watermarks([PARTITION], read_committed=False)[PARTITION].high_watermark == 100


def test_records_are_fetched(place: Brokers) -> None:
    assert list(place.fetch(Fetch(PARTITION, OffsetRange(0, 100))))


@dataclass
class OldEpochs(ScriptedCluster):
    """Brokers whose metadata keeps an old leader epoch, as before Kafka 2.4 (KAFKA-9212)."""

    def _metadata(self, node: int, belief: Belief, received: Received) -> Any:
        return super()._metadata(node, replace(belief, epoch=belief.epoch - 1), received)


@pytest.mark.parametrize("newest", [7, 8])
def test_leader_epochs_of_old_metadata_are_not_asked_for(newest: int) -> None:
    cluster = OldEpochs({1: Belief(2, 5), 2: Belief(2, 5)}, {**VERSIONS, METADATA: (0, newest)})
    with playing(cluster):
        place = Brokers(ConnectionOptions(tuple(cluster.bootstrap.split(","))), FetchOptions())
        assert place.end_offsets([PARTITION], read_committed=False) == {PARTITION: 100}
        assert place.leader_epochs([PARTITION]) == {}
