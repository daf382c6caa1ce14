"""The consumer groups of a log directory: reads and writes its ``__consumer_offsets`` without a broker.

See :class:`pyspark_kafkalog.model.groups.GroupOffsets`. A commit is one record batch, appended to the
partition in which a broker looks for the group. What brokers do in the background happens on the way: expired
offsets are not shown, and a commit compacts a log that is mostly stale.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import fs

from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.offsets_topic import (
    encode_group_key,
    encode_offset,
    encode_offset_key,
    offsets_partition,
)
from pyspark_kafkalog.errors import (
    DataLossError,
    GroupError,
    KafkaLogError,
    LogDirectoryError,
    OversizedRecordError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.extensions.log_groups.cleaner import ONE_BATCH, clean, log_bytes
from pyspark_kafkalog.extensions.log_groups.state import GroupState, OffsetsTable, group_state
from pyspark_kafkalog.filesystem.durable import disk_errors
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.layout import (
    LEADER_EPOCH_CHECKPOINT,
    parse_leader_epoch_checkpoint,
    parse_partition_folder,
)
from pyspark_kafkalog.log.lock import directory_lock
from pyspark_kafkalog.log.publish.publish import append_batch
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.partition import Partition
from pyspark_kafkalog.log.read.root import LogRoot, open_root
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.log.topic_settings import encode_settings, read_log_settings
from pyspark_kafkalog.model import CommittedOffset, Fetch, Group, OffsetRange, TopicPartition
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC

RETENTION_MINUTES = 7 * 24 * 60
"""Kafka's default of offsets.retention.minutes."""
NUM_PARTITIONS = 50
"""Kafka's default of offsets.topic.num.partitions."""
_MAX_METADATA = 4096
"""Kafka's default of offset.metadata.max.bytes, which counts UTF-16 code units."""
_CLEAN_BYTES = 1 << 20
"""A smaller log is not worth compacting."""
_TOMBSTONE_MS = 24 * 3600 * 1000
"""Kafka's default of delete.retention.ms."""
_FORGET_SECONDS = 12 * 3600
"""A table this old is read again, as compaction may be removing tombstones that it has not seen."""
_RETRIES = 5

_log = logging.getLogger("pyspark_kafkalog")
_Record = tuple[bytes, bytes | None]


class GroupPartition(NamedTuple):
    """The partition that holds, or will hold, a group's records, and what they say."""

    root: str
    partition: TopicPartition
    table: OffsetsTable | None
    state: GroupState | None


