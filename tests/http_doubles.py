"""HTTP servers on loopback that stand for others."""

from __future__ import annotations

import threading
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
