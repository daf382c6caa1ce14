"""Checks the indexes of a segment against its record batches (Kafka's DumpLogSegments, sanityCheck).

Readers don't need this, as they verify each hint that they follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.walk import Batches
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.filesystem.folder import InputFile
from pyspark_kafkalog.log.layout import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from pyspark_kafkalog.log.segment.index import (
    MAX_RELATIVE,
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    aborted_transactions,
    floor_position,
    floor_timestamp,
    most_bytes,
)
from pyspark_kafkalog.log.segment.scan import MAX_OFFSET
from pyspark_kafkalog.log.segment.segment import Segment
from pyspark_kafkalog.model import TopicPartition

_RETRIES = 5
_NONE = np.empty(0, TXN_ENTRY)
_MISSING = 0, "The index is missing"
_NOT_CLOSED = 0, "The index lacks its last entry, or has room behind it, as in no closed segment"
_HINT = "Delete it while the directory is not in use; a broker rebuilds it."
_HINT_MISSING = "kafkalog repair makes it again, and so does a broker when it starts."


class _Index(NamedTuple):
    """An index as it was at some time."""

    file: str
    data: pa.Buffer
    aborted: np.ndarray
    """The entries of a transaction index; none if it is invalid."""
    size: int
    """Bytes of the file, of which no more are in ``data`` than its segment can need."""


class IndexCheck:
    """Compares the indexes of a segment with its batches, of which it is shown all in order."""

    def __init__(self, segment: Segment) -> None:
        # Read before the batches: if the log grows meanwhile, the indexes know no more than the batches.
        self._segment = segment
        self._indexes = {suffix: _read(segment, suffix) for suffix in INDEX_SUFFIXES}
        self._offsets = _OffsetCheck(self._indexes[INDEX_SUFFIX], segment.base_offset)
        self._times = _TimeCheck(self._indexes[TIME_INDEX_SUFFIX], segment.base_offset)

    def add(self, position: int, batches: Batches) -> None:
        """Take in the next batches, which begin at ``position`` of the segment."""
        self._offsets.add(position, batches)
        self._times.add(batches)

    def faults(
        self, partition: TopicPartition, aborted: np.ndarray, *, is_closed: bool, is_whole: bool
    ) -> Iterator[tuple[str, CorruptRecordError]]:
        """The suffix and the first fault of each index that has one.

        :param aborted: the entries of ``.txnindex`` that follow from the batches, of
            :data:`.index.TXN_ENTRY`. That index is read again: it is written after them.
        :param is_closed: whether nothing is missing at their ends, as in a segment that was closed. A broker
            that finds no ``.index`` makes all of them, so this need not be asked then.
        :param is_whole: whether all records are known from which the transactions have begun.
        """
        found = {INDEX_SUFFIX: self._offsets.fault(), TIME_INDEX_SUFFIX: self._times.fault()}
        if is_closed:
            for suffix, check in ((INDEX_SUFFIX, self._offsets), (TIME_INDEX_SUFFIX, self._times)):
                if found[suffix] is None and not check.is_closed():
                    found[suffix] = _MISSING if self._indexes[suffix] is None else _NOT_CLOSED
        self._indexes[TXN_INDEX_SUFFIX] = transactions = _read(self._segment, TXN_INDEX_SUFFIX)
        if transactions is not None and transactions.data.size and not transactions.aborted.size:
            found[TXN_INDEX_SUFFIX] = 0, "The transaction index is not one that Kafka writes"
        elif not has_all(self.aborted, aborted, is_whole=is_whole):
            found[TXN_INDEX_SUFFIX] = 0, "The transaction index lacks transactions that were aborted"
        for suffix, index in self._indexes.items():
            if index is not None and index.size > MAX_RELATIVE:
                found[suffix] = 0, f"Expected an index of at most {MAX_RELATIVE} bytes, got {index.size}"
        for suffix, fault in found.items():
            if fault is not None:
                position, message = fault
                file = self._segment.folder.label(
                    segment_file(self._segment.base_offset, suffix + self._segment.suffix)
                )
                error = CorruptRecordError(
                    message,
                    topic_partition=partition,
                    file=file,
                    position=position,
                    hint=_HINT_MISSING if fault is _MISSING else _HINT,
                )
                yield suffix, error

    @property
    def is_missing(self) -> bool:
        """Whether there is no ``.index``."""
        return self._indexes[INDEX_SUFFIX] is None

    @property
    def aborted(self) -> np.ndarray:
        """The entries of ``.txnindex``; none if it is missing or invalid."""
        index = self._indexes[TXN_INDEX_SUFFIX]
        return _NONE if index is None else index.aborted


class _OffsetCheck:
    """``.index``: each entry points to a batch that has its offset, and they rise."""

    def __init__(self, index: _Index | None, base_offset: int) -> None:
        self._index = index
        self._entries = _entries(index, OFFSET_ENTRY)
        offsets = base_offset + self._entries["offset"].astype(np.int64)
        positions = self._entries["position"].astype(np.int64)
        # What follows the first that falls need not be looked at: only the first fault is told.
        rising = _up_to_first((np.diff(offsets) <= 0) | (np.diff(positions) <= 0))
        self._offset, self._position = offsets[:rising], positions[:rising]
        self._right = np.zeros(self._offset.size, bool)
        self._last = -1

    def add(self, position: int, batches: Batches) -> None:
        positions = position + batches.position
        begin, end = np.searchsorted(self._position, [positions[0], positions[-1] + 1])
        at = np.searchsorted(positions, self._position[begin:end])
        offsets = self._offset[begin:end]
        self._right[begin:end] = (positions[at] == self._position[begin:end]) & (
            batches.base_offset[at] <= offsets
        )
        self._last = int(batches.last_offset[-1])

    def fault(self) -> tuple[int, str] | None:
        size = 0 if self._index is None else self._index.size
        if size % OFFSET_ENTRY.itemsize:
            return size, f"Expected an index size that is a multiple of {OFFSET_ENTRY.itemsize}, got {size}"
        return _fault(
            ~self._right | (self._offset > self._last),
            self._entries,
            "does not point to the batch of its offset, or points backwards",
        )

    def is_closed(self) -> bool:
        return self._index is not None and self._index.size == self._entries.nbytes


class _TimeCheck:
    """``.timeindex``: each entry has the largest timestamp up to its offset, and they rise."""

    def __init__(self, index: _Index | None, base_offset: int) -> None:
        self._index = index
        self._entries = _entries(index, TIME_ENTRY)
        times = self._entries["timestamp"].astype(np.int64)
        offsets = base_offset + self._entries["offset"].astype(np.int64)
        rising = _up_to_first((np.diff(times) <= 0) | (np.diff(offsets) < 0))
        self._time, self._offset = times[:rising], offsets[:rising]
        self._right = np.zeros(self._time.size, bool)
        self._checked = 0
        self._newest = -1
        self._is_exact = True

    def add(self, batches: Batches) -> None:
        newest = np.maximum.accumulate(np.append(self._newest, batches.max_timestamp))[1:]
        end = int(np.searchsorted(self._offset, batches.last_offset[-1], "right"))
        rows = slice(self._checked, max(end, self._checked))
        at = np.searchsorted(batches.last_offset, self._offset[rows])
        # Brokers before Kafka 0.11 indexed other timestamps, too.
        self._is_exact = self._is_exact and bool((batches.magic == 2).all())
        exact, time = self._is_exact, self._time[rows]
        self._right[rows] = newest[at] == time if exact else newest[at] <= time
        self._checked, self._newest = rows.stop, int(newest[-1])

    def fault(self) -> tuple[int, str] | None:
        size = 0 if self._index is None else self._index.size
        if size % TIME_ENTRY.itemsize:
            return size, f"Expected a time index size that is a multiple of {TIME_ENTRY.itemsize}, got {size}"
        return _fault(~self._right, self._entries, "has not the timestamp of records up to it, or goes back")

    def is_closed(self) -> bool:
        if self._index is None:
            return self._newest < 0  # old brokers have none if no record has a timestamp
        last = int(self._time[-1]) if self._time.size else -1
        return self._index.size == self._entries.nbytes and last >= self._newest


def has_all(known: np.ndarray, wanted: np.ndarray, *, is_whole: bool) -> bool:
    """Whether an index of transactions has what follows from the batches, so that no reader is misled.

    A reader drops a producer's records from an entry's first offset on, and looks for no more entries behind
    one whose last stable offset is behind what it reads. Where records are gone, both may be lower.
    """
    by_marker = {(entry["producer_id"], entry["last_offset"]): entry for entry in known}
    for entry in wanted:
        found = by_marker.get((entry["producer_id"], entry["last_offset"]))
        if found is None or found["last_stable_offset"] > entry["last_stable_offset"]:
            return False
        if found["first_offset"] > entry["first_offset"]:
            return False
        if is_whole and found["first_offset"] < entry["first_offset"]:
            return False
    return True


def index_state(segment: Segment) -> Literal["ok", "missing", "damaged"]:
    """The state of ``.index`` and ``.timeindex``, the worse of both, by their sizes and last entries only.

    A broker looks at no more when it loads a segment (OffsetIndex.sanityCheck, TimeIndex.sanityCheck), except
    the batch that the last entry points to.
    """
    worst: Literal["ok", "missing", "damaged"] = "ok"
    for suffix, entry in ((INDEX_SUFFIX, OFFSET_ENTRY), (TIME_INDEX_SUFFIX, TIME_ENTRY)):
        with segment.open_index(suffix) as file:
            if file is None:
                worst = "missing" if worst == "ok" else worst
            elif file.size % entry.itemsize or not _ends_well(segment, file, suffix):
                worst = "damaged"
    return worst


def _ends_well(segment: Segment, file: InputFile, suffix: str) -> bool:
    """Whether the last entry of an index points to a batch, or belongs to the segment; also without one."""
    if suffix == TIME_INDEX_SUFFIX:
        last = floor_timestamp(file, segment.base_offset, MAX_OFFSET)
        return last is None or last.offset >= segment.base_offset
    entry = floor_position(file, segment.base_offset, MAX_OFFSET)
    if entry is None:
        return True
    with segment.open() as opened:
        window = opened.window_at(entry.position) if 0 <= entry.position < opened.size else None
    return window is not None and window.batches.base_offset[0] <= entry.offset


def _read(segment: Segment, suffix: str) -> _Index | None:
    index = None
    for _ in range(_RETRIES):
        with segment.open_index(suffix) as file:
            if file is None:
                return None
            aborted = aborted_transactions(file) if suffix == TXN_INDEX_SUFFIX else _NONE
            # What is behind that is told by its size, or it is of zeros that a broker has preallocated.
            most = min(file.size, most_bytes(segment.size))
            index = _Index(file.name, file.read(0, most), aborted, file.size)
            if index.data.size == most:  # else a broker has just rolled the segment and cut it
                break
    return index


def _entries(index: _Index | None, entry: np.dtype) -> np.ndarray:
    """The entries in use: a preallocated index ends in zeros."""
    if index is None:
        return np.empty(0, entry)
    entries = np.frombuffer(index.data, entry, index.data.size // entry.itemsize)
    used = np.flatnonzero(entries != np.zeros((), entry))
    return entries[: int(used[-1]) + 1 if used.size else 0]


def _up_to_first(falls: np.ndarray) -> int:
    """The number of entries before the first that falls; ``falls`` says so for each but entry 0."""
    return int(falls.argmax()) + 1 if falls.any() else falls.size + 1


def _fault(wrong: np.ndarray, entries: np.ndarray, message: str) -> tuple[int, str] | None:
    """Position and text of the first fault; ``wrong`` ends before the first entry that falls."""
    row = int(wrong.argmax()) if wrong.any() else wrong.size
    if row >= entries.size:
        return None
    return row * entries.itemsize, f"Entry {row} of {entries.size} in the index {message}"
