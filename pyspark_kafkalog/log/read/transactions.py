"""What read_committed needs from a partition: its last stable offset and its aborted transactions.

Both follow from the record batches and the markers, which are the truth. Files of a
broker save work: the newest valid producer snapshot has the transactions that were
open there, ``.txnindex`` those that were aborted.

Sources: Kafka's ``ProducerStateManager``, ``TransactionIndex``, ``UnifiedLog``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from pyspark_kafkalog.codec.isolation import TransactionScan
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError
from pyspark_kafkalog.log.layout import SNAPSHOT_SUFFIX, TXN_INDEX_SUFFIX, parse_segment_file, segment_file
from pyspark_kafkalog.log.read.partition import Partition, segments_from
from pyspark_kafkalog.log.segment import index
from pyspark_kafkalog.log.segment.segment import SCAN_WINDOW, OpenSegment, Segment
from pyspark_kafkalog.log.snapshot import ProducerEntry, parse_snapshot
from pyspark_kafkalog.model import AbortedTransaction, Fetch, OffsetRange, Slice


class StableOffset:
    """The last stable offset of a partition, kept up to date while the log grows."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._scan = TransactionScan()
        self._seen = 0
        """``_scan`` knows the batches below this offset; 0 if it knows none."""

    def last_stable_offset(self, log: OffsetRange) -> int:
        """The first offset of the oldest open transaction, or the end of ``log``, the whole log."""
        if not log.start < self._seen <= log.end:
            self._scan, self._seen = _newest_snapshot(self._partition, log)
        for piece in _scanned(self._partition, OffsetRange(self._seen, log.end)):
            self._seen = _add(self._scan, piece, self._seen)
        self._seen = log.end
        self._scan.aborted.clear()
        first_open_offset = self._scan.first_open_offset
        return log.end if first_open_offset is None else max(log.start, first_open_offset)


def with_aborted(slices: Iterator[Slice], partition: Partition) -> Iterator[Slice]:
    """Add to each slice the aborted transactions that overlap it.

    If a transaction is open where a slice ends, its marker is sought in
    ``.txnindex``, then in the batches that follow. Everything is scanned once.
    """
    scan, seen = TransactionScan(), 0
    indexed: _IndexedAborts | None = None
    for piece in slices:
        batches = batches_of(piece)
        start, end = int(batches.base_offset[0]), int(batches.last_offset[-1]) + 1
        seen = _add(scan, piece, seen)
        if _is_undecided(scan, end):
            indexed = _IndexedAborts(partition, start) if indexed is None else indexed
            for producer_id, first_offset in list(scan.open.items()):
                last_offset = indexed.marker(producer_id, first_offset, seen)
                if last_offset is not None:
                    _abort(scan, producer_id, last_offset)
        if _is_undecided(scan, end):
            seen = _scan_ahead(scan, partition, seen, end)
        scan.aborted[:] = [t for t in scan.aborted if t.last_offset is None or t.last_offset >= start]
        yield replace(piece, aborted=tuple(t for t in scan.aborted if t.first_offset < end))


def _is_undecided(scan: TransactionScan, end: int) -> bool:
    """Whether a transaction with data below ``end`` has no marker yet."""
    return scan.first_open_offset is not None and scan.first_open_offset < end


def _scan_ahead(scan: TransactionScan, partition: Partition, seen: int, end: int) -> int:
    """Scan on until all transactions with data below ``end`` are decided, or the log ends."""
    log_end_offset = partition.log_end_offset(partition.segments())
    for piece in _scanned(partition, OffsetRange(seen, max(seen, log_end_offset))):
        seen = _add(scan, piece, seen)
        if not _is_undecided(scan, end):
            break
    return seen


def _scanned(partition: Partition, offsets: OffsetRange) -> Iterator[Slice]:
    wanted = Fetch(partition.topic_partition, offsets, on_corrupt=_pass_over)
    return partition.read(wanted, max_bytes=SCAN_WINDOW)


