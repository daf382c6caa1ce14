"""Other users' topics that come and go delay no query; its own delay it no longer than one of them does."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kafka.protocol.metadata import MetadataRequest

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.model import Seen, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions
from tests.broker.fake_broker import METADATA, Received, encoded, metadata_response, serving, topic_metadata

pytestmark = pytest.mark.slow

UNKNOWN_TOPIC = 3


@contextmanager
def having(names: Callable[[], set[str]]) -> Iterator[Cluster]:
    """A cluster of one broker with a topic of one partition for each of ``names``."""

    def answer(received: Received) -> bytes:
        request = MetadataRequest.decode(received.frame, version=received.version, header=True)
        there = names()
        topics = [
            topic_metadata(name, {0: (1, 0)}, topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, name))
            if name in there
            else topic_metadata(name, {}, error_code=UNKNOWN_TOPIC)
            for name in (there if request.topics is None else [topic.name for topic in request.topics])
        ]
        return encoded(received, metadata_response({1: broker.address}, topics))

    with serving(answer, {18: (0, 3), METADATA: (9, 12)}) as broker:
        options = ConnectionOptions(
            (broker.address,), request_timeout_ms=1_500, retry_backoff_ms=5, retry_backoff_max_ms=50
        )
        yield Cluster(options)


def impatient(cluster: Cluster, **fetch: int) -> Brokers:
    """A place whose request.timeout.ms is too short to prove anything in one attempt."""
    servers = cluster.options.bootstrap_servers
    options = ConnectionOptions(servers, request_timeout_ms=300, retry_backoff_ms=5, retry_backoff_max_ms=50)
    return Brokers(options, FetchOptions(**fetch))


def test_a_place_waits_for_brokers_to_agree_as_long_as_it_does_for_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Longer than request.timeout.ms for each attempt, as other brokers may be down."""
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 4.0)
    with having(set) as cluster:
        place = impatient(cluster, poll_timeout_ms=20_000)
        place.expect(TopicPartition("t", 0), Seen("an id"))
        assert place.topic_ids({"t"}) == {}


def test_ends_are_looked_up_again_until_a_topic_has_proved_to_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 1.0)
    with having(set) as cluster:
        place = impatient(cluster, num_retries=20, retry_interval_ms=10)
        assert place.end_offsets([TopicPartition("t", 0)], read_committed=False) == {}


def churning() -> set[str]:
    """Every 0.2 seconds one topic goes and another comes."""
    now = int(time.monotonic() * 5)
    return {"t", f"x{now}", f"x{now + 1}", f"x{now + 2}"}


def test_those_of_others_hold_up_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.5)
    with having(churning) as cluster:
        begun = time.monotonic()
        took = []
        while time.monotonic() < begun + 3:
            listed = time.monotonic()
            assert cluster.topics()["t"] == (0,)
            assert cluster.topic_ids(["t"])
            took.append(time.monotonic() - listed)
            time.sleep(0.05)
        # At each moment a topic has just gone: what waits for its proof waits every time.
        assert statistics.median(took) < 0.4
        assert len(cluster.topics()) < 10, "what is gone is forgotten"


def test_one_after_the_other_is_found_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.5)
    begun = time.monotonic()

    def fewer() -> set[str]:
        return {f"x{number}" for number in range(int((time.monotonic() - begun) * 5), 50)}

    with having(fewer) as cluster:
        names = sorted(cluster.topics())
        for _ in range(3):
            time.sleep(0.25)
            there = fewer()
            assert cluster.topic_ids(names).keys() >= there & fewer()
