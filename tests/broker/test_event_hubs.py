"""What works, and what does not, on a service that is almost Kafka: see :mod:`tests.almost_kafka`."""

from __future__ import annotations

import json
import os
import socket
import struct
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from pyspark_kafkalog import BackupRules, RestoreSettings, connect
from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.errors import AuthenticationError, DataLossError, UnsupportedVersionError
from pyspark_kafkalog.model import CommittedOffset, Fetch, OffsetRange, Place, TopicPartition
from pyspark_kafkalog.model.topics import NewTopic
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_place
from tests.almost_kafka import EVENT_HUBS_2019, EVENT_HUBS_2023, AlmostKafka
from tests.broker.producing import consume, unused_topic
from tests.extensions.clouds.metadata_services import metadata_services
from tests.extensions.exactly_once.writing import Query as ExactlyOnce
from tests.extensions.exactly_once.writing import values
from tests.extensions.membership.test_member import Group
from tests.kafka import Broker, Listener
from tests.kafka_process import free_ports
from tests.kafka_secure import unsecured_token
from tests.kafka_service import running
from tests.stream.test_history import Query, go_on
from tests.stream.test_history_brokers import add
from tests.tools.cli.running import run

pytestmark = pytest.mark.broker

TABLES = {"2019": EVENT_HUBS_2019, "2023": EVENT_HUBS_2023}
NOT_IDEMPOTENT = {"kafka.enable.idempotence": "false"}
SECURE = "2023_SECURE"
_KEY = "c2VjcmV0LW9mLWh1YnM="
CONNECTION_STRING = (
    "Endpoint=sb://hubs.servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey;"
    f"SharedAccessKey={_KEY}"
)
_OF_LISTENER = f"listener.name.in_{SECURE.lower()}"
_PACKAGE = "org.apache.kafka.common.security"
LOGINS = {
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    f"{_OF_LISTENER}.plain.sasl.jaas.config": f"{_PACKAGE}.plain.PlainLoginModule required"
    f' user_$ConnectionString="{CONNECTION_STRING}";',
    f"{_OF_LISTENER}.oauthbearer.sasl.jaas.config": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
    ' unsecuredLoginStringClaim_sub="broker";',
}
"""The broker's side: a connection string, and tokens that are not signed."""
ROWS = pa.table({"key": [b"k%d" % n for n in range(300)], "value": [b"v%d" % n for n in range(300)]})


@dataclass
class Service:
    """The service of one year, and the broker that it really is."""

    year: str
    broker: Broker
    proxy: AlmostKafka
    login: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return self.proxy.address

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, **self.login}

    @property
    def place(self) -> Place:
        return open_place(place_options({**self.options, "kafkaConsumer.pollTimeoutMs": "3000"}))

    @property
    def kafka(self) -> Kafka:
        """Whose writes are idempotent if the service can tell producers apart."""
        return connect({**self.options, **({} if self.year == "2023" else NOT_IDEMPOTENT)})

    def topic(self, partitions: int = 1) -> str:
        topic = unused_topic()
        self.broker.make_topic(topic, partitions)
        return topic

    def recreate(self, topic: str, records: int, partitions: int = 1) -> None:
        self.broker.delete_topic(topic)
        self.broker.make_topic(topic, partitions)
        add(self.broker.bootstrap, topic, records)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Service]]:
    proxies = {year: AlmostKafka(table) for year, table in TABLES.items()} | {
        SECURE: AlmostKafka(EVENT_HUBS_2023)
    }
    listeners = []
    for (name, proxy), port in zip(proxies.items(), free_ports(len(proxies)), strict=True):
        proxy.target = port
        protocol = "SASL_PLAINTEXT" if name == SECURE else "PLAINTEXT"
        listeners.append(Listener(f"IN_{name}", protocol, port, proxy.address))
    folder = tmp_path_factory.mktemp("event-hubs")
    with ExitStack() as stack:
        broker = stack.enter_context(running(Broker(folder, LOGINS, listeners=listeners, heap="256m")))
        for proxy in proxies.values():
            stack.callback(proxy.stop)
        yield {
            name: Service("2023" if name == SECURE else name, broker, proxy)
            for name, proxy in proxies.items()
        }


@pytest.fixture(params=TABLES)
def service(request: pytest.FixtureRequest, services: dict[str, Service]) -> Iterator[Service]:
    """It was asked for nothing that it does not have."""
    service = services[request.param]
    yield service
    assert service.proxy.refused == []


