"""The last stable offset and the aborted transactions of a partition, for read_committed.

Both follow from the record batches and the markers, which are the truth. Files of a
broker save work: the newest valid producer snapshot has the transactions that were
open there, ``.txnindex`` those that were aborted.

Sources: Kafka's ``ProducerStateManager``, ``TransactionIndex``, ``UnifiedLog``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pyspark_kafkalog.codec.batch_identity import header_of
from pyspark_kafkalog.codec.isolation import TransactionScan
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError
from pyspark_kafkalog.log.layout import SNAPSHOT_SUFFIX, TXN_INDEX_SUFFIX, parse_segment_file, segment_file
from pyspark_kafkalog.log.read.partition import Partition, segments_from
from pyspark_kafkalog.log.segment import index
from pyspark_kafkalog.log.segment.segment import OpenSegment, Segment
from pyspark_kafkalog.log.snapshot import ProducerEntry, parse_snapshot
from pyspark_kafkalog.model import AbortedTransaction, Decided, Fetch, OffsetRange, Slice, StoredBatch

Ask = Callable[[Callable[[Partition], Any]], Any]
"""Asks a partition, and asks again if it has moved to another log root meanwhile."""

_MOST_KEPT = 10_000
"""Aborted transactions of a partition that are kept for later plans."""
_MOST_SENT = 1_000
"""Aborted transactions that are sent with a split, in about 20 kB."""
_SMALL = 10_000
"""Offsets whose headers are read for the next plan, whether their transactions are long or not."""
_NEARBY = 64
"""The last part of a split shows which transactions are open at its end: one in so many of its offsets."""


class _Scan(TransactionScan):
    """The transactions of the batches from the offset ``start`` on to before ``seen``."""

    def __init__(self, start: int = 0) -> None:
        super().__init__()
        self.start = self.seen = start
        self.last: StoredBatch | None = None
        """The last batch that :meth:`scan_to` has taken in."""
        self._longest_forgotten = 0
        """Offsets from the beginning to the marker of the longest aborted transaction that is not kept."""
        self._table: np.ndarray | None = None
        """Producer, first offset and marker of those that are kept, in this order; made when it is needed."""

    def take(self, piece: Slice) -> None:
        """Take in the batches of a slice that are not below ``seen``."""
        self._table = None
        batches = batches_of(piece)
        new = int(np.searchsorted(batches.last_offset, self.seen))
        while new < len(batches):
            try:
                self.add(piece.buffer, batches.between(new, len(batches)))
                break
            except CorruptRecordError as e:
                # A broken marker may say anything: the data is hidden, and the reader of the records tells.
                broken = int(np.searchsorted(batches.position, e.position or 0, side="right")) - 1
                self.add(piece.buffer, batches.between(new, broken))
                self.abort(int(batches.producer_id[broken]), int(batches.last_offset[broken]))
                new = broken + 1
        self.seen = max(self.seen, int(batches.last_offset[-1]) + 1)

    def abort(self, producer_id: int, offset: int) -> None:
        """End the open transaction of the producer, if it has one, as if ``offset`` were its abort marker."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is not None:
            self.aborted.append(AbortedTransaction(producer_id, first_offset, offset))

    def end_by(self, decided: Decided, end: int) -> None:
        """End the open transactions with data below ``end``, whose markers are known."""
        for producer_id, first_offset in [*self.open.items()]:
            if first_offset < end:
                markers = [_marker_offset(t) for t in decided.aborted if t.producer_id == producer_id]
                marker = next((offset for offset in markers if offset >= self.seen), None)
                if marker is not None:
                    self.abort(producer_id, marker)
                else:
                    del self.open[producer_id]

    def is_undecided(self, end: int) -> bool:
        """Whether a transaction with data below ``end`` has no marker yet."""
        return self.first_open_offset is not None and self.first_open_offset < end

    @property
    def stable_end(self) -> int:
        """The end of the offsets whose transactions are all decided."""
        first_open_offset = self.first_open_offset
        return self.seen if first_open_offset is None else min(self.seen, first_open_offset)

    def decided(self, offsets: OffsetRange) -> Decided | None:
        """The ends of transactions with data in ``offsets``, if known: of all that can be sent."""
        if self.last is None or offsets.start < self.start or self.stable_end < offsets.end:
            return None
        if self._table is None:
            rows = [(t.producer_id, t.first_offset, _marker_offset(t)) for t in self.aborted]
            self._table = np.array(rows, np.int64).reshape(-1, 3)
        found = self._table[self._table[:, 1] < offsets.end]
        since = offsets.end + self._longest_forgotten if self._longest_forgotten else offsets.start
        found = found[found[:, 2] >= since]
        if len(found) > _MOST_SENT:
            since = max(since, offsets.end)
            found = found[found[:, 2] >= since]
        if len(found) > _MOST_SENT:
            since = int(found[-_MOST_SENT - 1, 2]) + 1
            found = found[-_MOST_SENT:]
        aborted = tuple(AbortedTransaction(*row) for row in found.tolist())
        return Decided(offsets, aborted, self.last, since)

    def scan_to(self, partition: Partition, log_end: int, needed: int | None = None) -> bool:
        """Go on to the end of the log, or until all with data below ``needed`` is decided.

        :return: False if the log no longer has the last batch: what came before it may have changed, too.
        """
        last = self.last
        start = self.seen if last is None else last.header.last_offset
        for piece in _scanned(partition, OffsetRange(start, log_end), last):
            batches = batches_of(piece)
            if last is not None and header_of(batches) != last.header:
                return False
            last = None
            self.take(piece)
            self.last = _last_of(piece)
            self._forget_short()
            if needed is not None and self.seen >= needed and not self.is_undecided(needed):
                break
        return last is None

    def _forget_short(self) -> None:
        """Keep the long transactions. Those who read the records of a short one see its marker soon."""
        if len(self.aborted) <= _MOST_KEPT:
            return
        lengths = [_marker_offset(t) - t.first_offset for t in self.aborted]
        limit = sorted(lengths)[len(lengths) // 2]
        self.aborted[:] = [t for t, n in zip(self.aborted, lengths, strict=True) if n > limit]
        self._longest_forgotten = max(self._longest_forgotten, limit)

    def scan_ahead(self, partition: Partition, end: int, stop: int | None = None) -> DataLossError | None:
        """Scan on until all transactions with data below ``end`` are decided, or ``stop``, or the log ends.

        :return: why it could not, if records are gone: to look again is of no use.
        """
        log_end_offset = partition.log_end_offset(partition.segments())
        stop = max(self.seen, log_end_offset if stop is None else min(stop, log_end_offset))
        try:
            for piece in _scanned(partition, OffsetRange(self.seen, stop)):
                self.take(piece)
                if not self.is_undecided(end):
                    break
        except DataLossError as e:
            return e
        return None


class StableOffset:
    """The last stable offset of a partition, kept up to date while the log grows, and what is decided."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._scan = _Scan()
        self._ahead = _Scan()
        """Goes ahead of the splits that are planned one after the other."""
        self._active: Segment | None = None

    def last_stable_offset(self, log: OffsetRange, active: Segment | None) -> int:
        """The first offset of the oldest open transaction, or the end of ``log``, the whole log.

        :param active: the last segment. While it stays as it was, so does the log.
        """
        scan = self._scan
        if active is None or (active, scan.seen) != (self._active, log.end):
            is_known = scan.last is not None and log.start < scan.seen <= log.end
            if not is_known or not scan.scan_to(self._partition, log.end):
                scan = self._scan = _newest_snapshot(self._partition, log)
                scan.scan_to(self._partition, log.end)
            if self._ahead.last is not None and not has_batch(self._partition, self._ahead.last):
                self._ahead = _Scan()
            self._active = active
        scan.seen = log.end
        return max(log.start, scan.stable_end)

    @property
    def end(self) -> int:
        """The last stable offset, as it was last found."""
        return self._scan.stable_end

    def decided(self, offsets: OffsetRange) -> Decided | None:
        """The ends of the transactions in ``offsets``, as far as they are known without reading."""
        return self._scan.decided(offsets) or self._ahead.decided(offsets)

    def look_ahead(self, offsets: OffsetRange, log_end: int) -> Decided | None:
        """The ends of the transactions in ``offsets``, read once for all splits that will need them.

        Where none is long, and the split is not small, its task may as well look itself.
        """
        ahead, partition = self._ahead, self._partition
        goes_on = ahead.last is not None and ahead.start <= offsets.start <= ahead.seen
        if not goes_on or offsets.end - ahead.seen > _SMALL:
            size = offsets.end - offsets.start
            near_end = _Scan(offsets.end - 1 - size // _NEARBY)
            near_end.scan_to(partition, min(offsets.end + size // 2, log_end), offsets.end)
            if not near_end.is_undecided(offsets.end):
                self._ahead = near_end
                return None
        if not goes_on or not ahead.scan_to(partition, log_end, offsets.end):
            ahead = self._ahead = _Scan(offsets.start)
            ahead.scan_to(partition, log_end, offsets.end)
        return ahead.decided(offsets)


def has_batch(partition: Partition, batch: StoredBatch) -> bool:
    """Whether the log has this batch, where it was or elsewhere: then all before it is the same, too."""
    last_offset = batch.header.last_offset
    with suppress(DataLossError):
        for piece in _scanned(partition, OffsetRange(last_offset, last_offset + 1), batch):
            return header_of(batches_of(piece)) == batch.header
    return False


def with_aborted(
    slices: Iterator[Slice], offsets: OffsetRange, ask: Ask, decided: Callable[[], Decided | None]
) -> Iterator[Slice]:
    """Add to each slice the aborted transactions that overlap it, and have data in ``offsets``.

    If a transaction is open where a slice ends, how it ends may be ``decided``: that is asked once. Else
    its marker is sought in ``.txnindex``, then in the batches that follow. Everything is scanned once.
    """
    scan = _Scan()
    indexed: _IndexedAborts | None = None
    known: Decided | None = None
    is_asked = False
    for piece in slices:
        batches = batches_of(piece)
        start, end = int(batches.base_offset[0]), int(batches.last_offset[-1]) + 1
        scan.take(piece)
        if scan.is_undecided(end) and not is_asked:
            known, is_asked = decided(), True
        needed = OffsetRange(start, end).within(offsets)
        ends = known if known is not None and needed.within(known.offsets) == needed else None
        if ends is not None and ends.since <= needed.start:
            yield replace(piece, aborted=ends.aborted)
            continue
        if scan.is_undecided(end):
            indexed = ask(partial(_IndexedAborts, start=start)) if indexed is None else indexed
            for producer_id, first_offset in list(scan.open.items()):
                last_offset = indexed.marker(producer_id, first_offset, scan.seen)
                if last_offset is not None:
                    scan.abort(producer_id, last_offset)
        if scan.is_undecided(end):
            stop = None if ends is None else ends.since
            gone = ask(partial(scan.scan_ahead, end=end, stop=stop))
            if gone is not None:
                raise gone
            if ends is not None:
                scan.end_by(ends, end)
        scan.aborted[:] = [t for t in scan.aborted if t.last_offset is None or t.last_offset >= start]
        yield replace(piece, aborted=tuple(t for t in scan.aborted if t.first_offset < end))


def _marker_offset(transaction: AbortedTransaction) -> int:
    assert transaction.last_offset is not None, "the marker was seen"
    return transaction.last_offset


def _scanned(partition: Partition, offsets: OffsetRange, near: StoredBatch | None = None) -> Iterator[Slice]:
    return partition.scan(Fetch(partition.topic_partition, offsets, on_corrupt=_pass_over), near)


def _last_of(piece: Slice) -> StoredBatch:
    batches = batches_of(piece)
    last = batches.between(len(batches) - 1, len(batches))
    before = int(batches.size[:-1].sum())
    return StoredBatch(header_of(last), replace(piece.origin, position=piece.origin.position + before))


def _pass_over(error: CorruptRecordError | DataLossError) -> None:
    """The reader of the records reports the damage."""


def _newest_snapshot(partition: Partition, log: OffsetRange) -> _Scan:
    """The transactions open at the newest valid producer snapshot inside ``log``."""
    names = partition.folder.list(lambda name: name.endswith(SNAPSHOT_SUFFIX))
    offsets = [found[0] for found in map(parse_segment_file, names) if found is not None]
    for offset in sorted(offsets, reverse=True):
        if log.start <= offset <= log.end:
            data = partition.folder.read(segment_file(offset, SNAPSHOT_SUFFIX))
            entries = None if data is None else parse_snapshot(data)
            if entries is not None:
                return _open_at(entries, offset)
    return _Scan(log.start)


def _open_at(entries: list[ProducerEntry], offset: int) -> _Scan:
    """The transactions that a snapshot of that offset shows as open."""
    scan = _Scan(offset)
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
                # Where the segment has gone meanwhile, the batches decide.
                with suppress(FileNotFoundError), segment.open() as opened:
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
