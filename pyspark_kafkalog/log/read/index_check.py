"""Checks the indexes of a segment against its record batches (Kafka's DumpLogSegments, sanityCheck).

Readers don't need this, as they verify each hint that they follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.filesystem.folder import InputFile
from pyspark_kafkalog.log.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    aborted_transactions,
    floor_position,
    floor_timestamp,
)
from pyspark_kafkalog.log.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from pyspark_kafkalog.log.read.segment import MAX_OFFSET, Segment
from pyspark_kafkalog.model import TopicPartition

_RETRIES = 5
_HINT = "Delete it while the directory is not in use; a broker rebuilds it."


class _Headers(NamedTuple):
    """Header fields of all batches of a segment."""

    position: np.ndarray
    base_offset: np.ndarray
    last_offset: np.ndarray
    max_timestamp: np.ndarray


class _Index(NamedTuple):
    """One index as it was at some time."""

    file: str
    data: pa.Buffer
    aborted: int
    """Number of entries of a transaction index; 0 if it is invalid."""


def index_faults(segment: Segment, partition: TopicPartition) -> Iterator[CorruptRecordError]:
    """The first fault of each index of a segment. A missing index is not a fault."""
    # Read before the batches: if the log grows meanwhile, the indexes know no more than the batches.
    found = [(_read(segment, suffix), find) for suffix, find in _FINDERS.items()]
    headers = _headers(segment)
    for index, find in found:
        fault = find(index, segment.base_offset, headers) if index is not None and index.data.size else None
        if index is not None and fault is not None:
            position, message = fault
            yield CorruptRecordError(
                message, topic_partition=partition, file=index.file, position=position, hint=_HINT
            )


def index_state(segment: Segment) -> Literal["ok", "missing", "damaged"]:
    """The state of ``.index`` and ``.timeindex``, the worse of both, by their sizes and last entries only.

    A broker looks at no more when it loads a segment (OffsetIndex.sanityCheck, TimeIndex.sanityCheck), but
    for the batch that the last entry points to.
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
            aborted = len(aborted_transactions(file)) if suffix == TXN_INDEX_SUFFIX else 0
            index = _Index(file.name, file.read(0, file.size), aborted)
            if index.data.size == file.size:  # else a broker has just rolled the segment and cut it
                break
    return index


def _headers(segment: Segment) -> _Headers:
    columns: list[list[np.ndarray]] = [[np.empty(0, np.int64)] for _ in _Headers._fields]
    with segment.open() as opened:
        for window in opened.sound_windows(0):
            batches = window.batches
            parts = (
                window.position + batches.position,
                batches.base_offset,
                batches.last_offset,
                batches.max_timestamp,
            )
            for column, part in zip(columns, parts, strict=True):
                column.append(part)
    return _Headers(*map(np.concatenate, columns))


def _entries(data: pa.Buffer, entry: np.dtype) -> np.ndarray:
    """The entries in use: a preallocated index ends in zeros."""
    entries = np.frombuffer(data, entry)
    used = np.flatnonzero(entries != np.zeros((), entry))
    return entries[: int(used[-1]) + 1 if used.size else 0]


def _offset_fault(index: _Index, base_offset: int, headers: _Headers) -> tuple[int, str] | None:
    size = index.data.size
    if size % OFFSET_ENTRY.itemsize:
        return size, f"Expected an index size that is a multiple of {OFFSET_ENTRY.itemsize}, got {size}"
    entries = _entries(index.data, OFFSET_ENTRY)
    offsets, positions = (
        base_offset + entries["offset"].astype(np.int64),
        entries["position"].astype(np.int64),
    )
    last = headers.last_offset[-1] if headers.last_offset.size else -1
    at = np.searchsorted(headers.position, positions)
    within = np.minimum(at, headers.position.size - 1)
    if not headers.position.size:
        wrong = np.ones(entries.size, bool)
    else:
        wrong = (headers.position[within] != positions) | (headers.base_offset[within] > offsets)
    falling = np.append(False, (np.diff(offsets) <= 0) | (np.diff(positions) <= 0))
    return _first(
        wrong | falling | (offsets > last),
        OFFSET_ENTRY,
        "does not point to such a batch, or points backwards",
    )


def _time_fault(index: _Index, base_offset: int, headers: _Headers) -> tuple[int, str] | None:
    size = index.data.size
    if size % TIME_ENTRY.itemsize:
        return size, f"Expected a time index size that is a multiple of {TIME_ENTRY.itemsize}, got {size}"
    entries = _entries(index.data, TIME_ENTRY)
    times, offsets = entries["timestamp"].astype(np.int64), base_offset + entries["offset"].astype(np.int64)
    newest = np.append(-1, np.maximum.accumulate(headers.max_timestamp))
    up_to = np.minimum(np.searchsorted(headers.last_offset, offsets) + 1, newest.size - 1)
    last = headers.last_offset[-1] if headers.last_offset.size else -1
    falling = np.append(False, (np.diff(times) <= 0) | (np.diff(offsets) < 0))
    wrong = (newest[up_to] > times) | (offsets > last) | falling
    return _first(wrong, TIME_ENTRY, "is older than records before it, or goes back")


def _transaction_fault(index: _Index, base_offset: int, headers: _Headers) -> tuple[int, str] | None:
    return None if index.aborted else (0, "The transaction index is not one that Kafka writes")


_FINDERS = {
    INDEX_SUFFIX: _offset_fault,
    TIME_INDEX_SUFFIX: _time_fault,
    TXN_INDEX_SUFFIX: _transaction_fault,
}


def _first(wrong: np.ndarray, entry: np.dtype, fault: str) -> tuple[int, str] | None:
    if not wrong.any():
        return None
    row = int(wrong.argmax())
    return row * entry.itemsize, f"Entry {row} of {wrong.size} in the index {fault}"