def _add(scan: TransactionScan, piece: Slice, seen: int) -> int:
    """Add the batches of a slice from the offset ``seen`` on to ``scan``; returns the offset after them."""
    batches = batches_of(piece)
    new = int(np.searchsorted(batches.last_offset, seen))
    while new < len(batches):
        try:
            scan.add(piece.buffer, batches.between(new, len(batches)))
            break
        except CorruptRecordError as e:
            # A broken marker may say anything, so the data is hidden; the reader of the records reports it.
            broken = int(np.searchsorted(batches.position, e.position or 0, side="right")) - 1
            scan.add(piece.buffer, batches.between(new, broken))
            _abort(scan, int(batches.producer_id[broken]), int(batches.last_offset[broken]))
            new = broken + 1
    return max(seen, int(batches.last_offset[-1]) + 1)


def _abort(scan: TransactionScan, producer_id: int, offset: int) -> None:
    """End the open transaction of the producer, if it has one, as if ``offset`` were its abort marker."""
    first_offset = scan.open.pop(producer_id, None)
    if first_offset is not None:
        scan.aborted.append(AbortedTransaction(producer_id, first_offset, offset))


def _pass_over(error: CorruptRecordError | DataLossError) -> None:
    """The reader of the records reports the damage."""


def _newest_snapshot(partition: Partition, log: OffsetRange) -> tuple[TransactionScan, int]:
    """The transactions open at the newest valid producer snapshot inside ``log``, and its offset."""
    names = partition.folder.list(lambda name: name.endswith(SNAPSHOT_SUFFIX))
    offsets = [found[0] for found in map(parse_segment_file, names) if found is not None]
    for offset in sorted(offsets, reverse=True):
        if log.start <= offset <= log.end:
            data = partition.folder.read(segment_file(offset, SNAPSHOT_SUFFIX))
            entries = None if data is None else parse_snapshot(data)
            if entries is not None:
                return _open_at(entries), offset
    return TransactionScan(), log.start


def _open_at(entries: list[ProducerEntry]) -> TransactionScan:
    """The transactions that a snapshot shows as open."""
    scan = TransactionScan()
    scan.open.update((entry.producer_id, entry.first_offset) for entry in entries if entry.first_offset >= 0)
    return scan


class _IndexedAborts:
    """The markers in ``.txnindex`` files from the offset ``start`` on, if the log has them."""

    def __init__(self, partition: Partition, start: int) -> None:
        self._found: list[tuple[Segment, np.ndarray]] = []
        for segment, _ in segments_from(partition.segments(), start):
            with segment.open_index(TXN_INDEX_SUFFIX) as file:
                if file is not None:
                    self._found.append((segment, index.aborted_transactions(file)))

    def marker(self, producer_id: int, first_offset: int, seen: int) -> int | None:
        """Offset, from ``seen`` on, of the marker that aborts the transaction the producer has open there.

        It began at ``first_offset``, or earlier if the scan did not see its beginning.
        """
        for segment, entries in self._found:
            is_open = (entries["first_offset"] <= first_offset) & (entries["last_offset"] >= seen)
            # Only a wrong index has more than one.
            for entry in entries[is_open & (entries["producer_id"] == producer_id)][:1].tolist():
                with segment.open() as opened:
                    if _has_marker(opened, AbortedTransaction(*entry[1:4])):
                        return int(entry[3])
        return None


def _has_marker(opened: OpenSegment, entry: AbortedTransaction) -> bool:
    """Whether the abort marker of the transaction lies where it should."""
    scan = TransactionScan()
    scan.open[entry.producer_id] = entry.first_offset
    assert entry.last_offset is not None
    for window in opened.sound_windows(opened.seek(entry.last_offset)):
        with suppress(CorruptRecordError):
            scan.add(window.buffer, window.batches.between(0, 1))
        break
    return entry in scan.aborted
