"""Members in racks on a cluster with racks: each gets the partitions whose replicas are near it (KIP-881)."""

from __future__ import annotations

import time
import uuid
from types import SimpleNamespace

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from pyspark_kafkalog.extensions.membership.consumer_protocol import ConsumerProtocolMember
from pyspark_kafkalog.extensions.membership.member import Member, _subscriber, _subscription
from pyspark_kafkalog.extensions.membership.options import MembershipOptions, membership_options
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions
from tests.kafka_cluster import Cluster

PARTITIONS = 6


def member_of(bootstrap: str, group: str, rack: str, protocol: str) -> Member:
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.group.id": group,
        "groupMembership": "true",
        "checkpointLocation": "/none",
        "kafka.client.rack": rack,
        "kafka.group.protocol": protocol,
    }
    options = membership_options(UserOptions(given, Use.STREAM_READ))
    assert isinstance(options, MembershipOptions)
    member = options._member(place_options(given), group)
    assert isinstance(member, Member)
    assert isinstance(member, ConsumerProtocolMember) == (protocol == "consumer")
    return member


def numbers_of(members: list[Member], topic: str) -> list[list[int]]:
    """The partitions of each member, once all have an equal share."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = []
        for member in members:
            assigned = member.hold(1)
            found.append([] if assigned is None else sorted(p for _, p in assigned.partitions))
            member.release()
        if [len(each) for each in found] == [PARTITIONS // len(members)] * len(members):
            return found
        time.sleep(0.1)
    raise TimeoutError(f"members have {found}")


@pytest.mark.broker
@pytest.mark.long
def test_members_get_the_partitions_near_them(cluster: Cluster) -> None:
    topic, group = f"racks-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, PARTITIONS, replication_factor=1)
    leaders = [cluster.leader(topic, partition) for partition in range(PARTITIONS)]
    near = {f"rack-{node}": [p for p, leader in enumerate(leaders) if leader == node] for node in (1, 2, 3)}
    assert {len(found) for found in near.values()} == {2}, "Kafka deals partitions out"
    racks = ["rack-3", "rack-1", "rack-2"]
    members = [member_of(cluster.bootstrap, group, rack, "classic") for rack in racks]
    try:
        for member in members:
            member.subscribe({topic: PARTITIONS})
        assert numbers_of(members, topic) == [near[rack] for rack in racks]
    finally:
        for member in members:
            member.leave()


@pytest.mark.parametrize(("given", "told"), [("rack-2", "rack-2"), ("env:RACK_OF_TEST", "east"), ("", None)])
def test_the_group_is_told_the_rack(monkeypatch: pytest.MonkeyPatch, given: str, told: str | None) -> None:
    """In the subscription, from which a leader reads it back, or to the coordinator that assigns."""
    monkeypatch.setenv("RACK_OF_TEST", "east")
    classic, consumer = (member_of("h:1", "g", given, protocol) for protocol in ("classic", "consumer"))
    assert isinstance(consumer, ConsumerProtocolMember)
    assert consumer._request(consumer._me, 0).rack_id == told
    subscription = _subscription(["t"], [], -1, classic._rack)
    assert ConsumerProtocolSubscription.decode(subscription).rack_id == told
    joined = SimpleNamespace(member_id="m", group_instance_id=None, metadata=subscription)
    assert _subscriber(joined).rack == (told or "")
