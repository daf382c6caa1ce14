"""In each Python process of Spark its TCP socket waits for nothing, and no other socket is touched."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_kafkalog.spark.worker import without_delay


@pytest.fixture
def connections() -> Iterator[list[socket.socket]]:
    """Two connections, each to a server of its own; the servers' ends follow."""
    opened = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
        opened.append((client, accepted))
    flat = [opened[0][0], opened[1][0], opened[0][1], opened[1][1]]
    yield flat
    for each in flat:
        each.close()


def is_prompt(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def called_by(module: str, infile: Any) -> None:
    """Call it below a ``main`` of this module."""
    scope: dict[str, Any] = {"__name__": module, "without_delay": without_delay}
    exec("def main(infile):\n    (lambda: without_delay())()", scope)
    scope["main"](infile)


@pytest.mark.parametrize("module", ["pyspark.worker", "__main__"])
def test_a_worker_that_the_daemon_forked(connections: list[socket.socket], module: str) -> None:
    ours, other, *_ = connections
    with os.fdopen(os.dup(ours.fileno()), "rb", 65536) as infile:
        called_by(module, infile)
    assert is_prompt(ours)
    assert not is_prompt(other)
    ours.sendall(b"still open")


def test_a_worker_that_connected_by_itself(
    connections: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file for reading and writing has no descriptor, but its environment names the JVM's port."""
    ours, other, *_ = connections
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", str(ours.getpeername()[1]))
    called_by("pyspark.worker", ours.makefile("rwb", 65536))
    assert is_prompt(ours)
    assert not is_prompt(other)


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_default_timeout_is_not_for_sparks_socket(
    connections: list[socket.socket], monkeypatch: pytest.MonkeyPatch, by_itself: bool
) -> None:
    """A function of the user may have set one in a worker that is used again."""
    ours, other, *_ = connections
    if by_itself:
        monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", str(ours.getpeername()[1]))
    with os.fdopen(os.dup(ours.fileno()), "rb", 65536) as infile:
        socket.setdefaulttimeout(20)
        try:
            called_by("pyspark.worker", infile)
        finally:
            socket.setdefaulttimeout(None)
    assert is_prompt(ours)
    assert os.get_blocking(ours.fileno())
    assert os.get_blocking(other.fileno())


def test_no_descriptor_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", "9")
    left, right = socket.socketpair()

    def left_open() -> set[str]:
        before = set(os.listdir("/dev/fd"))
        for _ in range(3):
            without_delay()
        return set(os.listdir("/dev/fd")) - before

    # Threads that other tests have left may open some meanwhile, but not each time.
    assert not all(left_open() for _ in range(5))
    left.close(), right.close()


def test_elsewhere_it_does_nothing(connections: list[socket.socket]) -> None:
    without_delay()
    called_by("pyspark_kafkalog.tools.cli", connections[0].makefile("rb"))
    left, right = socket.socketpair()
    called_by("pyspark.worker", left.makefile("rb"))
    called_by("pyspark.worker", "no file")
    left.close(), right.close()
    assert not any(map(is_prompt, connections))


@pytest.mark.skipif(sys.platform != "linux", reason="acknowledgements are Linux's")
def test_small_pieces_do_not_wait(connections: list[socket.socket]) -> None:
    """The server sends them as the JVM does, without TCP_NODELAY, to a client that has just sent."""
    client, _, server, _ = connections

    def seconds(*, prompt: bool) -> float:
        client.sendall(b"x" * 10)
        server.recv(10)
        began = time.monotonic()
        sending = threading.Thread(target=lambda: [server.sendall(b"y" * 10) for _ in range(3)])
        sending.start()
        if prompt:
            with os.fdopen(os.dup(client.fileno()), "rb", 65536) as infile:
                called_by("pyspark.worker", infile)
        left = 30
        while left:
            left -= len(client.recv(10))
        sending.join()
        return time.monotonic() - began

    waits = [min(seconds(prompt=prompt) for _ in range(5)) for prompt in (False, True) for _ in range(6)]
    assert max(waits[:6]) > 0.03, "the kernel does not delay, so this shows nothing"
    assert min(waits[6:]) < 0.03
