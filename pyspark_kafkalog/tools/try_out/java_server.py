"""A server in Java as a process of its own, which never outlives the process that started it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.log.lock import file_lock
from pyspark_kafkalog.tools.try_out.jars import cache_folder, java

HOST = "127.0.0.1"

JVM_OPTIONS = ["-XX:+UseSerialGC"]
"""Options of Java for small servers and short tools."""
# A test's JVM ends before its second compiler has paid off: without, a broker takes half the CPU.
if "PYTEST_VERSION" in os.environ:
    JVM_OPTIONS.append("-XX:TieredStopAtLevel=1")

_GUARDED = """
exec 3<&0 </dev/null
output=$1
shift
"$@" >>"$output" 2>&1 3<&- &
server=$!
{ read -r line <&3; kill -KILL "$server"; } >/dev/null 2>&1 &
guard=$!
exec 3<&-
echo "$server"
exec >&-
wait "$server"
ended=$?
kill "$guard"
exit "$ended"
"""
"""Starts a server, prints its process id, and ends with it. Its input is a pipe that only we can write to.

However we end, the kernel closes the pipe, and the guard kills the server.
"""

_ANOTHER_PORT = "Name another with --port, or port=…; 0 takes a free one."

# Linux gives clients ports from 32768 on, so listeners below never collide with them. Each worker of
# pytest-xdist has ports of its own, and gives each of them once: its broker may not listen yet, or no more.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
_PORTS = range(20_000 + _WORKER, 32_000, 8)
_untried = iter(random.SystemRandom().sample(_PORTS, len(_PORTS)))


class JavaServer:
    """A server with these jars; its output is appended to a file. It may be started and ended repeatedly.

    It is in a session of its own, so that Ctrl-C is not for it. It is killed if this process ends without
    ending it, even by SIGKILL. A child that this process forks without ``exec`` keeps it alive, too.

    :param class_path: jars, separated by colons; ``FOLDER/*`` are all of a folder.
    :param options: of Java.
    """

    def __init__(
        self,
        class_path: str,
        main_class: str,
        properties: Path,
        output: Path,
        options: Iterable[str] = (),
    ) -> None:
        self.output = output
        self._main_class = main_class
        self._words = [*JVM_OPTIONS, "-Dorg.slf4j.simpleLogger.showDateTime=true", *options]
        self._words += ["-cp", class_path, main_class, str(properties)]
        self._shell: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    def running(self) -> bool:
        return self._shell is not None and self._shell.poll() is None

    @property
    def pid(self) -> int:
        """The process id of Java.

        :raises KafkaLogError: if it does not run.
        """
        if not self.running:
            raise KafkaLogError(f"{self._main_class} is not running", hint="Start it first.")
        return self._pid

    def launch(self) -> None:
        """Start it without waiting until it serves.

        :raises KafkaLogError: if it runs already, or Java is missing.
        """
        if self.running:
            raise KafkaLogError(f"{self._main_class} runs already", hint="Stop it first.")
        self._forget()
        command = ["/bin/sh", "-c", _GUARDED, "sh", str(self.output), java(), *self._words]
        pipe = subprocess.PIPE
        self._shell = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert self._shell.stdout is not None
        self._pid = int(self._shell.stdout.readline())

    def wait(self) -> int:
        """Wait until it ends by itself, and return its exit code: 128 and the signal's number if killed."""
        assert self._shell is not None
        return self._shell.wait()

    def wait_until(self, serves: Callable[[], bool], timeout: float = 120) -> None:
        """Wait until it serves; kill it if it does not.

        :param timeout: in seconds.
        :raises KafkaLogError: with the end of its output, if it ends, or does not serve in time.
        """
        deadline = time.monotonic() + timeout
        try:
            while not serves():
                if not self.running:
                    raise self._error(f"ended with exit code {self.wait()}")
                if time.monotonic() > deadline:
                    raise self._error(f"was not ready in {timeout:g} s")
                time.sleep(0.05)
        except BaseException:
            self.stop(kill=True)
            raise

    def stop(self, *, kill: bool = False, timeout: float = 120) -> None:
        """End it by SIGTERM, which is a clean shutdown, or by SIGKILL, and wait for its end.

        :param timeout: in seconds.
        :raises KafkaLogError: if it has not ended in time; then it is killed.
        """
        if self._shell is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if self.running:
                os.kill(self._pid, signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self._shell.wait(timeout)
        except subprocess.TimeoutExpired:
            os.kill(self._pid, signal.SIGKILL)
            self._shell.wait()
            raise self._error(f"did not end in {timeout:g} s, and was killed") from None
        finally:
            self._forget()

    def _error(self, what: str) -> KafkaLogError:
        return KafkaLogError(f"{self._main_class} {what}: {tail(self.output)}")

    def _forget(self) -> None:
        if self._shell is not None:
            for pipe in self._shell.stdin, self._shell.stdout:
                if pipe is not None:
                    pipe.close()
        self._shell = None


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


def free_ports(count: int) -> list[int]:
    """``count`` ports of 127.0.0.1 on which nothing listens; no port is given twice.

    :raises KafkaLogError: if there are no more.
    """
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for port in _untried:
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise KafkaLogError(f"No {count} ports are free between {_PORTS.start} and {_PORTS.stop}")


def check_port(port: int) -> None:
    """Refuse a port of 127.0.0.1 that is in use, or that this user may not have.

    :raises KafkaLogError: if it can't be used.
    """
    with socket.socket() as probe:
        # As Java does: connections of an earlier broker that still end don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as e:
            raise KafkaLogError(
                f"Port {port} of {HOST} can't be used: {e.strerror}",
                hint=_ANOTHER_PORT,
            ) from e


@contextlib.contextmanager
def reserved_port(port: int) -> Iterator[None]:
    """Keep a port of 127.0.0.1 from this user's other brokers, until a server listens there and after.

    :raises KafkaLogError: if another broker has it, which names its process.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(file_lock(str(cache_folder() / f"port-{port}"), f"Port {port} of {HOST}"))
        except KafkaLogError as e:
            raise e.with_hint(_ANOTHER_PORT) from None
        yield
