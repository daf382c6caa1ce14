"""How a fetch reacts to each response that a broker may send, by a scripted broker."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsResponse
from kafka.protocol.consumer import FetchRequest

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.fetch.fetcher import Fetcher
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import (
    AuthorizationError,
    BrokerError,
    CorruptRecordError,
    DataLossError,
    KafkaLogError,
)
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions
from tests.broker.fake_broker import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    VERSIONS,
    FakeBroker,
    Received,
    encoded,
    fetch_response,
    framed,
    metadata_response,
    offset_response,
    serving,
    topic_metadata,
)
from tests.codec.raw import values
from tests.log.partitions import batch

PARTITION = TopicPartition("t", 0)
ALL = OffsetRange(0, 100)
OTHER_ID = uuid.uuid4()


@dataclass
class Wish:
    """What a fetch requested."""

    offset: int
    max_bytes: int
    epoch: int
    topic_id: uuid.UUID | None


@dataclass
class Script:
    """A partition of ten batches of ten records each.

    ``says`` may answer a fetch differently: with fields of the partition and throttle_time_ms, {} to leave
    the partition out, or bytes.
    """

    says: Callable[[Wish], dict[str, Any] | bytes | None] = lambda wish: None
    log: list[bytes] = field(default_factory=lambda: [batch(offset) for offset in range(0, 100, 10)])
    topic_id: uuid.UUID = field(default_factory=uuid.uuid4)
    epoch: int = 7
    leader: int = 1
    topic_error: int = 0
    wishes: list[Wish] = field(default_factory=list)
    lookups: int = 0
    address: str = ""
    max_version: int = 13
    versions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of other APIs."""
    policy: str | None = None
    """The cleanup.policy of the topic, if its configurations can be seen."""

    def answer(self, received: Received) -> bytes | None:
        if received.api_key == DESCRIBE_CONFIGS:
            return configs(received, self.policy)
        if received.api_key == METADATA:
            self.lookups += 1
            return encoded(received, self._metadata())
        if received.api_key == LIST_OFFSETS:
            return encoded(received, self._bounds(received))
        assert received.api_key == FETCH
        request = FetchRequest.decode(received.frame, version=received.version, header=True)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        wish = Wish(
            wanted.fetch_offset, wanted.partition_max_bytes, wanted.current_leader_epoch, topic.topic_id
        )
        self.wishes.append(wish)
        said = self.says(wish)
        if isinstance(said, bytes):
            return said and framed(received.correlation_id, said, flexible=received.version >= 12)
        partition = dict(self.found(wish) if said is None else said)
        throttled = partition.pop("throttle_time_ms", 0)
        response = fetch_response(self.topic_id, partition or None, throttle_time_ms=throttled)
        return encoded(received, response)

    def found(self, wish: Wish, limit: int = 1 << 30) -> dict[str, Any]:
        """The batches from the offset on, cut off at ``limit`` bytes."""
        return {"records": b"".join(self.log[wish.offset // 10 :])[:limit]}

    def _metadata(self) -> Any:
        leaders = {} if self.topic_error else {0: (self.leader, self.epoch)}
        topic = topic_metadata("t", leaders, topic_id=self.topic_id, error_code=self.topic_error)
        return metadata_response({1: self.address}, [topic])

    def _bounds(self, received: Received) -> Any:
        is_earliest = received.frame.endswith(b"\xff" * 7 + b"\xfe\0\0\0")
        return offset_response(50 if is_earliest else 100, epoch=1)


@contextmanager
def played(script: Script, port: int = 0) -> Iterator[FakeBroker]:
    with serving(
        script.answer, {**VERSIONS, FETCH: (4, script.max_version), **script.versions}, port
    ) as broker:
        script.address = broker.address
        yield broker


def read(
    script: Script,
    offsets: OffsetRange = ALL,
    *,
    on_corrupt: Callable[[CorruptRecordError], None] | None = None,
    **options: Any,
) -> list[int]:
    """The base offsets of the batches that a fetch hands out."""
    with played(script) as broker:
        connection = ConnectionOptions(
            (broker.address,), request_timeout_ms=2_000, retry_backoff_ms=1, retry_backoff_max_ms=5
        )
        cluster = Cluster(connection)
        fetch_options = FetchOptions(**{"poll_timeout_ms": 1_000, **options})
        try:
            wanted = Fetch(PARTITION, offsets, on_corrupt=on_corrupt)
            pieces = Fetcher(cluster, fetch_options, wanted).slices()
            return [offset for piece in pieces for offset in walk(piece.buffer).base_offset.tolist()]
        finally:
            cluster.close()


EVERYTHING = list(range(0, 100, 10))


def once(partition: dict[str, Any] | bytes, at: int = 0) -> Callable[[Wish], dict[str, Any] | bytes | None]:
    """Respond so to the first fetch of an offset from ``at`` on."""
    left = [partition]
    return lambda wish: left.pop() if left and wish.offset >= at else None


@pytest.mark.parametrize("version", range(4, 14))
def test_every_version(version: int) -> None:
    script = Script(max_version=version)
    assert read(script) == EVERYTHING
    (wish,) = script.wishes
    assert wish.epoch == (7 if version >= 9 else -1)
    assert wish.topic_id == (script.topic_id if version >= 13 else None)


def test_only_what_the_range_needs_is_handed_out() -> None:
    assert read(Script(), OffsetRange(25, 51)) == [20, 30, 40, 50]
    assert read(Script(), OffsetRange(30, 40)) == [30]


def test_a_fetch_goes_on_behind_a_batch_whose_last_records_are_gone() -> None:
    """Compaction took them, and the header has their offsets still."""
    refused = {"error_code": 29}

    def one_batch(wish: Wish) -> dict[str, Any]:
        return {"records": script.log[wish.offset // 10]} if len(script.wishes) <= 10 else refused

    script = Script(one_batch, [values(3, base_offset=at, last_offset_delta=9) for at in EVERYTHING])
    assert read(script) == EVERYTHING
    assert [wish.offset for wish in script.wishes] == EVERYTHING


@pytest.mark.parametrize("code", [5, 6, 9, 13, 56, 74, 75, 100, 103, 3])
def test_an_error_of_a_stale_leader_leads_to_a_lookup(code: int) -> None:
    script = Script(once({"error_code": code}))
    assert read(script) == EVERYTHING
    assert script.lookups == 2


@pytest.mark.parametrize("code", [-1, 7, 8, 14, 70, 71, 78, 89])
def test_an_error_that_passes_is_waited_out(code: int) -> None:
    script = Script(once({"error_code": code}))
    assert read(script) == EVERYTHING
    assert script.lookups == 1
    with pytest.raises(KafkaLogError, match=r"pollTimeoutMs = 300.*Last error: Fetching records: ") as caught:
        read(Script(lambda wish: {"error_code": code}), poll_timeout_ms=300)
    assert caught.value.topic_partition == "t-0"


@pytest.mark.parametrize(
    ("code", "kind"), [(29, AuthorizationError), (42, BrokerError), (76, BrokerError), (999, BrokerError)]
)
def test_an_error_for_good_ends_the_read(code: int, kind: type[BrokerError]) -> None:
    script = Script(lambda wish: {"error_code": code})
    with pytest.raises(kind) as caught:
        read(script)
    assert type(caught.value) is kind
    assert caught.value.broker == script.address
    assert len(script.wishes) == 1


def test_an_offset_out_of_range_is_data_loss() -> None:
    script = Script(lambda wish: {"error_code": 1})
    with pytest.raises(DataLossError, match="Offsets 20 to 49 are gone: the log now starts at offset 50"):
        read(script, OffsetRange(20, 100))
    with pytest.raises(DataLossError, match="Offsets 120 to 129 are gone: the log ends at offset 100"):
        read(script, OffsetRange(120, 130))


def test_an_offset_that_the_leader_has_is_asked_for_again() -> None:
    """As when a lagging replica or a deposed leader refused the fetch."""
    assert read(Script(once({"error_code": 1}, at=60)), OffsetRange(60, 100)) == [60, 70, 80, 90]


def test_a_replica_that_never_has_the_offset_is_not_asked_for_ever() -> None:
    """The leader names the replica, which refuses the offset."""

    def says(wish: Wish) -> dict[str, Any] | None:
        count = len(script.wishes)
        if count > 2_000:
            return None
        return {"preferred_read_replica": 1} if count % 2 else {"error_code": 1}

    script = Script(says)
    with pytest.raises(KafkaLogError, match="The replica does not have the offset"):
        read(script, OffsetRange(60, 100), poll_timeout_ms=300)


def test_a_topic_with_another_id_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "PROVEN_AFTER", 0.1)

    def says(wish: Wish) -> dict[str, Any] | None:
        if wish.offset == 0:
            return script.found(wish, limit=len(script.log[0]) + 5)
        script.topic_id = OTHER_ID
        return {"error_code": 100}

    script = Script(says)
    with pytest.raises(DataLossError, match="Offsets 10 to 99 are gone: the topic was deleted and recreated"):
        read(script)


def test_a_topic_that_may_not_be_described() -> None:
    with pytest.raises(AuthorizationError, match="TOPIC_AUTHORIZATION_FAILED"):
        read(Script(topic_error=29))


def test_a_partition_without_a_leader_is_waited_for() -> None:
    script = Script(leader=-1)
    with pytest.raises(KafkaLogError, match="Last error: Fetching records: LEADER_NOT_AVAILABLE"):
        read(script, poll_timeout_ms=200)
    assert script.lookups > 3


def test_batches_that_come_in_part() -> None:
    """Brokers before KIP-74, or those that convert, may send less than a batch: then more is requested."""
    script = Script(lambda wish: script.found(wish, wish.max_bytes))
    size = len(script.log[0])
    assert read(script, max_partition_fetch_bytes=size // 2) == EVERYTHING
    assert {wish.max_bytes for wish in script.wishes} == {size // 2, size}
    script = Script(lambda wish: script.found(wish, size - 1))
    with pytest.raises(CorruptRecordError, match="Only part of a record batch"):
        read(script)


def test_a_broker_that_throttles_says_nothing_of_the_partition() -> None:
    script = Script(once({}))
    assert read(script) == EVERYTHING
    before, after = (wish.max_bytes for wish in script.wishes)
    assert after == 64 << 10 < before
    with pytest.raises(KafkaLogError, match=r"throttles this client.*Raise the client's quota"):
        read(Script(lambda wish: {}))


DELETE_RECORDS, DESCRIBE_CONFIGS = 21, 32
OF_KAFKA = {DELETE_RECORDS: (0, 2), DESCRIBE_CONFIGS: (0, 4)}
OF_EVENT_HUBS = {DESCRIBE_CONFIGS: (0, 2)}


def configs(received: Received, policy: str | None) -> bytes:
    """DescribeConfigs with a cleanup.policy, or denied, as to a principal without the right."""
    kind: Any = DescribeConfigsResponse.DescribeConfigsResult
    found = [kind.DescribeConfigsResourceResult(name="cleanup.policy", value=policy)] if policy else []
    code = 0 if policy else 29
    result = kind(error_code=code, error_message=None, resource_type=2, resource_name="t", configs=found)
    return encoded(received, DescribeConfigsResponse(throttle_time_ms=0, results=[result]))


@pytest.mark.parametrize(
    ("versions", "policy"), [({}, None), (OF_EVENT_HUBS, None), (OF_EVENT_HUBS, "compact")]
)
def test_silence_proves_nothing_where_it_may_be_throttling(
    versions: dict[int, tuple[int, int]], policy: str | None
) -> None:
    """Azure Event Hubs sends no records, and no error, when it is asked for too much."""
    script = Script(lambda wish: {"records": b""} if len(script.wishes) < 15 else None)
    script.versions, script.policy = versions, policy
    assert read(script, poll_timeout_ms=60_000) == EVERYTHING
    silent = Script(lambda wish: {"records": b""}, versions=versions, policy=policy)
    with pytest.raises(KafkaLogError, match=r"no records there and ends at offset 100.*may be throttling"):
        read(silent)


@pytest.mark.parametrize("policy", ["compact", None])
@pytest.mark.parametrize("throttled", [True, False])
def test_silence_of_kafka_that_throttles_proves_nothing(throttled: bool, policy: str | None) -> None:
    """Else it proves a compacted range empty, even if the configurations of its topic can't be seen."""
    silence = {"records": b"", "throttle_time_ms": int(throttled)}
    script = Script(lambda wish: silence if len(script.wishes) < 15 else None)
    script.versions, script.policy = OF_KAFKA, policy
    assert read(script, poll_timeout_ms=60_000) == (EVERYTHING if throttled else [])


def test_answers_that_make_no_sense() -> None:
    for nonsense in (b"\x00\x00", b"\x00" * 40, b"\x7f" * 100):
        script = Script(once(nonsense, at=0))
        assert read(script) == EVERYTHING
        assert len(script.wishes) == 2


def test_a_replica_that_nobody_knows_is_not_gone_to() -> None:
    script = Script(once({"preferred_read_replica": 5}))
    assert read(script) == EVERYTHING
    assert script.lookups == 2


def test_damage_of_which_the_broker_tells_is_stepped_over() -> None:
    def says(wish: Wish) -> dict[str, Any] | None:
        if 30 <= wish.offset < 55:
            return {"error_code": 2}
        return script.found(wish, limit=len(script.log[0]) + 5)

    script = Script(says)
    with pytest.raises(CorruptRecordError, match="The broker reports corrupt records") as caught:
        read(script)
    assert caught.value.offset == 30
    reported: list[CorruptRecordError] = []
    assert read(script, on_corrupt=reported.append) == [0, 10, 20, 60, 70, 80, 90]
    assert len(reported) == 1


def test_damage_between_batches_is_skipped() -> None:
    script = Script()
    script.log[3] = b"\x00" * 16 + b"\x09" + script.log[3][17:]
    with pytest.raises(CorruptRecordError, match="No record batch can be read here") as caught:
        read(script)
    assert (caught.value.offset, caught.value.topic_partition) == (30, "t-0")
    reported: list[CorruptRecordError] = []
    assert read(script, on_corrupt=reported.append) == [o for o in EVERYTHING if o != 30]
    assert len(reported) == 1


def test_less_is_asked_for_towards_the_end() -> None:
    script = Script(lambda wish: script.found(wish, limit=2 * len(script.log[0])))
    assert read(script, max_partition_fetch_bytes=1 << 20) == EVERYTHING
    sizes = [wish.max_bytes for wish in script.wishes]
    assert [wish.offset for wish in script.wishes] == [0, 20, 40, 60, 80]
    assert sizes[0] == 1 << 20
    assert all(later < 100_000 for later in sizes[1:])
    assert sizes[1:] == sorted(sizes[1:], reverse=True)


def test_the_form_of_topic_ids() -> None:
    script = Script()
    with played(script) as broker:
        cluster = Cluster(ConnectionOptions((broker.address,)))
        (topic_id,) = cluster.topic_ids(["t"]).values()
        cluster.close()
    assert base64.urlsafe_b64decode(topic_id + "==") == script.topic_id.bytes
