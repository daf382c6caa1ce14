"""The identity of a record batch: how to tell it from another at its offsets, also after a cleaner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafkalog.codec.format import COMPRESSION_MASK, DELETE_HORIZON_BIT
from pyspark_kafkalog.model import BatchHeader

if TYPE_CHECKING:
    from pyspark_kafkalog.codec.walk import Batches

_COLUMNS = (*BatchHeader._fields[:-1], "count")
_UNCLEANED = (
    "magic",
    "base_offset",
    "last_offset",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "leader_epoch",
)
"""The header fields that no cleaner changes."""


def header_of(batches: Batches) -> BatchHeader:
    """The header of the first of the batches."""
    header = BatchHeader(*(int(getattr(batches, name)[0]) for name in _COLUMNS))
    return header if header.magic == 2 else header._replace(base_offset=-1)  # else it is only a bound


def _uncleaned(header: BatchHeader) -> list[int]:
    """The fields that no cleaner changes: it rewrites message sets, and stores empty batches uncompressed."""
    if header.magic != 2:
        return [header.magic]
    values = [getattr(header, name) for name in _UNCLEANED]
    return [*values, header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)]


def is_same(stored: BatchHeader, found: BatchHeader) -> bool | None:
    """Whether two batch headers are of the same batch; None if a cleaner may have made the difference.

    A batch that a cleaner rewrites lacks records or has a delete horizon (``MemoryRecords.filterTo``); a
    message set may get another header altogether.
    """
    if found == stored:
        return True
    if stored.magic != 2 or found.magic != 2:
        return None
    if _uncleaned(found) != _uncleaned(stored) or not (_is_cleaned(stored) or _is_cleaned(found)):
        return False
    return None


def _is_cleaned(header: BatchHeader) -> bool:
    is_whole = header.records == header.last_offset - header.base_offset + 1
    return not is_whole or header.attributes & DELETE_HORIZON_BIT != 0
