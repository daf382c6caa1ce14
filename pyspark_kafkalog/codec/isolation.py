"""The records that read_committed shows, decided as in Kafka's consumer (CompletedFetch, AbortedTxn)."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.buffers import Buffer, as_array
from pyspark_kafkalog.codec.format import (
    CONTROL_ABORT,
    CONTROL_COORDINATOR_EPOCH,
    CONTROL_KEY_SIZE,
    CONTROL_TYPE,
    CONTROL_VALUE_SIZE,
    NO_PRODUCER_ID,
)
from pyspark_kafkalog.codec.indexing import DamageError, DecodeLimits, Indexer, damage_at
from pyspark_kafkalog.codec.walk import Batches
from pyspark_kafkalog.errors import CorruptRecordError, OversizedRecordError
from pyspark_kafkalog.model import AbortedTransaction, OffsetRange, TopicPartition

_MOST_BYTES = 1 << 20
"""The most bytes of a marker in a compressed batch: Kafka's have some 10."""
_MARKERS = DecodeLimits(max_rows=1000, max_bytes=_MOST_BYTES, max_record_bytes=_MOST_BYTES)


class Visibility:
    """The aborted transactions of one partition, and which record batches belong to them.

    Only the latest of a producer's transactions that began at or before a batch can hold it.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._first_offsets: dict[int, list[int]] = {}
        self._last_offsets: dict[tuple[int, int], int | None] = {}
        self.expect(aborted)

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add the aborted transactions of the next slice; some may be known already."""
        for transaction in aborted:
            key = transaction.producer_id, transaction.first_offset
            if key not in self._last_offsets:
                insort(self._first_offsets.setdefault(transaction.producer_id, []), transaction.first_offset)
                self._last_offsets[key] = transaction.last_offset

    def hidden(self, batches: Batches, first: int, stop: int) -> np.ndarray:
        """Whether each batch was aborted, as far as it is among those from ``first`` to before ``stop``."""
        hidden = np.zeros(len(batches), np.bool_)
        of_producer = batches.is_transactional & (batches.producer_id != NO_PRODUCER_ID)
        is_control = batches.is_control
        for row in (first + np.flatnonzero(of_producer[first:stop])).tolist():
            producer_id, last_offset = int(batches.producer_id[row]), int(batches.last_offset[row])
            if is_control[row]:
                self.end_transaction(producer_id, last_offset)
            else:
                hidden[row] = self.hides(producer_id, int(batches.base_offset[row]), last_offset)
        return hidden

    def hides(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Whether the transactional batch of that producer and those offsets was aborted."""
        first_offset = self._latest(producer_id, last_offset)
        if first_offset is None:
            return False
        end = self._last_offsets[producer_id, first_offset]
        return end is None or base_offset <= end

    def end_transaction(self, producer_id: int, offset: int) -> None:
        """Take in a marker of the producer: a transaction whose last offset is unknown ends there.

        The marker's type does not matter, as a producer has one transaction at a time. So an abort marker
        that compaction has emptied counts, too.
        """
        first_offset = self._latest(producer_id, offset)
        if first_offset is not None and self._last_offsets[producer_id, first_offset] is None:
            self._last_offsets[producer_id, first_offset] = offset

    def _latest(self, producer_id: int, offset: int) -> int | None:
        """First offset of the producer's latest aborted transaction that began at or before ``offset``."""
        first_offsets = self._first_offsets.get(producer_id, [])
        at = bisect_right(first_offsets, offset)
        return first_offsets[at - 1] if at else None


class AbortedRecords:
    """Counts the records of aborted transactions that a reader of read_uncommitted has been given.

    :ivar count: those whose marker has been read, too.
    """

    def __init__(self) -> None:
        self.count = 0
        self._undecided: dict[tuple[TopicPartition, int], int] = {}
        """Records by their producer, of transactions whose markers have not come yet."""
        self._ends: dict[TopicPartition, int] = {}

    def among(self, *, is_narrowed: bool) -> str:
        """A sentence about them.

        :param is_narrowed: whether rows were left out of what was read, and some of these maybe, too.
        """
        one, more = (
            "1 record of an aborted transaction is",
            f"{self.count} records of aborted transactions are",
        )
        among = "those that were looked at" if is_narrowed else "these"
        return f"{one if self.count == 1 else more} among {among}"

    def add(self, partition: TopicPartition, buffer: Buffer, batches: Batches, offsets: OffsetRange) -> None:
        """Take in the records of ``buffer`` within ``offsets``, which is where its slice begins."""
        if offsets.start < self._ends.get(partition, 0):  # read backwards, window by window
            self._undecided = {key: n for key, n in self._undecided.items() if key[0] != partition}
        wanted = batches.is_transactional & (batches.producer_id != NO_PRODUCER_ID)
        wanted &= (batches.last_offset >= offsets.start) & (batches.base_offset < offsets.end)
        rows = np.flatnonzero(wanted)
        # Whole batches come, and more of them: the next split begins at the end of this one.
        seen = min(int(batches.last_offset.max(initial=-1)) + 1, offsets.end)
        self._ends[partition] = max(offsets.start, seen)
        is_control = batches.is_control
        try:
            markers = end_markers(as_array(buffer), batches, rows[is_control[rows]])
        except CorruptRecordError:
            return  # which only hides what could be said of it
        first = np.maximum(batches.base_offset, offsets.start)
        last = np.minimum(batches.last_offset, offsets.end - 1)
        counts = np.minimum(batches.count, last - first + 1)
        for row in rows.tolist():
            key = partition, int(batches.producer_id[row])
            if not is_control[row]:
                self._undecided[key] = self._undecided.get(key, 0) + int(counts[row])
            else:
                marker, count = markers.get(int(batches.base_offset[row])), self._undecided.pop(key, 0)
                self.count += count if marker is not None and marker.is_abort else 0


class TransactionScan:
    """The transactions of one partition by its batches and markers, where no ``.txnindex`` has them."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """First offset of each open transaction by producer id; a producer snapshot may add some."""
        self.aborted: list[AbortedTransaction] = []
        """Aborted transactions, in the order of their markers."""

    @property
    def first_open_offset(self) -> int | None:
        """First offset of the oldest open transaction; None if none is open."""
        return min(self.open.values(), default=None)

    def add(self, buffer: Buffer, batches: Batches) -> None:
        """Take in batches of ``buffer``; they come in order of offsets.

        The checksums of markers are verified, those of data batches are not.

        :raises CorruptRecordError: at an invalid marker, with its position in the buffer.
        """
        rows = np.flatnonzero(batches.is_transactional & (batches.producer_id != NO_PRODUCER_ID))
        is_control = batches.is_control
        markers = end_markers(as_array(buffer), batches, rows[is_control[rows]])
        for row in rows.tolist():
            producer_id, offset = int(batches.producer_id[row]), int(batches.base_offset[row])
            if not is_control[row]:
                self.open.setdefault(producer_id, offset)
            else:
                first_offset = self.open.pop(producer_id, None)
                if first_offset is not None and offset in markers and markers[offset].is_abort:
                    self.aborted.append(AbortedTransaction(producer_id, first_offset, offset))


class EndMarker(NamedTuple):
    """A transaction's control record: commit or abort (Kafka's EndTransactionMarker)."""

    is_abort: bool
    coordinator_epoch: int
    """-1 if its value is too short to have one."""


def end_markers(data: np.ndarray, batches: Batches, rows: np.ndarray) -> dict[int, EndMarker]:
    """The markers in ``rows`` of ``batches``, by their offsets. One that compaction emptied is left out.

    A batch has one marker, at its base offset. Kafka reads no more of it either, whatever else is in there.

    :raises CorruptRecordError: at an invalid one, with its position in the buffer.
    """
    if not rows.size:
        return {}
    chosen = batches.take(rows)
    wanted = np.ones(len(chosen), np.bool_)
    offsets = OffsetRange(0, kernels.MAX_INT64)
    markers: dict[int, EndMarker] = {}
    try:
        for found in Indexer(data, chosen, _MARKERS).index(0, len(chosen), wanted, offsets):
            columns = [kernels.OFFSET, kernels.KEY_AT, kernels.KEY_SIZE, kernels.VALUE_AT, kernels.VALUE_SIZE]
            marker_offsets, key_at, key_size, value_at, value_size = found.table[columns]
            too_short = np.flatnonzero(key_size < CONTROL_KEY_SIZE)
            if too_short.size:
                row = int(np.searchsorted(chosen.last_offset, marker_offsets[too_short[0]]))
                row = min(row, len(chosen) - 1)  # a record may claim an offset after its batch
                raise DamageError(damage_at(chosen, row, "The key of a marker is too short"))
            is_first = np.isin(marker_offsets, chosen.base_offset)
            marker_offsets, key_at = marker_offsets[is_first], key_at[is_first]
            value_at, value_size = value_at[is_first], value_size[is_first]
            kinds = found.source[key_at[:, np.newaxis] + np.arange(CONTROL_TYPE, CONTROL_KEY_SIZE)]
            is_abort = kinds @ np.array([256, 1]) == CONTROL_ABORT
            epochs = np.full(key_at.size, -1)
            has_epoch = value_size >= CONTROL_VALUE_SIZE
            at = value_at[has_epoch, np.newaxis] + np.arange(CONTROL_COORDINATOR_EPOCH, CONTROL_VALUE_SIZE)
            epochs[has_epoch] = found.source[at].copy().view(">i4")[:, 0]
            rows_found = zip(marker_offsets.tolist(), is_abort.tolist(), epochs.tolist(), strict=True)
            markers.update((offset, EndMarker(abort, epoch)) for offset, abort, epoch in rows_found)
    except DamageError as e:
        raise CorruptRecordError(e.damage.message, position=e.damage.position) from None
    except OversizedRecordError as e:
        raise CorruptRecordError(f"A marker has more than {_MOST_BYTES} bytes", position=e.position) from None
    return markers
