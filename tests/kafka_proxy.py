"""A loopback TCP proxy for one broker: it counts Kafka's requests, and injects faults into chosen ones.

It reads frames (KIP-4's request header: int32 size, int16 api key, int16 api
version, int32 correlation id; a response: int32 size, int32 correlation id),
so it serves plaintext listeners. A broker whose ``advertised.listeners`` names
the proxy keeps its clients behind it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, INIT_PRODUCER_ID, END_TXN = 0, 1, 2, 3, 18, 22, 26
"""API keys; all are in https://kafka.apache.org/protocol#protocol_api_keys."""

_REQUEST = struct.Struct(">ihhi")
_RESPONSE = struct.Struct(">ii")
_API = struct.Struct(">hhhB")
"""An api key, its lowest and highest version, and an empty set of tagged fields."""


class Link:
    """A client's connection and the proxy's own to the broker."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        # By correlation id: the api key of the request, and how often to drop its response.
        self.api_keys: dict[int, int] = {}
        self.ignored: Counter[int] = Counter()
        self._closing = threading.Lock()

    def to_client(self, data: bytes) -> None:
        self.client.sendall(data)

    def to_broker(self, data: bytes) -> None:
        self.broker.sendall(data)

    def close(self, *, reset: bool = False) -> None:
        """End both connections: orderly (FIN), or so that the client sees a reset (RST)."""
        # Only once: anything after a reset would be an orderly end.
        if not self._closing.acquire(blocking=False):
            return
        with contextlib.suppress(OSError):
            if reset:
                # SO_LINGER with no time: close discards unsent bytes and sends RST.
                self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # A thread waiting in recv keeps a connection open through close. SHUT_RD itself sends nothing.
            self.client.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.broker.shutdown(socket.SHUT_RDWR)
        self.client.close()
        self.broker.close()


Fault = Callable[[Link, bytes], None]
"""Handles a whole frame of a link, instead of passing it on."""


def delay(seconds: float) -> Fault:
    """Delays a response, and so all behind it."""

    def fault(link: Link, frame: bytes) -> None:
        threading.Event().wait(seconds)
        link.to_client(frame)

    return fault


def swallow(link: Link, frame: bytes) -> None:
    """Drops a response and keeps the connection: only a timeout ends the wait."""


def trickle(bytes_per_second: float, at_once: int = 4096) -> Fault:
    """Limits the rate of a response, sent in small pieces."""

    def fault(link: Link, frame: bytes) -> None:
        begun = time.monotonic()
        for sent in range(0, len(frame), at_once):
            time.sleep(max(begun + sent / bytes_per_second - time.monotonic(), 0))
            link.to_client(frame[sent : sent + at_once])

    return fault


def vanish(at: int) -> Fault:
    """Cuts a response and keeps the connection, as if the peer had vanished."""

    def fault(link: Link, frame: bytes) -> None:
        link.to_client(frame[:at])

    return fault


def cut(at: int) -> Fault:
    """Cuts a response and ends the connection orderly."""

    def fault(link: Link, frame: bytes) -> None:
        link.to_client(frame[:at])
        link.close()

    return fault


def reset(at: int = 0) -> Fault:
    """Cuts a response and resets the connection. With 0 bytes it also applies to a request."""

    def fault(link: Link, frame: bytes) -> None:
        if at:
            link.to_client(frame[:at])
        link.close(reset=True)

    return fault


def repeat(link: Link, frame: bytes) -> None:
    """Sends a response twice, as no broker does."""
    link.to_client(frame + frame)


def send_twice(link: Link, frame: bytes) -> None:
    """Sends a request to the broker twice; the client sees one response."""
    link.ignored[_REQUEST.unpack_from(frame)[3]] += 1
    link.to_broker(frame + frame)


def at_most(versions: Mapping[int, int]) -> Fault:
    """Limits the versions of these APIs in an ApiVersions response (version 3 or newer).

    To clients the broker then looks like an old one, of which the tests have no cluster.
    """

    def fault(link: Link, frame: bytes) -> None:
        changed = bytearray(frame)
        # After size, correlation id and error code comes a compact array; one byte holds its length plus 1.
        count = changed[10] - 1
        for at in range(11, 11 + count * _API.size, _API.size):
            api_key, lowest, highest, tags = _API.unpack_from(changed, at)
            highest = min(highest, versions.get(api_key, highest))
            _API.pack_into(changed, at, api_key, lowest, highest, tags)
        link.to_client(bytes(changed))

    return fault


WITHOUT_TOPIC_IDS = at_most({METADATA: 9, FETCH: 12})
"""For API_VERSIONS: clients get no topic ids (KIP-516), as before Kafka 2.8."""


class Proxy:
    """Forwards everything to ``target``, a loopback port, except for the faults of :meth:`strike`.

    By api key, ``requests`` counts requests, and ``sent`` the bytes of responses.
    """

    def __init__(self) -> None:
        self.target = 0
        self.requests: Counter[int] = Counter()
        self.sent: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._faults: dict[tuple[str, int], tuple[Fault, int]] = {}
        self._links: set[Link] = set()
        self._passing = threading.Event()
        self._passing.set()
        self._refusing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name=f"proxy {self.port}").start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def strike(self, api_key: int, fault: Fault, *, times: int = 1, requests: bool = False) -> None:
        """Inject ``fault`` into the next responses to this api key, or into the ``requests``."""
        with self._lock:
            self._faults["request" if requests else "response", api_key] = (fault, times)

    @property
    def pending(self) -> int:
        """How many faults are still to be injected."""
        with self._lock:
            return sum(times for _, times in self._faults.values())

    def heal(self) -> None:
        """End all faults, and forward what was held back."""
        with self._lock:
            self._faults.clear()
        self._refusing = False
        self._passing.set()

    def hold(self) -> None:
        """Forward nothing in either direction until :meth:`heal`, with connections open: a dead network."""
        self._passing.clear()

    def refuse(self) -> None:
        """Reset every connection, and accept none until :meth:`heal`: an unreachable broker."""
        self._refusing = True
        self.reset_all()

    def reset_all(self) -> None:
        """Reset every connection."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close(reset=True)

    def stop(self) -> None:
        # A mere close would leave a thread in accept, and so the port open.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal()
        self.reset_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self.target), timeout=5)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(client, broker)
            with self._lock:
                self._links.add(link)
            for serve, source in ((self._ask, client), (self._answer, broker)):
                threading.Thread(target=self._pass, args=(link, source, serve), daemon=True).start()

    def _pass(self, link: Link, source: socket.socket, serve: Callable[[Link, bytes], None]) -> None:
        """Read frames from one end until either end is closed."""
        with contextlib.suppress(OSError):
            while frame := _read_frame(source):
                self._passing.wait()
                serve(link, frame)
        link.close()
        with self._lock:
            self._links.discard(link)

    def _ask(self, link: Link, frame: bytes) -> None:
        _, api_key, _, correlation_id = _REQUEST.unpack_from(frame)
        link.api_keys[correlation_id] = api_key
        self.requests[api_key] += 1
        (self._fault("request", api_key) or Link.to_broker)(link, frame)

    def _answer(self, link: Link, frame: bytes) -> None:
        _, correlation_id = _RESPONSE.unpack_from(frame)
        if link.ignored[correlation_id]:
            link.ignored[correlation_id] -= 1
            return
        api_key = link.api_keys.pop(correlation_id, -1)
        self.sent[api_key] += len(frame)
        (self._fault("response", api_key) or Link.to_client)(link, frame)

    def _fault(self, direction: str, api_key: int) -> Fault | None:
        with self._lock:
            fault, times = self._faults.pop((direction, api_key), (None, 0))
            if fault is not None and times > 1:
                self._faults[direction, api_key] = (fault, times - 1)
        return fault


def _read_frame(source: socket.socket) -> bytes:
    """A frame with its size in front; empty if the connection ends, even inside a frame."""
    head = _read(source, 4)
    body = _read(source, int.from_bytes(head, "big"))
    return head + body if body else b""


def _read(source: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = source.recv_into(view)
        if not count:
            return b""
        view = view[count:]
    return bytes(data)
