"""A coordinator that is cut off from the controllers, and names itself: another broker knows the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorResponse
from kafka.protocol.producer import EndTxnResponse

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.broker.cluster.cluster import Cluster, Coordinator
from pyspark_kafkalog.broker.cluster.coordinator import doubt
from pyspark_kafkalog.broker.produce.ids import ProducerId
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.extensions.exactly_once.requests import Requests
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.broker.fake_broker import (
    API_VERSIONS,
    METADATA,
    FakeBroker,
    Received,
    encoded,
    metadata_response,
    serving,
)

FIND_COORDINATOR, END_TXN, CONCURRENT_TRANSACTIONS = 10, 26, 51
VERSIONS = {API_VERSIONS: (0, 1), METADATA: (0, 4), FIND_COORDINATOR: (0, 1), END_TXN: (0, 1)}
OLD, NEW = 1, 2


class Two:
    """Two brokers, each of which names itself; only the new coordinator ends transactions."""

    def __init__(self, *, healed: bool = True) -> None:
        self.brokers: dict[int, FakeBroker] = {}
        self.asked: list[int] = []
        self.healed = healed

    def answer(self, node: int, received: Received) -> bytes:
        if received.api_key == METADATA:
            addresses = {number: broker.address for number, broker in self.brokers.items()}
            return encoded(received, metadata_response(addresses, cluster_id=None))
        if received.api_key == FIND_COORDINATOR:
            named = node if self.healed else OLD
            host, port = self.brokers[named].address.split(":")
            found = FindCoordinatorResponse(
                throttle_time_ms=0, error_code=0, error_message=None, node_id=named, host=host, port=int(port)
            )
            return encoded(received, found)
        self.asked.append(node)
        code = CONCURRENT_TRANSACTIONS if node == OLD else 0
        return encoded(received, EndTxnResponse(throttle_time_ms=0, error_code=code))


@pytest.fixture
def two() -> Iterator[Two]:
    script = Two()
    with ExitStack() as stack:
        for node in (OLD, NEW):
            broker = serving(lambda received, node=node: script.answer(node, received), VERSIONS)
            script.brokers[node] = stack.enter_context(broker)
        yield script


def cut_off(two: Two) -> Cluster:
    """A client to which the old coordinator has named itself."""
    old, new = (two.brokers[node].address for node in (OLD, NEW))
    cluster = Cluster(ConnectionOptions((old, new), request_timeout_ms=3000))
    cluster.refresh()
    return named(cluster, two)


def named(cluster: Cluster, two: Two) -> Cluster:
    host, port = two.brokers[OLD].address.split(":")
    key, address = (CoordinatorType.TRANSACTION, "id"), Address(host, int(port))
    cluster.coordinators[key] = Coordinator(OLD, address)
    cluster.coordinators_named_by[key] = address
    return cluster


def end(cluster: Cluster, seconds: float) -> None:
    Requests(cluster, "id").end(ProducerId(7, 0, None), commit=True, deadline=Deadline.after(seconds))


def test_one_that_can_end_nothing_is_looked_up_elsewhere(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.3)
    end(cut_off(two), 20)
    assert two.asked[-1] == NEW
    assert set(two.asked[:-1]) == {OLD}


def test_one_that_goes_on_alone(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.1)
    two.healed = False
    with pytest.raises(BrokerError, match=r"CONCURRENT_TRANSACTIONS.*may be cut off from the controllers"):
        end(cut_off(two), 1.5)
    assert set(two.asked) == {OLD}


def test_one_that_is_doubted_is_not_asked_who_it_is(two: Two) -> None:
    cluster = cut_off(two)
    for _ in range(8):
        doubt(named(cluster, two), CoordinatorType.TRANSACTION, "id")
        end(cluster, 20)
    assert set(two.asked) == {NEW}
