"""The options of membership in a consumer group."""

from __future__ import annotations

import logging
import re

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.membership.options import MembershipOptions
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.stream.share import Sharing, sharing_of

MEMBER = {
    "kafka.bootstrap.servers": "b:9092",
    "subscribe": "t",
    "kafka.group.id": "g",
    "checkpointLocation": "/c",
    "groupMembership": "true",
}


def membership(**options: str) -> Sharing:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return sharing_of(read_options({**MEMBER, **given}, batch=False))


def test_a_member_commits() -> None:
    assert read_options(MEMBER, batch=False).group.commits
    assert membership() == MembershipOptions()
    assert not membership(groupMembership="false").is_shared
    assert not sharing_of(read_options(MEMBER, batch=True)).is_shared


def test_assignors_by_name_and_by_class() -> None:
    java = "org.apache.kafka.clients.consumer"
    found = membership(
        kafka__partition__assignment__strategy=f"{java}.RoundRobinAssignor, range,RangeAssignor"
    )
    assert isinstance(found, MembershipOptions)
    assert found.assignors == ("roundrobin", "range")
    assert not found.is_cooperative
    sticky = membership(kafka__partition__assignment__strategy=f"{java}.CooperativeStickyAssignor")
    assert isinstance(sticky, MembershipOptions)
    assert sticky.is_cooperative


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"kafka.group.id": None}, "'groupMembership' needs 'kafka.group.id'"),
        ({"checkpointLocation": None}, "'groupMembership' needs 'checkpointLocation'"),
        ({"commitOffsets": "false"}, "give each query its own partitions with assign"),
        ({"subscribe": None, "assign": '{"t":[0]}'}, "with groupMembership the group assigns them"),
        ({"groupMembership": "false", "groupMembershipLost": "rejoin"}, "needs groupMembership=true"),
        ({"groupMembershipLost": "go on"}, "expected one of fail, rejoin"),
        ({"kafka.partition.assignment.strategy": "sticky"}, "expected some of range, roundrobin, coop"),
        ({"kafka.partition.assignment.strategy": ","}, "expected the name of an assignor"),
        ({"kafka.group.instance.id": "a b"}, "expected 1 to 249 of the characters"),
        ({"kafka.group.instance.id": ".."}, "expected 1 to 249 of the characters"),
        ({"kafka.heartbeat.interval.ms": "45000"}, "expected less than kafka.session.timeout.ms"),
        (
            {"kafka.session.timeout.ms": "30"},
            "timeout.ms': expected more than kafka.heartbeat.interval.ms",
        ),
        ({"kafka.group.protocol": "new"}, "expected one of classic, consumer"),
        (
            {"kafka.group.protocol": "consumer", "kafka.session.timeout.ms": "1"},
            "'kafka.session.timeout.ms' has no effect with kafka.group.protocol=consumer",
        ),
        (
            {"zookeeper.connect": "z:2181", "dual.commit.enabled": "true"},
            "'dual.commit.enabled' can't be set with groupMembership",
        ),
        ({"kafka.group.remote.assignor": "range"}, "no effect with kafka.group.protocol=classic"),
    ],
)
def test_wrong_memberships(options: dict[str, str | None], error: str) -> None:
    given = {name: value for name, value in {**MEMBER, **options}.items() if value is not None}
    with pytest.raises(OptionError, match=re.escape(error)):
        read_options(given, batch=False)


def test_a_directory_has_no_members() -> None:
    with pytest.raises(OptionError, match=r"'groupMembership' is for brokers.*have no members"):
        read_options({"path": "/log", "groupMembership": "true", "kafka.group.id": "g"}, batch=False)


def test_settings_of_members_need_a_membership(caplog: pytest.LogCaptureFixture) -> None:
    """They had no effect before, and still have none: one set of settings serves all clients."""
    options = {**MEMBER, "groupMembership": "false", "kafka.session.timeout.ms": "soon"}
    with caplog.at_level(logging.DEBUG, "pyspark_kafkalog"):
        assert not sharing_of(read_options(options, batch=False)).is_shared
    assert "kafka.session.timeout.ms has no effect without groupMembership" in caplog.text
