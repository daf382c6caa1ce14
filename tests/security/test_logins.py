"""Each protocol and mechanism that a broker offers, from the user's options to rows written and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.broker.producing import digits, numbered, unused_topic
from tests.http_doubles import Silent, served
from tests.kafka_secure import MECHANISMS, SecureBroker, unsecured_token
from tests.security.exchange import read, write
from tests.security.logins import (
    Options,
    certificate_file_login,
    certificate_login,
    oauth_login,
    password_login,
    without_host_name,
)

pytestmark = pytest.mark.broker

Login = Callable[[SecureBroker, Path], Options]


def sasl(protocol: str, mechanism: str) -> Login:
    if mechanism == "OAUTHBEARER":
        return lambda broker, _: oauth_login(broker, protocol, f'oauth.access.token="{unsecured_token()}"')
    return lambda broker, _: password_login(broker, protocol, mechanism)


LOGINS: dict[str, Login] = {
    **{
        f"{protocol} {mechanism}": sasl(protocol, mechanism)
        for protocol in ("SASL_SSL", "SASL_PLAINTEXT")
        for mechanism in MECHANISMS
    },
    "PEM in options": lambda broker, _: certificate_login(broker),
    "an encrypted key": lambda broker, _: certificate_login(broker, encrypted=True),
    "PEM in files": certificate_file_login,
    "any host name": lambda broker, _: without_host_name(password_login(broker, "SASL_SSL", "PLAIN")),
}


def check_exchange(broker: SecureBroker, options: Options) -> None:
    topic = unused_topic()
    broker.create_topic(topic, 2)
    write(options, topic, [numbered(1000)])
    assert sorted(read(options, topic)) == digits(1000)


@pytest.mark.parametrize("login", LOGINS.values(), ids=LOGINS)
def test_writes_and_reads(secure_broker: SecureBroker, tmp_path: Path, login: Login) -> None:
    check_exchange(secure_broker, login(secure_broker, tmp_path))


class Endpoint(Silent, BaseHTTPRequestHandler):
    """Gives a token to one client."""

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"]))
        # "client:client-secret"
        known = self.headers["Authorization"] == "Basic Y2xpZW50OmNsaWVudC1zZWNyZXQ="
        known = known and b"grant_type=client_credentials" in form
        self.send_response(200 if known else 401)
        self.end_headers()
        if known:
            self.wfile.write(json.dumps({"access_token": unsecured_token(), "expires_in": 3600}).encode())


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The URL of a token endpoint (RFC 6749, 4.4)."""
    with served(HTTPServer(("127.0.0.1", 0), Endpoint)) as server:
        yield f"http://127.0.0.1:{server.server_port}/token"


def test_a_token_from_an_endpoint(secure_broker: SecureBroker, endpoint: str) -> None:
    login = 'clientId="client" clientSecret="client-secret"'
    options = oauth_login(secure_broker, "SASL_SSL", login, sasl__oauthbearer__token__endpoint__url=endpoint)
    options["org.apache.kafka.sasl.oauthbearer.allowed.urls"] = endpoint
    check_exchange(secure_broker, options)
