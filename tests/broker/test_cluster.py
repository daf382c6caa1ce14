"""The control plane: metadata looked up when it must be, connections kept, failures ridden out."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import InitProducerIdResponse

from pyspark_kafkalog.broker.cluster import cluster as cluster_module
from pyspark_kafkalog.broker.cluster.cluster import Cluster, cluster_of
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.errors import BrokerConnectionError, BrokerError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.broker.fake_broker import (
    API_VERSIONS,
    METADATA,
    Asked,
    FakeBroker,
    api_versions,
    encoded,
    metadata_response,
)
from tests.kafka import Broker
from tests.kafka_old import OldBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """One of three partitions."""
    name = f"cluster-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, 3, {"max.message.bytes": 123_456})
    return name


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses to which connections are opened from now on."""
    addresses: list[str] = []
    real = Connection.open.__func__  # type: ignore[attr-defined]

    def opening(cls: type[Connection], address: object, *args: object, **kwargs: object) -> Connection:
        addresses.append(str(address))
        return real(cls, address, *args, **kwargs)

    monkeypatch.setattr(Connection, "open", classmethod(opening))
    return addresses


def of(bootstrap: str, **options: object) -> Cluster:
    """A cluster with connections of its own."""
    return Cluster(ConnectionOptions(tuple(bootstrap.split(",")), **options))  # type: ignore[arg-type]


def test_topics_and_ids_are_those_on_the_broker(broker: Broker, topic: str) -> None:
    its = of(broker.bootstrap)
    assert its.topics()[topic] == (0, 1, 2)
    written = (broker.partition_folder(topic, 0) / "partition.metadata").read_text()
    assert its.topic_ids([topic, "missing"])[topic] in written.split()
    assert its.topic_ids(["missing"]) == {}
    its.close()


def test_topics_by_name(broker: Broker, topic: str) -> None:
    its = of(broker.bootstrap)
    assert its.topics([topic, "no-such-topic"]) == {topic: (0, 1, 2)}
    assert its.topics([]) == {}
    with pytest.raises(BrokerError, match=r"Looking up topic a b: .*(?i:invalid)"):
        its.topics(["a b"])