class DirectoryGroups:
    """The groups of one or several log roots, and what they have committed.

    Keeps what it has read, so that the next call reads only what was appended since.

    :param retention_minutes: how long an empty group's offsets last; None for ever, despite their own expiry.
    :param num_partitions: of ``__consumer_offsets``, if the first commit creates it.
    :param lock_timeout: seconds to wait for another writer; None if the caller holds the roots' locks.
    """

    def __init__(
        self,
        roots: Sequence[LogRoot],
        *,
        retention_minutes: int | None = RETENTION_MINUTES,
        num_partitions: int = NUM_PARTITIONS,
        lock_timeout: float | None = 10,
    ) -> None:
        self._roots = roots
        self._retention_ms = None if retention_minutes is None else retention_minutes * 60_000
        self._num_partitions = num_partitions
        self._lock_timeout = lock_timeout
        self._directory = LogDirectory(roots)
        self._tables: dict[int, tuple[OffsetsTable, float]] = {}
        """The tables by partition number, each with the time when reading began."""
        self._known: tuple[int, ...] = ()
        self._guard = threading.RLock()

    @classmethod
    def open(
        cls,
        paths: str | Sequence[str],
        *,
        retention_minutes: int | None = RETENTION_MINUTES,
        num_partitions: int = NUM_PARTITIONS,
        lock_timeout: float | None = 10,
    ) -> DirectoryGroups:
        """Open local paths or URIs; for a partition's folder, its log root.

        :raises LogDirectoryError: if one does not exist, is a file, or holds neither partitions nor segments.
        """
        paths = [paths] if isinstance(paths, str) else paths
        roots = {folder.label(): folder for folder in (open_root(path).folder for path in paths)}
        return cls(
            [LogRoot(folder) for folder in roots.values()],
            retention_minutes=retention_minutes,
            num_partitions=num_partitions,
            lock_timeout=lock_timeout,
        )

    @property
    def skipped(self) -> Mapping[int, int]:
        """The number of records of each key type that were skipped so far; -1 counts broken keys."""
        counts: Counter[int] = Counter()
        for table, _ in self._tables.values():
            counts += table.skipped
        return counts

    def group_ids(self) -> tuple[str, ...]:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.group_ids`."""
        found, problems = self.try_group_ids()
        for problem in problems:
            raise problem
        return found

    def try_group_ids(self) -> tuple[tuple[str, ...], list[KafkaLogError]]:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.try_group_ids`: partitions may be damaged."""
        found: set[str] = set()
        problems: list[KafkaLogError] = []
        with self._guard:
            for number in self._numbers():
                try:
                    tables = self._read([number])
                except KafkaLogError as e:
                    problems.append(e)
                    continue
                states = [self._state_of(table, raw) for table in tables for raw in table.all_groups()]
                found |= {state.group.group for state in states if state.exists}
        return tuple(sorted(found)), problems

    def describe(self, groups: Collection[str]) -> dict[str, Group]:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.describe`. With members it is Stable."""
        states = {group: self._state(group) for group in groups}
        return {group: state.group for group, state in states.items() if state is not None}

    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.committed`.

        ``require_stable`` waits for nothing.
        """
        state = self._state(group)
        offsets = {} if state is None else state.offsets
        return {
            partition: offsets[partition]
            for partition in (sorted(offsets) if partitions is None else partitions)
            if partition in offsets
        }

    def committed_by(
        self, groups: Collection[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaLogError]:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.committed_by`."""
        found: dict[str, dict[TopicPartition, CommittedOffset] | KafkaLogError] = {}
        for group in sorted(set(groups)):
            try:
                found[group] = self.committed(group)
            except KafkaLogError as e:
                found[group] = e
        return found

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, as_they_are: bool = False
    ) -> None:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.commit`: all or nothing.

        A commit timestamp of -1 means now. A failure to compact a stale log is only logged.

        :raises LogDirectoryLockedError: if a broker holds the directory, or another writer for too long.
        :raises LogDirectoryError: if the directory can't be written to.
        """
        _check(group, offsets)
        if not offsets:
            return
        with self._writing(group) as target:
            self._commit(target, group, offsets, as_they_are=as_they_are)

    def commit_after(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        known: Mapping[TopicPartition, tuple[int, str] | None],
    ) -> bool:
        """Like :meth:`commit`, but only if the group has committed what is ``known``, None for nothing.

        Returns whether it has.
        """
        _check(group, offsets)
        with self._writing(group) as target:
            now = {} if target.state is None else target.state.offsets
            if any((now[p].said if p in now else None) != said for p, said in known.items()):
                return False
            self._commit(target, group, offsets)
        return True

    def _commit(
        self,
        target: GroupPartition,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        as_they_are: bool = False,
    ) -> None:
        self._refuse_members(target)
        now_ms = _now_ms()
        records: list[_Record] = []
        for partition, committed in offsets.items():
            epoch, timestamp = committed.leader_epoch, committed.commit_timestamp
            if epoch < 0 and not as_they_are:
                epoch = self._leader_epoch(partition, committed.offset)
            stored = replace(
                committed,
                leader_epoch=epoch,
                commit_timestamp=now_ms if timestamp < 0 else timestamp,
            )
            records.append((encode_offset_key(group, partition), encode_offset(stored)))
        self._append(target, records)

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.delete_offsets`."""
        with self._writing(group) as target:
            self._append(target, self._tombstones(target, group, partitions))

    def tombstones(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, np.ndarray]:
        """A record batch for each partition of ``__consumer_offsets`` that deletes offsets of ``partitions``.

        :raises GroupError: if a group that may be reading one of ``partitions`` has live members.
        """
        records: dict[tuple[str, TopicPartition], list[_Record]] = defaultdict(list)
        for group in self.group_ids():
            with self._writing(group) as target:
                committed = [partition for partition in partitions if _holds(target, group, partition)]
                records[target.root, target.partition] += self._tombstones(target, group, committed)
        return {
            holder: _batch(root, holder, deleted) for (root, holder), deleted in records.items() if deleted
        }

    def delete_group(self, group: str) -> None:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.delete_group`."""
        with self._writing(group) as target:
            if target.state is None or target.table is None:
                raise GroupError(f"No such consumer group: {group!r}", file=target.root)
            self._refuse_members(target)
            entries = target.table.groups.get(group.encode(), {})
            keys = {key for key, entry in entries.items() if entry.value is not None}
            keys |= target.table.pending(group.encode())
            # A broker creates a group for any commit, and keeps it until this key has a tombstone.
            keys.add(encode_group_key(group))
            # Offsets first, and the group itself last, in the order of brokers.
            order = sorted(keys, key=lambda key: (key[:2] != b"\0\1", -int.from_bytes(key[:2], "big"), key))
            self._append(target, [(key, None) for key in order])

    # Reading

    def _numbers(self) -> tuple[int, ...]:
        """The partitions that are here; listed again only if they seem to have changed."""
        known = self._known
        if not (known and _are_all(known) and self._has(known[-1]) and not self._has(len(known))):
            self._known = self._directory.topics({OFFSETS_TOPIC}).get(OFFSETS_TOPIC, ())
        return self._known

    def _has(self, number: int) -> bool:
        return any(root.find(TopicPartition(OFFSETS_TOPIC, number)) for root in self._roots)

    def _state(self, group: str) -> GroupState | None:
        with self._guard:
            numbers = self._numbers()
            if numbers and _are_all(numbers):
                numbers = (offsets_partition(group, len(numbers)),)
            states = (self._state_in(table, group) for table in self._read(numbers))
            return next((state for state in states if state is not None), None)

    def _state_in(self, table: OffsetsTable, group: str) -> GroupState | None:
        """The group if it exists."""
        state = self._state_of(table, group.encode(errors="replace"))
        return state if state.exists else None

    def _state_of(self, table: OffsetsTable, raw: bytes) -> GroupState:
        group, entries = raw.decode(errors="replace"), table.groups.get(raw, {})
        return group_state(group, entries, table.pending(raw), self._retention_ms, _now_ms())

    def _read(self, numbers: Collection[int]) -> list[OffsetsTable]:
        """The tables of these partitions, up to date."""
        return [table for table in map(self._table, numbers) if table is not None]

    def _table(self, number: int) -> OffsetsTable | None:
        partition = TopicPartition(OFFSETS_TOPIC, number)
        lost: DataLossError | None = None
        for _ in range(_RETRIES):
            bounds = self._directory.watermarks([partition], read_committed=False).get(partition)
            topic_id = self._topic_id(partition)
            table, loaded_at = self._tables.pop(number, (None, 0.0))
            if bounds is None or topic_id is None:
                return None
            start, end = bounds.log_start_offset, bounds.high_watermark
            if (
                table is None
                or table.topic_id != topic_id
                or not start <= table.next_offset <= end
                or time.monotonic() - loaded_at > _FORGET_SECONDS
            ):
                table, loaded_at = OffsetsTable(partition, start, topic_id), time.monotonic()
            try:
                new = OffsetRange(table.next_offset, end)
                for piece in self._directory.fetch(Fetch(partition, new)):
                    table.add(piece, end)
                # Kept only if nothing failed.
                self._tables[number] = table, loaded_at
                return table
            except OversizedRecordError as e:
                raise e.with_hint(
                    f"No commit is so large, and nothing raises this limit here. If {OFFSETS_TOPIC} has such"
                    " a record, ask the brokers for the groups."
                ) from None
            except (DataLossError, UnknownTopicOrPartitionError) as e:
                # It may be compacted or deleted right now; a missing segment stays so.
                lost = e if isinstance(e, DataLossError) and e.file is not None else None
        if lost is not None:
            raise lost.with_hint("Restore it, or run kafkalog repair to go on without the offsets in it.")
        raise LogDirectoryError("The partition kept changing while it was read", topic_partition=partition)

    def _topic_id(self, partition: TopicPartition) -> str | None:
        for root in self._roots:
            folder = root.find(partition)
            if folder is not None:
                with suppress(FileNotFoundError):
                    return Partition(partition, folder, root.log_start_offset).topic_id()
        return None

    # Writing

    @contextmanager
    def _writing(self, group: str) -> Iterator[GroupPartition]:
        """Hold the lock of the log root where the group's partition is, or will be."""
        with self._guard:
            root, _ = self._locate(group)
            with disk_errors("Could not write group offsets", root), self._locked(root):
                located, partition = self._locate(group)
                if located != root:
                    raise LogDirectoryError(
                        f"{OFFSETS_TOPIC} was just created in another root", file=root, hint="Try again."
                    )
                table = self._table(partition.partition)
                state = None if table is None else self._state_in(table, group)
                yield GroupPartition(root, partition, table, state)

    def _locked(self, root: str) -> AbstractContextManager[object]:
        return nullcontext() if self._lock_timeout is None else directory_lock(root, self._lock_timeout)

    def _locate(self, group: str) -> tuple[str, TopicPartition]:
        """The path of the log root and the partition where the group's records belong."""
        numbers = self._numbers()
        if not _are_all(numbers):
            raise LogDirectoryError(
                f"Expected all partitions of {OFFSETS_TOPIC}, found some missing",
                file=self._label(),
                hint="Give all log roots of the broker, or write to the brokers.",
            )
        number = offsets_partition(group, len(numbers) or self._num_partitions)
        partition = TopicPartition(OFFSETS_TOPIC, number)
        holders = (root for root in self._roots if numbers and root.find(partition) is not None)
        folder = next(holders, self._roots[0]).folder
        if not isinstance(folder.filesystem, fs.LocalFileSystem):
            raise LogDirectoryError(
                "Group offsets can only be written to a local or mounted folder", file=folder.label()
            )
        return folder.path, partition

    def _tombstones(
        self, target: GroupPartition, group: str, partitions: Collection[TopicPartition]
    ) -> list[_Record]:
        """The records that delete the group's offsets of ``partitions``, as far as it has any."""
        state = target.state
        if state is None:
            return []
        for partition in partitions:
            if state.subscribed is None or partition.topic in state.subscribed:
                self._refuse_members(target, partition)
        return [(encode_offset_key(group, p), None) for p in partitions if _holds(target, group, p)]

    def _append(self, target: GroupPartition, records: Sequence[_Record]) -> None:
        """Append the records as one batch, and compact the partition if it is mostly stale."""
        if not records:
            return
        batch = _batch(target.root, target.partition, records)
        append_batch(target.root, target.partition, batch, self._num_partitions)
        folder = os.path.join(target.root, str(target.partition))
        try:
            size = log_bytes(folder)
            if size > _CLEAN_BYTES:
                table = self._table(target.partition.partition)
                if table is not None and 2 * table.live_bytes() < size:
                    settings = read_log_settings(target.root, [target.partition.topic])
                    self._clean(folder, table, settings[target.partition.topic].index_interval_bytes)
        except (KafkaLogError, OSError) as e:
            _log.warning("Could not compact %s: %s", folder, e)

    def _clean(self, folder: str, table: OffsetsTable, index_interval_bytes: int) -> None:
        """Compact a partition; expired offsets go, and so do tombstones that all readers have seen."""
        now_ms = _now_ms()
        keep, removed = list(table.unreadable), []
        for raw, entries in table.groups.items():
            expired = self._state_of(table, raw).expired
            for key, entry in entries.items():
                is_old = entry.value is None and now_ms - entry.timestamp > _TOMBSTONE_MS
                if (is_old or key in expired) and key not in table.in_transactions:
                    removed.append((entries, key))
                else:
                    keep.append(entry.offset)
        clean(folder, table.partition, np.array(sorted(keep), np.int64), index_interval_bytes)
        for entries, key in removed:
            del entries[key]

    def _leader_epoch(self, partition: TopicPartition, offset: int) -> int:
        """The leader epoch of the record before ``offset``, -1 if the partition has none."""
        if parse_partition_folder(str(partition)) != partition:
            return -1
        for root in self._roots:
            with suppress(LogDirectoryError):
                folder = root.folder.child(str(partition))
                data = folder.read(LEADER_EPOCH_CHECKPOINT)
                if data is None:
                    continue
                epochs = parse_leader_epoch_checkpoint(data, folder.label(LEADER_EPOCH_CHECKPOINT))
                return max((epoch for epoch, start in epochs if start < max(offset, 1)), default=-1)
        return -1

    def _refuse_members(self, target: GroupPartition, partition: TopicPartition | None = None) -> None:
        members = () if target.state is None else target.state.group.members
        if target.state is not None and members:
            raise GroupError(
                f"The group {target.state.group.group!r} has {len(members)} live members",
                topic_partition=partition,
                file=target.root,
                hint="Stop its consumers, or use another group. Members that a dead broker left behind "
                "go when a broker loads the directory and does not hear from them.",
            )

    def _label(self) -> str:
        return ", ".join(root.folder.label() for root in self._roots)


