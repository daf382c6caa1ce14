"""What one partition of ``__consumer_offsets`` says: the last record of each key.

Records of a transaction are pending until its marker. Then the record with the highest offset wins,
wherever the marker is. A tombstone in a transaction takes back only what is pending. A record outside
of transactions counts at once, even above the last stable offset.

Sources: Kafka's ``OffsetMetadataManager.replay``, ``replayEndTransactionMarker``, and before 4.0
``GroupMetadataManager.doLoadGroupsAndOffsets``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.decode import decode_slice
from pyspark_kafkalog.codec.format import NO_PRODUCER_ID
from pyspark_kafkalog.codec.isolation import TransactionScan
from pyspark_kafkalog.codec.offsets_topic import GROUP_METADATA, raw_group
from pyspark_kafkalog.codec.walk import Batches
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import OffsetRange, Slice, TopicPartition

_RECORD = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
_RECORD_BYTES = 80
"""About the bytes of a record besides its key and value, in a batch of its own."""
UNREADABLE = -1
"""Stands for the type of a key without a type or a group."""

_log = logging.getLogger("pyspark_kafkalog")


class Entry(NamedTuple):
    """The last record of a key; its value is None if it is a tombstone."""

    offset: int
    timestamp: int
    """The greatest of its batch, in ms."""
    value: bytes | None


class OffsetsTable:
    """Takes in a partition's record batches in order.

    :param start: the first offset to take in.
    :param topic_id: the id of the topic.
    """

    def __init__(self, partition: TopicPartition, start: int, topic_id: str) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.next_offset = start
        self.groups: dict[bytes, dict[bytes, Entry]] = {}
        """By group id and key, both as stored; includes tombstones."""
        self.skipped: Counter[int] = Counter()
        """How many records had a key of each type that is not about classic groups or offsets."""
        self.in_transactions: set[bytes] = set()
        """Keys that a transaction has touched: its batches stay in the log whatever follows."""
        self.unreadable: list[int] = []
        """Offsets of records whose key cannot be read, and which must not be removed."""
        self._pending: dict[int, dict[bytes, Entry]] = {}
        self._scan = TransactionScan()
        self._transactional_bytes = 0

    def add(self, piece: Slice, end: int) -> None:
        """Take in the batches of a slice from ``next_offset`` on.

        :param end: no record has this offset or a higher one.
        :raises CorruptRecordError: at an invalid batch. The table is useless then.
        """
        try:
            batches = self._scan.add(piece.buffer)
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
                self._put(key, Entry(offset, timestamp, value), producer_id)
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

    def _put(self, key: bytes | None, entry: Entry, producer_id: int) -> None:
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
