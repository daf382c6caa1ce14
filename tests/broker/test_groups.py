"""Consumer groups on brokers: Kafka's tools see what we commit, and we see what they commit."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.structs import OffsetAndMetadata

from pyspark_kafkalog import connect
from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.errors import GroupError, UnknownTopicOrPartitionError
from pyspark_kafkalog.model import CommittedOffset, Place, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.options.settings import place_options, read_options
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.read.offsets import start_from_group
from pyspark_kafkalog.tools.groups.consumer_groups import group_offsets, lags
from tests.kafka import Broker, kafka_jars, run_kafka_class
from tests.kafka_jars import java
from tests.kafka_old import OldBroker
from tests.kafka_service import KafkaService

pytestmark = pytest.mark.broker


def groups_of(bootstrap: str, timeout: float | None = None, **options: object) -> BrokerGroups:
    connection = ConnectionOptions(tuple(bootstrap.split(",")), **options)  # type: ignore[arg-type]
    return BrokerGroups(connection, timeout=timeout)


@pytest.fixture
def groups(broker: Broker) -> BrokerGroups:
    return groups_of(broker.bootstrap)


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with two partitions."""
    name = f"groups-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, 2)
    return name


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def place_of(broker: Broker) -> Place:
    return open_place(place_options({"kafka.bootstrap.servers": broker.bootstrap}))


def state_of(groups: BrokerGroups, group: str) -> str:
    described = groups.describe([group])
    return described[group].state if described else ""


def send(service: KafkaService, topic: str, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=service.bootstrap)
    for i in range(count):
        producer.send(topic, b"%d" % i, partition=i % 2)
    producer.flush()
    producer.close()


