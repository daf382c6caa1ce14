"""kafkalog on brokers, beside Kafka's own kafka-consumer-groups."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.structs import OffsetAndMetadata

from tests.kafka import KAFKA_VERSION, Broker, run_kafka_class
from tests.kafka_secure import PASSWORD, USER, SecureBroker
from tests.tools.cli.running import run

pytestmark = pytest.mark.broker

_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_TOPICS = "org.apache.kafka.tools.TopicCommand"
_FIRST = 1_600_000_000_000


class Shop:
    """A topic of two partitions with offsets 3 to 9 and 0 to 9, a second apart, and a group at 5 and 8."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topic, self.group = f"cli-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
        broker.create_topic(self.topic, 2)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for n in range(10):
            for partition in (0, 1):
                producer.send(self.topic, b"%d" % n, partition=partition, timestamp_ms=_FIRST + 1000 * n)
        producer.close()
        broker.delete_records(self.topic, before=3)
        consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap, group_id=self.group, enable_auto_commit=False
        )
        places = [KafkaTopicPartition(self.topic, number) for number in (0, 1)]
        consumer.assign(places)
        offsets = (OffsetAndMetadata(5, "five", -1), OffsetAndMetadata(8, "", -1))
        consumer.commit(dict(zip(places, offsets, strict=True)))
        consumer.close()

    def tool(self, *words: object) -> str:
        return run_kafka_class(
            _TOOL, "--bootstrap-server", self.broker.bootstrap, "--group", self.group, *words
        ).stdout


@pytest.fixture(scope="module")
def shop(broker: Broker) -> Shop:
    return Shop(broker)


def test_what_there_is(shop: Shop) -> None:
    at = shop.broker.bootstrap
    rows = run("topics", at, shop.topic, "--json").rows
    assert [(row["logStartOffset"], row["highWatermark"], row["lastStableOffset"]) for row in rows] == [
        (3, 10, 10),
        (0, 10, 10),
    ]
    assert [(row["earliestTimestamp"], row["latestTimestamp"]) for row in rows] == [
        (_FIRST + 3000, _FIRST + 9000),
        (_FIRST, _FIRST + 9000),
    ]
    assert all(
        row["storedBytes"] > 0 and row["segments"] is None and len(row["topicId"]) == 22 for row in rows
    )
    (row,) = run("groups", at, "--group", shop.group, "--json").rows
    assert (row["state"], row["coordinator"]) == ("Empty", 1)
    assert run("lag", at, "--group", shop.group).lines[1:] == [
        [shop.group, "7", "5", "2", "0"],
        ["Total", "lag:", "7"],
    ]
    rows = run("offsets", at, "--group", shop.group, "--json").rows
    assert [(row["offset"], row["lag"], row["metadata"]) for row in rows] == [(5, 5, "five"), (8, 2, "")]


def test_the_words_of_a_broker_end_with_one_full_stop(shop: Shop) -> None:
    new = f"never-{uuid.uuid4().hex[:8]}"
    done = run("topics", "create", shop.broker.bootstrap, new, "--replication-factor", 3)
    assert done.code != 0
    assert new in done.err
    assert ".." not in done.err


def test_brokers_and_topics_are_described(shop: Shop) -> None:
    at = shop.broker.bootstrap
    (broker,) = run("brokers", at, "--json").rows
    host, _, port = at.rpartition(":")
    assert (broker["id"], broker["host"], broker["port"]) == (shop.broker.node_id, host, int(port))
    assert (broker["isController"], broker["answers"], broker["note"]) == (True, True, "")
    assert KAFKA_VERSION.startswith(broker["version"] + ".")
    assert broker["leads"] == broker["replicas"] >= 2
    theirs = run_kafka_class(_TOPICS, "--bootstrap-server", at, "--describe", "--topic", shop.topic).stdout
    (topic,) = run("topics", "describe", at, shop.topic, "--json").rows
    assert f"TopicId: {topic['topicId']}" in theirs
    (configs,) = (line.partition("Configs:")[2].strip() for line in theirs.splitlines() if "Configs:" in line)
    assert ",".join(f"{config['name']}={config['value']}" for config in topic["configs"]) == configs
    for row in topic["partitions"]:
        replicas = f"Leader: {row['leader']}\tReplicas: {row['replicas'][0]}\tIsr: {row['isr'][0]}"
        assert f"Partition: {row['partition']}\t{replicas}" in theirs
        assert row["leaderEpoch"] == 0
        assert row["storedBytes"] > 0


