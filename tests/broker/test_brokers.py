"""Which brokers a cluster has, which of them answer, and who the controller is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.protocol.admin import DescribeQuorumResponse

from pyspark_kafkalog import connect
from tests.broker.fake_broker import VERSIONS, Received, encoded, metadata_response, serving
from tests.broker.fake_broker import topic_metadata as described
from tests.kafka_process import free_ports
from tests.tools.cli.running import run

DESCRIBE_QUORUM = 55
NOT_AUTHORIZED = 31


def quorum(leader_id: int, error_code: int = 0) -> Any:
    topic = DescribeQuorumResponse.TopicData
    partition = topic.PartitionData(
        partition_index=0,
        error_code=0,
        leader_id=leader_id,
        leader_epoch=1,
        high_watermark=1,
        current_voters=[],
    )
    return DescribeQuorumResponse(
        error_code=error_code, topics=[topic(topic_name="__cluster_metadata", partitions=[partition])]
    )


@contextmanager
def cluster(answer: Any = None, controller_id: int = -1) -> Iterator[str]:
    """Broker 1 answers, 2 does not, and 3 has replicas only; ``answer`` is that to DescribeQuorum."""
    (closed,) = free_ports(1)

    def respond(received: Received) -> bytes:
        if received.api_key == DESCRIBE_QUORUM:
            return encoded(received, answer)
        topic = described("t", {0: (1, 0), 1: (1, 0), 2: (-1, 0)})
        topic.partitions[2].replica_nodes = [3]
        response = metadata_response({1: address[0], 2: f"127.0.0.1:{closed}"}, [topic])
        response.brokers[0].rack = "a"
        response.controller_id = controller_id
        return encoded(received, response)

    versions = VERSIONS if answer is None else {**VERSIONS, DESCRIBE_QUORUM: (0, 2)}
    address: list[str] = []
    with serving(respond, versions) as broker:
        address.append(broker.address)
        yield broker.address


def test_each_broker_is_asked() -> None:
    with cluster(quorum(2), controller_id=1) as address:
        done = run("brokers", address)
        rows = connect(address).brokers()
    assert done.code == 1
    titles, first, second, third = done.lines
    assert titles == ["ID", "HOST", "PORT", "RACK", "VERSION", "CONTROLLER", "LEADS", "REPLICAS", "ANSWERS"]
    assert first == ["1", "127.0.0.1", address.rpartition(":")[2], "a", "3.1", "no", "2", "2", "yes"]
    assert (second[:2], second[3:]) == (["2", "127.0.0.1"], ["-", "-", "yes", "0", "0", "no"])
    assert third == ["3", "-", "-", "-", "-", "no", "0", "1", "no"]
    assert "Broker 2 does not answer: TCP: " in done.err
    assert "Broker 3 does not answer: it has replicas, but the cluster does not list it now" in done.err
    assert [row.is_controller for row in rows] == [False, True, False], "metadata names any broker (KIP-590)"


@pytest.mark.parametrize(
    ("answer", "controller_id", "found"),
    [
        (None, 1, [True, False, False]),
        (None, -1, [None, None, None]),
        (quorum(9), 1, [False, False, False]),
        (quorum(-1, NOT_AUTHORIZED), 1, [None, None, None]),
    ],
    ids=["ZooKeeper", "none", "not a broker", "hidden by ACLs"],
)
def test_who_the_controller_is(answer: Any, controller_id: int, found: list[bool | None]) -> None:
    with cluster(answer, controller_id) as address:
        assert [row.is_controller for row in connect(address).brokers()] == found


def test_partitions_without_a_leader_are_described() -> None:
    with cluster() as address:
        done = run("topics", "describe", address, "t")
    assert done.code == 0, done.err
    assert done.lines == [
        ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "SIZE", "NOTE"],
        ["t", "0", "1", "0", "1", "1", "-", "-"],
        ["t", "1", "1", "0", "1", "1", "-", "-"],
        ["t", "2", "-", "0", "3", "1", "-", "no", "leader"],
    ]
    assert done.err == "The brokers don't show the configurations of t.\n"
