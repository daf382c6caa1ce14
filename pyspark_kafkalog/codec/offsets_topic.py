"""Keys and values of ``__consumer_offsets``, as group coordinators write them.

Both open with an int16. A key's is its type (0 and 1 are the same), a value's its version::

    key                              value
    0, 1 OffsetCommit                offset int64; leaderEpoch int32 (3+); metadata string;
       group string, topic string,   commitTimestamp int64; expireTimestamp int64 (1 only);
       partition int32               tagged topicId uuid (4+)
    2 GroupMetadata                  protocolType string; generation int32; protocol, leader nullable
       group string                  string; currentStateTimestamp int64 (2+); members array of
                                        memberId string; groupInstanceId nullable string (3+);
                                        clientId, clientHost string; rebalanceTimeout int32 (1+);
                                        sessionTimeout int32; subscription, assignment bytes
    3 to 8 ConsumerGroup* (KIP-848)  always flexible
       group string, and maybe more

From version 4 on values are flexible: compact lengths, tagged fields (KIP-482, KIP-915). A record
with a null value is a tombstone. Later types belong to share and streams groups and are not read here.

Sources: Kafka's ``OffsetCommitKey.json``, ``OffsetCommitValue.json``, ``GroupMetadataValue.json``,
``ConsumerGroupMemberMetadataValue.json``, ``GroupCoordinatorRecordHelpers``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafkalog.codec.fields import Fields, text_of
from pyspark_kafkalog.errors import InvalidRecordError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition

OFFSET_COMMIT, GROUP_METADATA = 1, 2
CONSUMER_GROUP, CONSUMER_MEMBER = 3, 5
"""Key types of a KIP-848 group and of its members."""
LAST_OF_CONSUMERS = 8
"""Greater key types belong to other kinds of groups."""

_MAX_OFFSET_VERSION = _MAX_GROUP_VERSION = 4
_FLEXIBLE_VERSION = 4
_MAX_STRING = (1 << 15) - 1


class CoordinatorKey(NamedTuple):
    """The beginning of every key. ``group`` is empty where the type is unknown and no string follows."""

    type: int
    group: str
    partition: TopicPartition | None = None
    """The partition of an offset commit; None in other keys."""
    member_id: str = ""
    """The member of a KIP-848 group; empty in other keys."""


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member of a classic group, with the bytes that its clients agree on (Kafka's ConsumerProtocol)."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout: int
    rebalance_timeout: int = -1
    group_instance_id: str | None = None
    subscription: bytes = b""
    assignment: bytes = b""

    def subscribed_topics(self) -> tuple[str, ...]:
        """:raises CorruptRecordError: if no consumer wrote the subscription."""
        data = Fields(self.subscription, 2)
        return tuple(data.array(data.string))

    def assigned_partitions(self) -> tuple[TopicPartition, ...]:
        """:raises CorruptRecordError: if no consumer wrote the assignment."""
        if not self.assignment:
            return ()
        data = Fields(self.assignment, 2)
        topics = data.array(lambda: (data.string(), data.array(data.int32)))
        return tuple(TopicPartition(topic, number) for topic, numbers in topics for number in numbers)


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """A classic group; without members it is empty, since ``state_timestamp`` (-1 if unknown)."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[ClassicMember, ...]
    state_timestamp: int = -1


class ConsumerMember(NamedTuple):
    """A record about a member of a KIP-848 group."""

    client_id: str
    client_host: str
    instance_id: str | None = None


def offsets_partition(group: str, partitions: int) -> int:
    """The partition of the topic with a group's records: by Java's String.hashCode, made positive."""
    code = 0
    units = group.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    # Kafka's Utils.abs: the least int has no positive counterpart.
    positive = 0 if code == 1 << 31 else min(code, (1 << 32) - code)
    return positive % partitions


def raw_group(key: bytes) -> bytes | None:
    """The bytes of the group id, which follows the type in any known key; None if they are not there."""
    end = 4 + int.from_bytes(key[2:4], "big", signed=True)
    return key[4:end] if 4 <= end <= len(key) else None


def is_commit(key: bytes) -> bool:
    """Whether a key is that of an offset commit."""
    return int.from_bytes(key[:2], "big", signed=True) in (0, OFFSET_COMMIT)


