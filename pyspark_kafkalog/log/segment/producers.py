"""The state of a partition's producers, as its record batches change it.

A broker needs it to recognize repeated and missing batches of idempotent producers, and to know which
transactions are open. Sources: Kafka's ``ProducerStateManager``, ``ProducerAppendInfo``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from pyspark_kafkalog.codec.abort_marker import abort_marker
from pyspark_kafkalog.codec.isolation import EndMarker, end_markers
from pyspark_kafkalog.codec.walk import Batches
from pyspark_kafkalog.log.segment.index import TXN_ENTRY
from pyspark_kafkalog.log.snapshot import ProducerEntry, format_snapshot

_SEQUENCES = 1 << 31


class ProducerState:
    """A broker's producer state: a snapshot's ``entries``, and the batches that were added."""

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}

    @property
    def entries(self) -> Collection[ProducerEntry]:
        """The producers."""
        return self._entries.values()

    @property
    def open(self) -> list[ProducerEntry]:
        """The producers whose transactions are open, by where these began."""
        entries = [entry for entry in self.entries if entry.first_offset >= 0]
        return sorted(entries, key=lambda entry: entry.first_offset)

    def abort_markers(self, offset: int, leader_epoch: int) -> np.ndarray:
        """Markers, from ``offset`` on, that abort what is open; append and :meth:`add` them like batches."""
        markers = [
            abort_marker(
                entry.producer_id,
                entry.epoch,
                max(entry.coordinator_epoch, 0),
                offset=at,
                leader_epoch=leader_epoch,
                timestamp=entry.timestamp,
            )
            for at, entry in enumerate(self.open, offset)
        ]
        return np.frombuffer(b"".join(markers), np.uint8)

    def snapshot(self) -> bytes:
        """The content of a ``.snapshot`` file for the offset after the last batch."""
        return format_snapshot(self.entries)

    def add(self, data: np.ndarray, batches: Batches) -> np.ndarray:
        """Take in ``batches`` of ``data``, whose checksums are right, in the order of offsets.

        :return: entries for ``.txnindex``, of :data:`.index.TXN_ENTRY`: the transactions that abort here.
        :raises CorruptRecordError: at an invalid marker, with its position in ``data``.
        """
        rows = np.flatnonzero((batches.magic == 2) & (batches.producer_id >= 0))
        is_marker = batches.is_control[rows]
        markers = end_markers(data, batches, rows[is_marker & batches.is_transactional[rows]])
        columns = (
            batches.producer_id,
            batches.producer_epoch,
            batches.base_sequence,
            batches.base_offset,
            batches.last_offset,
            batches.max_timestamp,
        )
        fields = zip(*(column[rows].tolist() for column in columns), strict=True)
        kinds = zip(is_marker.tolist(), batches.is_transactional[rows].tolist(), strict=True)
        aborted = []
        for (producer_id, epoch, sequence, first, last, timestamp), (is_control, transactional) in zip(
            fields, kinds, strict=True
        ):
            if is_control:
                if first in markers:
                    aborted += self._end(producer_id, epoch, first, timestamp, markers[first])
                continue
            known = self._entries.get(producer_id)
            coordinator_epoch, first_offset = (
                (-1, -1) if known is None else (known.coordinator_epoch, known.first_offset)
            )
            self._entries[producer_id] = ProducerEntry(
                producer_id,
                epoch,
                (sequence + last - first) % _SEQUENCES if sequence >= 0 else -1,
                last,
                last - first,
                timestamp,
                coordinator_epoch,
                first if transactional and first_offset < 0 else first_offset,
            )
        return np.array(aborted, TXN_ENTRY)

    def _end(
        self, producer_id: int, epoch: int, offset: int, timestamp: int, marker: EndMarker
    ) -> list[tuple[int, int, int, int, int]]:
        """End the producer's transaction by the marker at ``offset``."""
        known = self._entries.get(producer_id, ProducerEntry(producer_id, epoch))
        if epoch != known.epoch:  # a new epoch begins with sequence 0
            known = ProducerEntry(producer_id, epoch, first_offset=known.first_offset)
        first_offset = known.first_offset
        self._entries[producer_id] = known._replace(
            timestamp=timestamp, coordinator_epoch=marker.coordinator_epoch, first_offset=-1
        )
        if first_offset < 0 or not marker.is_abort:
            return []
        still_open = [entry.first_offset for entry in self._entries.values() if entry.first_offset >= 0]
        return [(0, producer_id, first_offset, offset, min(still_open, default=offset + 1))]
