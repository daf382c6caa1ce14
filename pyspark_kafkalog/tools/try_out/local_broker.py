"""A broker of Apache Kafka on loopback, to try things with and to test with."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from pyspark_kafkalog.client.kafka import connect
from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.model.kafka_uuid import random_uuid
from pyspark_kafkalog.options.arguments import check_kind
from pyspark_kafkalog.options.table import SERVERS
from pyspark_kafkalog.tools.try_out.jars import java, kafka_jars
from pyspark_kafkalog.tools.try_out.java_server import (
    HOST,
    JVM_OPTIONS,
    JavaServer,
    check_port,
    free_ports,
    listens,
    reserved_port,
    tail,
)

ONE_BROKER: dict[str, object] = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    # Keep records with old timestamps.
    "log.retention.hours": -1,
    # The default takes half of a small heap.
    "log.cleaner.dedupe.buffer.size": 16 << 20,
}
"""Settings for a cluster of one broker with a small heap."""
REGISTERED_SOON = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
"""A broker that was killed is not let in again before its session has ended, by default after 9 seconds."""
_HEAP = "-Xmx512m"
_REASON = re.compile(r"^Exception in thread [^:]*: (.+)", re.MULTILINE)
"""The first line of what ended a process of Java, behind the class of the exception."""


class LocalBroker:
    """A real broker of Apache Kafka on 127.0.0.1, with a controller: a cluster of its own, without logins.

    ::

        from pyspark_kafkalog import LocalBroker, connect

        with LocalBroker() as broker:
            with connect(broker.options) as kafka:
                print(kafka.brokers())

    ``with`` starts it, and kills it at the end. It is killed in any case when this process ends, even by
    SIGKILL. Started again, it has the same address and the same data. It needs Java 17, and Kafka's jars:
    PySpark's Ivy fetches them from Maven Central once, unless ``KAFKALOG_KAFKA`` names Kafka's ``.tgz``, the
    folder unpacked from it, or a folder of jars.

    :param folder: a folder for its files alone, which is kept. The broker goes on with the data of an earlier
        one there. By default it has a temporary folder, deleted at the end.
    :param port: where it listens; 0 takes a free one.
    :param settings: more of the broker's ``server.properties``, or other values than ours.
    :raises OptionError: for settings that a local broker needs as they are.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if settings is not None:
            check_kind(settings, Mapping, 'LocalBroker(settings={"num.partitions": 3})')
        free_port, controller_port = free_ports(2)
        self._port = port or free_port
        self._reserves = bool(port)
        """Whether the port is still to be kept from other brokers: of free ones each is given once."""
        self.address = f"{HOST}:{self._port}"
        controller = f"{HOST}:{controller_port}"
        own = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
        }
        if wrong := sorted(
            {"advertised.listeners", "log.dir", "log.dirs", *own}.intersection(settings or ())
        ):
            raise OptionError(f"A local broker has its own {', '.join(wrong)}", hint="Leave it out.")
        temporary = None if folder else tempfile.mkdtemp(prefix="kafkalog-broker-")
        self.folder = Path(folder or temporary or "").absolute()
        self._properties = {**own, "log.dirs": self.log_directory, **ONE_BROKER, **(settings or {})}
        self._output = self.folder / "server.log"
        self._server: JavaServer | None = None
        self._at_end = contextlib.ExitStack()
        self._finalizer = weakref.finalize(self, _end, os.getpid(), self._at_end)
        if temporary:
            self._at_end.callback(shutil.rmtree, temporary, ignore_errors=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address})"

    def __enter__(self) -> LocalBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def options(self) -> dict[str, str]:
        """The options of ``spark.read``, ``df.write`` and :func:`connect` that name this broker."""
        return {SERVERS: self.address}

    @property
    def log_directory(self) -> Path:
        """The folder with its topics, which may be read as a log directory once it has ended."""
        return self.folder / "data"

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._server is not None and self._server.running

    @property
    def pid(self) -> int:
        """The process id of the broker, for signals such as SIGSTOP.

        :raises KafkaLogError: if it does not run.
        """
        if self._server is None:
            raise KafkaLogError(f"The broker {self.address} is not running", hint="Start it first.")
        return self._server.pid

    def start(self, timeout: float = 120) -> None:
        """Start it, unless it runs, and wait until it answers, and until it leads all of its partitions.

        :param timeout: in seconds.
        :raises KafkaLogError: without Java or Kafka's jars, if the port is in use, or with the end of its log
            if it does not start.
        """
        if self.running:
            if listens(self.address):
                return
            # Killed by its pid a moment ago, its process may still be there.
            self.kill()
        if not self._finalizer.alive:
            raise KafkaLogError(f"The broker {self.address} is closed", hint="Make a new LocalBroker.")
        check_port(self._port)
        if self._reserves:
            self._at_end.enter_context(reserved_port(self._port))
            self._reserves = False
        if self._server is None:
            self._server = self._new_server()
        self._server.launch()
        try:
            self._server.wait_until(lambda: listens(self.address) and self._leads_all(), timeout)
        except KafkaLogError as e:
            raise KafkaLogError(
                f"The broker did not start: {e.message}", hint="It needs Java 17 or newer."
            ) from None

    def stop(self, timeout: float = 120) -> None:
        """End it by SIGTERM, which is a clean shutdown, and wait for its end, if it runs.

        :param timeout: in seconds.
        :raises KafkaLogError: if it has not ended in time; then it is killed.
        """
        if self._server is not None:
            self._server.stop(timeout=timeout)

    def kill(self) -> None:
        """End it by SIGKILL, as a crash does, and wait for its end."""
        if self._server is not None:
            self._server.stop(kill=True)

    def wait(self) -> NoReturn:
        """Wait until it ends by itself, and then raise KafkaLogError with the end of its log."""
        if self._server is not None and self._server.running:
            self._server.wait()
        raise KafkaLogError(f"The broker has ended: {self.log_tail()}")

    def close(self) -> None:
        """Kill it for good, and delete its folder if that is a temporary one."""
        self._finalizer()

    def log_tail(self, lines: int = 100) -> str:
        """The last lines that it logged."""
        return tail(self._output, lines)

    def _new_server(self) -> JavaServer:
        """The formatted broker, not started yet."""
        class_path = f"{kafka_jars()}/*"
        self.folder.mkdir(parents=True, exist_ok=True)
        file = write_properties(self.folder / "server.properties", self._properties)
        # Kafka writes this file last.
        if not (self.log_directory / "meta.properties").exists():
            command = [java(), _HEAP, *JVM_OPTIONS, "-cp", class_path, "kafka.tools.StorageTool", "format"]
            with self._output.open("ab") as log:
                done = subprocess.run(
                    [*command, "-t", random_uuid(), "-c", str(file)], check=False, stdout=log, stderr=log
                )
            if done.returncode != 0:
                why = _REASON.search(self.log_tail())
                raise KafkaLogError(
                    f"The broker's folder could not be formatted: {why[1] if why else self.log_tail()}",
                    hint="Correct its settings. It needs Java 17 or newer.",
                )
        server = JavaServer(class_path, "kafka.Kafka", file, self._output, [_HEAP])
        self._at_end.callback(server.stop, kill=True)
        return server

    def _leads_all(self) -> bool:
        with connect(self.options) as kafka:
            try:
                return not any(partition.note for partition in kafka.topics.partitions())
            except KafkaLogError:
                return False


def _end(pid: int, at_end: contextlib.ExitStack) -> None:
    """Kill the server and delete its folder, but in no process that was forked."""
    if os.getpid() == pid:
        at_end.close()


def write_properties(file: Path, properties: Mapping[str, object]) -> Path:
    """Write a Java properties file; a value may have several lines, as PEM does."""
    # Line feeds and backslashes must be escaped.
    escaped = {
        name: str(value).replace("\\", "\\\\").replace("\n", "\\n") for name, value in properties.items()
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
    return file
