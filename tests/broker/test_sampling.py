"""How far bytes reach in many partitions: few requests, whatever a broker leaves out of its answers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse

from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.errors import AuthorizationError, KafkaLogError
from pyspark_kafkalog.model import EARLIEST, OffsetRange, TopicPartition
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.stream.planner import StreamPlanner
from tests.broker.fake_broker import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    FakeBroker,
    Received,
    encoded,
    metadata_response,
    serving,
    topic_metadata,
)
from tests.broker.reading import place
from tests.log.partitions import batch
from tests.read.fake_groups import FakeGroups

CONNECTION = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
NOT_LEADER, OUT_OF_RANGE, CORRUPT, DENIED = 6, 1, 2, 29


@dataclass
class Cluster:
    """Brokers that share the partitions of topic ``t``, each a log of the same batches of ten records.

    They answer a Fetch as Kafka's do (ReplicaManager.readFromLog): what the request asks for in all and of
    each partition bounds what they send, except the first batch of the first partition that has one.
    """

    partitions: int
    brokers: int = 1
    size: int = 100
    """Bytes of a record's value."""
    batches: int = 40
    start: int = 0
    codes: dict[int, list[int]] = field(default_factory=dict)
    """Error codes for a partition's next answers."""
    throttled: int = 0
    """How many answers leave all partitions out."""
    requests: Counter[int] = field(default_factory=Counter)
    sent: int = 0
    addresses: dict[int, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.log = [batch(10 * i, size=self.size, first_timestamp=0) for i in range(self.batches)]
        self.end = 10 * self.batches

    @property
    def names(self) -> list[TopicPartition]:
        return [TopicPartition("t", number) for number in range(self.partitions)]

    def answer(self, received: Received) -> bytes | None:
        with self._lock:
            self.requests[received.api_key] += 1
            if received.api_key == METADATA:
                leaders = {number: (1 + number % self.brokers, 0) for number in range(self.partitions)}
                return encoded(received, metadata_response(self.addresses, [topic_metadata("t", leaders)]))
            if received.api_key == LIST_OFFSETS:
                return encoded(received, self._offsets(received))
            assert received.api_key == FETCH
            return encoded(received, self._records(received))

    def _offsets(self, received: Received) -> Any:
        request = ListOffsetsRequest.decode(received.frame, version=received.version, header=True)
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        answers = [
            kind.ListOffsetsPartitionResponse(
                partition_index=wanted.partition_index,
                error_code=0,
                timestamp=-1,
                offset=self.start if wanted.timestamp == EARLIEST else self.end,
                leader_epoch=0,
            )
            for wanted in request.topics[0].partitions
        ]
        return ListOffsetsResponse(throttle_time_ms=0, topics=[kind(name="t", partitions=answers)])

    def _records(self, received: Received) -> Any:
        request = FetchRequest.decode(received.frame, version=received.version, header=True)
        kind = FetchResponse.FetchableTopicResponse
        left, must_fit = request.max_bytes, False
        answers = []
        for wanted in request.topics[0].partitions:
            codes = self.codes.get(wanted.partition)
            code = codes.pop(0) if codes else 0
            if not code and not self.start <= wanted.fetch_offset <= self.end:
                code = OUT_OF_RANGE
            found = b"" if code else self._found(wanted, left, must_fit)
            must_fit = must_fit or bool(found)
            left = max(left - len(found), 0)
            self.sent += len(found)
            answers.append(
                kind.PartitionData(
                    partition_index=wanted.partition,
                    error_code=code,
                    high_watermark=-1 if code else self.end,
                    last_stable_offset=-1 if code else self.end,
                    log_start_offset=-1 if code else self.start,
                    records=found,
                )
            )
        responses = [] if self.throttled else [kind(topic="t", partitions=answers)]
        self.throttled = max(self.throttled - 1, 0)
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=responses)

    def _found(self, wanted: Any, left: int, must_fit: bool) -> bytes:
        log = self.log[wanted.fetch_offset // 10 :]
        first = len(log[0]) if log else 0
        limit = min(wanted.partition_max_bytes, left)
        if must_fit and limit < first:
            return b""
        return b"".join(log)[: max(limit, first)]


@contextmanager
def playing(cluster: Cluster, **fetch: int) -> Iterator[Brokers]:
    """The cluster as a place."""
    with ExitStack() as stack:
        brokers: list[FakeBroker] = [
            stack.enter_context(serving(cluster.answer)) for _ in range(cluster.brokers)
        ]
        cluster.addresses = {1 + i: broker.address for i, broker in enumerate(brokers)}
        options = {"poll_timeout_ms": 1_000, "fetch_max_wait_ms": 0, "num_retries": 1, **fetch}
        yield place(",".join(cluster.addresses.values()), CONNECTION, **options)


def reach(cluster: Cluster, brokers: Brokers, max_bytes: int, start: int = 0) -> dict[TopicPartition, int]:
    ranges = dict.fromkeys(cluster.names, OffsetRange(start, cluster.end))
    return brokers.offsets_after_bytes(ranges, dict.fromkeys(ranges, max_bytes))


@pytest.mark.parametrize(
    ("partitions", "brokers", "most"), [(10, 1, 1), (100, 1, 2), (1_000, 1, 3), (1_000, 3, 9)]
)
def test_a_micro_batch_by_bytes_takes_few_requests(partitions: int, brokers: int, most: int) -> None:
    """Two batches of each partition."""
    cluster = Cluster(partitions, brokers)
    size = len(cluster.log[0])
    with playing(cluster) as found:
        options = {"path": "/unused", "maxBytesPerTrigger": str(2 * size * partitions), "subscribe": "t"}
        stream = StreamPlanner(found, read_options(options, batch=False), groups=FakeGroups())
        first = stream.next_offsets(dict.fromkeys(cluster.names, 0))
        assert first == dict.fromkeys(cluster.names, 20)
        assert cluster.requests[FETCH] <= most
        cluster.requests.clear()
        assert stream.next_offsets(first) == dict.fromkeys(cluster.names, 40)
        assert cluster.requests[FETCH] <= brokers  # by now it knows that they are quick
        assert cluster.sent <= (2 * size + 4 * (1 << 10)) * partitions


def test_a_backlog_is_not_read_to_see_how_far_bytes_reach() -> None:
    """Of a share of 300 kB four samples of 16 kB tell enough, as a thousand partitions share a request."""
    cluster = Cluster(1_000, size=500, batches=100)
    with playing(cluster) as brokers:
        found = reach(cluster, brokers, 300_000)
        assert cluster.sent < 1_000 * 5 * (16 << 10)
    wanted = 300_000 / len(cluster.log[0]) * 10
    assert all(0.9 * wanted <= end <= wanted + 10 for end in found.values())
    assert cluster.requests[FETCH] <= 12


@pytest.mark.parametrize("size", [3_000, 30_000])
def test_batches_larger_than_their_share_come_whole(size: int) -> None:
    """A broker leaves them out: only the first of a request comes whole, however large."""
    cluster = Cluster(60, size=size, batches=3)
    with playing(cluster) as brokers:
        assert reach(cluster, brokers, 100, start=3) == dict.fromkeys(cluster.names, 10)
    assert cluster.requests[FETCH] <= 30


def test_a_bound_of_one_byte_brings_a_batch_at_a_time() -> None:
    cluster = Cluster(5)
    with playing(cluster, fetch_max_bytes=1) as brokers:
        assert reach(cluster, brokers, 100) == dict.fromkeys(cluster.names, 10)
    assert cluster.requests[FETCH] == 5


def test_what_a_broker_refuses_for_now_is_asked_again_and_alone() -> None:
    cluster = Cluster(20, codes={3: [NOT_LEADER], 7: [NOT_LEADER, NOT_LEADER]})
    with playing(cluster) as brokers:
        assert reach(cluster, brokers, 2 * len(cluster.log[0])) == dict.fromkeys(cluster.names, 20)
    assert cluster.requests[FETCH] == 3


def test_a_throttled_broker_is_waited_for() -> None:
    cluster = Cluster(20, throttled=5)
    with playing(cluster) as brokers:
        assert reach(cluster, brokers, 1) == dict.fromkeys(cluster.names, 10)
    cluster = Cluster(2, throttled=1 << 30)
    began = time.monotonic()
    with playing(cluster) as brokers, pytest.raises(KafkaLogError, match=r"pollTimeoutMs = 1000.*t-0"):
        reach(cluster, brokers, 1)
    assert time.monotonic() - began < 30


def test_what_can_not_be_sampled_is_left_to_the_reader() -> None:
    """Corrupt batches, and a log that has nothing left there, as after compaction."""
    cluster = Cluster(4, codes={1: [CORRUPT]})
    with playing(cluster) as brokers:
        ranges: Mapping[TopicPartition, OffsetRange] = {
            **dict.fromkeys(cluster.names, OffsetRange(0, cluster.end)),
            cluster.names[2]: OffsetRange(cluster.end, cluster.end + 5),
        }
        found = brokers.offsets_after_bytes(ranges, dict.fromkeys(ranges, 1))
    assert [found[partition] for partition in cluster.names] == [10, cluster.end, cluster.end + 5, 10]


def test_a_range_whose_beginning_is_gone_is_sampled_where_the_log_begins() -> None:
    """As a stream with failOnDataLoss=false reads on: its limit holds there, too."""
    cluster = Cluster(3, start=100)
    with playing(cluster) as brokers:
        size = len(cluster.log[0])
        assert reach(cluster, brokers, 2 * size) == dict.fromkeys(cluster.names, 120)
        cluster.start = 1000
        assert reach(cluster, brokers, 2 * size) == dict.fromkeys(cluster.names, cluster.end)


@pytest.mark.long
def test_a_final_refusal_is_raised_and_partitions_that_are_gone_are_left_out() -> None:
    cluster = Cluster(3, codes={1: [DENIED]})
    with playing(cluster) as brokers, pytest.raises(AuthorizationError, match="t-1"):
        reach(cluster, brokers, 1)
    cluster = Cluster(3)
    with playing(cluster) as brokers:
        ranges = dict.fromkeys([*cluster.names, TopicPartition("t", 3)], OffsetRange(0, 30))
        found = brokers.offsets_after_bytes(ranges, dict.fromkeys(ranges, 1))
    assert found == dict.fromkeys(cluster.names, 10)