def test_records(service: Service) -> None:
    topic = service.topic(3)
    assert service.kafka.write(ROWS, topic) == 300
    time.sleep(0.01)
    between = str(int(time.time() * 1000))
    zipped = connect({**service.options, **NOT_IDEMPOTENT, "kafka.compression.type": "gzip"})
    assert zipped.write(ROWS, topic) == 300
    assert sorted(record.value or b"" for record in consume(service.broker.bootstrap, topic)) == sorted(
        2 * ROWS["value"].to_pylist()
    )
    kafka = service.kafka
    assert kafka.read(topic).read_all().num_rows == 600
    for bound in ("startingTimestamp", "endingTimestamp"):
        part = kafka.read(topic, columns=["value"], options={bound: between}).read_all()
        assert sorted(part["value"].to_pylist()) == sorted(ROWS["value"].to_pylist())
    splits = kafka.plan(topic, options={"minPartitions": "6"})
    assert len(splits) == 6
    assert sum(split.read().read_all().num_rows for split in splits) == 600


def test_large_messages(service: Service) -> None:
    topic, large = service.topic(), {"large.message.enabled": "true"}
    kafka = connect({**service.options, **NOT_IDEMPOTENT, **large, "kafka.max.request.size": "1000000"})
    kafka.write(pa.table({"key": [b"k"], "value": [b"x" * 3_000_000]}), topic)
    assert [len(value) for value in kafka.read(topic).read_all()["value"].to_pylist()] == [3_000_000]


def test_groups(service: Service) -> None:
    topic, group, kafka = service.topic(2), unused_topic(), service.kafka
    kafka.write(ROWS, topic)
    for count in (300, 0):
        with kafka.changes(topic, group=group) as changes:
            assert changes.read().read_all().num_rows == count
    partitions = [TopicPartition(topic, n) for n in range(2)]
    assert {p: c.offset for p, c in kafka.groups.committed(group).items()} == kafka.place.end_offsets(
        partitions, read_committed=False
    )
    (lag,) = kafka.groups.lags([group])
    assert (lag.lag, lag.state) == (0, "ok")
    kafka.groups.commit(group, {partitions[0]: CommittedOffset(0)})
    (described,) = kafka.groups.describe([group])
    assert described.state == "Empty"


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_members_of_a_group(service: Service, assignor: str) -> None:
    group = Group(service.broker, service.bootstrap)
    try:
        members = [group.member(assignors=(assignor,)) for _ in range(2)]
        shares = [group.holds(members[0], 3)]
        members[0].release()
        shares.append(group.holds(members[1], 3))
        assert len(shares[0].partitions | shares[1].partitions) == 6
        assert members[1].commit({p: CommittedOffset(1) for p in shares[1].partitions}, shares[1])
        assert len(group.commits()) == 3
    finally:
        for member in group.members:
            member.leave()


def test_a_backup_is_written_back(service: Service, tmp_path: Path) -> None:
    """With its partitions and times, without :meth:`restore`, which needs more."""
    topic, columns = service.topic(3), ["partition", "key", "value", "timestamp"]
    service.kafka.write(ROWS, topic)
    service.kafka.logs.backup(str(tmp_path), BackupRules([topic]))
    service.recreate(topic, 0, partitions=3)
    backup = connect(str(tmp_path))
    assert service.kafka.write(backup.read(topic)) == 300
    was, now = (
        place.read(topic, columns=columns).read_all().sort_by([("key", "ascending")])
        for place in (backup, service.kafka)
    )
    assert now == was


def test_the_command_line(service: Service, tmp_path: Path) -> None:
    at, topic, group, backup = service.bootstrap, unused_topic(), unused_topic(), tmp_path / "backup"
    idempotence = [] if service.year == "2023" else ["-o", "kafka.enable.idempotence=false"]
    for words, text, out in (
        (("topics", "create", at, topic, "--partitions", 1, "--replication-factor", 1), None, "created"),
        (("produce", at, topic, "-K", "=", *idempotence), "a=1\nb=2\n", "2 records were written"),
        (("topics", at, topic), None, f"{topic} 0 0 2"),
        (("cat", at, topic, "--format", r"%o %k %v\n"), None, "1 b 2"),
        (("verify", at, topic), None, f"{topic} 0 1 2"),
        (("dump", at, f"{topic}-0"), None, "count: 2"),
        (("offsets", "reset", at, "--group", group, topic, "--to-offset", 1, "--execute"), None, group),
        (("offsets", at, "--group", group), None, f"{group} {topic} 0 1 2 1"),
        (("lag", at, "--group", group), None, "Total lag: 1"),
        (("groups", at), None, f"{group} Empty"),
        (("backup", at, backup, topic), None, f"{topic} 0 0 2 2"),
        (("backup", at, backup, topic), None, f"{topic} 0 0 2 2 0 B"),
        (("cat", backup, topic, "--format", r"%o %k %v\n"), None, "1 b 2"),
        (("topics", "delete", at, topic, "--execute"), None, topic),
    ):
        done = run(*words, text=text)
        printed = "\n".join(" ".join(line.split()) for line in (done.out + done.err).splitlines())
        assert out in printed, (words, printed)
        assert done.code == 0, (words, printed)


