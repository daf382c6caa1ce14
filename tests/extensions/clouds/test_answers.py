"""Answers that break off or are not HTTP, byte by byte: from metadata services and endpoints of tokens."""

from __future__ import annotations

import contextlib
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from pyspark_kafkalog.broker.wire.oauth import OAuthTokens
from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.extensions.clouds import metadata
from pyspark_kafkalog.extensions.clouds.metadata import MetadataError, ask
from pyspark_kafkalog.options.security.oauth import OAuthOptions

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWERS = [
    (OK + b"Content-Length: 99\r\n\r\nus-east1", "the answer ends early"),
    (CHUNKED + b"8\r\nus-east1\r\n", "the answer ends early"),
    (CHUNKED + b"-5\r\nus-east1\r\n", "the answer is not HTTP"),
    (b"SSH-2.0-OpenSSH\r\n", "the answer is not HTTP"),
    (b"", "the answer is not HTTP"),
]


class Server(socketserver.ThreadingTCPServer):
    """Sends ``answer``, and a byte each ``pause`` seconds."""

    daemon_threads = True
    answer, pause = b"", 0.0


class _Handler(socketserver.BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        self.request.recv(1 << 16)
        with contextlib.suppress(OSError):
            if self.server.pause:
                for byte in self.server.answer:
                    self.request.sendall(bytes([byte]))
                    time.sleep(self.server.pause)
            else:
                self.request.sendall(self.server.answer)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(metadata, "_PAUSE", 0.01)
    with Server(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/x"


def token(server: Server) -> str:
    limits = {"connect_timeout_ms": 300, "read_timeout_ms": 300, "retry_backoff_ms": 1}
    options = OAuthOptions(endpoint=url(server), client_id="me", client_secret="hush", **limits)
    return OAuthTokens(options, "host").token()


@pytest.mark.parametrize(("answer", "why"), ANSWERS)
def test_what_breaks_off_is_no_answer(server: Server, answer: bytes, why: str) -> None:
    """A zone or a role that is cut would be another one."""
    server.answer = answer
    with pytest.raises(MetadataError, match=why):
        ask(url(server), {})
    with pytest.raises(AuthenticationError, match=why):
        token(server)


def test_what_comes_byte_by_byte_ends_in_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "_TIMEOUT", 0.5)
    server.answer, server.pause = OK + b"X: " + b"y" * 10_000, 0.2
    begun = time.monotonic()
    with pytest.raises(MetadataError, match="no answer in time"):
        ask(url(server), {})
    with pytest.raises(AuthenticationError, match="gave no token: there is no answer in time"):
        token(server)
    assert time.monotonic() - begun < 60