def _holds(target: GroupPartition, group: str, partition: TopicPartition) -> bool:
    """Whether the group has an offset of a partition, or a transaction that may give it one."""
    if target.state is None or target.table is None:
        return False
    is_pending = encode_offset_key(group, partition) in target.table.pending(group.encode())
    return is_pending or partition in target.state.offsets


def _check(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
    """:raises GroupError: if a broker would refuse the commit."""
    if not group or any("\ud800" <= character <= "\udfff" for character in group):
        raise GroupError(
            "Expected a group id of valid Unicode that is not empty", hint="Name the group, such as 'etl'."
        )
    for partition, committed in offsets.items():
        if committed.offset < 0:
            raise GroupError(
                f"The group {group!r} cannot commit offset {committed.offset}", topic_partition=partition
            )
        if len(committed.metadata.encode("utf-16-le", "surrogatepass")) > 2 * _MAX_METADATA:
            raise GroupError(
                f"The group {group!r} cannot commit metadata of more than {_MAX_METADATA} characters",
                topic_partition=partition,
            )


def _batch(root: str, partition: TopicPartition, records: Sequence[_Record]) -> np.ndarray:
    """The records as one record batch for a partition of ``__consumer_offsets``, as its topic is configured.

    :raises RecordTooLargeError: if the topic takes no batch of this size.
    """
    own = read_topic_configs(open_folder(root)).get(partition.topic, {})
    one_batch = encode_settings(partition.topic, ONE_BATCH, own, {})
    settings = replace(one_batch, batch_size=ONE_BATCH.batch_size)
    keys, values = zip(*records, strict=True)
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(np.full(len(records), _now_ms())),
    }
    return encode(pa.RecordBatch.from_pydict(columns), None, settings, topic_partition=partition).data


def _are_all(numbers: Sequence[int]) -> bool:
    """Whether no partition is missing between these; the last ones may be."""
    return tuple(numbers) == tuple(range(len(numbers)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
