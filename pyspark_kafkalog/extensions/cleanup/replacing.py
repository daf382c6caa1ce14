"""Put a new segment of a partition in the place of old ones, so that a crash leaves the one or the other.

The steps are Kafka's (``LocalLog.replaceSegments``), and so a broker that loads the folder finishes or undoes
them (``LogLoader``), and so does :func:`.leftovers.clear_leftovers`:

1. The files of the new segment are written under names that end in ``.cleaned``, and flushed.
2. They are renamed to end in ``.swap``. Until all are, none counts.
3. The old segments are deleted, the lowest offset first. From here on readers see the new one.
4. ``.swap`` is taken off.

Readers may look at any moment: :mod:`pyspark_kafkalog.log.segment.loading` makes the same choice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.filesystem.durable import sync_folder
from pyspark_kafkalog.log.layout import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from pyspark_kafkalog.log.segment.index import TXN_ENTRY
from pyspark_kafkalog.log.segment.recovery import remove_segment
from pyspark_kafkalog.log.segment.writer import ActiveSegment, SegmentLimits, SegmentWriter, spans_too_much

_FILES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
"""The files of a segment by suffix, in the order in which Kafka renames them."""


class CleanedSegment:
    """A new segment that replaces others; use it as a context manager, which removes it after an error."""

    def __init__(self, folder: str, base_offset: int, index_interval_bytes: int) -> None:
        self._writer = SegmentWriter(
            folder,
            SegmentLimits.of_one(index_interval_bytes),
            ActiveSegment(base_offset),
            ending=CLEANED_SUFFIX,
        )

    def append(self, data: np.ndarray, aborted: list[np.void]) -> None:
        """Append whole batches, and the transactions that abort by them."""
        batches = walk(data)
        stop = self._writer.fit(batches.size, batches.last_offset, batches.max_timestamp)
        if stop < len(batches):
            raise spans_too_much(self._writer.path(LOG_SUFFIX))
        self._writer.write([data])
        self._writer.write_aborted(np.array(aborted, TXN_ENTRY))
        self._writer.write_indexes()

    def finish(self, mtime_ns: int) -> None:
        """Flush and close its files, and give them the time of change of what they replace."""
        self._writer.touch()
        self._writer.flush(mtime_ns)
        self._writer.close()

    def discard(self) -> None:
        """Remove its files."""
        self._writer.close()
        for suffix in _FILES:
            with suppress(FileNotFoundError):
                os.unlink(self._writer.path(suffix))

    def __enter__(self) -> CleanedSegment:
        self.discard()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.discard()


def replace(folder: str, old: Sequence[int]) -> None:
    """Replace neighbouring segments, given by their base offsets, by one that begins with the first of them.

    The caller holds the directory's lock. The files of the new one end in ``.cleaned``, and are flushed. A
    crash in step 3 may leave old segments behind the last offset of the new one, which then count: this must
    do no harm.
    """
    sync_folder(folder)
    _rename(folder, old[0], CLEANED_SUFFIX, SWAP_SUFFIX)
    sync_folder(folder)
    for base_offset in old:
        remove_segment(folder, base_offset)
    for base_offset in old[1:]:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, segment_file(base_offset, SNAPSHOT_SUFFIX)))
    sync_folder(folder)
    _rename(folder, old[0], SWAP_SUFFIX, "")
    sync_folder(folder)


def _rename(folder: str, base_offset: int, before: str, after: str) -> None:
    for suffix in _FILES:
        path = os.path.join(folder, segment_file(base_offset, suffix))
        with suppress(FileNotFoundError):
            os.replace(path + before, path + after)
