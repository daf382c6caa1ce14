"""Addresses where no broker has ever answered fail soon and clearly; for others a call waits."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pyspark_kafkalog.broker.cluster import pool
from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.pool import ConnectionPool, note_reached
from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import BrokerConnectionError, BrokerError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_place
from tests.broker.fake_broker import FakeBroker, Received, metadata, serving
from tests.broker.test_fetch_scripted import Script, played
from tests.http_doubles import served
from tests.kafka_process import free_ports

pytestmark = pytest.mark.slow

P = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def nothing_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_reached", set())


@contextmanager
def closing_port() -> Iterator[str]:
    """Accepts connections and closes them at the first byte, as a broker's TLS listener does."""
    broker = FakeBroker(lambda received: None)
    yield broker.address
    broker.close()


@contextmanager
def silent_port() -> Iterator[str]:
    broker = FakeBroker(lambda received: b"")
    yield broker.address
    broker.close()


@contextmanager
def port_that_takes_nothing() -> Iterator[str]:
    """Its backlog is full, so that a SYN is not answered."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for sock in (first, second):
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def http_port() -> Iterator[str]:
    with served(ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)) as server:
        yield f"127.0.0.1:{server.server_port}"


@contextmanager
def closed_port() -> Iterator[str]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{sock.getsockname()[1]}"


def given_up(ask: Callable[[], object], match: str) -> float:
    """How many seconds the call took to fail."""
    began = time.monotonic()
    with pytest.raises(BrokerError, match=match):
        ask()
    return time.monotonic() - began


LISTENERS = [
    (closed_port, "Connection refused"),
    (silent_port, r"did not answer within \d+ ms.*something other than a broker may listen there"),
    (http_port, r"did not answer within \d+ ms.*something other than a broker may listen there"),
    (port_that_takes_nothing, "Cannot connect to the broker: timed out"),
    (closing_port, "broke: closed by the broker.*kafka.security.protocol to SSL"),
]


@pytest.mark.parametrize(("listener", "match"), LISTENERS)
def test_what_never_answered_is_given_up_after_half_of_the_time_for_a_connection(
    listener: Callable[[], object], match: str
) -> None:
    with listener() as address:  # type: ignore[attr-defined]
        options = ConnectionOptions((address,), socket_connection_setup_timeout_ms=3_000)
        place = Brokers(options, FetchOptions(num_retries=3))
        assert given_up(lambda: place.watermarks([P], read_committed=False), match) < 2.5
        assert given_up(lambda: place.topics(), match) < 2.5
        assert given_up(lambda: BrokerGroups(options).committed("g"), match) < 2.5


@pytest.mark.long
@pytest.mark.parametrize(("listener", "match"), LISTENERS[:2])
def test_it_is_given_up_within_5_seconds_by_default(listener: Callable[[], object], match: str) -> None:
    with listener() as address:  # type: ignore[attr-defined]
        place = Brokers(ConnectionOptions((address,)), FetchOptions())
        assert 3 < given_up(lambda: place.topics(), match) < 5.5


def test_several_servers_of_which_none_answers_share_the_time() -> None:
    with silent_port() as silent, port_that_takes_nothing() as full, closed_port() as closed:
        options = ConnectionOptions((silent, full, closed), socket_connection_setup_timeout_ms=2_000)
        place = Brokers(options, FetchOptions())
        assert given_up(lambda: place.topics(), "nor do the other 2 bootstrap servers answer") < 3.5


def test_a_silent_server_does_not_keep_the_others_from_being_asked() -> None:
    with silent_port() as silent, port_that_takes_nothing() as full, played(Script()) as broker:
        for _ in range(5):
            options = ConnectionOptions(
                (silent, full, broker.address), socket_connection_setup_timeout_ms=2_000
            )
            cluster = Cluster(options)
            assert cluster.topics() == {"t": (0,)}
            cluster.close()
            pool._reached.clear()


@contextmanager
def started_after(seconds: float) -> Iterator[str]:
    """The address of a broker that starts to listen only later."""
    (port,) = free_ports(1)
    script, stop = Script(), threading.Event()

    def start() -> None:
        with played(script, port):
            stop.wait(30)

    timer = threading.Timer(seconds, start)
    timer.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        stop.set()
        timer.join()


def test_a_name_with_a_slip_beside_a_server_that_starts() -> None:
    with started_after(1) as address:
        cluster = Cluster(ConnectionOptions((address, "no-such-host.invalid:9092")))
        assert cluster.topics() == {"t": (0,)}
        cluster.close()


def test_what_was_reached_once_is_waited_for() -> None:
    with started_after(2) as address:
        options = ConnectionOptions((address,), socket_connection_setup_timeout_ms=500)
        with pytest.raises(BrokerConnectionError, match="Connection refused"):
            Cluster(options).topics()
        note_reached(options)
        cluster = Cluster(options)
        assert cluster.topics() == {"t": (0,)}
        cluster.close()


def test_a_task_waits_for_brokers_that_its_plan_came_from() -> None:
    with started_after(2) as address:
        options = place_options(
            {"kafka.bootstrap.servers": address, "kafka.socket.connection.setup.timeout.ms": "500"}
        )
        with pytest.raises(BrokerConnectionError, match="Connection refused"):
            open_place(options).topics()
        assert open_place(options, reached=True).topics() == {"t": (0,)}


def brokers_at(*addresses: str) -> list[Address]:
    return [Address.parse(address) for address in addresses]


def test_connections_to_where_brokers_no_longer_listen_are_left() -> None:
    with serving(metadata) as here, serving(metadata) as there:
        pool_ = ConnectionPool(ConnectionOptions(("127.0.0.1:1",)))
        old, new = brokers_at(here.address, there.address)
        first, second = pool_.take(old, 1), pool_.take(new, 2)
        pool_.release(first)
        pool_.release(second)
        pool_.retain([new])
        assert first.closed
        assert not second.closed
        assert pool_.take(new, 2) is second


def test_a_connection_to_another_node_is_not_taken_up_at_its_address() -> None:
    """As behind a proxy, or after an address moved from one broker to another."""
    with serving(metadata) as here:
        pool_ = ConnectionPool(ConnectionOptions((here.address,)))
        (address,) = brokers_at(here.address)
        first = pool_.take(address, 1)
        pool_.release(first)
        assert pool_.take(address, None) is first
        pool_.release(first)
        assert pool_.take(address, 1) is first
        pool_.release(first)
        second = pool_.take(address, 2)
        assert second is not first
        assert first.closed


def test_advertised_listeners_that_change() -> None:
    """The same broker on another port: the old port is left, although it still answers."""
    script, requests = Script(), []

    def answer(received: Received) -> bytes | None:
        requests.append(received)
        return script.answer(received)

    with serving(answer) as old, serving(script.answer) as new:
        script.address = old.address
        cluster = Cluster(ConnectionOptions((new.address,)))
        cluster.topics()
        connection = cluster.connection(1)
        assert str(connection.address) == old.address
        cluster.release(connection)
        script.address = new.address
        cluster.topics()
        assert connection.closed
        before = len(requests)
        for _ in range(3):
            cluster.topics()
            cluster.release(cluster.connection(1))
        assert len(requests) == before
