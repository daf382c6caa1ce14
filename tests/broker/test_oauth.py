"""Tokens from each source, kept as long as they are good, and errors that show none of them."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog.broker import oauth
from pyspark_kafkalog.broker.oauth import Tokens
from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.options.oauth import OAuthOptions

SECRET = "client-secret-c41a"


class Endpoint(HTTPServer):
    """Gives the answers that it is told, then the last one again, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, str]] = []
        self.asked: list[tuple[str, str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.headers["Authorization"], self.headers["Content-Type"], body))
        answers = self.server.answers
        status, text = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    oauth._fetched.clear()
    yield
    oauth._fetched.clear()


def options(url: str, **changes: Any) -> OAuthOptions:
    its = {"client_id": "id", "client_secret": SECRET, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
    return OAuthOptions(endpoint=url, **{**its, **changes})


def granted(token: str, **more: Any) -> tuple[int, str]:
    return 200, json.dumps({"access_token": token, "token_type": "bearer", **more})


def test_client_credentials_are_exchanged_for_a_token(endpoint: Endpoint) -> None:
    endpoint.answers = [granted("t1", expires_in=60)]
    tokens = Tokens(options(endpoint.url, scope="a b", extensions=(("logicalCluster", "x"),)))
    assert tokens.token() == "t1"
    ((authorization, kind, body),) = endpoint.asked
    assert authorization == "Basic " + base64.b64encode(f"id:{SECRET}".encode()).decode()
    assert kind == "application/x-www-form-urlencoded"
    assert body == "grant_type=client_credentials&scope=a+b"
    assert tokens.extensions() == {"logicalCluster": "x"}


def test_id_and_secret_are_encoded_if_asked_for(endpoint: Endpoint) -> None:
    endpoint.answers = [granted("t")]
    Tokens(options(endpoint.url, client_id="i d", client_secret="s:/", urlencode_header=True)).token()
    assert endpoint.asked[0][0] == "Basic " + base64.b64encode(b"i+d:s%3A%2F").decode()


def test_a_token_is_kept_for_most_of_its_life(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint.answers = [granted("t1", expires_in=100), granted("t2", expires_in=100), granted("t3")]
    its = options(endpoint.url)
    assert [Tokens(its).token() for _ in range(3)] == ["t1"] * 3
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 79)
    assert Tokens(its).token() == "t1"
    monkeypatch.setattr(time, "time", lambda: now + 81)
    assert Tokens(its).token() == "t2"
    monkeypatch.setattr(time, "time", lambda: now + 200)
    assert [Tokens(its).token() for _ in range(2)] == ["t3"] * 2
    assert len(endpoint.asked) == 4, "one without a lifetime is asked for each time"


def test_an_endpoint_that_is_busy_is_asked_again(endpoint: Endpoint) -> None:
    endpoint.answers = [(503, ""), (500, ""), granted("t")]
    assert Tokens(options(endpoint.url)).token() == "t"
    endpoint.answers = [(503, SECRET)]
    with pytest.raises(AuthenticationError, match="HTTP status 503"):
        Tokens(options(endpoint.url)).token()
    assert len(endpoint.asked) == 3 + 5


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, json.dumps({"error": SECRET})), "HTTP status 401"),
        ((200, f"<html>{SECRET}"), "the answer is no JSON"),
        ((200, json.dumps({"token": SECRET})), "the answer has no access_token"),
        ((200, json.dumps([SECRET])), "the answer has no access_token"),
        ((200, json.dumps({"access_token": 5})), "the answer has no access_token"),
    ],
)
def test_an_endpoint_that_gives_no_token(endpoint: Endpoint, answer: tuple[int, str], why: str) -> None:
    endpoint.answers = [answer]
    with pytest.raises(AuthenticationError, match=why) as caught:
        Tokens(options(endpoint.url + f"?key={SECRET}")).token()
    assert len(endpoint.asked) == 1
    assert SECRET not in str(caught.value)
    assert "http://127.0.0.1/token" in str(caught.value)


def test_an_endpoint_that_is_not_there() -> None:
    with pytest.raises(AuthenticationError, match="Connection refused"):
        Tokens(options("http://127.0.0.1:1/token")).token()


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    tokens = Tokens(OAuthOptions(endpoint=file.as_uri()))
    for token in ("t1", "t2"):
        file.write_text(token + "\n")
        assert tokens.token() == token
    file.unlink()
    with pytest.raises(AuthenticationError, match="No such file"):
        Tokens(OAuthOptions(endpoint=file.as_uri(), retry_backoff_ms=0)).token()


def given_token() -> str:
    return "given"


def given_pair() -> tuple[str, int]:
    return "given", 1_000


def given_nothing() -> None:
    return None


def fails() -> str:
    raise RuntimeError("no network")


def test_a_callable_of_the_user() -> None:
    for name in ("given_token", "given_pair"):
        assert Tokens(OAuthOptions(provider=f"{__name__}:{name}")).token() == "given"
    for name, why in (
        ("given_nothing", "returned a NoneType"),
        ("fails", "RuntimeError: no network"),
        ("missing", "AttributeError"),
    ):
        with pytest.raises(AuthenticationError, match=why):
            Tokens(OAuthOptions(provider=f"{__name__}:{name}")).token()


def test_an_unsecured_token_claims_what_it_is_told() -> None:
    its = OAuthOptions(
        unsecured_claims=(("sub", "alice"), ("n", 1.5), ("groups", ("a", "b"))), unsecured_lifetime_seconds=77
    )
    header, claims, signature = Tokens(its).token().split(".")
    assert signature == ""
    decoded = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (header, claims)]
    assert decoded[0] == {"alg": "none"}
    assert decoded[1].pop("exp") - decoded[1].pop("iat") == 77
    assert decoded[1] == {"sub": "alice", "n": 1.5, "groups": ["a", "b"]}
