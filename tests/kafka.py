"""A real Apache Kafka for the tests: its jars, its tools, and a broker on loopback.

Needs Java and pip's PySpark alone: PySpark ships Ivy, and Ivy resolves the jars
once into a cache folder outside the checkout (``KAFKALOG_JARS``, by default
``~/.cache/pyspark-kafkalog``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

KAFKA_VERSION = "4.3.1"
_KAFKA = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
# Taken one by one: what they depend on is among PySpark's own jars.
_SPARK_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
# What DumpLogSegments prints where a file is not as Kafka would have written it. "-1 is followed by"
# is none: it opens every segment that does not begin at offset 0.
_COMPLAINT = re.compile(
    r"Mismatches in|^ +\d+ is followed by|invalid bytes at the end|isvalid: false|"
    r"indexed offsets are not found|out of order timestamp|timestamp mismatch in|Exception"
)
# Linux gives clients ports from 32768 on, so a listener below meets none of theirs.
_PORTS = range(20_000, 32_000)


def kafka_jars() -> Path:
    """The folder with the jars of the broker and its command line tools."""
    return _resolve(f"kafka-{KAFKA_VERSION}", _KAFKA, transitive=True)


def spark_kafka_connector_jars() -> list[Path]:
    """The jars of Spark's own ``kafka`` source and sink."""
    return sorted(_resolve("spark-kafka-connector-4.2.0", _SPARK_CONNECTOR, transitive=False).glob("*.jar"))


def _resolve(name: str, artifacts: Iterable[str], *, transitive: bool) -> Path:
    cache = Path(os.environ.get("KAFKALOG_JARS") or Path.home() / ".cache" / "pyspark-kafkalog")
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            unfinished = cache / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            _run_ivy(cache / "ivy", unfinished, artifacts, transitive=transitive)
            unfinished.rename(folder)
    return folder


def _run_ivy(ivy_cache: Path, folder: Path, artifacts: Iterable[str], *, transitive: bool) -> None:
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    dependencies = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default->default" transitive={}/>'.format(
            *artifact.split(":"), quoteattr(str(transitive).lower())
        )
        for artifact in artifacts
    )
    ivy_file = folder.with_suffix(".xml")
    ivy_file.write_text(
        '<ivy-module version="2.0"><info organisation="pyspark-kafkalog" module="tests"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>"
    )
    command = [
        _java(),
        "-jar",
        str(ivy),
        "-cache",
        str(ivy_cache),
        "-ivy",
        str(ivy_file),
        "-confs",
        "default",
    ]
    command += ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0 or not any(folder.glob("*.jar")):
        raise RuntimeError(
            f"Ivy could not resolve {list(artifacts)}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
        )


def _java() -> str:
    """The java that PySpark runs too."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def run_kafka_class(
    main_class: str, *args: object, timeout: float = 120, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a main class of Kafka's jars to its end; a failure raises with what it printed."""
    command = [_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{kafka_jars()}/*", main_class]
    done = subprocess.run([*command, *map(str, args)], capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise RuntimeError(
            f"{main_class} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
    return done


def dump_log_segments(*files: Path, deep: bool = True, sanity: bool = False) -> str:
    """What Kafka's DumpLogSegments prints of ``.log``, ``.index`` and ``.timeindex`` files.

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


class Broker:
    """One Kafka broker, its own controller, on loopback with a log directory of its own.

    ``folder`` is the broker's alone. Stop and start again keeps ports and data.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        self.folder = folder
        self.log_dir = folder / "data"
        self.output = folder / "broker.log"
        port, controller_port = _free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = folder / "server.properties"
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.log_dir,
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 2,
            "group.initial.rebalance.delay.ms": 0,
            # Records with timestamps of long ago stay.
            "log.retention.hours": -1,
            # The default asks for half of the small heap below.
            "log.cleaner.dedupe.buffer.size": 16 << 20,
            **(settings or {}),
        }
        folder.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        cluster_id = run_kafka_class("kafka.tools.StorageTool", "random-uuid").stdout.split()[-1]
        run_kafka_class("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", self._properties)

    def start(self, timeout: float = 60) -> None:
        """Start, and wait until the broker answers a metadata request."""
        command = [_java(), "-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        command += ["-cp", f"{kafka_jars()}/*", "kafka.Kafka", str(self._properties)]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + timeout
        try:
            while not self._answers():
                if self._process.poll() is not None:
                    raise RuntimeError(
                        f"The broker ended with {self._process.returncode}:\n{self.output_tail()}"
                    )
                if time.monotonic() > deadline:
                    raise TimeoutError(f"The broker was not ready in {timeout} s:\n{self.output_tail()}")
                time.sleep(0.2)
        except BaseException:
            self.stop(kill=True)
            raise

    def _answers(self) -> bool:
        host, port = self.bootstrap.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            with self.admin() as admin:
                admin.list_topics()
        except (OSError, KafkaError):
            return False
        return True

    def stop(self, *, kill: bool = False, timeout: float = 60) -> None:
        """End the broker by SIGTERM, which shuts it down cleanly, or by SIGKILL; wait for its end."""
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

    @property
    def pid(self) -> int:
        assert self._process is not None, "The broker is not running"
        return self._process.pid

    @contextlib.contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """kafka-python's admin client, for the time of a ``with`` block."""
        client = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            yield client
        finally:
            client.close()

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> list[Path]:
        """Create a topic, and return the folders of its partitions once they exist."""
        asked = {
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": {name: str(value) for name, value in (configs or {}).items()},
        }
        with self.admin() as admin:
            admin.create_topics({topic: asked}, wait_for_metadata=True)
        folders = [self.partition_folder(topic, partition) for partition in range(partitions)]
        deadline = time.monotonic() + 30
        while not all((folder / "partition.metadata").exists() for folder in folders):
            if time.monotonic() > deadline:
                raise TimeoutError(f"The broker made no folders for {topic}:\n{self.output_tail()}")
            time.sleep(0.05)
        return folders

    def plant(self, log_directory: Path) -> None:
        """Put the partitions of a log directory in the place of this stopped broker's own of the same names.

        Each keeps the ``partition.metadata`` of its predecessor, which holds the id of the broker's topic.
        """
        assert self._process is None, "A running broker would not notice"
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
        if not self.output.exists():
            return "(it logged nothing)"
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for port in random.sample(_PORTS, 1000):
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise RuntimeError(f"No {count} free ports between {_PORTS.start} and {_PORTS.stop}")