@contextmanager
def console_consumer(
    broker: Broker, group: str, topic: str, folder: Path, name: str = "ConsoleConsumer"
) -> Iterator[None]:
    """Kafka's own consumer, in a group of KIP-848 or KIP-932."""
    options = {"bootstrap-server": broker.bootstrap, "topic": topic, "group": group}
    command = [java(), "-Xmx128m", "-cp", f"{kafka_jars()}/*"]
    command += [f"org.apache.kafka.tools.consumer.{name}"]
    command += [word for name, value in options.items() for word in (f"--{name}", value)]
    if name == "ConsoleConsumer":
        command += ["--command-property", "group.protocol=consumer"]
    with (folder / "consumer.log").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def test_what_is_committed_is_read_again(groups: BrokerGroups, topic: str) -> None:
    group, (first, second) = new_group(), (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert groups.committed(group) == {}
    assert groups.committed(group, [first]) == {}
    groups.commit(group, {})
    assert group not in groups.group_ids()
    # A new topic's leaders are in epoch 0, and that is filled in.
    groups.commit(group, {first: CommittedOffset(7, metadata="grüße"), second: CommittedOffset(0, 0)})
    assert groups.committed(group) == {
        first: CommittedOffset(7, 0, "grüße"),
        second: CommittedOffset(0, 0),
    }
    groups.commit(group, {first: CommittedOffset(9)})
    assert groups.committed(group, [first, TopicPartition(topic, 5)]) == {first: CommittedOffset(9, 0)}
    assert groups.committed(group, []) == {}
    assert group in groups.group_ids()


def test_kafka_python_sees_what_we_commit_and_we_see_what_it_commits(
    broker: Broker, groups: BrokerGroups, topic: str
) -> None:
    group = new_group()
    groups.commit(group, {TopicPartition(topic, 1): CommittedOffset(3, metadata="ours")})
    theirs = KafkaTopicPartition(topic, 1)
    with broker.admin() as admin:
        assert admin.list_group_offsets(group)[group][theirs] == OffsetAndMetadata(3, "ours", 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign([theirs])
    consumer.commit({theirs: OffsetAndMetadata(5, "theirs", -1)})
    consumer.close()
    assert groups.committed(group) == {TopicPartition(topic, 1): CommittedOffset(5, -1, "theirs")}


def test_kafkas_own_tool_shows_the_lag(broker: Broker, groups: BrokerGroups, topic: str) -> None:
    send(broker, topic, 10)
    group = new_group()
    groups.commit(
        group, {TopicPartition(topic, 0): CommittedOffset(5), TopicPartition(topic, 1): CommittedOffset(2)}
    )
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    at = ["--bootstrap-server", broker.bootstrap]
    shown = run_kafka_class(tool, *at, "--describe", "--group", group).stdout
    lines = sorted(line.split()[1:6] for line in shown.splitlines() if line.startswith(group))
    assert lines == [[topic, "0", "5", "5", "0"], [topic, "1", "2", "5", "3"]]


def test_a_group_without_members_is_described(groups: BrokerGroups, topic: str) -> None:
    group = new_group()
    groups.commit(group, {TopicPartition(topic, 0): CommittedOffset(1)})
    (described,) = groups.describe([group, "no-such-group"]).values()
    assert (described.group, described.state, described.protocol_type) == (group, "Empty", "")
    assert (described.members, described.coordinator) == ((), 1)
    assert groups.describe([]) == {}


def test_a_group_with_live_members_is_described_and_takes_no_commit(
    broker: Broker, groups: BrokerGroups, topic: str
) -> None:
    group, partition = new_group(), TopicPartition(topic, 0)
    with broker.member(group, topic):
        described = groups.describe([group])[group]
        assert (described.state, described.protocol_type) == ("Stable", "consumer")
        assert described.protocol
        (member,) = described.members
        assert member.partitions == (partition, TopicPartition(topic, 1))
        assert member.client_id.startswith("kafka-python")
        assert member.host.strip("/") == "127.0.0.1"
        with pytest.raises(
            GroupError, match=rf"{group}.*live members \(UNKNOWN_MEMBER_ID\).*kafka\.group\.id"
        ):
            groups.commit(group, {partition: CommittedOffset(1)})
        with pytest.raises(GroupError, match=r"live members \(GROUP_SUBSCRIBED_TO_TOPIC\)"):
            groups.delete_offsets(group, [partition])
        with pytest.raises(GroupError, match=rf"Deleting group {group}: .*live members \(NON_EMPTY_GROUP\)"):
            groups.delete_group(group)
    groups.commit(group, {partition: CommittedOffset(1)})
    assert groups.committed(group) == {partition: CommittedOffset(1, 0)}


def test_offsets_and_groups_are_deleted(groups: BrokerGroups, topic: str) -> None:
    group, (first, second) = new_group(), (TopicPartition(topic, 0), TopicPartition(topic, 1))
    groups.delete_offsets(group, [first])
    groups.commit(group, {first: CommittedOffset(1), second: CommittedOffset(2)})
    groups.delete_offsets(group, [])
    groups.delete_offsets(group, [first, TopicPartition("no-such-topic", 0)])
    assert groups.committed(group) == {second: CommittedOffset(2, 0)}
    groups.delete_group(group)
    assert groups.committed(group) == {}
    assert group not in groups.group_ids()
    with pytest.raises(GroupError, match=r"GROUP_ID_NOT_FOUND.*Check its name"):
        groups.delete_group(group)


@pytest.mark.long
def test_an_error_names_what_is_not_committed(groups: BrokerGroups, topic: str) -> None:
    group, (first, second) = new_group(), (TopicPartition(topic, 0), TopicPartition(topic, 1))
    with pytest.raises(
        GroupError, match=rf"OFFSET_METADATA_TOO_LARGE; the rest is committed \(partition {second}\)"
    ):
        groups.commit(group, {first: CommittedOffset(1), second: CommittedOffset(2, metadata="x" * 5000)})
    assert groups.committed(group) == {first: CommittedOffset(1, 0)}
    missing = [TopicPartition("no-such-topic", number) for number in (0, 1)]
    with pytest.raises(
        UnknownTopicOrPartitionError, match="for no-such-topic-0, no-such-topic-1; the rest is committed"
    ):
        groups.commit(group, dict.fromkeys([second, *missing], CommittedOffset(2)))
    assert groups.committed(group)[second] == CommittedOffset(2, 0)


def test_only_who_needs_it_waits_for_an_open_transaction_and_is_told_its_name(
    broker: Broker, groups: BrokerGroups, topic: str
) -> None:
    group, partition = new_group(), KafkaTopicPartition(topic, 0)
    groups.commit(group, {TopicPartition(topic, 0): CommittedOffset(1)})
    name = f"app-{uuid.uuid4().hex[:8]}"
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({partition: OffsetAndMetadata(4, "", -1)}, group)
    impatient = groups_of(broker.bootstrap, timeout=2)
    with pytest.raises(
        GroupError, match=rf"{group}.*stays open.*transactional id '{name}' \(producer id \d+\)"
    ):
        impatient.committed(group, require_stable=True)
    patient = groups_of(broker.bootstrap, timeout=60, request_timeout_ms=1000)
    began = time.monotonic()
    with pytest.raises(GroupError, match=rf"{group}.*stays open"):
        patient.committed(group, require_stable=True)
    assert time.monotonic() - began < 30, "it is patient with brokers, and not with transactions"
    before = {TopicPartition(topic, 0): CommittedOffset(1, 0)}
    assert impatient.committed(group) == before
    assert impatient.committed_by([group, "no-such-group"]) == {group: before, "no-such-group": {}}
    producer.commit_transaction()
    producer.close()
    assert groups.committed(group, require_stable=True) == {TopicPartition(topic, 0): CommittedOffset(4, -1)}


def test_many_groups_take_a_few_requests(
    broker: Broker, groups: BrokerGroups, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, partition = [new_group() for _ in range(30)], TopicPartition(topic, 0)
    for number, name in enumerate(names):
        groups.commit(name, {partition: CommittedOffset(number, 0)})
    asked = Counter[str]()
    call = Connection.call

    def counting(self: Connection, request: Any, **more: Any) -> Any:
        asked[type(request).__name__] += 1
        return call(self, request, **more)

    monkeypatch.setattr(Connection, "call", counting)
    fresh = groups_of(broker.bootstrap, client_id=uuid.uuid4().hex)
    assert fresh.committed_by([*names, "no-such-group"]) == {
        "no-such-group": {},
        **{name: {partition: CommittedOffset(number, 0)} for number, name in enumerate(names)},
    }
    assert (asked["FindCoordinatorRequest"], asked["OffsetFetchRequest"]) == (1, 1)


def test_a_broker_of_old(old_broker: OldBroker) -> None:
    topic, group = f"groups-{uuid.uuid4().hex[:12]}", new_group()
    old_broker.make_topic(topic, 2)
    groups = groups_of(old_broker.bootstrap)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    groups.commit(group, {first: CommittedOffset(1, metadata="m"), second: CommittedOffset(2)})
    assert groups.committed(group) == {first: CommittedOffset(1, 0, "m"), second: CommittedOffset(2, 0)}
    assert groups.committed_by([group, "no-such-group"]) == {
        group: {first: CommittedOffset(1, 0, "m"), second: CommittedOffset(2, 0)},
        "no-such-group": {},
    }
    assert groups.committed(group, [second]) == {second: CommittedOffset(2, 0)}
    assert group in groups.group_ids()
    other = new_group()
    with old_broker.member(other, topic):
        described = groups.describe([group, other, "no-such-group"])
        assert {name: found.state for name, found in described.items()} == {group: "Empty", other: "Stable"}
        assert described[other].members[0].partitions == (first, second)
        with pytest.raises(GroupError, match="live members"):
            groups.commit(other, {first: CommittedOffset(1)})
    groups.delete_offsets(group, [first])
    assert groups.committed(group) == {second: CommittedOffset(2, 0)}
    groups.delete_group(group)
    assert groups.committed(group) == {}


@pytest.mark.usefixtures("ended_sessions")
def test_offsets_in_the_zookeeper_of_a_broker_of_old(old_broker: OldBroker) -> None:
    """Its znodes are of later versions than those of brokers whose consumers had offsets there."""
    topic, group = f"groups-{uuid.uuid4().hex[:12]}", new_group()
    old_broker.make_topic(topic, 2)
    with connect(f"zk://{old_broker.zookeeper_connect}") as kafka:
        kafka.groups.commit(group, {TopicPartition(topic, 1): CommittedOffset(0)})
        (row,) = kafka.groups.offsets([group])
        assert (row.topic, row.partition, row.offset, row.lag, row.state) == (topic, 1, 0, 0, "ok")


def test_a_group_whose_assignments_brokers_make(
    broker: Broker, groups: BrokerGroups, topic: str, tmp_path: Path
) -> None:
    group, partition = new_group(), TopicPartition(topic, 0)
    with console_consumer(broker, group, topic, tmp_path):
        broker.wait_until(lambda: state_of(groups, group) == "Stable", f"{group} is not stable", 60)
        described = groups.describe([group])[group]
        assert (described.protocol_type, described.protocol, described.coordinator) == (
            "consumer",
            "uniform",
            1,
        )
        assert [member.partitions for member in described.members] == [(partition, TopicPartition(topic, 1))]
        assert described.members[0].client_id == "console-consumer"
        with pytest.raises(GroupError, match="live members"):
            groups.commit(group, {partition: CommittedOffset(1)})
        with pytest.raises(GroupError, match="live members"):
            groups.delete_offsets(group, [partition])
    broker.wait_until(lambda: state_of(groups, group) == "Empty", f"{group} is not empty", 60)
    groups.commit(group, {partition: CommittedOffset(3)})
    assert groups.committed(group, [partition]) == {partition: CommittedOffset(3, 0)}
    groups.delete_group(group)


def test_a_share_group_is_known_by_name_and_takes_no_commit(
    broker: Broker, groups: BrokerGroups, topic: str, tmp_path: Path
) -> None:
    group = new_group()
    with console_consumer(broker, group, topic, tmp_path, "ConsoleShareConsumer"):
        broker.wait_until(lambda: group in groups.describe([group]), "No share group", 60)
        described = groups.describe([group])[group]
        assert (described.protocol_type, described.members) == ("share", None)
        assert group in groups.group_ids()
        with pytest.raises(GroupError, match=f"{group}: GROUP_ID_NOT_FOUND.*is a consumer group"):
            groups.commit(group, {TopicPartition(topic, 0): CommittedOffset(1)})
        assert groups.committed(group) == {}
        (lag,) = lags(group_offsets(place_of(broker), groups, [group]))
        assert (lag.lag, lag.note) == (None, "a share group commits no offsets")
        assert lag.is_alarming(10**9, named=True)


def test_a_start_from_commits_of_another_history_is_refused(
    broker: Broker, groups: BrokerGroups, topic: str
) -> None:
    """The topic was recreated, or __consumer_offsets restored from an older copy; only the number fits."""
    send(broker, topic, 20)
    group, partitions = new_group(), [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    place = place_of(broker)

    def start(offset: int, epoch: int, **options: str) -> object:
        groups.commit(group, dict.fromkeys(partitions, CommittedOffset(offset, epoch)))
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
        given |= {"startingOffsets": "committed", "kafka.group.id": group}
        return start_from_group(read_options(given, batch=True), place, lambda: groups).starting.values

    assert start(5, 0) == dict.fromkeys(partitions, 5)
    assert start(5, -1) == dict.fromkeys(partitions, 5), "without an epoch the end alone can tell"
    for offset, epoch, said in (
        (5, 7, "after a record of leader epoch 7, which the log's leader has never had"),
        (500, 0, "the log ends at 10"),
    ):
        with pytest.raises(GroupError, match=f"{group}.*offset {offset}, but {said}.*offsets reset --group"):
            start(offset, epoch)
        within = min(offset, 10)  # what is beyond the end is not there
        assert start(offset, epoch, failOnDataLoss="false") == dict.fromkeys(partitions, within)
