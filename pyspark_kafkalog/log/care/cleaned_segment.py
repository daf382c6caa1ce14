"""Writes a segment under the names that end in ``.cleaned``, with its indexes."""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np

from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.filesystem.durable import naming, write_all
from pyspark_kafkalog.filesystem.sharing import open_new
from pyspark_kafkalog.log.care.replacing import FILES
from pyspark_kafkalog.log.layout import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from pyspark_kafkalog.log.segment.active_segment import NO_LIMIT, ActiveSegment, SegmentLimits, spans_too_much
from pyspark_kafkalog.log.segment.index import TXN_ENTRY


class CleanedSegment:
    """A new segment that replaces others; use it as a context manager, which removes it after an error."""

    def __init__(self, folder: str, base_offset: int, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self._folder = folder
        self._segment = ActiveSegment(base_offset)
        self._limits = SegmentLimits(NO_LIMIT, NO_LIMIT, index_interval_bytes, NO_LIMIT, NO_LIMIT)
        self._files: dict[str, int] = {}
        self._sizes = dict.fromkeys(FILES, 0)

    def append(self, data: np.ndarray) -> None:
        """Append whole batches."""
        batches = walk(data)
        stop, offset_index, time_index = self._segment.append(
            self._limits, batches.size, batches.last_offset, batches.max_timestamp
        )
        if stop < len(batches):
            raise spans_too_much(self._path(LOG_SUFFIX))
        for suffix, content in (
            (LOG_SUFFIX, data),
            (INDEX_SUFFIX, offset_index),
            (TIME_INDEX_SUFFIX, time_index),
        ):
            self._write(suffix, content)

    def add_aborted(self, entries: list[np.void]) -> None:
        """Add entries to its ``.txnindex``."""
        if entries:
            self._write(TXN_INDEX_SUFFIX, np.array(entries, TXN_ENTRY).view(np.uint8))

    def finish(self, mtime_ns: int) -> None:
        """Flush and close its files, and give them the time of change of what they replace."""
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._write(suffix, b"")
        for suffix, descriptor in self._files.items():
            with naming(self._path(suffix)):
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
                os.fsync(descriptor)
        self._close()

    def discard(self) -> None:
        """Remove its files."""
        self._close()
        for suffix in FILES:
            with suppress(FileNotFoundError):
                os.unlink(self._path(suffix))

    def __enter__(self) -> CleanedSegment:
        self.discard()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.discard()

    def _write(self, suffix: str, data: bytes | np.ndarray) -> None:
        path = self._path(suffix)
        with naming(path):
            if suffix not in self._files:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                self._files[suffix] = open_new(path, flags)
            write_all(self._files[suffix], data, self._sizes[suffix])
        self._sizes[suffix] += len(data)

    def _close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _path(self, suffix: str) -> str:
        return os.path.join(self._folder, segment_file(self.base_offset, suffix + CLEANED_SUFFIX))
