"""The control plane: metadata is looked up when needed, connections are kept, failures survived."""

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
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.errors import BrokerConnectionError, BrokerError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.broker.fake_broker import (
    API_VERSIONS,
    METADATA,
    FakeBroker,
    Received,
    api_versions,
    encoded,
    metadata_response,
)
from tests.kafka import Broker
from tests.kafka_old import OldBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with three partitions."""
    name = f"cluster-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, 3, {"max.message.bytes": 123_456})
    return name


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses to which connections have been opened since."""
    addresses: list[str] = []
    real = Connection.open.__func__  # type: ignore[attr-defined]

    def opening(cls: type[Connection], address: object, *args: object, **kwargs: object) -> Connection:
        addresses.append(str(address))
        return real(cls, address, *args, **kwargs)

    monkeypatch.setattr(Connection, "open", classmethod(opening))
    return addresses


def of(bootstrap: str, **options: object) -> Cluster:
    """A cluster with its own connections."""
    return Cluster(ConnectionOptions(tuple(bootstrap.split(",")), **options))  # type: ignore[arg-type]


@pytest.mark.long
def test_topics_and_ids_are_those_on_the_broker(broker: Broker, topic: str) -> None:
    cluster = of(broker.bootstrap)
    assert cluster.topics()[topic] == (0, 1, 2)
    written = (broker.partition_folder(topic, 0) / "partition.metadata").read_text()
    assert cluster.topic_ids([topic, "missing"])[topic] in written.split()
    assert cluster.topic_ids(["missing"]) == {}
    cluster.close()


def test_topics_by_name(broker: Broker, topic: str) -> None:
    cluster = of(broker.bootstrap)
    assert cluster.topics([topic, "no-such-topic"]) == {topic: (0, 1, 2)}
    assert cluster.topics([]) == {}
    with pytest.raises(BrokerError, match=r"Looking up topic a b: .*(?i:invalid)"):
        cluster.topics(["a b"])


