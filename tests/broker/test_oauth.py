"""Tokens from each source, kept while valid, and errors that reveal none of them."""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog.broker.wire import oauth
from pyspark_kafkalog.broker.wire.oauth import OAuthTokens
from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.options.security.oauth import OAuthOptions
from tests.http_doubles import Silent, served

SECRET = "client-secret-c41a"


class Endpoint(HTTPServer):
    """Gives its answers in turn, then the last one again, and keeps the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, str]] = []
        self.requests: list[tuple[str, str, str]] = []
        self.location = ""
        self.url = f"http://127.0.0.1:{self.server_port}/token"


class _Handler(Silent, BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.requests.append((self.headers["Authorization"], self.headers["Content-Type"], body))
        answers = self.server.answers
        status, text = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with served(Endpoint()) as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    oauth._fetched.values.clear()
    yield
    oauth._fetched.values.clear()


def options(url: str, **changes: Any) -> OAuthOptions:
    chosen = {
        "client_id": "id",
        "client_secret": SECRET,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
    }
    return OAuthOptions(endpoint=url, **{**chosen, **changes})


def granted(token: str, **more: Any) -> tuple[int, str]:
    return 200, json.dumps({"access_token": token, "token_type": "bearer", **more})


def test_client_credentials_are_exchanged_for_a_token(endpoint: Endpoint) -> None:
    endpoint.answers = [granted("t1", expires_in=60)]
    tokens = OAuthTokens(options(endpoint.url, scope="a b", extensions=(("logicalCluster", "x"),)), "host")
    assert tokens.token() == "t1"
    ((authorization, kind, body),) = endpoint.requests
    assert authorization == "Basic " + base64.b64encode(f"id:{SECRET}".encode()).decode()
    assert kind == "application/x-www-form-urlencoded"
    assert body == "grant_type=client_credentials&scope=a+b"
    assert tokens.extensions() == {"logicalCluster": "x"}


def test_id_and_secret_are_encoded_if_asked_for(endpoint: Endpoint) -> None:
    endpoint.answers = [granted("t")]
    OAuthTokens(
        options(endpoint.url, client_id="i d", client_secret="s:/", urlencode_header=True), "host"
    ).token()
    assert endpoint.requests[0][0] == "Basic " + base64.b64encode(b"i+d:s%3A%2F").decode()


def test_a_token_is_kept_for_most_of_its_life(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint.answers = [granted("t1", expires_in=100), granted("t2", expires_in=100), granted("t3")]
    chosen = options(endpoint.url)
    assert [OAuthTokens(chosen, "host").token() for _ in range(3)] == ["t1"] * 3
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 79)
    assert OAuthTokens(chosen, "host").token() == "t1"
    monkeypatch.setattr(time, "time", lambda: now + 81)
    assert OAuthTokens(chosen, "host").token() == "t2"
    monkeypatch.setattr(time, "time", lambda: now + 200)
    assert [OAuthTokens(chosen, "host").token() for _ in range(2)] == ["t3"] * 2
    assert len(endpoint.requests) == 4, "one without a lifetime is asked for each time"


def test_an_endpoint_that_is_busy_is_asked_again(endpoint: Endpoint) -> None:
    endpoint.answers = [(503, ""), (500, ""), granted("t")]
    assert OAuthTokens(options(endpoint.url), "host").token() == "t"
    endpoint.answers = [(503, SECRET)]
    with pytest.raises(AuthenticationError, match="HTTP status 503"):
        OAuthTokens(options(endpoint.url), "host").token()
    assert len(endpoint.requests) == 3 + 5


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, json.dumps({"error": SECRET})), "HTTP status 401"),
        ((200, f"<html>{SECRET}"), "expected an answer in JSON"),
        ((200, json.dumps({"token": SECRET})), "the answer has no access_token"),
        ((200, json.dumps([SECRET])), "the answer has no access_token"),
        ((200, json.dumps({"access_token": 5})), "the answer has no access_token"),
    ],
)
def test_an_endpoint_that_gives_no_token(endpoint: Endpoint, answer: tuple[int, str], why: str) -> None:
    endpoint.answers = [answer]
    with pytest.raises(AuthenticationError, match=why) as caught:
        OAuthTokens(options(endpoint.url + f"?key={SECRET}"), "host").token()
    assert len(endpoint.requests) == 1
    assert SECRET not in str(caught.value)
    assert "kafka.sasl.oauthbearer.token.endpoint.url" in str(caught.value)


def test_an_endpoint_that_is_not_there() -> None:
    with pytest.raises(AuthenticationError, match="Connection refused"):
        OAuthTokens(options("http://127.0.0.1:1/token"), "host").token()


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    tokens = OAuthTokens(OAuthOptions(endpoint=file.as_uri()), "host")
    for token in ("t1", "t2"):
        file.write_text(token + "\n")
        assert tokens.token() == token
    file.unlink()
    with pytest.raises(AuthenticationError, match="No such file"):
        OAuthTokens(OAuthOptions(endpoint=file.as_uri(), retry_backoff_ms=0), "host").token()


def test_a_redirect_is_not_followed(endpoint: Endpoint) -> None:
    with served(Endpoint()) as other:
        other.answers = [granted("t")]
        endpoint.location = other.url
        for status in (301, 302, 303, 307, 308):
            endpoint.answers = [(status, "")]
            with pytest.raises(AuthenticationError, match=f"status {status}, a redirect.*origin only"):
                OAuthTokens(options(endpoint.url), "host").token()
        assert len(endpoint.requests) == 5, "each was asked once"
        assert other.requests == []


def test_no_proxy_sees_the_secret(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Endpoint()
    try:
        for name in ("http_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        endpoint.answers = [granted("t")]
        assert OAuthTokens(options(endpoint.url), "host").token() == "t"
        assert proxy.requests == []
    finally:
        proxy.server_close()


def test_a_proxy_only_passes_tls_through(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(10)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        heard: list[bytes] = []

        def refuse() -> None:
            for _ in range(oauth._ATTEMPTS):
                connection, _ = proxy.accept()
                with connection:
                    heard.append(connection.recv(65536))

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(AuthenticationError):
            OAuthTokens(options("https://idp.example/token"), "host").token()
        thread.join()
    assert heard[0].startswith(b"CONNECT idp.example:443")
    assert not any(b"uthorization" in request for request in heard)


def test_an_endpoint_that_gives_a_byte_now_and_then() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            for _ in range(oauth._ATTEMPTS):
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    for byte in b"HTTP/1.0 200 OK\r\nX-Long: " + bytes(500):
                        connection.sendall(bytes([byte]))
                        time.sleep(0.02)

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/token"
        with pytest.raises(AuthenticationError, match="gave no token: there is no answer in time"):
            OAuthTokens(options(url, connect_timeout_ms=100, read_timeout_ms=100), "host").token()
        assert time.monotonic() - began < 5
        thread.join()


def test_what_is_not_http_shows_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(oauth._ATTEMPTS):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(f"{SECRET}\r\n\r\n".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(AuthenticationError, match="is not HTTP") as caught:
            OAuthTokens(options(f"http://127.0.0.1:{server.getsockname()[1]}/token"), "host").token()
        thread.join()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_lifetime_in_quotes(endpoint: Endpoint) -> None:
    """As Azure's older endpoints say it. Each login would ask for a token again."""
    endpoint.answers = [(200, '{"access_token":"t","expires_in":"3599"}')]
    for _ in range(2):
        assert OAuthTokens(options(endpoint.url), "host").token() == "t"
    assert len(endpoint.requests) == 1


