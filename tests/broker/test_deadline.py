"""Deadlines are made once and passed down: what is left of them bounds each step."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.sasl import SaslHandshakeResponse

from pyspark_kafkalog.broker.cluster import pool
from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.pool import ConnectionPool
from pyspark_kafkalog.broker.wire import deadline as module
from pyspark_kafkalog.broker.wire import sockets
from pyspark_kafkalog.broker.wire.deadline import SHORTEST_WAIT, Deadline
from pyspark_kafkalog.broker.wire.frames import Pace, read_size
from pyspark_kafkalog.broker.wire.sockets import Address, OutOfTimeError
from pyspark_kafkalog.errors import BrokerConnectionError
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.options.security.protocol import SecurityOptions
from tests.broker.fake_broker import (
    API_VERSIONS,
    METADATA,
    FakeBroker,
    Received,
    api_versions,
    encoded,
    metadata_response,
    serving,
)

HANDSHAKE, AUTHENTICATE = 17, 36


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_time_runs_out(clock: Clock) -> None:
    deadline = Deadline.after_ms(2_000)
    assert (deadline.left, deadline.expired) == (2.0, False)
    clock.now += 2
    assert (deadline.left, deadline.expired) == (0.0, True)
    clock.now += 1
    assert (deadline.left, deadline.expired) == (0.0, True)


def test_attempts_share_the_time_that_is_left(clock: Clock) -> None:
    deadline = Deadline.after(8)
    assert deadline.share(2) == Deadline.after(4)
    clock.now += 6
    assert deadline.share(2) == Deadline.after(1)
    assert deadline.share(2, least=1.5) == Deadline.after(1.5)
    assert deadline.share(2, least=3) == deadline, "no share ends after the whole"
    clock.now += 6
    assert deadline.share(2).expired


def test_the_earlier_bounds_the_later(clock: Clock) -> None:
    soon, late = Deadline.after(1), Deadline.after(2)
    assert late.bounded_by(soon) == soon.bounded_by(late) == soon
    assert late.bounded_by(None) == late


class SkippingClock:
    """The real clock, which a broker puts forward instead of being slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._skipped = 0.0
        real = time.monotonic
        monkeypatch.setattr(module.time, "monotonic", lambda: real() + self._skipped)

    def skip(self, seconds: float) -> None:
        self._skipped += seconds


@pytest.fixture
def skipping(monkeypatch: pytest.MonkeyPatch) -> SkippingClock:
    monkeypatch.setattr(pool, "_reached", set())
    return SkippingClock(monkeypatch)


def waited_ms(call: Callable[[], object]) -> int:
    """How long the call waited for the response that never came."""
    with pytest.raises(BrokerConnectionError) as caught:
        call()
    found = re.search(r"did not answer within (\d+) ms", str(caught.value))
    assert found, caught.value
    return int(found[1])


def test_connecting_to_each_broker_and_its_answer_share_one_deadline(skipping: SkippingClock) -> None:
    def slow(received: Received) -> bytes:
        if received.api_key != API_VERSIONS:
            return b""
        skipping.skip(6)
        return api_versions(received)

    leader = FakeBroker(slow)
    brokers = metadata_response({1: leader.address})
    with serving(lambda received: encoded(received, brokers)) as bootstrap:
        cluster = Cluster(ConnectionOptions((bootstrap.address,), request_timeout_ms=2_000))
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        try:
            cluster.refresh([])
            waited = waited_ms(lambda: cluster.call_broker(1, request, Deadline.after(6.2)))
        finally:
            cluster.close()
            leader.close()
    assert [received.api_key for received in leader.requests] == [API_VERSIONS, METADATA]
    assert waited <= 200


def test_a_login_at_first_contact_ends_by_the_deadline_of_the_call(skipping: SkippingClock) -> None:
    def slow(received: Received) -> bytes:
        if received.api_key != HANDSHAKE:
            return b""
        skipping.skip(6)
        return encoded(received, SaslHandshakeResponse(error_code=0, mechanisms=["SCRAM-SHA-256"]))

    security = SecurityOptions("SASL_PLAINTEXT", "SCRAM-SHA-256", "me", "pass-2d07")
    with serving(slow, {API_VERSIONS: (0, 3), HANDSHAKE: (0, 1), AUTHENTICATE: (0, 2)}) as broker:
        options = ConnectionOptions((broker.address,), security=security, request_timeout_ms=2_000)
        connections = ConnectionPool(options)
        waited = waited_ms(lambda: connections.take_any({}, deadline=Deadline.after(6.2)))
    asked = [received.api_key for received in broker.requests]
    assert asked[:3] == [API_VERSIONS, HANDSHAKE, AUTHENTICATE]
    assert waited <= 200


def test_the_first_answer_has_time_of_its_own_after_a_slow_handshake(
    skipping: SkippingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sockets.open_socket

    def slow_handshake(*args: Any) -> socket.socket:
        skipping.skip(4.999)
        return connect(*args)

    def slow_answer(received: Received) -> bytes | None:
        time.sleep(0.3)
        return api_versions(received)

    monkeypatch.setattr(sockets, "open_socket", slow_handshake)
    broker = FakeBroker(slow_answer)
    try:
        ConnectionPool(ConnectionOptions((broker.address,))).take_any({}).close()
    finally:
        broker.close()


def test_a_wait_that_the_deadline_of_the_call_ends_does_not_blame_the_listener() -> None:
    broker = FakeBroker(lambda received: b"")
    connections = ConnectionPool(ConnectionOptions((broker.address,)))
    try:
        with pytest.raises(OutOfTimeError, match="were left of the time for all") as caught:
            connections.take(Address.parse(broker.address), None, deadline=Deadline.after(0.2))
    finally:
        broker.close()
    assert caught.value.hint is None


def test_after_a_deadline_what_has_arrived_is_read_and_nothing_is_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"size and more")
        late = Pace(stall=5, total=0)
        assert late.wait() == SHORTEST_WAIT
        assert read_size(ours, late) == b"size"
        with pytest.raises(TimeoutError):  # a broker that sends byte by byte cannot stretch it
            read_size(ours, late)
    silent, peer = socket.socketpair()
    with silent, peer, pytest.raises(TimeoutError):
        read_size(silent, Pace(stall=5, total=0))
