"""A real Apache Kafka for the tests: its tools, and a broker on loopback.

It needs only Java and pip's PySpark; :mod:`tests.kafka_jars` says where the jars come from.
"""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark_kafkalog import connect
from pyspark_kafkalog.model.kafka_uuid import random_uuid
from pyspark_kafkalog.tools.try_out.local_broker import write_properties
from tests.kafka_jars import KAFKA_VERSION, kafka_jars, spark_kafka_connector_jars
from tests.kafka_process import (
    SMALL_BROKER,
    free_ports,
    java_server,
    listens,
    run_kafka_class,
    tail,
)
from tests.kafka_service import KafkaService

__all__ = [
    "KAFKA_VERSION",
    "Broker",
    "Listener",
    "dump_log_segments",
    "kafka_jars",
    "run_kafka_class",
    "spark_kafka_connector_jars",
]

# What DumpLogSegments prints where a file is not as Kafka would have written it. "-1 is followed by"
# isn't a complaint: it opens every segment that does not begin at offset 0.
_COMPLAINT = re.compile(
    r"Mismatches in|^ +\d+ is followed by|invalid bytes at the end|isvalid: false|"
    r"indexed offsets are not found|out of order timestamp|timestamp mismatch in|Exception"
)


def dump_log_segments(*files: Path, deep: bool = True, sanity: bool = False) -> str:
    """What Kafka's DumpLogSegments prints about ``.log``, ``.index`` and ``.timeindex`` files.

    An index is compared entry by entry with the log file beside it, or with
    ``sanity`` only checked as a starting broker does. AssertionError if the
    tool finds anything wrong: use it on files that should be flawless.
    """
    options = ["--deep-iteration"] * deep + ["--index-sanity-check"] * sanity
    done = run_kafka_class(
        "org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files)), check=False
    )
    printed = done.stdout + done.stderr
    # Lines of records begin with a bar, and may hold anything as header keys.
    complaints = [s for s in printed.splitlines() if not s.startswith("|") and _COMPLAINT.search(s)]
    assert done.returncode == 0, printed[-4000:]
    assert not complaints, "\n".join(complaints[:20])
    return printed


@functools.cache
def _formatted(options: tuple[str, ...]) -> Mapping[str, bytes]:
    """What StorageTool puts into a log directory except ``meta.properties``, which alone tells two apart.

    A JVM once for all brokers, not one for each.
    """
    with tempfile.TemporaryDirectory() as folder:
        log_dir = Path(folder, "data")
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": log_dir,
        }
        file = write_properties(Path(folder, "server.properties"), properties)
        run_kafka_class("kafka.tools.StorageTool", "format", "-t", random_uuid(), "-c", file, *options)
        files = {path.name: path.read_bytes() for path in log_dir.iterdir()}
    assert files.pop("meta.properties")
    return files


