"""A leader that is paused while a commit looks for open rows ends nothing: another one is asked."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.extensions.exactly_once.settling import seen_rows
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.broker.fake_broker import VERSIONS, Received, encoded, producers_response
from tests.broker.scripted_cluster import Belief, ScriptedCluster, playing

DESCRIBE_PRODUCERS = 61
PARTITION = TopicPartition("t", 0)


@dataclass
class Paused(ScriptedCluster):
    """Broker 1 leads until it is asked for producers, which it does not answer; then broker 2 does."""

    def answer(self, node: int, received: Received) -> bytes | None:
        if received.api_key != DESCRIBE_PRODUCERS:
            return super().answer(node, received)
        if node == 1:
            self.beliefs = dict.fromkeys((1, 2), Belief(leader=2, epoch=8))
            return b""
        return encoded(received, producers_response("t", epoch=4))


def test_the_next_leader_is_asked() -> None:
    beliefs = dict.fromkeys((1, 2), Belief(leader=1, epoch=7))
    with playing(Paused(beliefs, {**VERSIONS, DESCRIBE_PRODUCERS: (0, 0)})) as scripted:
        cluster = Cluster(ConnectionOptions(tuple(scripted.bootstrap.split(",")), request_timeout_ms=300))
        try:
            found = seen_rows(cluster, [PARTITION], [9], deadline=Deadline.after(20))
        finally:
            cluster.close()
    ((found_there,),) = found.values()
    assert found_there.is_open
