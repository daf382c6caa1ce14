"""ConsumerGroupDescribe, which kafka-python lacks: groups of KIP-848, whose assignments brokers make.

Its classes are built from Kafka's schema (ConsumerGroupDescribeRequest.json and
ConsumerGroupDescribeResponse.json), as kafka-python builds its own.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.api_message import ApiMessage


def _field(name: str, kind: str, *fields: dict[str, Any], since: int = 0, **more: str) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name, "type": kind, "versions": f"{since}+", **more}
    return {**field, "fields": list(fields)} if fields else field


def _nullable(name: str) -> dict[str, Any]:
    return _field(name, "string", nullableVersions="0+", default="null")


def _schema(name: str, kind: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiKey": 69,
        "type": kind,
        "name": name,
        "validVersions": "0-1",
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
    "ConsumerGroupDescribeRequest",
    "request",
    _field("GroupIds", "[]string"),
    _field("IncludeAuthorizedOperations", "bool"),
)
_RESPONSE = _schema(
    "ConsumerGroupDescribeResponse",
    "response",
    _field("ThrottleTimeMs", "int32"),
    _field("Groups", "[]DescribedGroup", *_GROUP),
)


def _message(schema: dict[str, Any]) -> Any:
    # kafka-python first loads a schema by the class's name, so the class needs a name that it knows.
    patch = classmethod(lambda cls, json: schema)
    return type(ApiMessage)(DescribeGroupsRequest.__name__, (ApiMessage,), {"json_patch": patch})


ConsumerGroupDescribeRequest = _message(_REQUEST)
ConsumerGroupDescribeResponse = _message(_RESPONSE)
