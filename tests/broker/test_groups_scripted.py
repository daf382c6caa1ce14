"""Groups on scripted brokers: Kafka 0.11, and responses that no real broker sends."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from kafka.protocol.admin import DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.errors import BrokerError, GroupError, UnsupportedVersionError
from pyspark_kafkalog.model import CommittedOffset, Group, GroupMember, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.broker.fake_broker import (
    API_VERSIONS,
    METADATA,
    FakeBroker,
    Received,
    encoded,
    metadata_response,
    serving,
)

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS = 8, 9, 10, 15, 16
KAFKA_0_11 = {
    API_VERSIONS: (0, 1),
    METADATA: (0, 4),
    OFFSET_COMMIT: (0, 3),
    OFFSET_FETCH: (0, 3),
    FIND_COORDINATOR: (0, 1),
    DESCRIBE_GROUPS: (0, 1),
    LIST_GROUPS: (0, 1),
}
PARTITION = TopicPartition("t", 0)


class Script:
    """Responses by api key; metadata and coordinators are always node 7."""

    def __init__(self, answers: Mapping[int, list[Any]]) -> None:
        self.broker: FakeBroker | None = None
        self.answers = answers

    def __call__(self, received: Received) -> bytes:
        assert self.broker is not None
        host, port = self.broker.address.split(":")
        response: Any
        if received.api_key == METADATA:
            response = metadata_response({7: self.broker.address}, cluster_id=None)
        elif received.api_key == FIND_COORDINATOR:
            response = FindCoordinatorResponse(
                throttle_time_ms=0, error_code=0, error_message=None, node_id=7, host=host, port=int(port)
            )
        else:
            responses = self.answers[received.api_key]
            response = responses.pop(0) if len(responses) > 1 else responses[0]
        return encoded(received, response)


def committing(code: int) -> OffsetCommitResponse:
    kind = OffsetCommitResponse.OffsetCommitResponseTopic
    partition = kind.OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(throttle_time_ms=0, topics=[kind(name="t", partitions=[partition])])


def test_a_broker_of_kafka_0_11() -> None:
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    partition = topic.OffsetFetchResponsePartition(
        partition_index=0, committed_offset=5, metadata=None, error_code=0
    )
    fetched = OffsetFetchResponse(
        throttle_time_ms=0, topics=[topic(name="t", partitions=[partition])], error_code=0
    )
    described = DescribeGroupsResponse.DescribedGroup
    # Only consumers understand what the leader of a group assigns.
    member = described.DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b"\0\1garbage"
    )
    groups = [
        described(
            error_code=0,
            group_id="g",
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=[member],
        ),
        described(
            error_code=0, group_id="gone", group_state="Dead", protocol_type="", protocol_data="", members=[]
        ),
    ]
    listed = ListGroupsResponse.ListedGroup(group_id="g", protocol_type="consumer")
    script = Script(
        {
            OFFSET_COMMIT: [committing(0)],
            OFFSET_FETCH: [fetched],
            DESCRIBE_GROUPS: [DescribeGroupsResponse(throttle_time_ms=0, groups=groups)],
            LIST_GROUPS: [ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=[listed])],
        }
    )
    with serving(script, KAFKA_0_11) as script.broker:
        groups = BrokerGroups(ConnectionOptions((script.broker.address,)))
        groups.commit("g", {PARTITION: CommittedOffset(5, 3, "m")})
        (received,) = (received for received in script.broker.requests if received.api_key == OFFSET_COMMIT)
        sent = OffsetCommitRequest[3].decode(received.frame, header=True)
        assert (sent.group_id, sent.generation_id_or_member_epoch, sent.member_id) == ("g", -1, "")
        assert sent.retention_time_ms == -1
        assert groups.committed("g") == {PARTITION: CommittedOffset(5)}
        assert groups.group_ids() == ("g",)
        assert groups.describe(["g", "gone"]) == {
            "g": Group("g", "Stable", "consumer", "range", (GroupMember("m", "c", "/h"),), 7)
        }
        with pytest.raises(UnsupportedVersionError, match=r"OffsetDelete.*Kafka 2\.4"):
            groups.delete_offsets("g", [PARTITION])
        with pytest.raises(UnsupportedVersionError, match="DeleteGroups"):
            groups.delete_group("g")


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (22, GroupError, r"live members \(ILLEGAL_GENERATION\)"),
        (25, GroupError, r"live members \(UNKNOWN_MEMBER_ID\)"),
        (27, GroupError, r"live members \(REBALANCE_IN_PROGRESS\)"),
        (113, GroupError, r"live members \(STALE_MEMBER_EPOCH\)"),
        (28, GroupError, "INVALID_COMMIT_OFFSET_SIZE.*offset.metadata.max.bytes"),
        (87, BrokerError, "INVALID_RECORD"),
    ],
)
def test_what_coordinators_refuse(code: int, kind: type[Exception], text: str) -> None:
    script = Script({OFFSET_COMMIT: [committing(14), committing(code)]})
    with serving(script, KAFKA_0_11) as script.broker:
        groups = BrokerGroups(ConnectionOptions((script.broker.address,), retry_backoff_ms=1))
        with pytest.raises(kind, match=f"group g: .*{text}"):
            groups.commit("g", {PARTITION: CommittedOffset(5)})


def test_a_pause_that_brokers_ask_for_does_not_outlast_a_commit() -> None:
    throttled = committing(0)
    throttled.throttle_time_ms = 60_000
    script = Script({OFFSET_COMMIT: [throttled]})
    with serving(script, KAFKA_0_11) as script.broker:
        groups = BrokerGroups(ConnectionOptions((script.broker.address,)), timeout=0.5)
        groups.commit("g", {PARTITION: CommittedOffset(5, 0)})
        begun = time.monotonic()
        with suppress(BrokerError):
            groups.commit("g", {PARTITION: CommittedOffset(6)})
        assert time.monotonic() - begun < 30


def test_brokers_that_fall_silent_hide_no_answer() -> None:
    """A second lookup of the one without a coordinator ends with the time."""
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    partition = topic.OffsetFetchResponsePartition(
        partition_index=0, committed_offset=5, metadata="", error_code=0
    )
    fetched = OffsetFetchResponse(
        throttle_time_ms=0, topics=[topic(name="t", partitions=[partition])], error_code=0
    )
    script = Script({OFFSET_FETCH: [fetched]})
    over = threading.Event()

    def answer(received: Received) -> bytes:
        if received.api_key == FIND_COORDINATOR:
            lookups = sum(request.api_key == FIND_COORDINATOR for request in script.broker.requests)
            if lookups == 2:
                return encoded(received, nobody)
            if lookups > 2:
                over.wait(60)
        return script(received)

    nobody = FindCoordinatorResponse(
        throttle_time_ms=0, error_code=15, error_message=None, node_id=-1, host="", port=-1
    )
    with serving(answer, KAFKA_0_11) as script.broker:
        groups = BrokerGroups(ConnectionOptions((script.broker.address,), request_timeout_ms=1000))
        found = groups.committed_by(["fine", "gone"])
        over.set()
    assert found["fine"] == {PARTITION: CommittedOffset(5)}
    assert "COORDINATOR_NOT_AVAILABLE" in str(found["gone"])
