"""What the proxy does to a client's frames, with an echo of a broker behind it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.kafka_proxy import (
    FETCH,
    METADATA,
    WITHOUT_TOPIC_IDS,
    Fault,
    Link,
    Proxy,
    cut,
    delay,
    repeat,
    reset,
    send_twice,
    swallow,
    trickle,
)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy to a server that answers each request with its correlation id and 100 bytes."""
    proxy = Proxy()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.target = listener.getsockname()[1]
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        yield proxy
        proxy.stop()
        listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(client,), daemon=True).start()


def _answer(client: socket.socket) -> None:
    with client, contextlib.suppress(OSError):
        while request := client.recv(14, socket.MSG_WAITALL):
            client.sendall(struct.pack(">i", 104) + request[8:12] + b"x" * 100)


class Client:
    def __init__(self, proxy: Proxy) -> None:
        self.socket = socket.create_connection(("127.0.0.1", proxy.port), timeout=1)

    def ask(self, correlation_id: int) -> None:
        self.socket.sendall(struct.pack(">ihhih", 10, METADATA, 1, correlation_id, -1))

    def answer(self) -> int:
        """The correlation id of a whole response."""
        data = b""
        while len(data) < 108:
            more = self.socket.recv(108 - len(data))
            if not more:
                raise EOFError(data)
            data += more
        return int.from_bytes(data[4:8], "big")


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Client]:
    client = Client(proxy)
    yield client
    client.socket.close()


def test_passes_and_counts(proxy: Proxy, client: Client) -> None:
    for number in (1, 2):
        client.ask(number)
        assert client.answer() == number
    assert proxy.requests == {METADATA: 2}
    assert proxy.sent == {METADATA: 216}


@pytest.mark.parametrize(
    ("fault", "requests", "error"),
    [
        (swallow, False, TimeoutError),
        (cut(10), False, EOFError),
        (reset(), False, ConnectionResetError),
        (reset(10), False, ConnectionResetError),
        (reset(), True, ConnectionResetError),
    ],
    ids=["swallowed", "cut", "reset", "reset amid a response", "reset at a request"],
)
def test_strikes_once(
    proxy: Proxy, client: Client, fault: Fault, requests: bool, error: type[Exception]
) -> None:
    proxy.strike(METADATA, fault, requests=requests)
    client.ask(1)
    with pytest.raises(error):
        client.answer()
    assert proxy.pending == 0
    again = Client(proxy)
    with again.socket:
        again.ask(2)
        assert again.answer() == 2


def test_delays(proxy: Proxy, client: Client) -> None:
    proxy.strike(METADATA, delay(0.3))
    started = time.monotonic()
    client.ask(1)
    assert client.answer() == 1
    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize("size", [0, 2, 4, 6, 20], ids=lambda size: f"{size} bytes")
def test_passes_on_no_part_of_a_frame_that_a_dying_broker_left(size: int) -> None:
    proxy = Proxy()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.target = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
        broker, _ = listener.accept()
        with client, broker:
            broker.sendall((struct.pack(">ii", 104, 1) + b"x" * 100)[:size])
            broker.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
    proxy.stop()


def test_repeats_a_response(proxy: Proxy, client: Client) -> None:
    proxy.strike(METADATA, repeat)
    client.ask(1)
    client.ask(2)
    assert [client.answer() for _ in range(3)] == [1, 1, 2]


def test_sends_a_request_twice(proxy: Proxy, client: Client) -> None:
    proxy.strike(METADATA, send_twice, requests=True)
    client.ask(1)
    client.ask(2)
    assert [client.answer() for _ in range(2)] == [1, 2]


def test_holds_everything_until_healed(proxy: Proxy, client: Client) -> None:
    proxy.hold()
    client.ask(1)
    client.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.answer()
    proxy.heal()
    client.socket.settimeout(1)
    assert client.answer() == 1


def test_resets_what_is_open(proxy: Proxy, client: Client) -> None:
    client.ask(1)
    client.answer()
    proxy.reset_all()
    with pytest.raises(ConnectionResetError):
        client.answer()


def test_trickles(proxy: Proxy, client: Client) -> None:
    proxy.strike(METADATA, trickle(500, at_once=50))
    started = time.monotonic()
    client.ask(1)
    assert client.answer() == 1
    assert time.monotonic() - started > 0.2, "108 bytes at 500 a second"


def test_refuses(proxy: Proxy, client: Client) -> None:
    client.ask(1)
    client.answer()
    proxy.refuse()
    with contextlib.closing(Client(proxy).socket) as refused:
        for ended in (client.socket, refused):
            with contextlib.suppress(ConnectionError):
                assert ended.recv(1) == b""
    proxy.heal()
    again = Client(proxy)
    again.ask(3)
    assert again.answer() == 3
    again.socket.close()


def test_tells_older_versions() -> None:
    head = struct.pack(">iihB", 0, 1, 0, 4)
    apis = [(METADATA, 0, 13), (FETCH, 4, 17), (0, 3, 12)]
    link = FakeLink()
    WITHOUT_TOPIC_IDS(link, head + b"".join(struct.pack(">hhhB", *api, 0) for api in apis) + b"rest")
    told = link.sent[len(head) : -len(b"rest")]
    assert list(struct.iter_unpack(">hhhB", told)) == [(METADATA, 0, 9, 0), (FETCH, 4, 12, 0), (0, 3, 12, 0)]
    assert link.sent.endswith(b"rest")


class FakeLink(Link):
    def __init__(self) -> None:
        self.sent = b""

    def to_client(self, data: bytes) -> None:
        self.sent += data