@pytest.mark.long
def test_nothing_is_created_by_asking(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker({"auto.create.topics.enable": "true"})
    broker.start()
    cluster = of(broker.bootstrap)
    assert cluster.topic_ids(["asked"]) == {}
    assert cluster.leader(TopicPartition("asked", 0)) is None
    assert cluster.topics() == {}
    cluster.refresh(["wanted"], create=True)
    deadline = time.monotonic() + 30
    while cluster.topics() != {"wanted": (0,)}:
        assert time.monotonic() < deadline
    cluster.close()


def test_a_leader_is_known_and_a_missing_partition_is_looked_up_again(broker: Broker, topic: str) -> None:
    cluster = of(broker.bootstrap)
    assert cluster.leader(TopicPartition(topic, 2)) == (1, 0)
    assert cluster.leader(TopicPartition(topic, 3)) is None
    with broker.admin() as admin:
        admin.create_partitions({topic: 4})
    cluster.forget([topic])
    deadline = time.monotonic() + 30
    while cluster.leader(TopicPartition(topic, 3)) is None:
        assert time.monotonic() < deadline
        cluster.forget([topic])
    cluster.close()


def test_old_metadata_is_looked_up_anew(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = of(broker.bootstrap, metadata_max_age_ms=200)
    lookups: list[object] = []
    refresh = cluster.refresh
    monkeypatch.setattr(cluster, "refresh", lambda topics, **_: (lookups.append(topics), refresh(topics)))
    for _ in range(3):
        cluster.leader(TopicPartition(topic, 0))
    assert lookups == [{topic}]
    time.sleep(0.25)
    cluster.leader(TopicPartition(topic, 0))
    assert lookups == [{topic}, {topic}]
    cluster.close()


def test_producer_ids_are_new_each_time(broker: Broker) -> None:
    cluster = of(broker.bootstrap)
    (first, first_epoch), (second, second_epoch) = cluster.producer_id(), cluster.producer_id()
    assert first != second
    assert first_epoch == second_epoch == 0
    cluster.close()


def test_configs_of_a_topic(broker: Broker, topic: str) -> None:
    cluster = of(broker.bootstrap)
    config = cluster.topic_config(topic)
    assert config is not None
    assert config["max.message.bytes"] == "123456"
    assert config["cleanup.policy"] == "delete"
    assert cluster.topic_config("missing") is None
    cluster.close()


def test_one_connection_serves_one_call_after_another(broker: Broker, topic: str, opened: list[str]) -> None:
    cluster = of(broker.bootstrap)
    for _ in range(5):
        cluster.topics()
        cluster.topic_config(topic)
        cluster.release(cluster.connection(1))
    assert opened == [broker.bootstrap]
    first, second = cluster.connection(1), cluster.connection(1)
    assert first is not second
    cluster.release(first)
    cluster.release(second)
    assert len(opened) == 2
    cluster.close()
    assert first.closed
    assert second.closed


def test_an_idle_connection_is_replaced(broker: Broker, opened: list[str]) -> None:
    cluster = of(broker.bootstrap, connections_max_idle_ms=100)
    cluster.topics()
    time.sleep(0.15)
    cluster.topics()
    assert len(opened) == 2
    cluster.close()


@pytest.mark.long
def test_a_connection_that_the_broker_closed_is_replaced(
    new_broker: Callable[..., Broker], opened: list[str]
) -> None:
    broker = new_broker({"connections.max.idle.ms": 300})
    broker.start()
    cluster = of(broker.bootstrap)
    cluster.topics()
    time.sleep(2)
    cluster.topics()
    cluster.topics()
    assert len(opened) == 2
    cluster.close()


def test_a_connection_with_a_request_in_flight_is_closed_when_given_back(broker: Broker) -> None:
    cluster = of(broker.bootstrap)
    connection = cluster.any_connection()
    connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    cluster.release(connection)
    assert connection.closed
    cluster.close()


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
    cluster = of(f"127.0.0.1:1,{broker.bootstrap},no-such-host.invalid:9092", request_timeout_ms=5_000)
    assert cluster.topics()
    cluster.close()


def test_an_unreachable_cluster_is_given_up_after_the_request_timeout() -> None:
    cluster = of("127.0.0.1:1", request_timeout_ms=1_000)
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError, match="Connection refused") as caught:
        cluster.topics()
    assert 0.3 < time.monotonic() - began < 20
    assert caught.value.broker == "127.0.0.1:1"


def test_brokers_that_all_hang_are_not_tried_one_after_the_other_for_ever() -> None:
    brokers = [FakeBroker(lambda received: b"") for _ in range(10)]
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError, match="nor do the other 9 bootstrap servers answer"):
        of(",".join(broker.address for broker in brokers), request_timeout_ms=1000).topics()
    assert time.monotonic() - began < 9
    for broker in brokers:
        broker.close()


def test_names_that_nobody_knows_are_not_tried_for_long() -> None:
    cluster = of("no-such-host.invalid:9092,nor-this.invalid:9092", request_timeout_ms=60_000)
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError, match="cannot be resolved"):
        cluster.topics()
    assert time.monotonic() - began < 20


def test_a_broker_that_restarts_is_waited_for(stoppable_broker: Broker) -> None:
    broker, topic = stoppable_broker, f"restarts-{uuid.uuid4().hex[:12]}"
    broker.create_topic(topic)
    cluster = of(broker.bootstrap)
    assert cluster.topics()[topic] == (0,)
    broker.stop(kill=True)
    restart = threading.Timer(1, broker.start)
    restart.start()
    try:
        assert cluster.topics()[topic] == (0,)
    finally:
        restart.join()
    cluster.close()


def test_canonical_names_of_bootstrap_servers(broker: Broker) -> None:
    port = broker.bootstrap.rpartition(":")[2]
    cluster = of(f"localhost:{port}", client_dns_lookup="resolve_canonical_bootstrap_servers_only")
    assert cluster.topics() is not None
    cluster.close()


@pytest.mark.long
def test_a_broker_of_old(old_broker: OldBroker) -> None:
    name = f"old-{uuid.uuid4().hex[:12]}"
    old_broker.make_topic(name, 2)
    cluster = of(old_broker.bootstrap)
    assert cluster.topics()[name] == (0, 1)
    assert cluster.leader(TopicPartition(name, 1)) == (0, 0)
    assert cluster.producer_id()[0] >= 0
    config = cluster.topic_config(name)
    assert config is not None
    assert config["max.message.bytes"] == "1048588"
    cluster.close()


