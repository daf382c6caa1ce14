"""HTTP servers on loopback that stand for others."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from typing import Any, TypeVar

_Server = TypeVar("_Server", bound=HTTPServer)


class Silent:
    """For handlers that print no requests."""

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def served(server: _Server) -> Iterator[_Server]:
    """A server that answers until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answered(request: urllib.request.Request) -> tuple[int, bytes]:
    """The status and the body of the answer to a request that is passed on, also where it is an error."""
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.read()