def decode_key(key: bytes) -> CoordinatorKey:
    """:raises CorruptRecordError: with the position, if a key of a known type is cut off."""
    data = Fields(key)
    kind = data.int16()
    if kind in (0, OFFSET_COMMIT):
        group = data.string()
        return CoordinatorKey(OFFSET_COMMIT, group, TopicPartition(data.string(), data.int32()))
    if kind == GROUP_METADATA:
        return CoordinatorKey(kind, data.string())
    if kind == CONSUMER_MEMBER:
        return CoordinatorKey(kind, data.string(), None, data.string())
    group_id = raw_group(key)
    return CoordinatorKey(kind, "" if group_id is None else text_of(group_id))


def decode_offset(value: bytes) -> CommittedOffset:
    """:raises CorruptRecordError: with the position, if the value is cut off or of an unknown version."""
    data = Fields(value)
    version = data.version("OffsetCommitValue", _MAX_OFFSET_VERSION, flexible=_FLEXIBLE_VERSION)
    return CommittedOffset(
        offset=data.int64(),
        leader_epoch=data.int32() if version >= 3 else -1,
        metadata=data.string(),
        commit_timestamp=data.int64(),
        expire_timestamp=data.int64() if version == 1 else -1,
    )


def decode_group(value: bytes) -> ClassicGroup:
    """:raises CorruptRecordError: with the position, if the value is cut off or of an unknown version."""
    data = Fields(value)
    version = data.version("GroupMetadataValue", _MAX_GROUP_VERSION, flexible=_FLEXIBLE_VERSION)

    def member() -> ClassicMember:
        member_id = data.string()
        instance = data.nullable_string() if version >= 3 else None
        client_id, client_host = data.string(), data.string()
        rebalance_timeout = data.int32() if version >= 1 else -1
        session_timeout = data.int32()
        subscription, assignment = data.blob(), data.blob()
        data.skip_tagged_fields()
        return ClassicMember(
            member_id,
            client_id,
            client_host,
            session_timeout,
            rebalance_timeout,
            instance,
            subscription,
            assignment,
        )

    protocol_type, generation = data.string(), data.int32()
    protocol, leader = data.nullable_string(), data.nullable_string()
    state_timestamp = data.int64() if version >= 2 else -1
    return ClassicGroup(
        protocol_type, generation, protocol, leader, tuple(data.array(member)), state_timestamp
    )


def decode_consumer_member(value: bytes) -> ConsumerMember:
    """:raises CorruptRecordError: with the position, if the value is cut off or of an unknown version."""
    data = Fields(value)
    data.version("ConsumerGroupMemberMetadataValue", 0, flexible=0)
    instance_id = data.nullable_string()
    data.nullable_string()  # rack id
    return ConsumerMember(data.string(), data.string(), instance_id)


def encode_offset_key(group: str, partition: TopicPartition) -> bytes:
    """The key of an offset commit.

    :raises InvalidRecordError: if a name is too long, or the partition number does not fit.
    """
    names = _string(group) + _string(partition.topic)
    return _integers("h", OFFSET_COMMIT) + names + _integers("i", partition.partition)


def encode_group_key(group: str) -> bytes:
    """The key of a classic group.

    :raises InvalidRecordError: if the name is longer than a string may be.
    """
    return _integers("h", GROUP_METADATA) + _string(group)


def encode_offset(committed: CommittedOffset) -> bytes:
    """The value of an offset commit: version 3, or 1 if it has an expire timestamp.

    Kafka since 4.1 writes version 4, only for its topic id. All brokers since 2.1 can read version 3,
    which also holds in a cluster that has given the topic another id.

    :raises InvalidRecordError: if the metadata is longer than a string may be, or a number does not fit.
    """
    metadata = _string(committed.metadata)
    if committed.expire_timestamp >= 0:
        times = _integers("qq", committed.commit_timestamp, committed.expire_timestamp)
        return _integers("hq", 1, committed.offset) + metadata + times
    opening = _integers("hqi", 3, committed.offset, committed.leader_epoch)
    return opening + metadata + _integers("q", committed.commit_timestamp)


def _string(text: str) -> bytes:
    data = text.encode(errors="replace")
    if len(data) > _MAX_STRING:
        raise InvalidRecordError(f"A string of {len(data)} bytes exceeds the limit of {_MAX_STRING}")
    return _integers("h", len(data)) + data


def _integers(layout: str, *values: int) -> bytes:
    try:
        return struct.pack(">" + layout, *values)
    except struct.error:
        raise InvalidRecordError(f"Numbers do not fit into the fields of a record: {values}") from None