def test_nothing_is_created_by_asking(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker({"auto.create.topics.enable": "true"})
    broker.start()
    its = of(broker.bootstrap)
    assert its.topic_ids(["asked"]) == {}
    assert its.leader(TopicPartition("asked", 0)) is None
    assert its.topics() == {}
    its.refresh(["wanted"], create=True)
    deadline = time.monotonic() + 30
    while its.topics() != {"wanted": (0,)}:
        assert time.monotonic() < deadline
    its.close()


def test_a_leader_is_known_and_a_missing_partition_is_looked_up_again(broker: Broker, topic: str) -> None:
    its = of(broker.bootstrap)
    assert its.leader(TopicPartition(topic, 2)) == (1, 0)
    assert its.leader(TopicPartition(topic, 3)) is None
    with broker.admin() as admin:
        admin.create_partitions({topic: 4})
    its.forget([topic])
    deadline = time.monotonic() + 30
    while its.leader(TopicPartition(topic, 3)) is None:
        assert time.monotonic() < deadline
        its.forget([topic])
    its.close()


def test_old_metadata_is_looked_up_anew(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    its = of(broker.bootstrap, metadata_max_age_ms=200)
    lookups: list[object] = []
    refresh = its.refresh
    monkeypatch.setattr(its, "refresh", lambda topics, **_: (lookups.append(topics), refresh(topics)))
    for _ in range(3):
        its.leader(TopicPartition(topic, 0))
    assert lookups == [{topic}]
    time.sleep(0.25)
    its.leader(TopicPartition(topic, 0))
    assert lookups == [{topic}, {topic}]
    its.close()


def test_producer_ids_are_new_each_time(broker: Broker) -> None:
    its = of(broker.bootstrap)
    (first, first_epoch), (second, second_epoch) = its.producer_id(), its.producer_id()
    assert first != second
    assert first_epoch == second_epoch == 0
    its.close()


def test_configs_of_a_topic(broker: Broker, topic: str) -> None:
    its = of(broker.bootstrap)
    config = its.topic_config(topic)
    assert config is not None
    assert config["max.message.bytes"] == "123456"
    assert config["cleanup.policy"] == "delete"
    assert its.topic_config("missing") is None
    its.close()


def test_one_connection_serves_one_call_after_another(broker: Broker, topic: str, opened: list[str]) -> None:
    its = of(broker.bootstrap)
    for _ in range(5):
        its.topics()
        its.topic_config(topic)
        its.release(its.connection(1))
    assert opened == [broker.bootstrap]
    first, second = its.connection(1), its.connection(1)
    assert first is not second
    its.release(first)
    its.release(second)
    assert len(opened) == 2
    its.close()
    assert first.closed
    assert second.closed


def test_an_idle_connection_is_replaced(broker: Broker, opened: list[str]) -> None:
    its = of(broker.bootstrap, connections_max_idle_ms=100)
    its.topics()
    time.sleep(0.15)
    its.topics()
    assert len(opened) == 2
    its.close()


def test_a_connection_that_the_broker_closed_is_replaced(
    new_broker: Callable[..., Broker], opened: list[str]
) -> None:
    broker = new_broker({"connections.max.idle.ms": 300})
    broker.start()
    its = of(broker.bootstrap)
    its.topics()
    time.sleep(2)
    its.topics()
    its.topics()
    assert len(opened) == 2
    its.close()


def test_a_connection_with_a_request_in_flight_is_closed_when_given_back(broker: Broker) -> None:
    its = of(broker.bootstrap)
    connection = its.any_connection()
    connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    its.release(connection)
    assert connection.closed
    its.close()


def test_the_same_options_share_a_cluster_within_a_thread(broker: Broker) -> None:
    options = ConnectionOptions((broker.bootstrap,))
    mine = cluster_of(options)
    assert cluster_of(ConnectionOptions((broker.bootstrap,))) is mine
    assert cluster_of(ConnectionOptions((broker.bootstrap,), client_id="other")) is not mine
    others: list[Cluster] = []
    thread = threading.Thread(target=lambda: others.append(cluster_of(options)))
    thread.start()
    thread.join()
    assert others[0] is not mine


def test_a_forked_process_has_no_connections_of_its_parent(broker: Broker) -> None:
    options = ConnectionOptions((broker.bootstrap,), client_id="parent")
    mine = cluster_of(options)
    mine.topics()
    read, write = os.pipe()
    child = os.fork()
    if not child:  # no more than this: other threads' locks may be held for ever
        os.write(write, b"%d" % len(cluster_module._clusters.by_options))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"0"
    os.close(read)
    os.close(write)
    assert cluster_of(options) is mine
    mine.topics()


def test_any_of_the_bootstrap_servers_will_do(broker: Broker) -> None:
    its = of(f"127.0.0.1:1,{broker.bootstrap},no-such-host.invalid:9092", request_timeout_ms=5_000)
    assert its.topics()
    its.close()


def test_an_unreachable_cluster_is_given_up_after_the_request_timeout() -> None:
    its = of("127.0.0.1:1", request_timeout_ms=1_000)
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError, match="Connection refused") as caught:
        its.topics()
    assert 0.3 < time.monotonic() - began < 5
    assert caught.value.broker == "127.0.0.1:1"


def test_brokers_that_all_hang_are_not_tried_one_after_the_other_for_ever() -> None:
    brokers = [FakeBroker(lambda asked: b"") for _ in range(10)]
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError, match="nor do the other 9 bootstrap servers answer"):
        of(",".join(broker.address for broker in brokers), request_timeout_ms=1000).topics()
    assert time.monotonic() - began < 5
    for broker in brokers:
        broker.close()


def test_names_that_nobody_knows_are_not_tried_for_long() -> None:
    its = of("no-such-host.invalid:9092,nor-this.invalid:9092", request_timeout_ms=60_000)
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError, match="cannot be resolved"):
        its.topics()
    assert time.monotonic() - began < 20


