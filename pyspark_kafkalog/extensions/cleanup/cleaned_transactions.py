"""The transactional batches that compaction may remove (Kafka's ``CleanedTransactionMetadata``).

Data of aborted transactions goes at once. A marker is of no use once no batch of its transaction is left: it
goes one delete horizon after that was first seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pyspark_kafkalog.codec.isolation import end_markers
from pyspark_kafkalog.codec.walk import Batches
from pyspark_kafkalog.log.segment.index import TXN_ENTRY


def txn_entries(rows: Iterable[Sequence[int]]) -> np.ndarray:
    """Aborted transactions, of :data:`.segment.index.TXN_ENTRY`, from rows of numbers."""
    return np.array([tuple(map(int, row)) for row in rows], TXN_ENTRY)


class CleanedTransactions:
    """The transactions that are open at a place in the log, which is walked once in the order of offsets.

    :param aborted: of :data:`pyspark_kafkalog.log.segment.index.TXN_ENTRY`, all whose markers are walked.
    """

    def __init__(self, aborted: np.ndarray) -> None:
        self._expected = deque(aborted[np.argsort(aborted["first_offset"], kind="stable")])
        self._aborted: dict[int, tuple[np.void, bool]] = {}
        """The aborted transactions by producer id, and whether a batch of each was seen."""
        self._committed: set[int] = set()
        """The producers of others of which a batch was seen."""

    def state(self) -> list[Any]:
        """The transactions seen so far, for a walk from there: see :meth:`from_state`. It can be JSON."""
        return [
            [entry.tolist() for entry in self._expected],
            [[entry.tolist(), seen] for entry, seen in self._aborted.values()],
            sorted(self._committed),
        ]

    @classmethod
    def from_state(cls, state: list[Any]) -> CleanedTransactions:
        """The transactions as they were at a place in the log, by :meth:`state`.

        :raises Exception: any of :data:`.errors.UNREADABLE`, for anything else.
        """
        expected, aborted, committed = state
        found = cls(txn_entries(expected))
        for entry, (_, seen) in zip(txn_entries([entry for entry, _ in aborted]), aborted, strict=True):
            found._aborted[int(entry["producer_id"])] = entry, bool(seen)
        found._committed = {int(producer_id) for producer_id in committed}
        return found

    def add(self, data: np.ndarray, batches: Batches) -> tuple[np.ndarray, np.ndarray, list[np.void]]:
        """Take in the next batches.

        :return: for each whether it is data of an aborted transaction; for each whether it is the marker of a
            transaction of which no batch is left; and the aborted transactions of which there is one, and
            that end here.
        :raises CorruptRecordError: at an invalid marker, with its position in ``data``.
        """
        aborted, of_nothing = np.zeros(len(batches), bool), np.zeros(len(batches), bool)
        found: list[np.void] = []
        is_control, is_transactional = batches.is_control, batches.is_transactional
        rows = np.flatnonzero(is_transactional | is_control)
        markers = end_markers(data, batches, rows[is_control[rows] & is_transactional[rows]])
        columns = (rows, batches.producer_id[rows], batches.base_offset[rows], batches.last_offset[rows])
        for row, producer_id, offset, last_offset in zip(*(c.tolist() for c in columns), strict=True):
            self._begin(last_offset)
            if not is_control[row]:
                aborted[row] = self._is_aborted(producer_id)
            elif offset not in markers:
                of_nothing[row] = is_transactional[row]
            elif not markers[offset].is_abort:
                of_nothing[row] = producer_id not in self._committed
                self._committed.discard(producer_id)
            else:
                ended = self._aborted.pop(producer_id, None)
                of_nothing[row] = ended is None or not ended[1]
                found += [ended[0]] if ended is not None and ended[1] else []
        return aborted, of_nothing, found

    def _begin(self, offset: int) -> None:
        """Begin the aborted transactions up to an offset."""
        while self._expected and self._expected[0]["first_offset"] <= offset:
            entry = self._expected.popleft()
            self._aborted.setdefault(int(entry["producer_id"]), (entry, False))

    def _is_aborted(self, producer_id: int) -> bool:
        if producer_id not in self._aborted:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = self._aborted[producer_id][0], True
        return True
