"""Segments that are missing in the middle of a log: what proves it, and what only suggests it.

A ``.log`` that a user or a check of the file system has removed leaves its indexes. Kafka renames and
removes the ``.log`` first, too, but what it has been renamed to stays until the indexes are renamed. So
a base offset with an index, and with neither a ``.log`` nor a file that comes or goes, is proof if it is
still so a moment later. Before the first segment it proves nothing, as a crash during a deletion leaves the
same: only a backup, which deletes nothing by itself, knows where its first segment begins, and how far its
last one reached when it was flushed.

Without an index, a gap of offsets between two segments is all there is. Compaction leaves gaps, too,
but also within segments, and a broker's cleaner keeps a checkpoint.

What a broker with tiered storage has moved elsewhere is not missing: its directory is sound, and begins
later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.codec.buffers import as_array
from pyspark_kafkalog.codec.walk import first_bad_checksum
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.log.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    parse_leader_epoch_checkpoint,
    parse_segment_file,
)
from pyspark_kafkalog.log.segment.segment import Segment, Window
from pyspark_kafkalog.model import OffsetRange

REPAIR = "Bring its files back, back it up again, or go on without these offsets by kafkalog repair."
"""The hint for last segments that a backup lacks."""
GIVE_UP = "Bring its files back, or give these offsets up by kafkalog delete-records."
"""The hint for a first segment that a backup lacks."""

_NEW = (CLEANED_SUFFIX, SWAP_SUFFIX)
_IN_TRANSIT = (DELETED_SUFFIX, *_NEW)


def missing_in_backup(offsets: OffsetRange) -> str:
    """The fault of a backup that begins or ended with these offsets, which no segment has."""
    return f"Offsets {offsets.start} to {offsets.end - 1} are gone: the backup lacks their segments"


def behind_gaps(gaps: Iterable[OffsetRange], offset: int) -> int:
    """The first offset, ``offset`` or later, that is in none of the ``gaps``, which are in order."""
    for gap in gaps:
        if gap.start <= offset < gap.end:
            offset = gap.end
    return offset


def elsewhere(folder: Folder, start: int, first: int) -> OffsetRange | None:
    """The offsets that a broker with tiered storage has moved out of a partition's folder; None without any.

    Then checkpoint and leader epochs begin before the first segment. Where offsets are deleted, a broker cuts
    the epochs at once, and the checkpoint up to a minute later (``UnifiedLog.maybeIncrementLogStartOffset``,
    ``LogManager.checkpointLogStartOffsets``): so that alone may be out of date.

    :param start: the log start offset in the checkpoint.
    :param first: the base offset of the first segment.
    """
    if start >= first:
        return None
    try:
        data = folder.read(LEADER_EPOCH_CHECKPOINT) or b""
        epochs = parse_leader_epoch_checkpoint(data, folder.label(LEADER_EPOCH_CHECKPOINT))
    except LogDirectoryError:
        return None
    return OffsetRange(start, first) if epochs and epochs[0][1] < first else None


def bases_without_log(names: Iterable[str]) -> set[int]:
    """The base offsets for which a folder has an index, and neither a log nor a file that comes or goes."""
    parsed = [found for found in map(parse_segment_file, names) if found is not None]
    explained = {base for base, suffix in parsed if suffix == LOG_SUFFIX or suffix.endswith(_IN_TRANSIT)}
    # What replaces several segments has the base offset of the first.
    replaced_from = min((base for base, suffix in parsed if suffix.endswith(_NEW)), default=1 << 63)
    without_log = {base for base, suffix in parsed if suffix in INDEX_SUFFIXES} - explained
    return {base for base in without_log if base < replaced_from}


class Gap(NamedTuple):
    """The offsets ``first`` to ``last``, between the batches of two neighbouring segments."""

    first: int
    last: int
    before: Segment
    after: Segment

    def holds(self, base_offsets: Iterable[int]) -> bool:
        """Whether one of the base offsets lies in it."""
        return any(self.first <= base <= self.last for base in base_offsets)


class GapSearch:
    """Finds gaps between segments, of which it is shown all batches in order.

    Nothing follows from offsets beside bytes that can't be read, or in batches with a wrong checksum.
    """

    def __init__(self) -> None:
        self.gaps: list[Gap] = []
        self.may_be_compacted = False
        """Whether there is a gap within a segment, or a format that can hide one."""
        self._before: tuple[Segment, int] | None = None
        """The last segment with batches, and the offset after them; None if it ends in damage."""
        self._window: Window | None = None
        """The last window of the present segment."""

    def add(self, segment: Segment, window: Window) -> None:
        """Take in the next batches of ``segment``."""
        batches, last = window.batches, self._window
        is_legacy = batches.magic < 2
        if (is_legacy & (batches.compression != 0)).any():
            self.may_be_compacted = True
        if self.may_be_compacted:
            return
        first = np.where(is_legacy, batches.last_offset, batches.base_offset)
        positions = window.position + batches.position
        # The first of a segment follows the segment before.
        end, next_offset = (-1, 0) if last is None else _end(last)
        is_adjacent = positions == np.append(end, positions + batches.size)[:-1]
        gap_before = is_adjacent & (first > np.append(next_offset, batches.last_offset + 1)[:-1])
        gap_within = ~is_legacy & (batches.count <= batches.last_offset - batches.base_offset)
        self.may_be_compacted = any(
            _is_sound(window, max(row - 1, 0), row)
            for row in np.flatnonzero(gap_before | gap_within).tolist()
        )
        if last is None and window.position == 0 and self._before is not None:
            before, expected = self._before
            if first[0] > expected and _is_sound(window, 0, 0):
                self.gaps.append(Gap(expected, int(first[0]) - 1, before, segment))
        self._window = window

    def end(self, segment: Segment, size: int) -> None:
        """End ``segment``, which has ``size`` bytes."""
        last, self._window = self._window, None
        if last is not None:
            end, next_offset = _end(last)
            row = len(last.batches) - 1
            self._before = (segment, next_offset) if end == size and _is_sound(last, row, row) else None
        elif size:
            self._before = None


def _end(window: Window) -> tuple[int, int]:
    """Position and offset after a window."""
    batches = window.batches
    return window.position + int(batches.position[-1] + batches.size[-1]), int(batches.last_offset[-1]) + 1


def _is_sound(window: Window, first: int, last: int) -> bool:
    """Whether the checksums of the batches ``first`` to ``last`` are right."""
    return first_bad_checksum(as_array(window.buffer), window.batches, first, last + 1) > last
