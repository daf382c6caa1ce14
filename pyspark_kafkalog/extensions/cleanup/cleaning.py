"""A pass of a compaction: writes segments again without what is outdated (Kafka's ``Cleaner``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from pyspark_kafkalog.codec.filtering import BatchRules, Filtered, Keep, filter_batches
from pyspark_kafkalog.codec.format import DELETE_HORIZON_BIT
from pyspark_kafkalog.codec.indexing import Indexed
from pyspark_kafkalog.codec.key_kernels import BEYOND, LAST
from pyspark_kafkalog.codec.offset_map import OffsetMap
from pyspark_kafkalog.codec.read_kernels import VALUE_SIZE
from pyspark_kafkalog.codec.walk import Batches
from pyspark_kafkalog.extensions.cleanup.cleaned_transactions import CleanedTransactions
from pyspark_kafkalog.extensions.cleanup.history import StoredBatches, naming, read
from pyspark_kafkalog.extensions.cleanup.replacing import CleanedSegment, replace
from pyspark_kafkalog.log.segment.scan import Stretch
from pyspark_kafkalog.log.snapshot import ProducerEntry
from pyspark_kafkalog.model import TopicPartition

PRODUCER_EXPIRATION_MS = 24 * 3600 * 1000
"""Kafka's default of producer.id.expiration.ms."""


@dataclass(slots=True)
class Totals:
    """Records and bytes that were read, and that are retained."""

    records: int = 0
    retained_records: int = 0
    stored_bytes: int = 0
    retained_bytes: int = 0


class Pass:
    """A pass over the segments of a log.

    :param transactions: those that are open where the first group begins.
    :param producers: the state of the producers at the end of the log.
    :param offset_map: the last offsets of keys; what it does not know stays.
    :param compacted_ms: when the last segment was changed that was compacted before; None without one.
    :param end: what may be compacted ends here; a last batch that ends here stays, if only as a header.
    """

    def __init__(
        self,
        folder: str,
        partition: TopicPartition,
        transactions: CleanedTransactions,
        producers: Sequence[ProducerEntry],
        offset_map: OffsetMap,
        *,
        compacted_ms: int | None,
        end: int,
        delete_retention_ms: int,
        index_interval_bytes: int,
        max_record_bytes: int,
        now_ms: int,
        progress: Callable[[int], object],
    ) -> None:
        self._folder = folder
        self._partition = partition
        self._map = offset_map
        self._end = end
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._index_interval_bytes = index_interval_bytes
        self._max_record_bytes = max_record_bytes
        self._progress = progress
        self._transactions = transactions
        self._producers = _Producers(producers, now_ms)
        self._legacy_horizon_ms = 0 if compacted_ms is None else compacted_ms - delete_retention_ms
        """Tombstones of v0 and v1 go from segments that were last modified by then."""
        self.totals = Totals()

    def clean(self, group: Sequence[StoredBatches], *, execute: bool) -> None:
        """Replace neighbouring segments by one. Without ``execute`` only count what would be left."""
        changed = len(group) > 1
        with ExitStack() as stack:
            new = None
            if execute:
                new = CleanedSegment(self._folder, group[0].base_offset, self._index_interval_bytes)
                stack.enter_context(new)
            for segment in group:
                for piece in read(self._partition, segment, self._progress):
                    with naming(self._partition, segment, piece):
                        filtered, aborted = self._filter(segment, piece)
                    changed = changed or filtered.changed
                    if new is not None:
                        new.append(filtered.data, aborted)
            if new is not None and changed:
                new.finish(group[-1].mtime_ns)
            elif new is not None:
                new.discard()
        if execute and changed:
            replace(self._folder, [segment.base_offset for segment in group])

    def _filter(self, segment: StoredBatches, piece: Stretch) -> tuple[Filtered, list[np.void]]:
        """The rest of some batches, and the aborted transactions that end here and have data left."""
        batches = piece.batches
        hidden, of_nothing, aborted = self._transactions.add(piece.data, batches)
        is_control = batches.is_control
        has_horizon = (batches.magic == 2) & (batches.attributes & DELETE_HORIZON_BIT != 0)
        is_past = has_horizon & (batches.base_timestamp <= self._now_ms)
        rules = BatchRules(
            whole=is_control & ~(of_nothing & (is_past | ~has_horizon)),
            discarded=hidden | (is_control & of_nothing & is_past),
            stays_empty=self._producers.last_batches(batches) | (batches.last_offset + 1 == self._end),
            starts_horizon=is_control & of_nothing,
            horizon=self._now_ms + self._delete_retention_ms,
        )
        keeps_tombstones = np.where(
            batches.magic == 2, ~is_past, segment.modified_ms > self._legacy_horizon_ms
        )
        filtered = filter_batches(
            piece.data,
            batches,
            rules,
            _last_of_their_keys(self._map, is_control, keeps_tombstones),
            max_record_bytes=self._max_record_bytes,
        )
        totals = self.totals
        totals.records += filtered.records
        totals.retained_records += filtered.retained
        totals.stored_bytes += batches.end
        totals.retained_bytes += filtered.data.size
        return filtered, aborted


def _last_of_their_keys(offset_map: OffsetMap, is_control: np.ndarray, keeps_tombstones: np.ndarray) -> Keep:
    """Kafka's ``Cleaner.shouldRetainRecord``; the arrays say of each batch what holds for its records."""

    def keep(indexed: Indexed, owners: np.ndarray) -> np.ndarray:
        found = offset_map.find(indexed)
        stays: np.ndarray = found == BEYOND
        stays |= is_control[owners]
        has_value = indexed.table[VALUE_SIZE] >= 0
        stays |= (found == LAST) & (has_value | keeps_tombstones[owners])
        return stays

    return keep


class _Producers:
    """The producers that a broker remembers at the end of a log.

    The batch with the last sequence number of one stays, if only as a header; of a producer of which only a
    marker is known, the markers with its epoch do.
    """

    def __init__(self, entries: Sequence[ProducerEntry], now_ms: int) -> None:
        active = [
            entry
            for entry in entries
            if entry.first_offset >= 0 or now_ms - entry.timestamp < PRODUCER_EXPIRATION_MS
        ]
        self._last_offsets = np.array(
            [entry.last_offset for entry in active if entry.last_offset >= 0], np.int64
        )
        self._epochs = {entry.producer_id: entry.epoch for entry in active if entry.last_offset < 0}

    def last_batches(self, batches: Batches) -> np.ndarray:
        """Whether each of the batches stays."""
        stays = (batches.producer_id >= 0) & np.isin(batches.last_offset, self._last_offsets)
        for row in np.flatnonzero(batches.is_control).tolist() if self._epochs else ():
            stays[row] |= self._epochs.get(int(batches.producer_id[row])) == batches.producer_epoch[row]
        return stays