@dataclass(frozen=True)
class Listener:
    """An extra port for clients. Metadata sends them to ``advertised``, by default the port itself."""

    name: str
    protocol: str
    port: int
    advertised: str | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class Broker(KafkaService):
    """One Kafka broker with a controller, on loopback with its own log directory.

    ``folder`` is the broker's alone. Stopping and starting keeps ports and data.
    Without ``voters``, the controllers' ports by node id, it is a cluster by itself.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        *,
        listeners: Iterable[Listener] = (),
        node_id: int = 1,
        voters: Mapping[int, int] | None = None,
        cluster_id: str | None = None,
        format_options: Iterable[str] = (),
        heap: str = "512m",
    ) -> None:
        self.folder = folder
        self.node_id = node_id
        self.log_dir = folder / "data"
        self.output = folder / "broker.log"
        port, controller_port = free_ports(2)
        voters = voters or {node_id: controller_port}
        controller = Listener("CONTROLLER", "PLAINTEXT", voters[node_id])
        served = [Listener("PLAINTEXT", "PLAINTEXT", port), *listeners]
        self.bootstrap = served[0].address
        properties = {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in voters.items()),
            "listeners": ",".join(
                f"{listener.name}://{listener.address}" for listener in [*served, controller]
            ),
            "advertised.listeners": ",".join(
                f"{listener.name}://{listener.advertised or listener.address}" for listener in served
            ),
            "controller.listener.names": controller.name,
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(
                f"{listener.name}:{listener.protocol}" for listener in [*served, controller]
            ),
            "log.dirs": self.log_dir,
            # An idle broker takes half as much of the processor.
            "metadata.max.idle.interval.ms": 0,
            **SMALL_BROKER,
            **(settings or {}),
        }
        folder.mkdir(parents=True, exist_ok=True)
        file = write_properties(folder / "server.properties", properties)
        self._format_options = tuple(format_options)
        self.format(cluster_id or random_uuid())
        self._server = java_server(kafka_jars(), "kafka.Kafka", file, self.output, [f"-Xmx{heap}"])

    def format(self, cluster_id: str) -> None:
        """Format the stopped broker, and delete its old data."""
        self.cluster_id = cluster_id
        shutil.rmtree(self.log_dir, ignore_errors=True)
        self.log_dir.mkdir()
        for name, content in _formatted(self._format_options).items():
            (self.log_dir / name).write_bytes(content)
        ids = {"cluster.id": cluster_id, "directory.id": random_uuid(), "node.id": self.node_id, "version": 1}
        write_properties(self.log_dir / "meta.properties", ids)

    def start(self, timeout: float = 120) -> None:
        """Start, and wait until the broker answers a metadata request."""
        self.launch()
        self.wait_until_ready(timeout)

    def launch(self) -> None:
        """Start without waiting: a broker of a cluster answers only when others do."""
        self._server.launch()

    def wait_until_ready(self, timeout: float = 120) -> None:
        self._server.wait_until(lambda: listens(self.bootstrap) and self.answers(), timeout)

    def stop(self, *, kill: bool = False, timeout: float = 120) -> None:
        """Stop the broker by SIGTERM, which is a clean shutdown, or by SIGKILL, and wait for its end."""
        self._server.stop(kill=kill, timeout=timeout)

    def discard(self) -> None:
        """Kill the broker; its files are no longer needed."""
        self.stop(kill=True)

    @property
    def running(self) -> bool:
        return self._server.running

    @property
    def pid(self) -> int:
        return self._server.pid

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> list[Path]:
        """Create a topic, and return the folders of its partitions once they exist."""
        self.make_topic(topic, partitions, configs)
        folders = [self.partition_folder(topic, partition) for partition in range(partitions)]
        self.wait_until(
            lambda: all((folder / "partition.metadata").exists() for folder in folders),
            f"The broker made no folders for {topic}",
        )
        return folders

    def stop_cleaning(self, topic: str) -> None:
        """Let the log cleaner finish, and come to this topic no more: else its files change at any time."""
        topics = connect(self.bootstrap).topics
        topics.alter(topics.plan_alteration([topic], configs={"min.cleanable.dirty.ratio": "1"}))
        same, before = 0, None
        while same < 15:
            now = {file: file.stat().st_size for file in self.log_dir.glob(f"{topic}-*/*.log")}
            same = same + 1 if now == before else 0
            before = now
            time.sleep(0.1)

    def plant(self, log_directory: Path) -> None:
        """Replace this stopped broker's partitions by those of a log directory with the same names.

        Each keeps the ``partition.metadata`` of its predecessor, which holds the id of the broker's topic.
        """
        assert not self.running, "A running broker would not notice"
        for metadata in list(self.log_dir.glob("*/partition.metadata")):
            source = log_directory / metadata.parent.name
            if source.is_dir():
                content = metadata.read_bytes()
                shutil.rmtree(metadata.parent)
                shutil.copytree(source, metadata.parent)
                metadata.write_bytes(content)

    def partition_folder(self, topic: str, partition: int) -> Path:
        return self.log_dir / f"{topic}-{partition}"

    def output_tail(self, lines: int = 100) -> str:
        """The last lines that the broker logged."""
        return tail(self.output, lines)
