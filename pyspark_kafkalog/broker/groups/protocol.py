"""Requests of KIP-848, which kafka-python lacks, and the meaning of error codes about groups.

Brokers make the assignments of such groups. The codes are those of Kafka's Errors and ConsumerCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.api_message import ApiMessage

from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, error_of, name_of
from pyspark_kafkalog.errors import GroupError, KafkaLogError, listed
from pyspark_kafkalog.model import TopicPartition


def _field(name: str, kind: str, *fields: dict[str, Any], since: int = 0, **more: str) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name, "type": kind, "versions": f"{since}+", **more}
    return {**field, "fields": list(fields)} if fields else field


def _nullable(name: str) -> dict[str, Any]:
    return _field(name, "string", nullableVersions="0+", default="null")


def _schema(key: int, name: str, kind: str, *fields: dict[str, Any], newest: int) -> dict[str, Any]:
    return {
        "apiKey": key,
        "type": kind,
        "name": name,
        "validVersions": f"0-{newest}",
        "flexibleVersions": "0+",
        "fields": list(fields),
    }


_PARTITIONS = _field(
    "TopicPartitions",
    "[]TopicPartitions",
    _field("TopicId", "uuid"),
    _field("TopicName", "string"),
    _field("Partitions", "[]int32"),
)
_MEMBER = (
    _field("MemberId", "string"),
    _nullable("InstanceId"),
    _nullable("RackId"),
    _field("MemberEpoch", "int32"),
    _field("ClientId", "string"),
    _field("ClientHost", "string"),
    _field("SubscribedTopicNames", "[]string"),
    _nullable("SubscribedTopicRegex"),
    _field("Assignment", "Assignment", _PARTITIONS),
    _field("TargetAssignment", "Assignment", _PARTITIONS),
    _field("MemberType", "int8", since=1, default="-1"),
)
_GROUP = (
    _field("ErrorCode", "int16"),
    _nullable("ErrorMessage"),
    _field("GroupId", "string"),
    _field("GroupState", "string"),
    _field("GroupEpoch", "int32"),
    _field("AssignmentEpoch", "int32"),
    _field("AssignorName", "string"),
    _field("Members", "[]Member", *_MEMBER),
    _field("AuthorizedOperations", "int32", default="-2147483648"),
)
_REQUEST = _schema(
    69,
    "ConsumerGroupDescribeRequest",
    "request",
    _field("GroupIds", "[]string"),
    _field("IncludeAuthorizedOperations", "bool"),
    newest=1,
)
_RESPONSE = _schema(
    69,
    "ConsumerGroupDescribeResponse",
    "response",
    _field("ThrottleTimeMs", "int32"),
    _field("Groups", "[]DescribedGroup", *_GROUP),
    newest=1,
)
_OWNED = (_field("TopicId", "uuid"), _field("Partitions", "[]int32"))
_BEAT = _schema(
    68,
    "ConsumerGroupHeartbeatRequest",
    "request",
    _field("GroupId", "string"),
    _field("MemberId", "string"),
    _field("MemberEpoch", "int32"),
    _nullable("InstanceId"),
    _nullable("RackId"),
    _field("RebalanceTimeoutMs", "int32", default="-1"),
    _field("SubscribedTopicNames", "[]string", nullableVersions="0+", default="null"),
    _nullable("ServerAssignor"),
    _field("TopicPartitions", "[]TopicPartitions", *_OWNED, nullableVersions="0+", default="null"),
    newest=0,
)
_BEATEN = _schema(
    68,
    "ConsumerGroupHeartbeatResponse",
    "response",
    _field("ThrottleTimeMs", "int32"),
    _field("ErrorCode", "int16"),
    _nullable("ErrorMessage"),
    _nullable("MemberId"),
    _field("MemberEpoch", "int32"),
    _field("HeartbeatIntervalMs", "int32"),
    _field(
        "Assignment",
        "Assignment",
        _field("TopicPartitions", "[]TopicPartitions", *_OWNED),
        nullableVersions="0+",
        default="null",
    ),
    newest=0,
)


def _message(schema: dict[str, Any]) -> Any:
    # kafka-python first loads a schema by the class's name, so the class needs a name that it knows.
    patch = classmethod(lambda cls, json: schema)
    message = type(ApiMessage)(DescribeGroupsRequest.__name__, (ApiMessage,), {"json_patch": patch})
    message.__name__, message.__module__ = schema["name"], __name__
    return message


ConsumerGroupDescribeRequest = _message(_REQUEST)
ConsumerGroupDescribeResponse = _message(_RESPONSE)
ConsumerGroupHeartbeatRequest = _message(_BEAT)
ConsumerGroupHeartbeatResponse = _message(_BEATEN)


_LIVE_MEMBERS = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NON_EMPTY_GROUP,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
}
"""Codes that a group without members never gives."""
_STOP_THEM = (
    "Stop its members, or give the query its own kafka.group.id:"
    " while a group has members, only they may commit. If the query is one of them (groupMembership=true),"
    " set commitOffsets=false on its source: then its sink commits as that member."
)
_HINTS: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Grant the principal Read on the topic (to see offsets: Describe)"
    " in the cluster's ACLs.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Grant the principal Read on the group (to see it: Describe, to"
    " delete it: Delete) in the cluster's ACLs.",
}
_NAMED = 10
"""The number of partitions that an error lists."""


def group_error(
    code: int, doing: str, group: str, partition: TopicPartition | None = None, *, rest: str = ""
) -> KafkaLogError:
    """The error for a code that no retry cures.

    :param doing: the action, with the group's name.
    :param rest: what happened to the other partitions.
    """
    where = "" if group in doing else f" (group {group})"
    if code in _LIVE_MEMBERS:
        return GroupError(
            f"{doing}{where}: the group has live members ({name_of(code)}){rest}",
            topic_partition=partition,
            hint=_STOP_THEM,
        )
    return error_of(code, f"{doing}{where}", topic_partition=partition, rest=rest, hint=_HINTS.get(code))


def commit_error(group: str, failed: Mapping[TopicPartition, int], total: int) -> KafkaLogError:
    """The error for a commit that brokers refused for these partitions, each with its error code."""
    return _partial(f"Committing offsets of group {group}", group, failed, total, "committed")


def deletion_error(group: str, failed: Mapping[TopicPartition, int], total: int) -> KafkaLogError:
    """The error for a deletion of offsets that brokers refused for these partitions."""
    return _partial(f"Deleting offsets of group {group}", group, failed, total, "deleted")


def _partial(
    doing: str, group: str, failed: Mapping[TopicPartition, int], total: int, done: str
) -> KafkaLogError:
    # The message names all codes; the hint is about the first.
    by_code: dict[int, list[TopicPartition]] = {}
    for partition, code in sorted(failed.items()):
        by_code.setdefault(code, []).append(partition)
    (code, first), *others = by_code.items()
    if len(failed) == 1:
        rest = ""
    else:
        rest = f" for {listed(first, _NAMED)}"
        rest += "".join(
            f", {name_of(other)} for {listed(partitions, _NAMED)}" for other, partitions in others
        )
    if total > len(failed):
        rest += f"; the rest is {done}"
    return group_error(code, doing, group, first[0] if len(failed) == 1 else None, rest=rest)