def test_a_token_that_was_refused_is_not_used_again(endpoint: Endpoint) -> None:
    endpoint.answers = [granted("t1", expires_in=60), granted("t2")]
    tokens = OAuthTokens(options(endpoint.url), "host")
    assert [tokens.token(), tokens.token()] == ["t1", "t1"]
    tokens.forget()
    assert tokens.token() == "t2"


@pytest.mark.parametrize("lifetime", ["NaN", "Infinity", "1e400", "1" + "0" * 400, "-5", '"9"', "true"])
def test_a_lifetime_that_is_none(endpoint: Endpoint, lifetime: str) -> None:
    """A token is kept for a day at most, whatever the endpoint says."""
    endpoint.answers = [(200, f'{{"access_token":"t","expires_in":{lifetime}}}')]
    chosen = options(endpoint.url)
    assert OAuthTokens(chosen, "host").token() == "t"
    assert oauth._fetched.values[chosen, ""].end <= time.time() + 86_400


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token")
    begun = time.monotonic()
    with pytest.raises(AuthenticationError, match="expected a regular file"):
        OAuthTokens(OAuthOptions(endpoint=(tmp_path / "token").as_uri()), "host").token()
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "/dev/null", "/proc/self/fd", "/"])
def test_only_a_regular_file_is_read(path: str) -> None:
    with pytest.raises(AuthenticationError, match=r"regular file|No such|Is a directory"):
        OAuthTokens(OAuthOptions(endpoint=f"file://{path}", retry_backoff_ms=0), "host").token()


@pytest.mark.parametrize(
    "content", ["", "\n", "root:x:0\nbin:x:1\n", "a b", "t\0", "t\u00e9", "t" * (1 << 20)]
)
def test_a_file_that_holds_no_token_is_not_sent(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content + " " * (len(content) == 1 << 20))
    with pytest.raises(AuthenticationError, match=r"nothing but a token|more than 1048576 bytes|is empty"):
        OAuthTokens(OAuthOptions(endpoint=file.as_uri()), "host").token()


def given_token() -> str:
    return "given"


def given_pair() -> tuple[str, int]:
    return "given", 1_000


def given_nothing() -> None:
    return None


def given_of(options: dict[str, str]) -> str:
    return options["kafka.bootstrap.servers"]


def fails() -> str:
    raise RuntimeError("no network")


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it can't say")


def fails_silently() -> str:
    raise SilentError


def ends_its_process() -> str:
    sys.exit("no login")


def test_a_callable_of_the_user() -> None:
    options = (("kafka.bootstrap.servers", "given"),)
    for name in ("given_token", "given_pair", "given_of"):
        assert (
            OAuthTokens(OAuthOptions(provider=f"{__name__}:{name}", given=options), "host").token() == "given"
        )
    for name, why in (
        ("given_nothing", "returned a NoneType"),
        ("fails", r"raised RuntimeError \(line \d+ of .*\): no network"),
        ("fails_silently", "raised SilentError"),
        ("ends_its_process", "raised SystemExit .*: no login"),
        ("missing", "no such callable"),
    ):
        with pytest.raises(AuthenticationError, match=why):
            OAuthTokens(OAuthOptions(provider=f"{__name__}:{name}"), "host").token()
