"""Looks at single record batches: what comes, what does not fit, and what is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest

from pyspark_kafkalog.codec.batch_identity import header_of
from pyspark_kafkalog.codec.walk import walk
from tests.broker.fake_broker import FETCH, Received, fetch_response
from tests.broker.scripted_cluster import Belief, ScriptedCluster, playing
from tests.broker.test_deposed_leader import PARTITION, brokers
from tests.log.partitions import batch

LEADER = Belief(leader=2, epoch=6, start=20, end=100)


@dataclass
class LargeBatches(ScriptedCluster):
    """As if its batches were larger than what is asked of a partition that is not alone."""

    def _records(self, node: int, belief: Belief, received: Received) -> Any:
        request = FetchRequest.decode(received.frame, version=received.version, header=True)
        (wanted,) = request.topics[0].partitions
        if wanted.partition_max_bytes > 1:
            return fetch_response(None, {"high_watermark": belief.end, "records": b""})
        return super()._records(node, belief, received)


@pytest.mark.parametrize("kind", [ScriptedCluster, LargeBatches])
def test_the_batch_that_holds_an_offset(kind: type[ScriptedCluster]) -> None:
    with playing(kind({1: LEADER, 2: LEADER})) as cluster:
        place = brokers(cluster)
        header = header_of(walk(batch(50)))
        assert place.batches_at({PARTITION: 55}) == {PARTITION: header}
        assert (header.base_offset, header.last_offset) == (50, 59)


@pytest.mark.parametrize("offset", [15, 100, 200])
def test_what_is_gone_or_not_there_yet_is_left_out(offset: int) -> None:
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        assert brokers(cluster).batches_at({PARTITION: offset}) == {}


def test_a_leader_that_has_moved_is_found() -> None:
    other = Belief(leader=1, epoch=7)
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        place = brokers(cluster)
        place.watermarks([PARTITION], read_committed=False)
        cluster.beliefs = {1: other, 2: other}
        assert place.batches_at({PARTITION: 55}).keys() == {PARTITION}
        cluster.beliefs = {1: LEADER, 2: LEADER}
        assert place.batches_at({PARTITION: 55}) == {}, "a deposed one shows none, and ends nothing"


@dataclass
class Closing(ScriptedCluster):
    """At some time its brokers begin to close their connections."""

    is_closing: bool = False

    def answer(self, node: int, received: Received) -> bytes | None:
        return None if self.is_closing else super().answer(node, received)


def test_brokers_that_give_no_metadata_in_time_end_nothing() -> None:
    with playing(Closing({1: LEADER, 2: LEADER})) as cluster:
        place = brokers(cluster)
        place.watermarks([PARTITION], read_committed=False)
        cluster.is_closing = True
        place._cluster.forget([PARTITION.topic])
        assert place.batches_at({PARTITION: 55}) == {}


def test_one_round_asks_once() -> None:
    with playing(ScriptedCluster({1: LEADER, 2: LEADER})) as cluster:
        brokers(cluster).batches_at({PARTITION: 55})
        assert sum(key == FETCH for _, key in cluster.requests) == 1
