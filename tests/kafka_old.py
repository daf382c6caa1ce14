"""Old brokers, with older request versions, and the ZooKeeper that they need."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark_kafkalog.tools.try_out.local_broker import write_properties
from tests.kafka_jars import OLD_KAFKA_VERSION, OLDEST_KAFKA_VERSION, java, kafka_jars_of, zookeeper_jars
from tests.kafka_process import SMALL_BROKER, free_ports, java_server, listens, tail
from tests.kafka_service import KafkaService

_ZOOKEEPER_SESSION_SECONDS = 20.0
"""More than zookeeper.session.timeout.ms."""
_SETTINGS = {OLD_KAFKA_VERSION: {"inter.broker.protocol.version": "2.7"}, OLDEST_KAFKA_VERSION: {}}


class ZooKeeperServer:
    """One ZooKeeper on loopback, by default the newest; stopping and starting keeps port and data.

    :param settings: more of zoo.cfg.
    :param options: of Java.
    """

    def __init__(
        self,
        folder: Path,
        jars: Path | None = None,
        settings: Mapping[str, object] | None = None,
        options: Iterable[str] = (),
    ) -> None:
        self.output = folder / "zookeeper.log"
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        folder.mkdir(parents=True, exist_ok=True)
        properties = {
            "dataDir": folder / "zookeeper",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok",
            "tickTime": 1000,
            **(settings or {}),
        }
        self._server = java_server(
            jars or zookeeper_jars(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            write_properties(folder / "zookeeper.properties", properties),
            self.output,
            ["-Xmx256m", *options],
        )

    def start(self) -> None:
        """Start, and wait until it serves."""
        if not self._server.running:
            self._server.launch()
            self._server.wait_until(lambda: listens(self.address))

    def stop(self) -> None:
        """Kill it; what it has acknowledged is on disk."""
        self._server.stop(kill=True)

    discard = stop

    @property
    def pid(self) -> int:
        return self._server.pid


class OldBroker(KafkaService):
    """One broker of Kafka 2.8.2, on loopback; topics have no ids, as before 2.8.

    :param version: or 1.1.1, the last one whose consumers can keep their offsets in ZooKeeper.
    :param zookeeper: that of others, too; by default one of its own.
    :param chroot: where it keeps all in there.
    """

    def __init__(
        self,
        folder: Path,
        version: str = OLD_KAFKA_VERSION,
        zookeeper: ZooKeeperServer | None = None,
        chroot: str = "",
    ) -> None:
        self.output = folder / "broker.log"
        (port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{port}"
        folder.mkdir(parents=True, exist_ok=True)
        self._jars = kafka_jars_of(version)
        self._own_zookeeper = zookeeper is None
        self.zookeeper = zookeeper or ZooKeeperServer(folder, self._jars)
        self.zookeeper_connect = f"{self.zookeeper.address}{chroot}"
        broker = {
            "broker.id": 0,
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": folder / "data",
            "zookeeper.connect": self.zookeeper_connect,
            **_SETTINGS[version],
            **SMALL_BROKER,
        }
        self._broker = java_server(
            self._jars,
            "kafka.Kafka",
            write_properties(folder / "server.properties", broker),
            self.output,
            ["-Xmx256m"],
        )

    def start(self) -> None:
        """Start both, and wait until the broker answers a metadata request."""
        self.zookeeper.start()
        self._broker.launch()
        self._broker.wait_until(lambda: listens(self.bootstrap) and self.answers())

    def stop(self) -> None:
        """Stop the broker, which leaves the cluster."""
        self._broker.stop()

    def kill(self) -> None:
        """Kill the broker, and wait until ZooKeeper takes it for dead: until then it can't start again."""
        self._broker.stop(kill=True)
        time.sleep(_ZOOKEEPER_SESSION_SECONDS)

    def discard(self) -> None:
        """Kill both; their files are no longer needed."""
        self._broker.stop(kill=True)
        if self._own_zookeeper:
            self.zookeeper.discard()

    def output_tail(self, lines: int = 100) -> str:
        """The last lines that the broker logged."""
        return tail(self.output, lines)

    def console_consumer(
        self, group: str, topic: str, properties: Iterable[str] = (), *options: str
    ) -> subprocess.Popen[str]:
        """Kafka's old console consumer, which joins its group through ZooKeeper; it prints values.

        By default it keeps its offsets there, too. It commits every second, and when it ends by SIGTERM.
        It takes ``auto.offset.reset=smallest`` only for a group that ZooKeeper does not know.
        """
        command = [java(), "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-cp", f"{self._jars}/*", "kafka.tools.ConsoleConsumer"]
        command += ["--zookeeper", self.zookeeper_connect, "--topic", topic, *options]
        for each in (f"group.id={group}", "auto.commit.interval.ms=1000", *properties):
            command += ["--consumer-property", each]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def consume(self, group: str, topic: str, count: int, *properties: str) -> list[str]:
        """The values that the old console consumer reads, until it has as many, and commits."""
        consumer = self.console_consumer(group, topic, properties, "--max-messages", str(count))
        out, err = consumer.communicate(timeout=60)
        assert consumer.returncode == 0, err
        return out.splitlines()
