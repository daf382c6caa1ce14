"""Requests over HTTP whose secrets go to the origin that the user named, and to no other."""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any

OAUTH_CODES = (
    "invalid_(?:request|client|grant|scope|target|resource)|unauthorized_client|unsupported_grant_type"
)
"""Codes of OAuth's errors (RFC 6749, 5.2); other words of an answer might repeat a secret."""
_CODE = re.compile(rf'"error"\s*:\s*"({OAUTH_CODES})(?=")')
_LARGEST_ERROR = 1 << 14


def opener(
    deadline: float, context: ssl.SSLContext | None = None, *, connecting: float | None = None
) -> urllib.request.OpenerDirector:
    """An opener that follows no redirects; a proxy may only tunnel TLS.

    :param deadline: of :func:`time.monotonic`: until then an answer must be there, also one that comes byte
        by byte. TimeoutError says that it was not.
    :param context: for TLS; by default Python's, with the system's authorities.
    :param connecting: seconds for TCP and TLS each, if that is less than the timeout of a request.
    """
    tunnels = {scheme: proxy for scheme, proxy in urllib.request.getproxies().items() if scheme == "https"}
    found = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(tunnels),
        _Http(deadline, connecting),
        _Https(deadline, context, connecting),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        found.add_handler(handler)
    return found


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: float, connecting: float | None) -> None:
        super().__init__()
        self._connect = _connecting(http.client.HTTPConnection, deadline, connecting)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connect, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: float, context: ssl.SSLContext | None, connecting: float | None) -> None:
        super().__init__()
        kind = partial(http.client.HTTPSConnection, context=context)
        self._connect = _connecting(kind, deadline, connecting)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connect, req)


def _connecting(
    kind: Callable[..., http.client.HTTPConnection], deadline: float, connecting: float | None
) -> Any:
    """Makes connections whose answers, and those of a proxy, are there until the deadline."""

    def connection(*args: Any, **settings: Any) -> http.client.HTTPConnection:
        made = kind(*args, **settings)
        made.response_class = partial(_Response, deadline=deadline)  # type: ignore[assignment]
        if connecting is not None:
            made.connect = partial(_connect, made, made.connect, connecting)  # type: ignore[method-assign]
        return made

    return connection


def _connect(made: Any, connect: Callable[[], None], seconds: float) -> None:
    """Connect within this time, and let requests have theirs."""
    timeout = made.timeout
    made.timeout = seconds if timeout is None else min(seconds, timeout)
    connect()
    made.sock.settimeout(timeout)


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, deadline: float, **settings: Any) -> None:
        super().__init__(sock, *args, **settings)
        self.fp.close()
        self.fp = io.BufferedReader(_Timed(sock, deadline))

    def read(self, amt: int | None = None) -> bytes:
        """The next bytes of the answer, at most ``amt``.

        :raises http.client.HTTPException: also for one that ends before its length, which Python takes for
            whole if it is read in part, and for a negative length of a chunk.
        """
        try:
            content = super().read(amt)
        except ValueError as e:
            raise http.client.HTTPException from e
        if amt is not None and self.length and len(content) < amt:
            raise http.client.IncompleteRead(content, self.length)
        return content


class _Timed(io.RawIOBase):
    """The bytes that a socket receives until a deadline. Its own timeout would begin again with each byte."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline
        self._file = sock.makefile("rb", buffering=0)
        self._timeout = sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left if self._timeout is None else min(left, self._timeout))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def status_of(error: urllib.error.HTTPError) -> str:
    """The status of an answer, with the code in it that says why, if it is one that is known. Closes it."""
    try:
        found = _CODE.search(error.read(_LARGEST_ERROR).decode("latin-1"))
    except (OSError, http.client.HTTPException):
        found = None
    error.close()
    return f"HTTP status {error.code}{f' ({found[1]})' if found else ''}"


def is_temporary(status: int) -> bool:
    """Whether to ask again. Azure's metadata service is Gone (410) while it is updated."""
    return status >= 500 or status in (410, 429)


_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""OpenSSL's names for an answer without TLS, by its versions."""


def reason_of(error: OSError | http.client.HTTPException) -> str:
    """The reason why a request failed, without the host, file or bytes that some error texts contain."""
    if isinstance(error, http.client.HTTPException):
        is_cut = isinstance(error, http.client.IncompleteRead)
        return "the answer ends early" if is_cut else "the answer is not HTTP"
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        wrong_name = reason.verify_message.startswith(("Hostname mismatch", "IP address mismatch"))
        return "its certificate names another host" if wrong_name else reason.verify_message
    if isinstance(reason, ssl.SSLError) and reason.reason in _NO_TLS:
        return "it does not speak TLS, which https:// asks for"
    silent = "there is no answer in time" if isinstance(reason, TimeoutError) else type(reason).__name__
    return getattr(reason, "strerror", None) or silent
