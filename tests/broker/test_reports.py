"""What a report is told of partitions that do not answer: each for itself, whatever the others say."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.errors import AuthorizationError, KafkaLogError
from pyspark_kafkalog.model import TopicPartition, Watermarks
from pyspark_kafkalog.options.settings import PlaceOptions, place_options
from pyspark_kafkalog.places import open_place, open_report
from tests.broker.fake_broker import (
    LIST_OFFSETS,
    METADATA,
    VERSIONS,
    FakeBroker,
    Received,
    encoded,
    metadata_response,
    serving,
)

NO_LEADER, TOPIC_DENIED, STORAGE, NO_LISTENER, UNKNOWN = 5, 29, 56, 72, -1


class Faulty:
    """One broker that leads the partitions of ``t``, except those with a code.

    :ivar leaderless: error codes of metadata by partition, and ``refused`` those of ListOffsets.
    :ivar denied: topics that ACLs hide.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.leaderless: dict[int, int] = {}
        self.refused: dict[int, int] = {}
        self.denied: set[str] = set()
        self.is_gone = False
        self.broker: FakeBroker | None = None

    def answer(self, received: Received) -> bytes:
        answers = {METADATA: self._metadata, LIST_OFFSETS: self._offsets}
        return encoded(received, answers[received.api_key](received))

    def _metadata(self, received: Received) -> Any:
        assert self.broker is not None
        request = MetadataRequest.decode(received.frame, version=received.version, header=True)
        topics = [self._topic(topic.name) for topic in request.topics or ()]
        return metadata_response({1: self.broker.address}, topics)

    def _topic(self, name: str) -> Any:
        kind = MetadataResponse.MetadataResponseTopic
        exists = name == "t" and not self.is_gone
        partitions = [
            kind.MetadataResponsePartition(
                error_code=self.leaderless.get(number, 0),
                partition_index=number,
                leader_id=-1 if number in self.leaderless else 1,
                leader_epoch=3,
                replica_nodes=[1],
                isr_nodes=[1],
                offline_replicas=[],
            )
            for number in range(self.partitions if exists else 0)
        ]
        code = TOPIC_DENIED if name in self.denied else 0 if exists else 3
        return kind(error_code=code, name=name, topic_id=None, is_internal=False, partitions=partitions)

    def _offsets(self, received: Received) -> Any:
        request = ListOffsetsRequest.decode(received.frame, version=received.version, header=True)
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = [
            kind(
                name=topic.name,
                partitions=[
                    kind.ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index,
                        error_code=self.refused.get(wanted.partition_index, 0),
                        timestamp=-1,
                        offset=0 if wanted.timestamp == -2 else 100,
                        leader_epoch=3,
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics)

    def options(self) -> PlaceOptions:
        assert self.broker is not None
        given = {"kafka.bootstrap.servers": self.broker.address, "kafka.request.timeout.ms": "1200"}
        return place_options(given).of_report

    def ask(
        self, *topics: str
    ) -> tuple[dict[TopicPartition, Watermarks], dict[TopicPartition, KafkaLogError]]:
        partitions = [TopicPartition(topic, number) for topic in topics for number in range(self.partitions)]
        with serving(self.answer, VERSIONS) as self.broker:
            return open_place(self.options()).try_watermarks(partitions, read_committed=True)


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (NO_LEADER, "Looking up offsets: LEADER_NOT_AVAILABLE (no leader)"),
        (NO_LISTENER, "Looking up offsets: LISTENER_NOT_FOUND"),
    ],
)
def test_without_a_leader(code: int, says: str) -> None:
    faulty = Faulty(3)
    faulty.leaderless = {1: code}
    bounds, failures = faulty.ask("t")
    assert bounds == {partition(number): Watermarks(0, 100, 100) for number in (0, 2)}
    assert {p: error.message for p, error in failures.items()} == {partition(1): says}


@pytest.mark.parametrize(("code", "name"), [(STORAGE, "KAFKA_STORAGE_ERROR"), (TOPIC_DENIED, "TOPIC_AUTH")])
def test_a_leader_that_refuses(code: int, name: str) -> None:
    faulty = Faulty(3)
    faulty.refused = {2: code}
    bounds, failures = faulty.ask("t")
    assert set(bounds) == {partition(0), partition(1)}
    assert set(failures) == {partition(2)}
    assert name in failures[partition(2)].message


def test_a_topic_that_acls_hide_and_one_that_does_not_exist() -> None:
    faulty = Faulty(2)
    faulty.denied = {"hidden"}
    bounds, failures = faulty.ask("t", "hidden", "gone")
    assert set(bounds) == {partition(0), partition(1)}
    assert set(failures) == {TopicPartition("hidden", 0), TopicPartition("hidden", 1)}
    assert all(isinstance(error, AuthorizationError) for error in failures.values())


def test_some_of_a_thousand() -> None:
    faulty = Faulty(1000)
    faulty.leaderless = dict.fromkeys(range(0, 1000, 100), NO_LEADER)
    faulty.refused = dict.fromkeys(range(50, 1000, 100), STORAGE)
    bounds, failures = faulty.ask("t")
    assert len(bounds) == 980
    assert set(failures) == {partition(n) for n in (*faulty.leaderless, *faulty.refused)}


def test_a_user_who_sets_a_time_has_it() -> None:
    options = place_options({"kafka.bootstrap.servers": "host:9092"})
    longer = place_options({"kafka.bootstrap.servers": "host:9092", "kafka.request.timeout.ms": "60000"})
    for given, expected in ((options, 5000), (longer, 60000)):
        assert given.of_report.brokers is not None
        assert given.of_report.brokers.request_timeout_ms == expected
    assert options.brokers is not None
    assert options.brokers.request_timeout_ms == 30000, "readers wait as ever"
    assert BrokerGroups(longer.of_report.brokers)._timeout == 60  # type: ignore[arg-type]


def test_a_report_believes_that_a_topic_is_gone() -> None:
    """A reader of this thread would wait for a proof, which one broker can't give at once."""
    faulty = Faulty(1)
    with serving(faulty.answer, VERSIONS) as faulty.broker:
        place = open_report(faulty.options())
        assert set(place.topics(["t"])) == {"t"}
        assert set(place.try_watermarks([partition(0)])[0]) == {partition(0)}
        faulty.is_gone = True
        assert open_report(faulty.options()).topics(["t"]) == {}
