"""An old broker: Kafka 2.8 with ZooKeeper, with older request versions."""

from __future__ import annotations

import time
from pathlib import Path

from tests.kafka_jars import old_kafka_jars
from tests.kafka_process import SMALL_BROKER, JavaServer, free_ports, listens, tail, write_properties
from tests.kafka_service import KafkaService

_ZOOKEEPER_SESSION_SECONDS = 20.0
"""More than zookeeper.session.timeout.ms."""


class OldBroker(KafkaService):
    """One broker of Kafka 2.8.2 and its ZooKeeper, on loopback; topics have no ids, as before 2.8."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "broker.log"
        port, zookeeper_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        self._zookeeper_address = f"127.0.0.1:{zookeeper_port}"
        folder.mkdir(parents=True, exist_ok=True)
        zookeeper = {
            "dataDir": folder / "zookeeper",
            "clientPort": zookeeper_port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }
        broker = {
            "broker.id": 0,
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": folder / "data",
            "zookeeper.connect": self._zookeeper_address,
            "inter.broker.protocol.version": "2.7",
            **SMALL_BROKER,
        }
        self._zookeeper = JavaServer(
            old_kafka_jars(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            write_properties(folder / "zookeeper.properties", zookeeper),
            folder / "zookeeper.log",
            ["-Xmx256m"],
        )
        self._broker = JavaServer(
            old_kafka_jars(),
            "kafka.Kafka",
            write_properties(folder / "server.properties", broker),
            self.output,
            ["-Xmx256m"],
        )

    def start(self) -> None:
        """Start both, and wait until the broker answers a metadata request."""
        if not self._zookeeper.running:
            self._zookeeper.launch()
            self._zookeeper.wait_until(lambda: listens(self._zookeeper_address))
        self._broker.launch()
        self._broker.wait_until(lambda: listens(self.bootstrap) and self.answers())

    def kill(self) -> None:
        """Kill the broker, and wait until ZooKeeper takes it for dead: until then it can't start again."""
        self._broker.stop(kill=True)
        time.sleep(_ZOOKEEPER_SESSION_SECONDS)

    def discard(self) -> None:
        """Kill both; their files are no longer needed."""
        self._broker.stop(kill=True)
        self._zookeeper.stop(kill=True)

    def output_tail(self, lines: int = 100) -> str:
        """The last lines that the broker logged."""
        return tail(self.output, lines)
