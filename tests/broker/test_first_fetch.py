"""One request to each leader brings the beginnings of many ranges, and only what was planned is taken."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kafka import KafkaProducer

from pyspark_kafkalog.broker.fetch import first
from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.model import Fetch, OffsetRange, Seen, TopicPartition
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.splits import Split
from pyspark_kafkalog.read.together import prefetch, rows_together
from tests.broker import reading
from tests.broker.scripted_cluster import Belief, ScriptedCluster, playing
from tests.broker.test_deposed_leader import brokers
from tests.kafka import Broker

PARTITIONS = 30
EACH = 20
"""Records of a partition, in batches of ten."""
VALUE = b"x" * 100


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    name = f"first-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=1000)
    for _ in range(EACH // 10):
        for number in range(PARTITIONS):
            for _ in range(10):
                producer.send(name, VALUE, partition=number)
        producer.flush()
    producer.close()
    return name


def splits(place: Brokers, topic: str, start: int = 5, end: int = EACH) -> list[Split]:
    topic_id = place.topic_ids([topic])[topic]
    return [
        Split(TopicPartition(topic, number), OffsetRange(start, end), seen=Seen(topic_id, 0, EACH))
        for number in range(PARTITIONS)
    ]


RULES = ReadRules(reading.SCHEMA, False, True, DecodeLimits())


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the requests that are sent."""
    from pyspark_kafkalog.broker.wire.connection import Connection

    sent: list[str] = []
    send = Connection._send

    def noting(self: Connection, request: object, version: int) -> None:
        sent.append(type(request).__name__)
        send(self, request, version)

    monkeypatch.setattr(Connection, "_send", noting)
    return sent


def read(place: Brokers, shares: list[Split], *, max_bytes: int = 1 << 20) -> list[int]:
    found = prefetch(place, shares, RULES, max_bytes=max_bytes)
    rows = rows_together(found, RecordReader(place, RULES).read, max_bytes=RULES.limits.max_bytes)
    return [offset for each in rows for offset in each.column("offset").to_pylist()]


@pytest.mark.parametrize("end", [EACH, EACH - 1])
def test_many_partitions_take_one_fetch(broker: Broker, topic: str, requests: list[str], end: int) -> None:
    place = reading.place(broker.bootstrap)
    shares = splits(place, topic, end=end)
    requests.clear()
    assert read(place, shares) == [*range(5, end)] * PARTITIONS
    assert requests == ["FetchRequest"]


def test_what_does_not_fit_is_fetched_as_ever(broker: Broker, topic: str, requests: list[str]) -> None:
    place = reading.place(broker.bootstrap)
    shares = splits(place, topic)
    requests.clear()
    assert read(place, shares, max_bytes=5000) == [*range(5, EACH)] * PARTITIONS
    assert requests.count("FetchRequest") > 1


def test_a_beginning_is_not_the_whole(broker: Broker, topic: str, requests: list[str]) -> None:
    """A first batch comes whole, however large, and no other after it."""
    place = reading.place(broker.bootstrap)
    assert read(place, splits(place, topic)[:1], max_bytes=10) == [*range(5, EACH)]
    share = splits(place, topic, end=10)[:1]
    requests.clear()
    assert read(place, share, max_bytes=10) == [*range(5, 10)]
    assert requests == ["FetchRequest"]


def test_open_ranges_take_one_lookup_of_each_kind(broker: Broker, topic: str, requests: list[str]) -> None:
    place = reading.place(broker.bootstrap)
    shares = [replace(split, offsets=reading.ALL) for split in splits(place, topic)]
    requests.clear()
    assert read(place, shares) == [*range(EACH)] * PARTITIONS
    assert sorted(requests) == ["FetchRequest", "ListOffsetsRequest", "ListOffsetsRequest"]


def test_a_fetch_of_other_offsets_or_isolation_takes_none_of_it(broker: Broker, topic: str) -> None:
    place = reading.place(broker.bootstrap)
    shares = splits(place, topic, start=15)[:2]
    prefetch(place, shares, RULES, max_bytes=1 << 20)
    other = replace(shares[0], offsets=OffsetRange(2, 9))
    rows = RecordReader(place, RULES).read(other)
    assert [offset for each in rows for offset in each.column("offset").to_pylist()] == [*range(2, 9)]
    committed = RecordReader(place, replace(RULES, read_committed=True))
    assert sum(each.num_rows for each in committed.read(shares[1])) == EACH - 15


def test_the_size_of_records_is_learnt(broker: Broker, topic: str) -> None:
    place = reading.place(broker.bootstrap)
    shares = splits(place, topic)
    prefetch(place, shares, RULES, max_bytes=1 << 20)
    means = place.mean_record_bytes([split.partition for split in shares])
    assert all(100 < mean < 250 for mean in means.values())
    assert len(means) == PARTITIONS


AN_ID, ANOTHER_ID = "AAAAAAAAAAAAAAAAAAAABw", "AAAAAAAAAAAAAAAAAAAACQ"
LEADER = Belief(leader=2, epoch=6, end=100)
T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with playing(ScriptedCluster({1: replace(LEADER), 2: replace(LEADER)})) as scripted:
        yield scripted


@pytest.mark.parametrize(("topic_id", "is_taken"), [(AN_ID, True), (ANOTHER_ID, False)])
def test_only_the_planned_topic_is_taken(cluster: ScriptedCluster, topic_id: str, is_taken: bool) -> None:
    place = brokers(cluster)
    place.prefetch([Fetch(T0, OffsetRange(90, 100), topic_id=topic_id)], max_bytes=1 << 20)
    assert bool(place._first_fetches) == is_taken


def test_a_nearer_replica_is_left_to_the_fetcher(cluster: ScriptedCluster, requests: list[str]) -> None:
    place = brokers(cluster, client_rack="here")
    wanted = [Fetch(T0, OffsetRange(90, 100), topic_id=AN_ID)]
    place.prefetch(wanted, max_bytes=1 << 20)
    assert "FetchRequest" not in requests


def test_nothing_that_fails_is_raised(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **named: object) -> object:
        raise BrokerError("no metadata")

    monkeypatch.setattr(first, "leaders_of", fail)
    wanted = [Fetch(T0, OffsetRange(90, 100), topic_id=AN_ID)]
    brokers(cluster).prefetch(wanted, max_bytes=1 << 20)