def exactly_once(service: Service) -> None:
    topic = service.topic(3)
    folder = service.broker.folder / topic
    ExactlyOnce(service.bootstrap, topic, folder, query_id=topic).write([values(5)], 0)


def restore(service: Service) -> None:
    topic = service.topic()
    add(service.broker.bootstrap, topic, 10)
    with tempfile.TemporaryDirectory() as folder:
        backup = connect(folder)
        connect(service.broker.bootstrap).logs.backup(folder, BackupRules([topic]))
        settings = RestoreSettings([topic], {topic: unused_topic()})
        try:
            backup.logs.restore(connect(service.options), settings)
        finally:
            assert list(service.kafka.place.topics(list(settings.rename.values()))) == []


def as_member(**options: str) -> Callable[[Service], None]:
    def act(service: Service) -> None:
        group = Group(service.broker, service.bootstrap)
        member = group.member(**options)
        try:
            member.hold(10)
        finally:
            member.leave()

    return act


ALL_YEARS = list(TABLES)


@pytest.mark.parametrize(
    ("years", "act", "why"),
    [
        (
            ["2019"],
            lambda service: connect(service.options).write(ROWS, service.topic()),
            r"InitProducerId.*Set kafka\.enable\.idempotence to false",
        ),
        (
            ALL_YEARS,
            exactly_once,
            r"(OffsetFetch|InitProducerId|AddPartitionsToTxn).*delivery\.guarantee",
        ),
        (
            ["2019"],
            lambda service: service.kafka.topics.create([NewTopic(unused_topic())]),
            r"CreateTopics.*give --partitions and --replication-factor",
        ),
        (
            ALL_YEARS,
            lambda service: service.kafka.logs.delete_records(
                {TopicPartition(service.topic(), 0): 0}, execute=True
            ),
            r"DeleteRecords.*records end by the topic's retention",
        ),
        (
            ["2023"],
            lambda service: service.kafka.topics.plan_alteration(
                [service.topic()], configs={"retention.ms": "1"}
            ),
            r"IncrementalAlterConfigs.*ways of its own",
        ),
        (
            ["2019"],
            lambda service: service.kafka.topics.plan_alteration([service.topic()], partitions=2),
            r"CreatePartitions.*ways of its own",
        ),
        (
            ALL_YEARS,
            lambda service: service.kafka.groups.delete_offsets("g", [TopicPartition("t", 0)]),
            r"OffsetDelete.*delete the group",
        ),
        (
            ["2019"],
            lambda service: service.kafka.groups.delete("g"),
            r"DeleteGroups.*groups end by the brokers' retention",
        ),
        (ALL_YEARS, restore, r"IncrementalAlterConfigs.*connect\(target\)\.write"),
        (["2019"], as_member(instance_id="one"), r"JoinGroup.*leave kafka\.group\.instance\.id out"),
        (ALL_YEARS, as_member(protocol="consumer"), r"ConsumerGroupHeartbeat.*kafka\.group\.protocol"),
    ],
)
def test_what_needs_a_missing_api_names_it_and_a_way_out(
    services: dict[str, Service], years: list[str], act: Callable[[Service], object], why: str
) -> None:
    for year in years:
        with pytest.raises(UnsupportedVersionError, match=why):
            act(services[year])
        assert services[year].proxy.refused == []


def test_partitions_are_added_where_configurations_cannot_be_changed(services: dict[str, Service]) -> None:
    service = services["2023"]
    topic = service.topic()
    topics = service.kafka.topics
    topics.alter(topics.plan_alteration([topic], partitions=2))
    assert service.kafka.place.topics([topic]) == {topic: (0, 1)}


