"""What real brokers of each time, and their consumers, keep in ZooKeeper: each version of its JSON."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from pyspark_kafkalog import connect
from pyspark_kafkalog.extensions.zookeeper.client import ZooKeeper
from pyspark_kafkalog.extensions.zookeeper.options import ZooKeeperOffsets
from pyspark_kafkalog.extensions.zookeeper.registry import registered_partitions
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.tools.try_out.local_broker import write_properties
from tests.broker.producing import unused_topic
from tests.kafka_jars import java, kafka_jars_of
from tests.kafka_old import OldBroker, ZooKeeperServer
from tests.kafka_process import free_ports, java_server, listens

pytestmark = [pytest.mark.broker, pytest.mark.soak, pytest.mark.usefixtures("ended_sessions")]

_OPTIONS = ["-Xmx256m", "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED"]
"""Brokers of that time unmap files by a class of the JVM's own."""


def version_of(client: KazooClient, path: str) -> int:
    """The version of the JSON in a znode."""
    version: int = json.loads(client.get(path)[0])["version"]
    return version


def what_is_registered(place: str, topic: str) -> tuple[str, tuple[int, ...]]:
    """The only broker, and the partitions of a topic."""
    options = place_options({"zookeeper.connect": place}, of_groups=True)
    assert isinstance(options.offsets_store, ZooKeeperOffsets)
    assert options.brokers is not None
    (broker,) = options.offsets_store.bootstrap_servers(options.brokers)
    with ZooKeeper(options.offsets_store.zookeeper, options.brokers, 30) as zookeeper:
        return broker, registered_partitions(zookeeper, [topic])[topic]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize(("version", "json_version"), [("0.8.2.2", 1), ("0.9.0.1", 2), ("0.10.0.1", 3)])
def test_groups_of_old_consumers(
    zookeeper: ZooKeeperServer, tmp_path: Path, version: str, json_version: int
) -> None:
    jars = kafka_jars_of(version)
    (port,) = free_ports(1)
    place = f"{zookeeper.address}/kafka-{version}"
    settings = {
        "broker.id": 7,
        "host.name": "127.0.0.1",
        "port": port,
        "log.dirs": tmp_path / "data",
        "zookeeper.connect": place,
        "num.partitions": 2,
        "log.cleaner.enable": "false",
    }
    properties = write_properties(tmp_path / "server.properties", settings)
    broker = java_server(jars, "kafka.Kafka", properties, tmp_path / "broker.log", _OPTIONS)
    of_consumer = {"group.id": "etl", "zookeeper.connect": place, "auto.commit.interval.ms": 500}
    config = write_properties(tmp_path / "consumer.properties", of_consumer)

    @contextmanager
    def tool(name: str, *words: object) -> Iterator[subprocess.Popen[str]]:
        command = [java(), *_OPTIONS, "-cp", f"{jars}/*", f"kafka.tools.{name}", *map(str, words)]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    client = KazooClient(place)
    broker.launch()
    try:
        broker.wait_until(lambda: listens(f"127.0.0.1:{port}"))
        client.start()
        with tool("ConsoleProducer", "--broker-list", f"127.0.0.1:{port}", "--topic", "orders") as producer:
            producer.communicate("".join(f"{number}\n" for number in range(10)), timeout=60)
        words = ["--zookeeper", place, "--topic", "orders", "--consumer.config", config, "--from-beginning"]
        with tool("ConsoleConsumer", *words) as consumer, connect(f"zk://{place}") as kafka:
            assert consumer.stdout is not None
            assert sorted(consumer.stdout.readline().strip() for _ in range(10)) == list(map(str, range(10)))
            deadline = time.monotonic() + 30
            while sum(commit.offset for commit in kafka.groups.committed("etl").values()) < 10:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            (group,) = kafka.groups.describe()
            (member,) = group.members or ()
            assert (group.group, group.state, group.note) == ("etl", "Stable", "")
            assert member.partitions == (TopicPartition("orders", 0), TopicPartition("orders", 1))
            assert member.member_id.startswith(f"etl_{member.host}-")
            consumer.terminate()
            consumer.wait(60)
            (group,) = kafka.groups.describe()
            assert (group.state, group.members) == ("Empty", ())
            assert sum(row.offset or 0 for row in kafka.groups.offsets()) == 10
        assert version_of(client, "/brokers/ids/7") == json_version
        assert version_of(client, "/brokers/topics/orders") == 1
        assert what_is_registered(place, "orders") == (f"127.0.0.1:{port}", (0, 1))
    finally:
        client.stop()
        client.close()
        broker.stop(kill=True)


@pytest.mark.parametrize(
    ("fixture", "of_broker", "of_topic"), [("zookeeper_broker", 4, 1), ("old_broker", 5, 3)]
)
def test_later_brokers(fixture: str, of_broker: int, of_topic: int, request: pytest.FixtureRequest) -> None:
    broker: OldBroker = request.getfixturevalue(fixture)
    topic = unused_topic()
    broker.make_topic(topic, 3)
    client = KazooClient(broker.zookeeper_connect)
    client.start()
    try:
        assert version_of(client, "/brokers/ids/0") == of_broker
        assert version_of(client, f"/brokers/topics/{topic}") == of_topic
        assert what_is_registered(broker.zookeeper_connect, topic) == (broker.bootstrap, (0, 1, 2))
    finally:
        client.stop()
        client.close()
