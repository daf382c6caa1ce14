"""A connection sends requests unchanged, and accepts only valid responses."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import ProduceRequest

from pyspark_kafkalog.broker.wire.connection import Connection, readable
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaLogError,
    UnsupportedVersionError,
)
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.broker.fake_broker import (
    API_VERSIONS,
    Answer,
    FakeBroker,
    Received,
    api_versions,
    framed,
    metadata,
    serving,
)
from tests.kafka import Broker

OPTIONS = ConnectionOptions(("unused:1",), client_id="client-7", request_timeout_ms=2_000)


def connect(broker: FakeBroker | Broker | str, options: ConnectionOptions = OPTIONS) -> Connection:
    address = broker if isinstance(broker, str) else getattr(broker, "address", None) or broker.bootstrap
    return Connection.open(Address.parse(address), options)


def ask_metadata() -> MetadataRequest:
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


def refused(answer: Answer, match: str) -> KafkaLogError:
    """What a call raises for this response; the connection is closed afterwards."""
    with serving(answer) as broker:
        connection = connect(broker)
        with pytest.raises(BrokerError, match=match) as caught:
            connection.call(ask_metadata())
        assert connection.closed
        assert not connection.is_usable(60)
        assert caught.value.broker == broker.address
    return caught.value


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("a.b:9092", "a.b", 9092), ("127.0.0.1:1", "127.0.0.1", 1), ("[::1]:65535", "::1", 65535)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == (host, port)
    assert str(Address.parse(text)) == text


def test_several_requests_are_answered_in_their_order() -> None:
    with serving(metadata) as broker:
        connection = connect(broker)
        for _ in range(3):
            connection.send(ask_metadata())
        assert connection.in_flight == 3
        assert readable([connection], 5) == [connection]
        for _ in range(3):
            assert connection.receive().brokers == []
        assert connection.in_flight == 0
        assert readable([connection], 0) == []
        assert [received.correlation_id for received in broker.requests] == [1, 2, 3, 4]
        assert b"client-7" in broker.requests[1].frame
        connection.close()


def test_a_broker_that_knows_no_newer_api_versions_is_asked_in_version_0() -> None:
    def answer(received: Received) -> bytes:
        if received.version:  # with error 35, always in the layout of version 0 (KIP-511)
            return framed(received.correlation_id, struct.pack(">hi", 35, 0))
        return api_versions(received, {API_VERSIONS: (0, 0), 3: (0, 5)})

    broker = FakeBroker(answer)
    connection = connect(broker)
    assert connection.versions == {API_VERSIONS: (0, 0), 3: (0, 5)}
    assert connection.version_of(MetadataRequest) == 5
    assert connection.version_of(MetadataRequest, max_version=2) == 2
    with pytest.raises(
        UnsupportedVersionError, match="MetadataRequest in one of versions 9 to 13, the broker has 0 to 5"
    ):
        connection.version_of(MetadataRequest, min_version=9)
    with pytest.raises(UnsupportedVersionError, match=r"the broker has none.*Kafka 1\.0 and newer"):
        connection.version_of(ProduceRequest)
    connection.close()
    broker.close()


def test_an_answer_to_another_request_is_refused() -> None:
    refused(
        lambda received: metadata(received._replace(correlation_id=99)), "answered request 99 instead of 2"
    )


def test_an_answer_that_makes_no_sense_is_refused() -> None:
    refused(lambda received: framed(received.correlation_id, b"\x00\xff\xff\xff\xff"), "cannot be read")


@pytest.mark.parametrize("size", [-1, 0, 3, (100 << 20) + 1])
def test_an_answer_of_an_impossible_size_is_refused(size: int) -> None:
    refused(lambda received: struct.pack(">i", size) + bytes(100), f"sent a response of {size} bytes")


def test_an_answer_that_breaks_off_is_a_lost_connection() -> None:
    error = refused(
        lambda received: metadata(received)[:-1] if received.api_key == 3 else None,
        "bytes of a response arrived, then nothing for 2000 ms",
    )
    assert isinstance(error, BrokerConnectionError)


def test_a_connection_that_the_broker_closes_is_lost() -> None:
    error = refused(lambda received: None, "closed by the broker")
    assert isinstance(error, BrokerConnectionError)
    assert error.hint is not None
    assert "kafka.sasl.mechanism" in error.hint


def test_a_broker_that_keeps_silent_is_given_up() -> None:
    began = time.monotonic()
    refused(lambda received: b"", "did not answer within 2000 ms")
    assert 1.9 < time.monotonic() - began < 30


def test_a_broker_that_takes_a_request_bit_by_bit_is_given_up() -> None:
    class SlowBroker(FakeBroker):
        def _serve(self, connection: socket.socket) -> None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            frame = connection.recv(1 << 14)[4:]
            connection.sendall(api_versions(Received(*struct.unpack_from(">hhi", frame), frame)))
            with contextlib.suppress(OSError):
                while connection.recv(1 << 14):
                    time.sleep(0.05)

    broker = SlowBroker(metadata)
    connection = connect(broker, replace(OPTIONS, request_timeout_ms=500, send_buffer_bytes=1 << 14))
    began = time.monotonic()
    with pytest.raises(
        BrokerConnectionError, match=r"did not take a request within 2000 ms, only 0\.\d of 3\.3 MB"
    ):
        connection.send_body(MetadataRequest, 12, [bytes(1 << 14)] * 200)
    assert 1.9 < time.monotonic() - began < 30
    assert connection.closed
    broker.close()


def test_what_speaks_tls_is_told_from_what_speaks_something_else() -> None:
    for greeting, match, hint in (
        (b"\x15\x03\x03\x00\x02\x02\x50", "answers in TLS", "SSL or SASL_SSL"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP, not Kafka's protocol", "kafka.bootstrap.servers"),
    ):
        broker = FakeBroker(lambda received, greeting=greeting: greeting)
        with pytest.raises(BrokerError, match=match) as caught:
            connect(broker)
        assert not isinstance(caught.value, BrokerConnectionError)
        assert hint in str(caught.value)
        broker.close()


def test_nobody_listens(unused_port: int) -> None:
    with pytest.raises(BrokerConnectionError, match="Connection refused"):
        connect(f"127.0.0.1:{unused_port}")
    with pytest.raises(BrokerConnectionError, match="cannot be resolved"):
        connect("no-such-host.invalid:9092")


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that no other process can take: it is bound, but not listened on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def test_a_throttled_client_sends_nothing_for_a_while() -> None:
    with serving(lambda received: metadata(received, throttle_time_ms=300)) as broker:
        connection = connect(broker)
        connection.call(ask_metadata())
        began = time.monotonic()
        connection.send(ask_metadata())
        assert time.monotonic() - began >= 0.28
        connection.close()


@pytest.mark.parametrize("pause", [2**31 - 1, 5_000])
def test_a_pause_that_nobody_can_keep_is_refused(pause: int) -> None:
    with serving(lambda received: metadata(received, throttle_time_ms=pause)) as broker:
        for timeout in (1.0, None):
            connection = connect(broker, replace(OPTIONS, request_timeout_ms=1_000))
            connection.call(ask_metadata())
            began = time.monotonic()
            with pytest.raises(
                BrokerConnectionError, match=r"asks for a pause of \d+ s, but only [14] s are left"
            ):
                connection.call(ask_metadata(), deadline=timeout and Deadline.after(timeout))
            assert time.monotonic() - began < 0.9  # before either timeout
            assert connection.closed


def test_a_body_in_pieces_is_sent_as_one_request() -> None:
    seen: list[Received] = []

    def answer(received: Received) -> bytes:
        seen.append(received)
        return metadata(received)

    with serving(answer) as broker:
        connection = connect(broker)
        request = ask_metadata()
        body = bytes(request.encode(version=12))
        # More pieces than one system call takes, and more bytes than the socket's buffer.
        pieces = [memoryview(body[:1]), *[b""] * 2_000, body[1:]]
        connection.send_body(MetadataRequest, 12, pieces)
        connection.receive()
        connection.call(request)
        first, second = (received.frame for received in seen)
        assert first[:4] + first[8:] == second[:4] + second[8:]
        connection.send_body(MetadataRequest, 12, [bytes(20 << 20)], expect_response=False)
        assert connection.in_flight == 0
        connection.close()


def test_a_connection_is_not_used_again_when_idle_too_long_or_closed_by_the_broker() -> None:
    with serving(metadata) as broker:
        connection = connect(broker)
        assert connection.is_usable(60)
        assert not connection.is_usable(0)
        connection.send(ask_metadata())
        assert not connection.is_usable(60)
        connection.receive()
        broker.close()
        assert readable([connection], 5) == [connection]
        assert not connection.is_usable(60)


@pytest.mark.long
@pytest.mark.broker
def test_a_real_broker(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    connection = connect(broker)
    assert connection.version_of(MetadataRequest) >= 12
    assert connection.call(ask_metadata()).brokers[0].host == "127.0.0.1"
    response = connection.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    assert response.error_code == 0
    connection.send(ask_metadata())
    answer = connection.receive_frame(bytearray, deadline=Deadline.after(5), stall=5, limit=1 << 20)
    assert answer.body == 5
    assert answer.size == len(answer.buffer) > 5
    connection.close()
    assert not caplog.records, "nothing of a request is logged"
