"""The state in ``__consumer_offsets``: the last record of each key, and the groups that these describe.

Records of a transaction are pending until its marker. Then the record with the highest offset wins,
wherever the marker is. A tombstone in a transaction takes back only what is pending there. A record
outside of transactions counts at once, even above the last stable offset, and a tombstone takes back what
is pending in all of them.

Sources: Kafka's ``OffsetMetadataManager.replay``, ``replayEndTransactionMarker``, and before 4.0
``GroupMetadataManager.doLoadGroupsAndOffsets``, ``GroupMetadata.removeOffsets``: that coordinator took
deleted offsets back from transactions, too, but not when it loaded them. For what has expired (KIP-211)
``OffsetExpirationConditionImpl``, ``ClassicGroup.offsetExpirationCondition``,
``OffsetMetadataManager.cleanupExpiredOffsets``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.decode import decode_slice
from pyspark_kafkalog.codec.format import NO_PRODUCER_ID
from pyspark_kafkalog.codec.isolation import TransactionScan
from pyspark_kafkalog.codec.offsets_topic import (
    CONSUMER_GROUP,
    CONSUMER_MEMBER,
    GROUP_METADATA,
    LAST_OF_CONSUMERS,
    ClassicGroup,
    ClassicMember,
    CoordinatorKey,
    decode_consumer_member,
    decode_group,
    decode_key,
    decode_offset,
    is_commit,
    raw_group,
)
from pyspark_kafkalog.codec.walk import Batches, batches_of
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import CommittedOffset, Group, GroupMember, OffsetRange, Slice, TopicPartition

_RECORD = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
_RECORD_BYTES = 80
"""About the bytes of a record besides its key and value, in a batch of its own."""
UNREADABLE = -1
"""Stands for the type of a key without a type or a group."""
_CONSUMER = "consumer"

_log = logging.getLogger("pyspark_kafkalog")


class TableEntry(NamedTuple):
    """The last record of a key; its value is None if it is a tombstone."""

    offset: int
    timestamp: int
    """The greatest of its batch, in ms."""
    value: bytes | None


class OffsetsTable:
    """The last record of each key in one partition, whose record batches it takes in in order.

    :param start: the first offset to take in.
    :param topic_id: the id of the topic.
    """

    def __init__(self, partition: TopicPartition, start: int, topic_id: str) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.next_offset = start
        self.groups: dict[bytes, dict[bytes, TableEntry]] = {}
        """The entries by group id and key, both as stored; includes tombstones."""
        self.skipped: Counter[int] = Counter()
        """The number of records with a key of each type that is not about classic groups or offsets."""
        self.in_transactions: set[bytes] = set()
        """Keys that a transaction has touched: its batches stay in the log whatever follows."""
        self.unreadable: list[int] = []
        """Offsets of records whose key cannot be read, and which must not be removed."""
        self._pending: dict[int, dict[bytes, TableEntry]] = {}
        self._scan = TransactionScan()
        self._transactional_bytes = 0

    def add(self, piece: Slice, end: int) -> None:
        """Take in the batches of a slice from ``next_offset`` on.

        :param end: no record has this offset or a higher one.
        :raises CorruptRecordError: at an invalid batch. The table is useless then.
        """
        batches = batches_of(piece)
        try:
            self._scan.add(piece.buffer, batches)
        except CorruptRecordError as e:
            raise CorruptRecordError(
                e.message,
                topic_partition=self.partition,
                offset=self.next_offset,
                file=piece.origin.file,
                position=piece.origin.position + (e.position or 0),
            ) from None
        in_transaction = batches.is_transactional & (batches.producer_id != NO_PRODUCER_ID)
        self._transactional_bytes += int(batches.size[in_transaction | batches.is_control].sum())
        producer_ids = np.where(in_transaction, batches.producer_id, NO_PRODUCER_ID)
        markers = self._markers(batches, in_transaction & batches.is_control)
        marker = next(markers, None)
        wanted = OffsetRange(self.next_offset, end)
        for rows, next_offset in decode_slice(
            piece,
            topic_partition=self.partition,
            offsets=wanted,
            visible=None,
            schema=_RECORD,
        ):
            offsets = rows.column(0).to_numpy()
            owners = np.searchsorted(batches.last_offset, offsets)
            columns = (
                offsets.tolist(),
                rows.column(1).to_pylist(),
                rows.column(2).to_pylist(),
                producer_ids[owners].tolist(),
                batches.max_timestamp[owners].tolist(),
            )
            for offset, key, value, producer_id, timestamp in zip(*columns, strict=True):
                while marker is not None and marker[0] < offset:
                    self._end_transaction(*marker[1:])
                    marker = next(markers, None)
                self._put(key, TableEntry(offset, timestamp, value), producer_id)
            self.next_offset = next_offset
        while marker is not None:
            self._end_transaction(*marker[1:])
            marker = next(markers, None)

    def pending(self, group: bytes) -> set[bytes]:
        """Keys of the group for which an open transaction holds a value."""
        return {key for entries in self._pending.values() for key in entries if raw_group(key) == group}

    def all_groups(self) -> set[bytes]:
        """Every group id that has a record, including deleted groups."""
        opened = {raw_group(key) or b"" for entries in self._pending.values() for key in entries}
        return opened | set(self.groups)

    def live_bytes(self) -> int:
        """An upper bound on the bytes of what still counts: the rest of the log is stale."""
        records = sum(
            _RECORD_BYTES + len(key) + len(entry.value or b"")
            for entries in self.groups.values()
            for key, entry in entries.items()
        )
        return self._transactional_bytes + records + _RECORD_BYTES * len(self.unreadable)

    def _markers(self, batches: Batches, is_marker: np.ndarray) -> Iterator[tuple[int, int, bool]]:
        """Offset and producer id of each end of a transaction, and whether it commits."""
        aborted = {(t.producer_id, t.last_offset) for t in self._scan.aborted}
        self._scan.aborted.clear()
        for row in np.flatnonzero(is_marker).tolist():
            end = int(batches.producer_id[row]), int(batches.base_offset[row])
            yield end[1], end[0], end not in aborted

    def _put(self, key: bytes | None, entry: TableEntry, producer_id: int) -> None:
        group = None if key is None else raw_group(key)
        if key is None or group is None:
            self._skip(UNREADABLE)
            self.unreadable.append(entry.offset)
            return
        kind = int.from_bytes(key[:2], "big", signed=True)
        if kind == 0:
            # Kafka 0.8 wrote these; to a coordinator it is the same key.
            key = b"\0\1" + key[2:]
        elif kind > GROUP_METADATA or kind < 0:
            self._skip(kind)
        if producer_id == NO_PRODUCER_ID:
            self.groups.setdefault(group, {})[key] = entry
            for pending in self._pending.values() if entry.value is None else ():
                pending.pop(key, None)
            return
        self.in_transactions.add(key)
        pending = self._pending.setdefault(producer_id, {})
        if entry.value is None:
            pending.pop(key, None)
        else:
            pending[key] = entry

    def _end_transaction(self, producer_id: int, commits: bool) -> None:
        pending = self._pending.pop(producer_id, {})
        for key, entry in pending.items() if commits else ():
            entries = self.groups.setdefault(raw_group(key) or b"", {})
            before = entries.get(key)
            if before is None or before.value is None or before.offset < entry.offset:
                entries[key] = entry

    def _skip(self, kind: int) -> None:
        if kind not in self.skipped:
            _log.debug("%s: skipping records whose key has the type %d", self.partition, kind)
        self.skipped[kind] += 1


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
    entries: Mapping[bytes, TableEntry],
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
                read.is_unreadable |= not is_commit(key)
                _log.debug("Group %s: cannot read the record at offset %d: %s", group_id, entry.offset, e)
    group = read.group(group_id)
    expired: set[bytes] = set()
    if retention_ms is not None and group.members == ():
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

    is_unreadable: bool = False
    """Whether anything but a commit can't be read."""
    is_foreign: bool = False
    """Whether it is a group of another kind, such as share or streams."""
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
            found = decode_consumer_member(value)
            self.members.append(
                GroupMember(parsed.member_id, found.client_id, found.client_host, (), found.instance_id)
            )
        elif parsed.type > LAST_OF_CONSUMERS:
            self.is_foreign = True

    @property
    def tells_of_group(self) -> bool:
        """Whether there is any record besides commits."""
        known = self.classic is not None or self.is_consumer_group or bool(self.members)
        return known or self.is_unreadable

    def group(self, group_id: str) -> Group:
        if self.is_unreadable or self.is_foreign:
            return Group(group_id, "", members=None)
        members = tuple(self.members)
        protocol_type, protocol = (_CONSUMER if self.is_consumer_group else ""), ""
        if self.classic is not None and not self.is_consumer_group:
            protocol_type, protocol = self.classic.protocol_type, self.classic.protocol or ""
            members += tuple(
                GroupMember(
                    member.member_id,
                    member.client_id,
                    member.client_host,
                    _assigned(member, protocol_type),
                    member.group_instance_id,
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
    """The partitions of a member; none if its clients are not consumers, whose bytes only they understand."""
    try:
        return member.assigned_partitions() if protocol_type == _CONSUMER else ()
    except CorruptRecordError:
        return ()
