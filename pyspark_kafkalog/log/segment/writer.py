"""Appends record batches to a segment, and begins the next one when it is full.

Nothing else appends to a ``.log`` or its indexes: publishing, backups and cleaning call this. What the files
hold is what a broker's recovery would build from the batches; :mod:`.recovery` is where they are opened.

Sources: Kafka's ``LocalLog.append``, ``LocalLog.roll``, ``LogSegment``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pyspark_kafkalog.codec.format import LOG_OVERHEAD
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.durable import begin_flush, naming, write_all
from pyspark_kafkalog.filesystem.sharing import open_new
from pyspark_kafkalog.log.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from pyspark_kafkalog.log.segment import append_kernels as kernels
from pyspark_kafkalog.log.segment.index import OFFSET_ENTRY, TIME_ENTRY
from pyspark_kafkalog.model import LogSettings, TopicPartition

_NO_LIMIT = 2**63 - 1


class SegmentLimits(NamedTuple):
    """The limits of a segment, after which the next one begins, and of its indexes; in the order of
    :mod:`.append_kernels`.

    The indexes hold no more entries than a broker could have written.
    """

    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    max_offset_entries: int
    max_time_entries: int

    @classmethod
    def of(cls, settings: LogSettings) -> SegmentLimits:
        """The limits of a topic's segments."""
        return cls(
            settings.segment_bytes,
            settings.segment_ms,
            settings.index_interval_bytes,
            settings.segment_index_bytes // OFFSET_ENTRY.itemsize,
            settings.segment_index_bytes // TIME_ENTRY.itemsize,
        )

    @classmethod
    def of_one(cls, index_interval_bytes: int) -> SegmentLimits:
        """The limits of a segment that takes all batches whose offsets its indexes can hold."""
        return cls(_NO_LIMIT, _NO_LIMIT, index_interval_bytes, _NO_LIMIT, _NO_LIMIT)


class ActiveSegment:
    """The state that appending needs of the segment that appends go to.

    ``next_offset`` follows its last batch. ``fields`` are those of :mod:`.append_kernels`.
    """

    def __init__(self, base_offset: int) -> None:
        self.next_offset = base_offset
        self.fields = np.zeros(kernels.SEGMENT_FIELDS, np.int64)
        self.fields[kernels.BASE_OFFSET] = base_offset
        self.fields[[kernels.FIRST_TIMESTAMP, kernels.MAX_TIMESTAMP, kernels.LAST_TIME_ENTRY]] = -1

    @property
    def base_offset(self) -> int:
        return int(self.fields[kernels.BASE_OFFSET])

    def sizes(self) -> dict[str, int]:
        """Size in bytes of each of its files, by suffix."""
        return {
            LOG_SUFFIX: int(self.fields[kernels.SIZE]),
            INDEX_SUFFIX: int(self.fields[kernels.OFFSET_ENTRIES]) * OFFSET_ENTRY.itemsize,
            TIME_INDEX_SUFFIX: int(self.fields[kernels.TIME_ENTRIES]) * TIME_ENTRY.itemsize,
        }

    def append(
        self,
        limits: SegmentLimits,
        sizes: np.ndarray,
        last_offsets: np.ndarray,
        max_timestamps: np.ndarray,
        first: int = 0,
        *,
        closing: bool = True,
    ) -> tuple[int, bytes, bytes]:
        """Account for batches, from number ``first`` on, up to the one that needs the next segment.

        :param closing: end ``.timeindex`` as a closed segment's ends. What is appended later goes on after
            that entry, which an index that is built in one go would not have.
        :return: the number of that batch, the bytes to add to ``.index`` and to ``.timeindex``.
        """
        count = sizes.size - first
        offset_table, time_table = np.empty((2, count), np.int64), np.empty((2, count + 1), np.int64)
        stop, offsets, times = kernels.append_batches(
            sizes,
            last_offsets,
            max_timestamps,
            first,
            int(closing),
            np.array(limits),
            self.fields,
            offset_table,
            time_table,
        )
        if stop > first:
            self.next_offset = int(last_offsets[stop - 1]) + 1
        return (
            stop,
            _pack(OFFSET_ENTRY, offset_table[:, :offsets]),
            _pack(TIME_ENTRY, time_table[:, :times]),
        )


