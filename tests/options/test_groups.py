"""The options about a consumer group, alike for brokers and directories."""

from __future__ import annotations

import logging
import re

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import COMMITTED, EARLIEST, LATEST
from pyspark_kafkalog.options.brokers import MembershipOptions
from pyspark_kafkalog.options.settings import GroupOptions, ReadOptions, read_options

PLACES = [{"path": "/log"}, {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}]


@pytest.fixture(params=PLACES, ids=["directory", "brokers"])
def place(request: pytest.FixtureRequest) -> dict[str, str]:
    return dict(request.param)


def stream(place: dict[str, str], **options: str) -> ReadOptions:
    return read_options({**place, **{k.replace("__", "."): v for k, v in options.items()}}, batch=False)


def test_without_a_group_nothing_is_committed(place: dict[str, str]) -> None:
    assert stream(place).group == GroupOptions(none_committed=LATEST)
    assert stream(place, groupIdPrefix="p", queryName="q").group.commits is False


def test_a_group_is_committed_to_unless_told_otherwise(place: dict[str, str]) -> None:
    assert stream(place, kafka__group__id="g").group == GroupOptions("g", commits=True, none_committed=LATEST)
    assert stream(place, kafka__group__id="g", commitOffsets="false").group.commits is False
    required = stream(place, kafka__group__id="g", commitOffsets="REQUIRED").group
    assert (required.commits, required.required) == (True, True)


def test_the_querys_name_makes_a_group(place: dict[str, str]) -> None:
    named = stream(place, commitOffsets="true", queryName="orders").group
    assert (named.group_id, named.commits) == ("spark-kafka-source-orders", True)
    prefixed = stream(place, commitOffsets="true", queryName="orders", groupIdPrefix="etl").group
    assert prefixed.group_id == "etl-orders"


def test_a_commit_to_no_group_is_refused(place: dict[str, str]) -> None:
    with pytest.raises(
        OptionError, match=r"no consumer group is given\. Give 'kafka\.group\.id', or give 'queryName'"
    ):
        stream(place, commitOffsets="true")
    with pytest.raises(OptionError, match="'commitOffsets': expected one of true, false, required"):
        stream(place, commitOffsets="maybe")


@pytest.mark.parametrize("group_id", ["", "g" * 32768])
def test_an_id_that_kafka_would_refuse_is_refused(place: dict[str, str], group_id: str) -> None:
    with pytest.raises(OptionError, match=r"'kafka\.group\.id': expected 1 to 32767 bytes"):
        stream(place, kafka__group__id=group_id)


def test_a_batch_starts_from_a_group_and_commits_nothing(place: dict[str, str]) -> None:
    options = {**place, "kafka.group.id": "g", "startingOffsets": "committed"}
    batch = read_options(options, batch=True)
    assert batch.starting.values == COMMITTED
    assert batch.group == GroupOptions("g", commits=False, none_committed=EARLIEST)


@pytest.mark.parametrize(("strategy", "start"), [("earliest", EARLIEST), ("latest", LATEST), ("error", None)])
def test_where_nothing_is_committed(place: dict[str, str], strategy: str, start: int | None) -> None:
    options = {"startingOffsets": "committed", "startingOffsetsByCommittedStrategy": strategy}
    assert stream(place, kafka__group__id="g", **options).group.none_committed == start


def test_committed_offsets_need_a_group(place: dict[str, str]) -> None:
    for batch in True, False:
        with pytest.raises(OptionError, match="is 'committed', but no consumer group is given"):
            read_options({**place, "startingOffsets": "committed"}, batch=batch)
    with pytest.raises(OptionError, match="'endingOffsets'"):
        read_options({**place, "endingOffsets": "committed", "kafka.group.id": "g"}, batch=True)


def test_groupidprefix_is_ignored_beside_a_group(
    place: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert stream(place, kafka__group__id="g", groupIdPrefix="p").group.group_id == "g"
    assert "groupIdPrefix is ignored" in caplog.text


MEMBER = {
    "kafka.bootstrap.servers": "b:9092",
    "subscribe": "t",
    "kafka.group.id": "g",
    "checkpointLocation": "/c",
    "groupMembership": "true",
}


def membership(**options: str) -> MembershipOptions | None:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return read_options({**MEMBER, **given}, batch=False).group.membership


def test_a_member_commits() -> None:
    group = read_options(MEMBER, batch=False).group
    assert (group.commits, group.required) == (True, True)
    assert group.membership == MembershipOptions()
    assert membership(groupMembership="false") is None
    assert read_options({**MEMBER, "groupMembership": "false"}, batch=False).group.membership is None


def test_assignors_by_name_and_by_class() -> None:
    java = "org.apache.kafka.clients.consumer"
    found = membership(
        kafka__partition__assignment__strategy=f"{java}.RoundRobinAssignor, range,RangeAssignor"
    )
    assert found is not None
    assert found.assignors == ("roundrobin", "range")
    assert not found.is_cooperative
    sticky = membership(kafka__partition__assignment__strategy=f"{java}.CooperativeStickyAssignor")
    assert sticky is not None
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
    with pytest.raises(OptionError, match="'groupMembership' is for brokers"):
        read_options({"path": "/log", "groupMembership": "true", "kafka.group.id": "g"}, batch=False)


def test_settings_of_members_need_a_membership(caplog: pytest.LogCaptureFixture) -> None:
    """They had no effect before, and still have none: one set of settings serves all clients."""
    options = {**MEMBER, "groupMembership": "false", "kafka.session.timeout.ms": "soon"}
    with caplog.at_level(logging.DEBUG, "pyspark_kafkalog"):
        assert read_options(options, batch=False).group.membership is None
    assert "kafka.session.timeout.ms has no effect without groupMembership" in caplog.text
