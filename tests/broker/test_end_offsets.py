"""Repeated requests for the ends of partitions: little work, and no change missed."""

from __future__ import annotations

import copy
import time
import uuid
from dataclasses import replace
from typing import Any

import pytest

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.broker.fetch import list_offsets
from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.model import Seen, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions
from tests.broker.fake_broker import LIST_OFFSETS, METADATA
from tests.broker.scripted_cluster import Belief, ScriptedCluster, playing

PARTITION = TopicPartition("t", 0)
LEADER = Belief(leader=2, epoch=6, end=100)


class Looking:
    """Looks up the end of the partition."""

    def __init__(self, cluster: ScriptedCluster, **options: Any) -> None:
        connection = ConnectionOptions(
            tuple(cluster.bootstrap.split(",")),
            request_timeout_ms=3_000,
            retry_backoff_ms=5,
            retry_backoff_max_ms=50,
        )
        self.place = Brokers(connection, FetchOptions(retry_interval_ms=10, **options))

    def __call__(self) -> int | None:
        return self.place.end_offsets([PARTITION], read_committed=False).get(PARTITION)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests for ends so far."""
    made: list[Any] = []
    original = list_offsets.ends_requests

    def counting(epochs: Any, *, read_committed: bool) -> Any:
        made.append(epochs)
        return original(epochs, read_committed=read_committed)

    monkeypatch.setattr(list_offsets, "ends_requests", counting)
    return made


def test_what_stays_as_it_is_costs_a_request_and_nothing_more(encoded: list[Any]) -> None:
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        look = Looking(cluster)
        assert [look() for _ in range(10)] == [100] * 10
        assert len(encoded) == 3, "twice in the long way, and once to be sent again and again"
        assert cluster.requests.count((2, LIST_OFFSETS)) == 10
        ends = look.place.end_offsets
        assert ends([PARTITION], read_committed=False) is ends([PARTITION], read_committed=False)


@pytest.mark.parametrize("looks", range(1, 6))
def test_a_record_that_comes_is_seen_at_once(looks: int) -> None:
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        look = Looking(cluster)
        for end in (100, 101, 205):
            cluster.beliefs = dict.fromkeys((1, 2), replace(LEADER, end=end))
            assert [look() for _ in range(looks)] == [end] * looks


@pytest.mark.parametrize("looks", range(1, 6))
def test_a_leader_that_moves_is_followed(looks: int) -> None:
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        look = Looking(cluster)
        for number in range(looks):
            belief = Belief(leader=1 + number % 2, epoch=7 + number, end=200 + number)
            cluster.beliefs = dict.fromkeys((1, 2), belief)
            assert [look() for _ in range(looks)] == [200 + number] * looks


def test_a_deposed_leader_is_not_asked_again() -> None:
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        look = Looking(cluster)
        assert [look() for _ in range(4)] == [100] * 4
        cluster.beliefs = {1: Belief(leader=1, epoch=7, end=150), 2: LEADER}
        look.place.expect(PARTITION, Seen(leader_epoch=7, end=150))
        assert [look() for _ in range(4)] == [150] * 4


def test_an_end_that_was_seen_is_waited_for() -> None:
    beliefs = {1: copy.copy(LEADER), 2: replace(LEADER, until=8)}
    with playing(ScriptedCluster(beliefs)) as cluster:
        look = Looking(cluster)
        assert [look() for _ in range(4)] == [100] * 4
        cluster.beliefs[1] = Belief(leader=1, epoch=7, end=150)
        look.place.expect(PARTITION, Seen(end=150))
        assert look() == 150


def test_a_topic_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.2)
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        look = Looking(cluster)
        assert [look() for _ in range(4)] == [100] * 4
        cluster.beliefs = dict.fromkeys((1, 2), replace(LEADER, exists=False))
        assert [look() for _ in range(2)] == [None] * 2


@pytest.mark.parametrize("is_told", [True, False])
def test_an_end_of_a_topic_that_was_made_anew_is_not_waited_for(
    is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.2)
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        look = Looking(cluster, poll_timeout_ms=60_000)
        assert look() == 100
        look.place.expect(PARTITION, Seen("AAAAAAAAAAAAAAAAAAAABw", end=150))
        if is_told:
            cluster.beliefs = dict.fromkeys((1, 2), replace(LEADER, exists=False))
            assert look() is None
        cluster.beliefs = dict.fromkeys((1, 2), replace(LEADER, topic_id=uuid.UUID(int=8), end=10))
        begun = time.monotonic()
        assert [look() for _ in range(2)] == [10 if is_told else None, 10]
        assert time.monotonic() - begun < 30


def test_a_broker_that_closes_the_connection_is_called_again() -> None:
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        look = Looking(cluster)
        assert [look() for _ in range(4)] == [100] * 4
        look.place._cluster.close()
        assert [look() for _ in range(4)] == [100] * 4


def test_a_proof_that_the_topic_is_gone_counts_in_the_look_up_that_found_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.5)
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        look = Looking(cluster)
        assert [look() for _ in range(3)] == [100] * 3
        cluster.beliefs = {node: replace(LEADER, exists=False) for node in (1, 2)}
        known = look.place._cluster
        for node in (1, 2):
            known.refresh(["t"], avoid=[node])
        assert not known.metadata.is_gone(PARTITION)
        time.sleep(0.6)
        known.forget(["t"])
        before = len(cluster.requests)
        assert look() is None
        assert [key for _, key in cluster.requests[before:]] == [METADATA]
