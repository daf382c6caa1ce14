"""Links that are slow, stall or break inside a response: what has arrived is not lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from kafka.protocol.metadata import MetadataRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.fetch.fetcher import Fetcher
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError
from pyspark_kafkalog.model import Fetch, OffsetRange
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions
from tests.broker.fake_broker import FakeBroker, Received, metadata, serving
from tests.broker.test_fetch_scripted import PARTITION, Script, Wish, played
from tests.kafka_proxy import FETCH, METADATA, Fault, Proxy, cut, reset, trickle, vanish
from tests.log.partitions import batch

pytestmark = pytest.mark.slow

RECORDS = list(range(0, 320, 10))
CONNECTION = ConnectionOptions(
    ("unused:1",), request_timeout_ms=400, retry_backoff_ms=1, retry_backoff_max_ms=5
)
FOR_EVER = 1 << 30


@contextmanager
def proxied(broker: FakeBroker) -> Iterator[Proxy]:
    proxy = Proxy()
    proxy.target = int(broker.address.rpartition(":")[2])
    try:
        yield proxy
    finally:
        proxy.stop()


class Link:
    """A log of 32 batches behind a link, by default 780 kB, and a fetch of all of it."""

    def __init__(self, fault: Fault, *, times: int = FOR_EVER, value_size: int = 2_430) -> None:
        log = [batch(offset, size=value_size) for offset in RECORDS]
        self.size = sum(map(len, log))
        self.batch = len(log[0])
        self.script = Script(self._says, log=log)
        self._fault, self._times = fault, times
        self.sent = 0

    def _says(self, wish: Wish) -> dict[str, object]:
        """Like brokers: at least one whole batch, then whatever fits."""
        records = b"".join(self.script.log[wish.offset // 10 :])[: max(wish.max_bytes, self.batch)]
        return {"records": records, "high_watermark": 320, "last_stable_offset": 320}

    def read(self, connection: ConnectionOptions = CONNECTION, **options: int) -> list[int]:
        with played(self.script) as broker, proxied(broker) as proxy:
            self.script.address = proxy.address
            proxy.strike(FETCH, self._fault, times=self._times)
            cluster = Cluster(replace(connection, bootstrap_servers=(proxy.address,)))
            fetch_options = FetchOptions(**{"poll_timeout_ms": 5_000, "fetch_max_wait_ms": 0, **options})
            try:
                pieces = Fetcher(cluster, fetch_options, Fetch(PARTITION, OffsetRange(0, 320))).slices()
                return [offset for piece in pieces for offset in walk(piece.buffer).base_offset.tolist()]
            finally:
                cluster.close()
                self.sent = proxy.sent[FETCH]


def test_a_slow_link_brings_all_of_a_log_and_none_of_it_twice() -> None:
    """At 200 kB/s a response with the whole log takes ten times request.timeout.ms."""
    link = Link(trickle(200_000))
    assert link.read() == RECORDS
    assert link.sent < 1.02 * link.size
    assert len(link.script.wishes) == 1


def test_a_link_of_single_bytes() -> None:
    link = Link(trickle(100_000, at_once=1), value_size=20)
    assert link.read(poll_timeout_ms=60_000) == RECORDS
    assert link.sent < 1.02 * link.size


def test_an_answer_that_takes_longer_than_the_patience_is_used_as_far_as_it_came() -> None:
    link = Link(trickle(200_000))
    assert link.read(poll_timeout_ms=1_000) == RECORDS
    offsets = [wish.offset for wish in link.script.wishes]
    assert offsets == sorted(set(offsets))
    assert len(offsets) > 3
    assert [wish.max_bytes for wish in link.script.wishes][1] <= 4 << 20


@pytest.mark.parametrize("end", [vanish, cut, reset])
@pytest.mark.parametrize("at", [100, 20_000, 30_000, 500_000])
def test_an_answer_that_ends_half_way_is_used_as_far_as_it_came(end: object, at: int) -> None:
    link = Link(end(at), times=3)  # type: ignore[operator]
    assert link.read() == RECORDS
    offsets = [wish.offset for wish in link.script.wishes]
    came = at // link.batch * 10  # the header and the sizes are such that it makes no batch less
    if end is reset:  # a reset may overtake the data before it
        assert offsets[1] <= came
    else:
        assert offsets[1] == came
    assert offsets == sorted(offsets)


def test_less_is_asked_for_on_a_slow_link_and_more_when_it_has_recovered() -> None:
    link = Link(trickle(500_000), times=4)
    assert link.read(max_partition_fetch_bytes=200_000) == RECORDS
    sizes = [wish.max_bytes for wish in link.script.wishes]
    assert sizes[0] == 200_000
    assert min(sizes) < 200_000


def test_a_link_on_which_no_batch_comes_in_time_is_given_up_with_what_came_of_it() -> None:
    link = Link(trickle(10_000, at_once=500))
    began = time.monotonic()
    with pytest.raises(
        KafkaLogError,
        match=r"pollTimeoutMs = 1000.*Last error: Only \d+\.\d of 782.5 kB of a response arrived"
        r" within 1000 ms",
    ):
        link.read(poll_timeout_ms=1_000)
    assert time.monotonic() - began < 20


def test_a_peer_that_is_gone_in_the_middle_of_an_answer_is_not_waited_for_any_longer() -> None:
    link = Link(vanish(10_000))
    began = time.monotonic()
    with pytest.raises(
        KafkaLogError, match=r"10\.0 of 782.5 kB of a response arrived, then nothing for 400 ms"
    ):
        link.read(poll_timeout_ms=1_000)
    assert time.monotonic() - began < 20


def large_metadata(received: Received) -> bytes:
    return metadata(received, cluster_id="c" * 30_000)


@pytest.mark.long
def test_an_answer_of_the_control_plane_may_be_slow() -> None:
    options = replace(CONNECTION, request_timeout_ms=1_000)
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    with serving(large_metadata) as broker, proxied(broker) as proxy:
        connection = Connection.open(Address.parse(proxy.address), options)
        proxy.strike(METADATA, trickle(15_000, at_once=1_000))
        assert len(connection.call(request).cluster_id) == 30_000
        proxy.strike(METADATA, trickle(15_000, at_once=1_000))
        with pytest.raises(BrokerConnectionError, match=r"Only 1\d\.\d of 30\.0 kB .* within \d+ ms"):
            connection.call(request, deadline=Deadline.after(1))
        connection = Connection.open(Address.parse(proxy.address), options)
        proxy.strike(METADATA, trickle(1_000, at_once=100))
        with pytest.raises(BrokerConnectionError, match=r"Only [34]\.\d of 30\.0 kB .* within 4000 ms"):
            connection.call(request)