@pytest.mark.parametrize(
    "words",
    [
        ["--to-offset", "2"],
        ["--shift-by", "-4"],
        ["--to-datetime", "2020-09-13T12:26:47.500"],
        ["--to-datetime", "2020-09-13T12:26:50.000Z"],
    ],
    ids=lambda words: " ".join(words),
)
def test_resets_lead_where_kafkas_tool_leads(shop: Shop, words: list[str]) -> None:
    printed = shop.tool("--reset-offsets", "--topic", shop.topic, *words, "--dry-run", "--export")
    theirs = sorted(line for line in printed.splitlines() if line.startswith(shop.topic))
    steps = run(
        "offsets",
        "reset",
        shop.broker.bootstrap,
        "--group",
        shop.group,
        shop.topic,
        *words,
        "--json",
    ).rows
    assert [f"{step['topic']},{step['partition']},{step['offset']}" for step in steps] == theirs


def test_files_are_exchanged_with_kafkas_tool(shop: Shop, tmp_path: Path) -> None:
    at, file = shop.broker.bootstrap, tmp_path / "offsets.csv"
    exported = run("offsets", "export", at, "--group", shop.group, "--format", "csv").out
    file.write_text(exported.replace(",5\n", ",4\n"))
    steps = run("offsets", "import", at, file, "--group", shop.group, "--json").rows
    assert [step["offset"] for step in steps] == [4, 8]
    printed = shop.tool("--reset-offsets", "--from-file", file, "--dry-run", "--export")
    assert f"{shop.topic},0,4" in printed
    assert f"{shop.topic},1,8" in printed


def test_a_reset_is_committed_and_deleted(shop: Shop) -> None:
    at, group = shop.broker.bootstrap, f"group-{uuid.uuid4().hex[:8]}"
    words = ["offsets", "reset", at, "--group", group, f"{shop.topic}:1", "--to-latest"]
    assert run(*words).code == 0
    assert run("offsets", at, "--group", group).code == 3, "that was dry"
    assert run(*words, "--execute").code == 0
    assert run("lag", at, "--group", group, "--max-lag", 0).code == 0
    assert run("offsets", "delete", at, "--group", group, "--whole-group", "--execute").code == 0
    assert run("offsets", at, "--group", group).code == 3


def test_an_active_group_is_left_alone(shop: Shop) -> None:
    at, group = shop.broker.bootstrap, f"group-{uuid.uuid4().hex[:8]}"
    with shop.broker.member(group, shop.topic):
        done = run("offsets", "reset", at, "--group", group, shop.topic, "--to-earliest", "--execute")
        assert done.code == 3
        assert "inactive" in done.err
        line = run("groups", at, "--group", group, "--members").lines[1]
        assert line[0] == group
        assert line[-2:] == [f"{shop.topic}-0,", f"{shop.topic}-1"]


def test_records_are_those_of_the_brokers_own_directory(shop: Shop) -> None:
    at = shop.broker.bootstrap
    done = run("verify", at, shop.topic)
    assert done.code == 0
    assert [(line[1], line[3], line[-1]) for line in done.lines[1:]] == [("0", "7", "0"), ("1", "10", "0")]
    ours = run("dump", at, f"{shop.topic}-1", "--records", "--json").out
    theirs = run("dump", shop.broker.log_dir, f"{shop.topic}-1", "--records", "--json").out
    assert strip(ours) == strip(theirs)


def strip(lines: str) -> list[dict[str, object]]:
    """Batches without where they lie."""
    batches = [json.loads(line) for line in lines.splitlines()]
    assert batches
    for batch in batches:
        del batch["file"], batch["position"]
    return batches


def test_client_properties_log_in(secure_broker: SecureBroker, tmp_path: Path) -> None:
    at, authority, config = (
        secure_broker.address("SASL_SSL"),
        tmp_path / "ca.pem",
        tmp_path / "client.properties",
    )
    authority.write_text(secure_broker.certificates.authority)
    login = f'username="{USER}" password="{PASSWORD}"'
    config.write_text(
        "# as for --command-config\nsecurity.protocol=SASL_SSL\nsasl.mechanism: SCRAM-SHA-256\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n  {login};\n"
    )
    secure_broker.make_topic("for-tools")
    (found,) = run("topics", at, "--config", config, "for-tools", "--json").rows
    assert found["topic"] == "for-tools"
    config.write_text(config.read_text().replace(PASSWORD, "wrong-" + PASSWORD))
    done = run("groups", at, "--config", config)
    assert done.code == 3
    assert PASSWORD not in done.err + done.out
    assert done.err.count("\n") == 1