class SegmentWriter:
    """The files of the segment that appends go to; use it as a context manager, which closes them.

    To append batches is to let them :meth:`fit`, to :meth:`write` their bytes, and then to
    :meth:`write_indexes`. A file is opened, and made if it is to be empty, when it is written to.

    :param segment: what it holds already.
    :param aborted_bytes: size of its ``.txnindex``.
    :param ending: what follows the suffixes of its files.
    """

    def __init__(
        self,
        folder: str,
        limits: SegmentLimits,
        segment: ActiveSegment,
        *,
        aborted_bytes: int = 0,
        ending: str = "",
    ) -> None:
        self.segment = segment
        self._folder = folder
        self._limits = limits
        self._ending = ending
        self._sizes = {**segment.sizes(), TXN_INDEX_SUFFIX: aborted_bytes}
        self._entries: dict[str, bytes] = {INDEX_SUFFIX: b"", TIME_INDEX_SUFFIX: b""}
        """The index entries that :meth:`write_indexes` is to write, by suffix."""
        self._files: dict[str, int] = {}
        self._unflushed: set[str] = set()
        """The suffixes of the files that were written to, also of those that are closed."""

    def fit(
        self, sizes: np.ndarray, last_offsets: np.ndarray, max_timestamps: np.ndarray, first: int = 0
    ) -> int:
        """Account for batches, from number ``first`` on; the number of that which needs the next segment."""
        stop, *entries = self.segment.append(self._limits, sizes, last_offsets, max_timestamps, first)
        self._entries = dict(zip(self._entries, entries, strict=True))
        return stop

    def write(self, parts: Iterable[Any], *, framed_last: bool = False) -> None:
        """Write the batches, which are bytes in ``parts``.

        :param framed_last: write offset and size of the first one when all else is on disk, so that no crash
            leaves a batch that is whole by its size, and wrong.
        """
        frame, begin = b"", self._sizes[LOG_SUFFIX]
        for part in parts:
            if framed_last and not frame:
                frame = bytes(part[:LOG_OVERHEAD])
                part[:LOG_OVERHEAD] = 0
            self._write(LOG_SUFFIX, part)
        if frame:
            self.flush()
            with naming(self.path(LOG_SUFFIX)):
                write_all(self._files[LOG_SUFFIX], frame, begin)
            self._unflushed.add(LOG_SUFFIX)

    def begin_flush(self, size: int) -> None:
        """Let the system begin to write the last ``size`` bytes of the batches to disk."""
        begin_flush(self._files[LOG_SUFFIX], self._sizes[LOG_SUFFIX] - size, size)

    def write_aborted(self, entries: np.ndarray) -> None:
        """Write the transactions that abort by these batches: :data:`.index.TXN_ENTRY`."""
        if entries.size:
            self._write(TXN_INDEX_SUFFIX, entries.tobytes())

    def write_indexes(self) -> None:
        """Write the entries of the batches."""
        for suffix, entries in self._entries.items():
            self._write(suffix, entries)

    def touch(self) -> None:
        """Have all files but ``.txnindex`` there, and on disk after the next :meth:`flush`."""
        for suffix in self.segment.sizes():
            self._write(suffix, b"")

    def flush(self, mtime_ns: int | None = None) -> None:
        """Have on disk what was written; with another time of change, if one is given."""
        for suffix in sorted(self._unflushed):
            self._write(suffix, b"")  # opened
            with naming(self.path(suffix)):
                if mtime_ns is not None:
                    os.utime(self._files[suffix], ns=(mtime_ns, mtime_ns))
                os.fsync(self._files[suffix])
        self._unflushed.clear()

    def roll(self, base_offset: int) -> None:
        """Begin the next segment; this one is flushed."""
        self.close()
        self.segment = ActiveSegment(base_offset)
        self._sizes = dict.fromkeys(self._sizes, 0)

    def close(self) -> None:
        """Close the files; what is written later opens them again."""
        while self._files:
            os.close(self._files.popitem()[1])

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def path(self, suffix: str) -> str:
        """The file of the segment with this suffix."""
        return os.path.join(self._folder, segment_file(self.segment.base_offset, suffix + self._ending))

    def _write(self, suffix: str, data: Any) -> None:
        path, size = self.path(suffix), self._sizes[suffix]
        self._unflushed.add(suffix)
        with naming(path):
            if suffix not in self._files:
                new = os.O_CREAT | os.O_TRUNC if size == 0 else 0
                self._files[suffix] = open_new(path, os.O_WRONLY | os.O_NOFOLLOW | new)
            write_all(self._files[suffix], data, size)
        self._sizes[suffix] += len(data)


def spans_too_much(path: str, partition: TopicPartition | None = None) -> LogDirectoryError:
    """The error for a segment with offsets that its indexes can't hold, which old brokers could write."""
    return LogDirectoryError(
        "The offsets of a segment span more than 2^31",
        topic_partition=partition,
        file=path,
        hint="Start a broker on the directory, which splits the segment, or copy it by kafkalog copy.",
    )


def _pack(entry: np.dtype, table: np.ndarray) -> bytes:
    entries = np.empty(table.shape[1], entry)
    for name, values in zip(entry.names or (), table, strict=True):
        entries[name] = values
    return entries.tobytes()
