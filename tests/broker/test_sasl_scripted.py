"""Listeners that ask for a login maliciously, or make no sense."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeResponse

from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.options.security.oauth import OAuthOptions
from pyspark_kafkalog.options.security.protocol import SecurityOptions
from tests.broker.fake_broker import API_VERSIONS, FakeBroker, Received, encoded, serving

HANDSHAKE, AUTHENTICATE = 17, 36
SCRAM = SecurityOptions("SASL_PLAINTEXT", "SCRAM-SHA-256", "me", "pass-3c1f")
OAUTH = SecurityOptions("SASL_PLAINTEXT", "OAUTHBEARER", oauth=OAuthOptions(token="token-71"))
SALT = base64.b64encode(b"salt").decode()


@dataclass
class Listener:
    """Answers the messages of a mechanism by ``says``, from the message and its number."""

    says: Callable[[bytes, int], bytes]
    heard: list[bytes] = field(default_factory=list)

    def answer(self, received: Received) -> bytes:
        if received.api_key == HANDSHAKE:
            handshake = SaslHandshakeResponse(error_code=0, mechanisms=["SCRAM-SHA-256", "OAUTHBEARER"])
            return encoded(received, handshake)
        request = SaslAuthenticateRequest.decode(received.frame, version=received.version, header=True)
        self.heard.append(request.auth_bytes)
        said = self.says(request.auth_bytes, len(self.heard) - 1)
        body = SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=said, session_lifetime_ms=0
        )
        return encoded(received, body)


@contextmanager
def listening(listener: Listener) -> Iterator[FakeBroker]:
    with serving(listener.answer, {API_VERSIONS: (0, 3), HANDSHAKE: (0, 1), AUTHENTICATE: (0, 2)}) as broker:
        yield broker


def refused(listener: Listener, security: SecurityOptions, match: str) -> str:
    options = ConnectionOptions(("unused:1",), security=security, request_timeout_ms=2_000)
    with listening(listener) as broker, pytest.raises(AuthenticationError, match=match) as caught:
        Connection.open(Address.parse(broker.address), options, deadline=Deadline.after(2))
    return str(caught.value)


def test_a_listener_that_goes_on_for_ever() -> None:
    listener = Listener(lambda message, number: b"{}")
    refused(listener, OAUTH, "SASL OAUTHBEARER did not end after 16 rounds")
    assert len(listener.heard) == 16


def first(iterations: str) -> Callable[[bytes, int], bytes]:
    return lambda message, number: (
        message.partition(b"r=")[2].join((b"r=", b"xyz")) + f",s={SALT},i={iterations}".encode()
    )


@pytest.mark.parametrize("iterations", ["1", "4095", "1000001", "9" * 5000, "-4096", "0x1000", ""])
def test_a_listener_that_makes_passwords_easy_to_guess_or_costly_gets_no_proof(iterations: str) -> None:
    listener = Listener(first(iterations))
    text = refused(listener, SCRAM, r"expected 4096 to 1000000 iterations, the broker asks for ")
    assert len(listener.heard) == 1
    assert len(text) < 600


def test_iterations_that_kafka_has_are_taken() -> None:
    listener = Listener(
        lambda message, number: first("4096")(message, number) if number == 0 else b"v=" + b"A" * 44
    )
    refused(listener, SCRAM, "SASL SCRAM-SHA-256 failed: Server sent wrong signature")
    assert len(listener.heard) == 2


@pytest.mark.parametrize("number", [0, 1])
def test_an_error_that_the_listener_tells(number: int) -> None:
    listener = Listener(
        lambda message, at: b"e=other-error" if at == number else first("4096")(message, number)
    )
    text = refused(listener, SCRAM, "SASL SCRAM-SHA-256 failed: the broker says 'other-error'")
    assert "pass-3c1f" not in text


@pytest.mark.parametrize("said", [b"", b"\xff\xfe", b"r=1", b",,,", b"=", b"r=x,s=%%,i=4096", b"s,r,i"])
def test_messages_that_make_no_sense(said: bytes) -> None:
    for number in (0, 1):
        listener = Listener(lambda message, at, n=number: said if at == n else first("4096")(message, 0))
        refused(listener, SCRAM, "SASL SCRAM-SHA-256 failed: ")