def test_a_broker_that_restarts_is_waited_for(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker()
    broker.start()
    broker.create_topic("t")
    its = of(broker.bootstrap)
    assert its.topics() == {"t": (0,)}
    broker.stop(kill=True)
    restart = threading.Timer(1, broker.start)
    restart.start()
    try:
        assert its.topics() == {"t": (0,)}
    finally:
        restart.join()
    its.close()


def test_canonical_names_of_bootstrap_servers(broker: Broker) -> None:
    port = broker.bootstrap.rpartition(":")[2]
    its = of(f"localhost:{port}", client_dns_lookup="resolve_canonical_bootstrap_servers_only")
    assert its.topics() is not None
    its.close()


def test_a_broker_of_old(old_broker: OldBroker) -> None:
    name = f"old-{uuid.uuid4().hex[:12]}"
    old_broker.make_topic(name, 2)
    its = of(old_broker.bootstrap)
    assert its.topics()[name] == (0, 1)
    assert its.leader(TopicPartition(name, 1)) == (0, 0)
    assert its.producer_id()[0] >= 0
    config = its.topic_config(name)
    assert config is not None
    assert config["max.message.bytes"] == "1048588"
    its.close()


INIT_PRODUCER_ID = 22
COORDINATOR_LOAD_IN_PROGRESS = 14
WITH_PRODUCER_IDS = {API_VERSIONS: (0, 3), METADATA: (0, 12), INIT_PRODUCER_ID: (0, 4)}


class Nodes:
    """Brokers of one cluster; ``refuse`` says whether one does not give producer ids, or answers nothing.

    ``pauses`` are seconds before an answer, by API.
    """

    def __init__(
        self, count: int, refuse: Callable[[int], bytes | int], pauses: Mapping[int, float] | None = None
    ) -> None:
        self._refuse = refuse
        self._pauses = pauses or {}
        self.nodes: dict[int, FakeBroker] = {}
        for node in range(count):
            self.nodes[node] = FakeBroker(partial(self._answer, node))

    def _answer(self, node: int, asked: Asked) -> bytes | None:
        time.sleep(self._pauses.get(asked.api_key, 0))
        if asked.api_key == API_VERSIONS:
            return api_versions(asked, WITH_PRODUCER_IDS)
        if asked.api_key == METADATA:
            addresses = {node_id: broker.address for node_id, broker in self.nodes.items()}
            return encoded(asked, metadata_response(addresses))
        code = self._refuse(node)
        if isinstance(code, bytes):
            return code
        response = InitProducerIdResponse(
            throttle_time_ms=0, error_code=code, producer_id=7 if not code else -1, producer_epoch=0
        )
        return encoded(asked, response)

    def asked(self) -> list[int]:
        """How often each was asked for a producer id."""
        return [
            sum(its.api_key == INIT_PRODUCER_ID for its in broker.asked) for broker in self.nodes.values()
        ]

    def close(self) -> None:
        for broker in self.nodes.values():
            broker.close()


@pytest.mark.parametrize("good", [0, 1, 2])
def test_another_broker_is_asked_after_a_refusal(good: int) -> None:
    nodes = Nodes(3, lambda node: 0 if node == good else COORDINATOR_LOAD_IN_PROGRESS)
    its = of(nodes.nodes[0].address)
    its.refresh([])
    began = time.monotonic()
    assert its.producer_id() == (7, 0)
    assert time.monotonic() - began < 1
    assert max(nodes.asked()) == 1
    its.close()
    nodes.close()


def test_all_are_asked_by_turns() -> None:
    nodes = Nodes(3, lambda node: COORDINATOR_LOAD_IN_PROGRESS)
    its = of(nodes.nodes[0].address, retry_backoff_max_ms=100)
    its.refresh([])
    with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        its.producer_id(timeout=1.0)
    assert max(nodes.asked()) - min(nodes.asked()) <= 1 < min(nodes.asked())
    its.close()
    nodes.close()


@pytest.mark.parametrize("timeout", [None, 4.0])
def test_another_broker_is_asked_after_a_silence(timeout: float | None) -> None:
    first: list[int] = []

    def silent_at_first(node: int) -> bytes | int:
        first.append(node)
        return b"" if node == first[0] else 0

    nodes = Nodes(3, silent_at_first)
    its = of(nodes.nodes[0].address, request_timeout_ms=4000)
    its.refresh([])
    began = time.monotonic()
    assert its.producer_id(timeout=timeout) == (7, 0)
    assert time.monotonic() - began < 3
    assert sorted(nodes.asked()) == [0, 1, 1]
    its.close()
    nodes.close()


def test_an_answer_is_waited_for_where_the_connection_took_all_the_time() -> None:
    nodes = Nodes(1, lambda node: 0, {API_VERSIONS: 0.9, INIT_PRODUCER_ID: 0.15})
    its = of(nodes.nodes[0].address, request_timeout_ms=1000)
    assert its.producer_id() == (7, 0)
    assert nodes.asked() == [1]
    its.close()
    nodes.close()


def test_a_producer_id_is_waited_for_beyond_the_request_timeout() -> None:
    began = time.monotonic()
    nodes = Nodes(1, lambda node: COORDINATOR_LOAD_IN_PROGRESS if time.monotonic() - began < 2 else 0)
    its = of(nodes.nodes[0].address, request_timeout_ms=500)
    assert its.producer_id(timeout=10) == (7, 0)
    its.close()
    nodes.close()
