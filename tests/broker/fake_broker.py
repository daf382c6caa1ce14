"""A broker of a few lines that answers as a test tells it, for what no real one does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

API_VERSIONS, FETCH, METADATA = 18, 1, 3


class Asked(NamedTuple):
    """A request: its header, and the bytes from the header on."""

    api_key: int
    version: int
    correlation_id: int
    frame: bytes


Answer = Callable[[Asked], bytes | None]
"""What to send for a request, None to close the connection, no bytes to send nothing."""


def framed(correlation_id: int, body: bytes, *, flexible: bool = False) -> bytes:
    payload = struct.pack(">i", correlation_id) + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(payload)) + payload


def api_versions(asked: Asked, versions: dict[int, tuple[int, int]] | None = None) -> bytes:
    """The answer to ApiVersions in version 0 to 3; its header is never flexible."""
    known = {API_VERSIONS: (0, 3), METADATA: (0, 12), FETCH: (4, 13)} if versions is None else versions
    kind: Any = ApiVersionsResponse.ApiVersion
    response = ApiVersionsResponse(
        error_code=0,
        api_keys=[kind(api_key=k, min_version=low, max_version=high) for k, (low, high) in known.items()],
        throttle_time_ms=0,
    )
    return framed(asked.correlation_id, bytes(response.encode(version=asked.version)))


def metadata(asked: Asked, *, throttle_time_ms: int = 0, cluster_id: str | None = None) -> bytes:
    """A cluster of no brokers and no topics."""
    response = MetadataResponse(
        throttle_time_ms=throttle_time_ms,
        brokers=[],
        cluster_id=cluster_id,
        controller_id=-1,
        topics=[],
    )
    return framed(asked.correlation_id, bytes(response.encode(version=asked.version)), flexible=True)


class FakeBroker:
    """Listens on loopback; ``asked`` holds what came, ``address`` where."""

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self.asked: list[Asked] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # A mere close would leave its threads in accept and read, and with them the sockets open.
        for sock in (self._listener, *self._connections):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while prefix := stream.read(4):
                    frame = stream.read(*struct.unpack(">i", prefix))
                    asked = Asked(*struct.unpack_from(">hhi", frame), frame)
                    self.asked.append(asked)
                    answer = self._answer(asked)
                    if answer is None:
                        return
                    connection.sendall(answer)
            except (OSError, ValueError, struct.error):
                return


@contextmanager
def serving(
    answer: Answer, versions: dict[int, tuple[int, int]] | None = None, port: int = 0
) -> Iterator[FakeBroker]:
    """A broker that knows ApiVersions, and for the rest what the test says."""

    def answer_all(asked: Asked) -> bytes | None:
        return api_versions(asked, versions) if asked.api_key == API_VERSIONS else answer(asked)

    broker = FakeBroker(answer_all, port)
    try:
        yield broker
    finally:
        broker.close()
