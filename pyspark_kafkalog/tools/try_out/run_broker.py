"""A broker of Apache Kafka on loopback, to try things with."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from pyspark_kafkalog.client.kafka import connect
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model.kafka_uuid import random_uuid
from pyspark_kafkalog.tools.try_out.jars import java, kafka_jars

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
_HOST = "127.0.0.1"
_START_SECONDS = 120.0


@contextmanager
def running_broker(port: int) -> Iterator[tuple[str, Callable[[], NoReturn]]]:
    """A broker on 127.0.0.1 while the block runs. Port 0 takes a free one.

    Yields its address, and a function that waits until the broker ends by itself, and raises KafkaLogError.

    :raises KafkaLogError: if the port is in use, the jars can't be had, or the broker does not start.
    """
    with ExitStack() as at_end:
        port, controller_port = _free_ports(port, 0)
        jars = kafka_jars()
        folder = Path(at_end.enter_context(tempfile.TemporaryDirectory(prefix="kafkalog-broker-")))
        address, controller = f"{_HOST}:{port}", f"{_HOST}:{controller_port}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": folder / "data",
            **ONE_BROKER,
        }
        file = write_properties(folder / "server.properties", properties)
        kafka = [java(), "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        output = folder / "server.log"
        with output.open("ab") as log:
            formatted = [*kafka, "kafka.tools.StorageTool", "format", "-t", random_uuid(), "-c", str(file)]
            if subprocess.run(formatted, check=False, stdout=log, stderr=log).returncode != 0:
                raise _failed(output)
            # In a session of its own: Ctrl-C is ours, and we end it.
            broker = subprocess.Popen(
                [*kafka, "kafka.Kafka", str(file)], start_new_session=True, stdout=log, stderr=log
            )
        at_end.callback(broker.wait)
        at_end.callback(broker.kill)
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(port):
            if broker.poll() is not None or time.monotonic() > deadline:
                raise _failed(output)
            time.sleep(0.1)
        with connect(address) as place:
            place.topics.partitions()

        def wait() -> NoReturn:
            broker.wait()
            raise KafkaLogError(f"The broker has ended: {_said(output)}")

        yield address, wait


def _failed(output: Path) -> KafkaLogError:
    return KafkaLogError(f"The broker did not start: {_said(output)}", hint="It needs Java 17 or newer.")


def _said(output: Path) -> str:
    """The end of its log."""
    return output.read_text(errors="replace").strip()[-2000:]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_HOST, port)) == 0


def _free_ports(*wanted: int) -> list[int]:
    with ExitStack() as sockets:
        ports = []
        for port in wanted:
            probe = sockets.enter_context(socket.socket())
            # As Java does: connections of an earlier broker that still end don't count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError as e:
                raise KafkaLogError(
                    f"Port {port} of {_HOST} can't be used: {e.strerror}",
                    hint="Name another with --port; 0 takes a free one.",
                ) from e
            ports.append(probe.getsockname()[1])
    return ports


def write_properties(file: Path, properties: Mapping[str, object]) -> Path:
    """Write a Java properties file; a value may have several lines, as PEM does."""
    # Line feeds and backslashes must be escaped.
    escaped = {
        name: str(value).replace("\\", "\\\\").replace("\n", "\\n") for name, value in properties.items()
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
    return file
