"""Coordinators that move, load, die, hang or keep silent: a commit succeeds, or fails in time."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
import uuid
from collections.abc import Callable

import pytest
from kafka.protocol.consumer import OffsetCommitResponse

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.errors import BrokerConnectionError, BrokerError
from pyspark_kafkalog.extensions.membership.member import Member
from pyspark_kafkalog.extensions.membership.options import MembershipOptions
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.broker.fake_broker import API_VERSIONS, METADATA, Received, framed, serving
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_proxy import Fault, Link, Proxy, cut, delay, repeat, reset, swallow

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OFFSET_COMMIT, FIND_COORDINATOR = 8, 10
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
VERSION = 9
"""The version of OffsetCommit used with these brokers."""


@pytest.fixture(scope="module")
def topic(started_cluster: Cluster) -> str:
    """A topic with two partitions and a replica on every node."""
    name = f"groups-{uuid.uuid4().hex[:12]}"
    started_cluster.create_topic(name, 2)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def groups_of(cluster: Cluster, timeout: float | None = None, **options: object) -> BrokerGroups:
    """Groups behind the proxies, over their own connections."""
    servers = tuple(cluster.proxied_bootstrap.split(","))
    connection = ConnectionOptions(servers, client_id=uuid.uuid4().hex, **options)  # type: ignore[arg-type]
    return BrokerGroups(connection, timeout=timeout)


def offsets_of(groups: BrokerGroups, group: str) -> dict[TopicPartition, int]:
    return {partition: committed.offset for partition, committed in groups.committed(group).items()}


def coordinating(cluster: Cluster, groups: BrokerGroups, group: str) -> Proxy:
    """The proxy of the group's coordinator, which has already accepted a commit."""
    return cluster.proxies[groups.describe([group])[group].coordinator]


def refuse(code: int) -> Fault:
    """An error code in place of the coordinator's response to OffsetCommit."""

    def fault(link: Link, frame: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame, 4)
        response = OffsetCommitResponse[VERSION].decode(frame[9:])
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = code
        response._header = None  # which kafka-python leaves out when it decodes
        link.to_client(framed(correlation_id, bytes(response.encode(version=VERSION)), flexible=True))

    return fault


@pytest.mark.parametrize(
    ("fault", "times", "lookups"),
    [
        (refuse(LOADING), 3, 0),
        (refuse(NOT_AVAILABLE), 2, 2),
        (refuse(NOT_COORDINATOR), 2, 2),
        (reset(), 2, 2),
        (reset(9), 1, 1),
        (cut(20), 1, 1),
        (swallow, 1, 1),
        (delay(0.3), 1, 0),
        (repeat, 1, 0),
    ],
    ids=[
        "loading",
        "not available",
        "moved",
        "reset",
        "reset within",
        "cut",
        "swallowed",
        "late",
        "repeated",
    ],
)
def test_a_commit_is_repeated_until_it_is_made(
    cluster: Cluster, topic: str, group: str, fault: Fault, times: int, lookups: int
) -> None:
    groups = groups_of(cluster, timeout=10, request_timeout_ms=1000, retry_backoff_ms=20)
    partition = TopicPartition(topic, 0)
    groups.commit(group, {partition: CommittedOffset(1)})
    proxy = coordinating(cluster, groups, group)
    before = sum(proxy.requests[FIND_COORDINATOR] for proxy in cluster.proxies.values())
    proxy.strike(OFFSET_COMMIT, fault, times=times)
    groups.commit(group, {partition: CommittedOffset(2)})
    assert proxy.pending == 0
    assert sum(proxy.requests[FIND_COORDINATOR] for proxy in cluster.proxies.values()) - before == lookups
    assert offsets_of(groups, group) == {partition: 2}


@pytest.mark.long
def test_a_coordinator_that_dies_is_replaced(cluster: Cluster, topic: str, group: str) -> None:
    groups, partition = groups_of(cluster), TopicPartition(topic, 0)
    groups.commit(group, {partition: CommittedOffset(1)})
    died = groups.describe([group])[group].coordinator
    cluster.kill(died)
    groups.commit(group, {partition: CommittedOffset(2)})
    assert offsets_of(groups, group) == {partition: 2}
    assert groups.describe([group])[group].coordinator != died
    assert group in groups.group_ids()


@pytest.mark.long
@pytest.mark.parametrize(
    "paused",
    [
        pytest.param(False, id="killed", marks=pytest.mark.soak),
        pytest.param(True, id="paused"),
    ],
)
def test_a_coordinator_that_fails_is_outlived_within_the_request_timeout(
    cluster: Cluster, topic: str, group: str, paused: bool
) -> None:
    """A query with required commits continues; 2 seconds would not be enough."""
    groups, partition = groups_of(cluster, request_timeout_ms=20_000), TopicPartition(topic, 0)
    groups.commit(group, {partition: CommittedOffset(1)})
    failed = groups.describe([group])[group].coordinator
    if not paused:
        cluster.kill(failed)
        groups.commit(group, {partition: CommittedOffset(2)})
    else:
        pid = cluster.brokers[failed].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            groups.commit(group, {partition: CommittedOffset(2)})
            assert groups.describe([group])[group].coordinator != failed
        finally:
            os.kill(pid, signal.SIGCONT)
    assert offsets_of(groups, group) == {partition: 2}


