"""Ctrl-C while kafkalog produce reads: the first ends the input, a second one does not wait."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import subprocess
import termios
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyspark_kafkalog.log.lock import directory_lock
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_proxy import PRODUCE, delay
from tests.tools.cli.running import command, lines

UNTIL = 120
"""Seconds."""


class Typing:
    """A process of kafkalog produce, and what is typed to it."""

    def __init__(self, *words: object, ignores: bool = False) -> None:
        self._unread, self._written = os.pipe()
        handler = signal.SIG_IGN if ignores else signal.SIG_DFL
        self.process = subprocess.Popen(
            command("produce", *words),
            stdin=self._unread,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
        )

    def close_input(self) -> None:
        os.close(self._written)
        self._written = os.dup(self._unread)

    def type(self, text: str) -> None:
        """Type, and wait until it is read."""
        os.write(self._written, text.encode())
        left, deadline = array.array("i", [1]), time.monotonic() + UNTIL
        while left[0]:
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.01)
            fcntl.ioctl(self._unread, termios.FIONREAD, left)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, list[str]]:
        """The exit code, and what was said, once it has ended."""
        said = self.process.communicate(timeout=UNTIL)[1]
        return self.process.returncode, said.splitlines()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._unread)
        os.close(self._written)


@contextmanager
def typing(*words: object, ignores: bool = False) -> Iterator[Typing]:
    process = Typing(*words, ignores=ignores)
    try:
        yield process
    finally:
        process.close()


def test_a_directory_has_all_whole_lines_that_were_typed(tmp_path: Path) -> None:
    place = tmp_path / "log"
    with typing(place, "t", "-p", 0) as process:
        process.type("a\nb\n")
        process.type("c\nunfini")
        process.interrupt()
        code, said = process.end()
    assert (code, said) == (130, ["Topic t was created", "3 records were written", "kafkalog: interrupted"])
    assert lines("cat", place, "t") == ["a", "b", "c"]


def test_what_follows_in_files_is_not_read(tmp_path: Path) -> None:
    place, file = tmp_path / "log", tmp_path / "file"
    file.write_text("later\n")
    with typing(place, "t", "-p", 0, "-", file) as process:
        process.type("a\n")
        process.interrupt()
        assert process.end()[0] == 130
    assert lines("cat", place, "t") == ["a"]


def test_in_the_background_of_a_script_it_is_ignored(tmp_path: Path) -> None:
    place = tmp_path / "log"
    with typing(place, "t", "-p", 0, ignores=True) as process:
        process.type("a\n")
        process.interrupt()
        process.type("b\n")
        process.close_input()
        assert process.end() == (0, ["Topic t was created", "2 records were written"])
    assert lines("cat", place, "t") == ["a", "b"]


def test_a_second_one_does_not_wait_for_a_directory(tmp_path: Path) -> None:
    place = tmp_path / "log"
    assert subprocess.run(command("produce", place, "t"), input=b"before\n").returncode == 0
    with typing(place, "t", "-p", 0) as process, directory_lock(str(place), 0):
        process.type("a\nb\n")
        process.interrupt()
        with pytest.raises(subprocess.TimeoutExpired):
            process.process.wait(1)
        process.interrupt()
        code, said = process.end()
        assert code == 130
        assert said[-1] == (
            "kafkalog: interrupted again, when 2 records were read: whether all of them are in the log or"
            f" none is not known. kafkalog cat {place} t --tail 2 shows it."
        )
    assert lines("cat", place, "t") == ["before"]
    with typing(place, "t", "-p", 0) as process:  # neither the lock nor a staged file hinders it
        process.type("c\n")
        process.interrupt()
        assert process.end()[0] == 130
    assert sorted(lines("cat", place, "t")) == ["before", "c"]


@pytest.mark.broker
def test_brokers_have_what_was_typed(broker: Broker) -> None:
    topic = f"typed-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 1)
    with typing(broker.bootstrap, topic) as process:
        process.type("a\nb\n")
        process.interrupt()
        assert process.end() == (130, ["2 records were written", "kafkalog: interrupted"])
    assert lines("cat", broker.bootstrap, topic) == ["a", "b"]


@pytest.mark.broker
@pytest.mark.long
def test_what_is_in_flight_is_waited_for_once(cluster: Cluster) -> None:
    topic = f"typed-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 1)
    proxy = cluster.proxies[cluster.leader(topic)]
    proxy.strike(PRODUCE, delay(2))
    with typing(cluster.proxied_bootstrap, topic) as process:
        process.type("a\nb\n")
        process.interrupt()
        assert process.end() == (130, ["2 records were written", "kafkalog: interrupted"])
    proxy.strike(PRODUCE, delay(3 * UNTIL))
    with typing(cluster.proxied_bootstrap, topic) as process:
        process.type("c\n")
        process.interrupt()
        with pytest.raises(subprocess.TimeoutExpired):
            process.process.wait(1)
        process.interrupt()
        code, said = process.end()
    assert code == 130
    assert "1 record was read: how many of them brokers have written is not known." in said[-1]
    look = f"kafkalog cat {cluster.proxied_bootstrap} {topic} --tail 1"
    assert said[-1].endswith(f"{look} shows the last ones.")
