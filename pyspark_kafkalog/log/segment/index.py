"""The three indexes of a segment. They have no checksum: each is a hint that its reader must verify.

::

    .index       8 bytes an entry:  int32 offset - base offset, int32 position
                 the last offset of an append, and where in the .log it starts
    .timeindex  12 bytes an entry:  int64 timestamp, int32 offset - base offset
                 the largest timestamp so far, and the last offset of its batch
    .txnindex   34 bytes an entry:  int16 version, int64 producer id, int64 first offset,
                 int64 last offset (that of the abort marker), int64 last stable offset then

All integers are big-endian. The first two are sparse and rise strictly. While they
are in use they are preallocated, with zeros at their end.

Sources: Kafka's ``OffsetIndex``, ``TimeIndex``, ``TransactionIndex``, ``AbortedTxn``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.filesystem.folder import InputFile

_BLOCK_ENTRIES = 512
"""Entries that one read of a binary search fetches."""

OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
TXN_ENTRY = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
"""``last_offset`` is that of the abort marker."""
MAX_RELATIVE = 2**31 - 1
"""The largest position, and the largest offset above the segment's, that an entry can hold."""
_MAX_TXN_INDEX = 64 << 20


def most_bytes(log_size: int) -> int:
    """The bytes that an index has at most beside a ``.log`` of this size, if it is closed.

    An entry has less than half the bytes of the batch that it is for. One in use is preallocated, by default
    with 10 MiB.
    """
    return log_size // 2 + _MAX_TXN_INDEX


class OffsetEntry(NamedTuple):
    """An entry of ``.index``: the batches of one append start at ``position`` and end with ``offset``."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """An entry of ``.timeindex``: up to ``offset`` no record has a timestamp above ``timestamp``."""

    timestamp: int
    offset: int


def floor_offset(index: InputFile, base_offset: int, offset: int) -> OffsetEntry | None:
    """The entry with the greatest offset <= ``offset``."""
    return _offset_entry(base_offset, _around(index, OFFSET_ENTRY, "offset", offset - base_offset)[0])


def higher_offset(index: InputFile, base_offset: int, offset: int) -> OffsetEntry | None:
    """The entry with the smallest offset > ``offset``."""
    return _offset_entry(base_offset, _around(index, OFFSET_ENTRY, "offset", offset - base_offset)[1])


def floor_position(index: InputFile, base_offset: int, position: int) -> OffsetEntry | None:
    """The entry with the greatest position <= ``position``."""
    return _offset_entry(base_offset, _around(index, OFFSET_ENTRY, "position", position)[0])


def floor_timestamp(index: InputFile, base_offset: int, timestamp: int) -> TimeEntry | None:
    """The entry with the greatest timestamp <= ``timestamp``."""
    found = _around(index, TIME_ENTRY, "timestamp", timestamp)[0]
    return None if found is None else TimeEntry(int(found["timestamp"]), base_offset + int(found["offset"]))


def _offset_entry(base_offset: int, entry: np.void | None) -> OffsetEntry | None:
    return None if entry is None else OffsetEntry(base_offset + int(entry["offset"]), int(entry["position"]))


def _around(
    index: InputFile, entry: np.dtype, key: str, wanted: int
) -> tuple[np.void | None, np.void | None]:
    """The last entry with ``key`` <= ``wanted``, and the one after it.

    Reads one block of entries at each step. The zeros at the end of a preallocated file
    count as past the end. In a file of garbage this may find any entry.
    """
    low, high = 0, index.size // entry.itemsize
    floor = higher = None
    while low < high:
        start = max(low, (low + high - _BLOCK_ENTRIES) // 2)
        count = min(_BLOCK_ENTRIES, high - start)
        data = index.read(start * entry.itemsize, count * entry.itemsize)
        block = np.frombuffer(data, entry, data.size // entry.itemsize)
        used = block != np.zeros((), entry)
        below = int(np.logical_and.accumulate(used & (block[key].astype(np.int64) <= wanted)).sum())
        if below:
            floor = block[below - 1]
        if below == block.size:
            low = start + count
            continue
        higher = block[below] if used[below] else None
        if below:
            break
        high = start
    return floor, higher


def aborted_transactions(index: InputFile) -> np.ndarray:
    """Every entry of a ``.txnindex``, of :data:`TXN_ENTRY`; none if the file is invalid."""
    none = np.empty(0, TXN_ENTRY)
    if index.size % TXN_ENTRY.itemsize or index.size > _MAX_TXN_INDEX:
        return none
    data = index.read(0, index.size)
    entries = np.frombuffer(data, TXN_ENTRY, data.size // TXN_ENTRY.itemsize)
    is_valid = (
        (entries["version"] == 0)
        & (entries["producer_id"] >= 0)
        & (entries["first_offset"] >= 0)
        & (entries["first_offset"] < entries["last_offset"])
        & (entries["last_stable_offset"] >= 0)
    )
    return entries if is_valid.all() else none