def test_the_doctor_says_what_is_noticed_less_well(service: Service) -> None:
    done = run("doctor", service.bootstrap)
    assert done.code == 0, done.out
    for missing in ("Metadata v10", "OffsetForLeaderEpoch v3", "AddPartitionsToTxn"):
        assert f"it lacks {missing}" in done.out
    assert ("it lacks InitProducerId" in done.out) == (service.year == "2019")


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_recreated_topic_is_noticed_by_its_records(service: Service, goes_on: bool) -> None:
    """There are no topic ids and no leader epochs to tell it."""
    topic = service.topic()
    add(service.broker.bootstrap, topic, 10)
    query, start = Query(service.place), {TopicPartition(topic, 0): 0}
    stream = query.run(subscribe=topic)
    end = go_on(stream, start)
    assert end == {TopicPartition(topic, 0): 10}
    service.recreate(topic, 15)
    if not goes_on:
        query.place = service.place
        stream = query.run(subscribe=topic)
    with pytest.raises(DataLossError, match=r"LOG_WENT_BACK.*not the one that was read there"):  # noqa: PT012
        for _ in range(2):
            query.clock.now += 100
            end = go_on(stream, end)


def test_a_shorter_topic_is_waited_for_and_told(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    topic = service.topic()
    add(service.broker.bootstrap, topic, 10)
    query, start = Query(service.place), {TopicPartition(topic, 0): 0}
    stream = query.run(subscribe=topic)
    end = go_on(stream, start)
    service.recreate(topic, 5)
    with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED: the end went back from 10 to 5"):
        stream.plan(end, stream.next_offsets(end))
    assert "No topic id tells whether the topic was recreated" in caplog.text


def test_deleted_records_are_data_loss(service: Service) -> None:
    topic = service.topic()
    add(service.broker.bootstrap, topic, 10)
    service.broker.delete_records(topic, 5)
    place = service.place
    with pytest.raises(DataLossError, match="the log now starts at offset 5"):
        list(place.fetch(Fetch(TopicPartition(topic, 0), OffsetRange(0, 10))))


def test_a_backup_of_a_recreated_topic_stops(service: Service, tmp_path: Path) -> None:
    topic = service.topic()
    add(service.broker.bootstrap, topic, 10)
    assert run("backup", service.bootstrap, tmp_path, topic).code == 0
    service.recreate(topic, 15)
    done = run("backup", service.bootstrap, tmp_path, topic)
    assert done.code == 1, done.out
    assert connect(str(tmp_path)).read(topic).read_all().num_rows == 10


def test_newer_requests_end_the_connection(services: dict[str, Service]) -> None:
    with socket.create_connection(("127.0.0.1", services["2023"].proxy.port), timeout=30) as client:
        client.sendall(struct.pack(">ihhih", 10, 18, 4, 1, -1))
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    services["2023"].proxy.refused.clear()


def login(mechanism: str, **options: str) -> dict[str, str]:
    return {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": mechanism, **options}


def connection_string(text: str) -> dict[str, str]:
    """As Microsoft's pages have it for Java."""
    module = f"{_PACKAGE}.plain.PlainLoginModule"
    jaas = f'{module} required username="$ConnectionString" password="{text}";'
    return login("PLAIN", **{"kafka.sasl.jaas.config": jaas})


@pytest.fixture
def managed_identity() -> Iterator[dict[str, str]]:
    with metadata_services() as azure:
        answer = {"access_token": unsecured_token(), "expires_on": str(int(time.time()) + 3600)}
        azure.answers["/msi/token"] = json.dumps(answer)
        platform = {
            "IDENTITY_ENDPOINT": f"http://{azure.address}/msi/token",
            "IDENTITY_HEADER": "header-of-platform",
        }
        with mock.patch.dict(os.environ, platform):
            yield login("OAUTHBEARER", **{"kafka.sasl.oauthbearer.provider": "azure"})


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_logins(services: dict[str, Service], managed_identity: dict[str, str], mechanism: str) -> None:
    by = managed_identity if mechanism == "OAUTHBEARER" else connection_string(CONNECTION_STRING)
    service = replace(services[SECURE], login=by)
    topic, group, kafka = service.topic(2), unused_topic(), service.kafka
    assert kafka.write(ROWS, topic) == 300
    assert kafka.read(topic).read_all().num_rows == 300
    with kafka.changes(topic, group=group) as changes:
        assert changes.read().read_all().num_rows == 300
    assert [lag.lag for lag in kafka.groups.lags([group])] == [0]
    assert service.proxy.refused == []


def test_another_key_is_refused_and_not_shown(services: dict[str, Service]) -> None:
    another = CONNECTION_STRING.replace(_KEY, "YW5vdGhlci1rZXk=")
    service = replace(services[SECURE], login=connection_string(another))
    with pytest.raises(AuthenticationError) as caught:
        service.kafka.topics.partitions()
    assert "YW5vdGhlci1rZXk" not in "".join(traceback.format_exception(caught.value))