@pytest.mark.soak
def test_a_first_commit_waits_for_the_topic_of_offsets(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker({"offsets.topic.num.partitions": 50})
    broker.start()
    broker.create_topic("t")
    groups = BrokerGroups(ConnectionOptions((broker.bootstrap,)))
    groups.commit("g", {TopicPartition("t", 0): CommittedOffset(1)})
    assert offsets_of(groups, "g") == {TopicPartition("t", 0): 1}


def test_a_coordinator_that_moves_is_followed(cluster: Cluster, topic: str, group: str) -> None:
    groups, partition = groups_of(cluster), TopicPartition(topic, 1)
    groups.commit(group, {partition: CommittedOffset(1)})
    for offset in range(2, 5):
        before = groups.describe([group])[group].coordinator
        for number in (0, 1):
            if cluster.leader("__consumer_offsets", number) == before:
                cluster.move_leader("__consumer_offsets", number)
        groups.commit(group, {partition: CommittedOffset(offset)})
        assert offsets_of(groups, group) == {partition: offset}
        assert groups.describe([group])[group].coordinator != before


def test_no_epoch_is_committed_that_is_older_than_the_records(cluster: Cluster, group: str) -> None:
    topic = f"groups-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(topic)
    groups, partition = groups_of(cluster), TopicPartition(topic, 0)
    epochs = []
    for offset in range(1, 4):
        for _ in range(2):
            groups.commit(group, {partition: CommittedOffset(offset)})
            epochs.append(groups.committed(group)[partition].leader_epoch)
        cluster.move_leader(topic)
    # At first no leader is known: metadata is from before the election.
    assert epochs[::2] == [0, -1, -1]
    assert epochs[1] == 0 < epochs[3] < epochs[5]


def test_groups_of_several_coordinators_are_described_at_once(cluster: Cluster, topic: str) -> None:
    groups = groups_of(cluster)
    names = {f"group-{uuid.uuid4().hex[:12]}" for _ in range(8)}
    for name in names:
        groups.commit(name, {TopicPartition(topic, 0): CommittedOffset(1)})
    described = groups.describe(names)
    assert described.keys() == names
    assert {group.state for group in described.values()} == {"Empty"}
    assert names <= set(groups.group_ids())


def hang(proxy: Proxy) -> None:
    proxy.hold()


def swallow_commits(proxy: Proxy) -> None:
    proxy.strike(OFFSET_COMMIT, swallow, times=1000)


def load_for_ever(proxy: Proxy) -> None:
    proxy.strike(OFFSET_COMMIT, refuse(LOADING), times=1000)


def find_nothing(proxy: Proxy) -> None:
    proxy.strike(FIND_COORDINATOR, swallow, times=1000)
    proxy.strike(OFFSET_COMMIT, refuse(NOT_COORDINATOR), times=1000)


@pytest.mark.parametrize("harm", [hang, swallow_commits, load_for_ever, find_nothing])
@pytest.mark.parametrize(
    "connected",
    [
        pytest.param(True, id="connected"),
        pytest.param(False, id="new connection", marks=pytest.mark.soak),
    ],
)
def test_a_commit_ends_in_time(
    cluster: Cluster, topic: str, group: str, harm: Callable[[Proxy], None], connected: bool
) -> None:
    partition = TopicPartition(topic, 0)
    patient = groups_of(cluster)
    bounded = BrokerGroups(patient._options if connected else groups_of(cluster)._options, timeout=1.5)
    patient.commit(group, {partition: CommittedOffset(1)})
    for proxy in cluster.proxies.values():
        harm(proxy)
    begun = time.monotonic()
    with pytest.raises(BrokerError) as raised:
        bounded.commit(group, {partition: CommittedOffset(2)})
    assert time.monotonic() - begun < 2.9  # not twice the timeout
    if harm is load_for_ever:
        assert f"group {group}: COORDINATOR_LOAD_IN_PROGRESS" in str(raised.value)
    else:
        assert raised.value.broker
    for proxy in cluster.proxies.values():
        proxy.heal()
    bounded.commit(group, {partition: CommittedOffset(3)})
    assert offsets_of(patient, group) == {partition: 3}


def test_a_commit_ends_in_time_where_nothing_is_answered() -> None:
    def silent(received: Received) -> bytes:
        return b""

    partition = TopicPartition("t", 0)
    with serving(silent, {API_VERSIONS: (0, 3), METADATA: (0, 12), FIND_COORDINATOR: (0, 4)}) as broker:
        groups = BrokerGroups(ConnectionOptions((broker.address,)), timeout=1)
        begun = time.monotonic()
        with pytest.raises(BrokerConnectionError, match="did not answer"):
            groups.commit("g", {partition: CommittedOffset(1)})
        assert time.monotonic() - begun < 1.9
    groups = BrokerGroups(ConnectionOptions(("127.0.0.1:1",)), timeout=1)
    begun = time.monotonic()
    with pytest.raises(BrokerConnectionError, match="refused"):
        groups.commit("g", {partition: CommittedOffset(1)})
    assert time.monotonic() - begun < 1.9


def test_a_member_commits_though_its_coordinator_is_silent_for_longer_than_a_request_may_take(
    cluster: Cluster, topic: str, group: str
) -> None:
    groups = groups_of(cluster, request_timeout_ms=1000)
    options = MembershipOptions(assignors=("range",), session_timeout_ms=20_000, heartbeat_interval_ms=500)
    member = Member(groups._options, group, options)
    try:
        member.subscribe({topic: 2})
        deadline = time.monotonic() + 30
        while (assigned := member.hold(1.0)) is None or not assigned.partitions:
            assert time.monotonic() < deadline
        proxy = coordinating(cluster, groups, group)
        proxy.hold()
        threading.Timer(4.0, proxy.heal).start()
        partition = TopicPartition(topic, 0)
        assert member.commit({partition: CommittedOffset(5)}, assigned)
        assert offsets_of(groups_of(cluster), group) == {partition: 5}
    finally:
        member.leave()