INIT_PRODUCER_ID = 22
COORDINATOR_LOAD_IN_PROGRESS = 14
WITH_PRODUCER_IDS = {API_VERSIONS: (0, 3), METADATA: (0, 12), INIT_PRODUCER_ID: (0, 4)}


class Nodes:
    """Brokers of one cluster; ``refuse`` returns a broker's error code for producer ids, or b"" for silence.

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

    def _answer(self, node: int, received: Received) -> bytes | None:
        time.sleep(self._pauses.get(received.api_key, 0))
        if received.api_key == API_VERSIONS:
            return api_versions(received, WITH_PRODUCER_IDS)
        if received.api_key == METADATA:
            addresses = {node_id: broker.address for node_id, broker in self.nodes.items()}
            return encoded(received, metadata_response(addresses))
        code = self._refuse(node)
        if isinstance(code, bytes):
            return code
        response = InitProducerIdResponse(
            throttle_time_ms=0, error_code=code, producer_id=7 if not code else -1, producer_epoch=0
        )
        return encoded(received, response)

    def producer_id_requests(self) -> list[int]:
        """How often each broker was asked for a producer id."""
        return [
            sum(received.api_key == INIT_PRODUCER_ID for received in broker.requests)
            for broker in self.nodes.values()
        ]

    def close(self) -> None:
        for broker in self.nodes.values():
            broker.close()


@pytest.mark.parametrize("good", [0, 1, 2])
def test_another_broker_is_asked_after_a_refusal(good: int) -> None:
    nodes = Nodes(3, lambda node: 0 if node == good else COORDINATOR_LOAD_IN_PROGRESS)
    cluster = of(nodes.nodes[0].address)
    cluster.refresh([])
    began = time.monotonic()
    assert cluster.producer_id() == (7, 0)
    assert time.monotonic() - began < 20
    assert max(nodes.producer_id_requests()) == 1
    cluster.close()
    nodes.close()


def test_all_are_asked_by_turns() -> None:
    nodes = Nodes(3, lambda node: COORDINATOR_LOAD_IN_PROGRESS)
    cluster = of(nodes.nodes[0].address, retry_backoff_max_ms=100)
    cluster.refresh([])
    with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        cluster.producer_id(deadline=Deadline.after(1))
    assert (
        max(nodes.producer_id_requests()) - min(nodes.producer_id_requests())
        <= 1
        < min(nodes.producer_id_requests())
    )
    cluster.close()
    nodes.close()


@pytest.mark.parametrize("timeout", [None, 4.0])
def test_another_broker_is_asked_after_a_silence(timeout: float | None) -> None:
    first: list[int] = []

    def silent_at_first(node: int) -> bytes | int:
        first.append(node)
        return b"" if node == first[0] else 0

    nodes = Nodes(3, silent_at_first)
    cluster = of(nodes.nodes[0].address, request_timeout_ms=4000)
    cluster.refresh([])
    began = time.monotonic()
    assert cluster.producer_id(deadline=timeout and Deadline.after(timeout)) == (7, 0)
    assert time.monotonic() - began < 3
    assert sorted(nodes.producer_id_requests()) == [0, 1, 1]
    cluster.close()
    nodes.close()


def test_an_answer_is_waited_for_where_the_connection_took_all_the_time() -> None:
    nodes = Nodes(1, lambda node: 0, {API_VERSIONS: 0.9, INIT_PRODUCER_ID: 0.15})
    cluster = of(nodes.nodes[0].address, request_timeout_ms=1000)
    assert cluster.producer_id() == (7, 0)
    assert nodes.producer_id_requests() == [1]
    cluster.close()
    nodes.close()


def test_a_producer_id_is_waited_for_beyond_the_request_timeout() -> None:
    began = time.monotonic()
    nodes = Nodes(1, lambda node: COORDINATOR_LOAD_IN_PROGRESS if time.monotonic() - began < 2 else 0)
    cluster = of(nodes.nodes[0].address, request_timeout_ms=500)
    assert cluster.producer_id(deadline=Deadline.after(10)) == (7, 0)
    cluster.close()
    nodes.close()
