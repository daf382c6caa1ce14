"""What the records of one group say: its members, its commits, and which of these have expired.

Sources: Kafka's ``OffsetExpirationConditionImpl``, ``ClassicGroup.offsetExpirationCondition``,
``OffsetMetadataManager.cleanupExpiredOffsets`` (KIP-211).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark_kafkalog.codec.offsets_topic import (
    CONSUMER_GROUP,
    CONSUMER_MEMBER,
    GROUP_METADATA,
    ClassicGroup,
    ClassicMember,
    CoordinatorKey,
    decode_consumer_member,
    decode_group,
    decode_key,
    decode_offset,
)
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.log.groups.offsets_table import Entry
from pyspark_kafkalog.model import CommittedOffset, Group, GroupMember, TopicPartition

_CONSUMER = "consumer"
_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group. If it does not exist (any more), it has no offsets."""

    group: Group
    exists: bool
    offsets: Mapping[TopicPartition, CommittedOffset]
    """The commits that have not expired."""
    expired: frozenset[bytes]
    """Keys of the commits that have expired."""
    subscribed: frozenset[str] | None
    """Topics that its members have subscribed to; None if unknown."""


def group_state(
    group_id: str,
    entries: Mapping[bytes, Entry],
    pending: Collection[bytes],
    retention_ms: int | None,
    now_ms: int,
) -> GroupState:
    """The group that the records describe.

    :param entries: the last record of each of its keys.
    :param pending: keys for which an open transaction holds a value: these do not expire.
    :param retention_ms: how long offsets are kept after the last commit, or after the group became empty.
        None keeps all.
    """
    read = _Records()
    for key, entry in entries.items():
        if entry.value is not None:
            try:
                read.add(key, decode_key(key), entry.value)
            except CorruptRecordError as e:
                _log.debug("Group %s: cannot read the record at offset %d: %s", group_id, entry.offset, e)
    group = read.group(group_id)
    expired: set[bytes] = set()
    if retention_ms is not None and not group.members:
        since = read.classic.state_timestamp if read.classic and read.classic.protocol_type else -1
        expired = {
            key
            for key, (_, committed) in read.offsets.items()
            if key not in pending and _is_expired(committed, since, retention_ms, now_ms)
        }
    offsets = {
        partition: committed for key, (partition, committed) in read.offsets.items() if key not in expired
    }
    # A group goes when the last of its offsets expires.
    exists = bool(offsets or pending or (read.tells_of_group and not expired))
    return GroupState(group, exists, offsets, frozenset(expired), read.subscribed())


def _is_expired(committed: CommittedOffset, since: int, retention_ms: int, now_ms: int) -> bool:
    if committed.expire_timestamp >= 0:
        return now_ms >= committed.expire_timestamp
    return now_ms - (since if since >= 0 else committed.commit_timestamp) >= retention_ms


@dataclass(slots=True)
class _Records:
    """The records of a group, decoded."""

    classic: ClassicGroup | None = None
    is_consumer_group: bool = False
    members: list[GroupMember] = field(default_factory=list)
    offsets: dict[bytes, tuple[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def add(self, key: bytes, parsed: CoordinatorKey, value: bytes) -> None:
        if parsed.partition is not None:
            self.offsets[key] = parsed.partition, decode_offset(value)
        elif parsed.type == GROUP_METADATA:
            self.classic = decode_group(value)
        elif parsed.type == CONSUMER_GROUP:
            self.is_consumer_group = True
        elif parsed.type == CONSUMER_MEMBER:
            # Its partitions are in other records, by topic id.
            self.members.append(GroupMember(parsed.member_id, *decode_consumer_member(value)))

    @property
    def tells_of_group(self) -> bool:
        """Whether there is any record besides commits."""
        return self.classic is not None or self.is_consumer_group or bool(self.members)

    def group(self, group_id: str) -> Group:
        members = tuple(self.members)
        protocol_type, protocol = (_CONSUMER if self.is_consumer_group else ""), ""
        if self.classic is not None and not self.is_consumer_group:
            protocol_type, protocol = self.classic.protocol_type, self.classic.protocol or ""
            members += tuple(
                GroupMember(
                    member.member_id, member.client_id, member.client_host, _assigned(member, protocol_type)
                )
                for member in self.classic.members
            )
        return Group(group_id, "Stable" if members else "Empty", protocol_type, protocol, members)

    def subscribed(self) -> frozenset[str] | None:
        if self.members:
            return None
        try:
            members = self.classic.members if self.classic else ()
            return frozenset(topic for member in members for topic in member.subscribed_topics())
        except CorruptRecordError:
            return None


def _assigned(member: ClassicMember, protocol_type: str) -> tuple[TopicPartition, ...]:
    """Its partitions; none if its clients are not consumers, whose bytes only they understand."""
    try:
        return member.assigned_partitions() if protocol_type == _CONSUMER else ()
    except CorruptRecordError:
        return ()
