"""Processes that run Kafka's jars: tools that end by themselves, servers that are stopped or killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pyspark_kafkalog.tools.try_out.jars import java, kafka_jars
from pyspark_kafkalog.tools.try_out.run_broker import ONE_BROKER
from tests import class_archives

SMALL_BROKER: dict[str, object] = {
    **ONE_BROKER,
    "auto.create.topics.enable": "false",
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 6000,
}
"""Settings of a single broker for tests."""

# Linux gives clients ports from 32768 on, so listeners below never collide with them. Each worker of
# pytest-xdist has ports of its own, and gives each of them once: its broker may not listen yet, or no more.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
_PORTS = range(20_000 + _WORKER, 32_000, 8)
_untried = iter(random.sample(_PORTS, len(_PORTS)))

_JVM = ["-XX:+UseSerialGC"]
# A test's JVM ends before its second compiler has paid off: without, a broker takes half the CPU.
if "PYTEST_VERSION" in os.environ:
    _JVM.append("-XX:TieredStopAtLevel=1")


def run_kafka_class(
    main_class: str, *args: object, timeout: float = 120, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a main class of Kafka's jars to its end; a failure raises an error with its output."""
    command = [java(), *_JVM, "-Xmx256m", *class_archives.using(class_archives.OF_KAFKA)]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{kafka_jars()}/*", main_class]
    done = subprocess.run([*command, *map(str, args)], capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise RuntimeError(
            f"{main_class} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
    return done


class JavaServer:
    """A Java server process; its output goes to a file."""

    def __init__(
        self, jars: Path, main_class: str, properties: Path, output: Path, options: Iterable[str] = ()
    ) -> None:
        self.output = output
        self._command = [java(), *_JVM, "-Dorg.slf4j.simpleLogger.showDateTime=true", *options]
        self._command += class_archives.using(class_archives.OF_KAFKA)
        self._command += ["-cp", f"{jars}/*", main_class, str(properties)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self._command[-2]} is not running"
        return self._process.pid

    def launch(self) -> None:
        """Start without waiting until it serves."""
        assert self._process is None, f"{self._command[-2]} runs already"
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def wait_until(self, serves: Callable[[], bool], timeout: float = 120) -> None:
        """Wait until it serves; kill it if it does not."""
        assert self._process is not None
        deadline = time.monotonic() + timeout
        try:
            while not serves():
                if self._process.poll() is not None:
                    raise RuntimeError(f"It ended with {self._process.returncode}:\n{tail(self.output)}")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"It was not ready in {timeout} s:\n{tail(self.output)}")
                time.sleep(0.05)
        except BaseException:
            self.stop(kill=True)
            raise

    def stop(self, *, kill: bool = False, timeout: float = 120) -> None:
        """Stop it by SIGTERM, which is a clean shutdown, or by SIGKILL, and wait for its end."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def tail(output: Path, lines: int = 100) -> str:
    """The last lines of a log."""
    if not output.exists():
        return "(it logged nothing)"
    return "\n".join(output.read_text(errors="replace").splitlines()[-lines:])


def listens(address: str) -> bool:
    """Whether something accepts connections at ``host:port``."""
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> Sequence[int]:
    """``count`` loopback ports on which nothing listens."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for port in _untried:
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise RuntimeError(f"No {count} untried and free ports between {_PORTS.start} and {_PORTS.stop}")
