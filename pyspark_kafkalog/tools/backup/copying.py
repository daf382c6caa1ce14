"""Copies one partition: from where its log ends to where the source's does, if they have the same history."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pyspark_kafkalog.codec.indexing import MAX_RECORD_BYTES
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.errors import KafkaLogError, OverlapError
from pyspark_kafkalog.model import Fetch, OffsetRange, Slice, TopicPartition
from pyspark_kafkalog.tools.backup.history import DivergedError, SharedEnd, check_epochs
from pyspark_kafkalog.tools.backup.plan import BackupPlan, CopyBounds, Source, whole_batch

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.backup.copies.log import BackupLog

FLUSH_BYTES = 32 << 20
"""Bytes of a partition that may be lost with the machine, and have to be copied again."""


class GapError(Exception):
    """The source has deleted these offsets, which were not copied before.

    :param begin: where its first batch begins, which may have records before its log start offset.
    """

    def __init__(self, offsets: OffsetRange, begin: int) -> None:
        start, end = self.offsets = offsets
        self.begin = begin
        super().__init__(
            f"Offsets {start} to {end - 1} are gone from the source, and were never copied. Go on behind them"
            " with --allow-gaps, or begin a new backup in another directory"
        )


class RateLimit:
    """Lets ``bytes_per_second`` through, on average since the last pause; None for no limit."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second
        self._guard = threading.Lock()
        self._free_at = 0.0

    def pause(self, size: int) -> float:
        """Let ``size`` bytes through; returns the seconds to wait before more may go."""
        if self._rate is None:
            return 0.0
        with self._guard:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self._rate
            return self._free_at - now

    def wait(self, size: int) -> None:
        """Let ``size`` bytes through, and sleep until more may go."""
        time.sleep(self.pause(size))


@dataclass(frozen=True, slots=True)
class Hooks:
    """The limits of a copy, and what to call while it goes on."""

    limit: Callable[[int], None] = lambda size: None
    """Waits until so many more bytes may be copied."""
    copied: Callable[[int], None] = lambda size: None
    """Called with the number of bytes that were appended."""
    flushed: Callable[[int], None] = lambda offset: None
    """Called with the offset below which all is on disk."""
    stopped: Callable[[], bool] = lambda: False
    """Whether to end early."""
    max_record_bytes: int = MAX_RECORD_BYTES
    """The option ``maxRecordBytes``, for a batch that has to be decompressed."""


@dataclass(slots=True)
class Copied:
    """The result of one attempt to copy a partition."""

    partition: TopicPartition
    copied_bytes: int = 0
    truncated: list[OffsetRange] = field(default_factory=list)
    """Offsets that were cut off, as the source's log had been."""
    renewed: bool = False
    """Whether all was copied again."""
    problem: str | None = None
    """The reason why the rest could not be copied, or the problem of the copy."""
    error: KafkaLogError | None = None
    """The same, if it may be wrong with all partitions."""


class Executor(Protocol):
    """Copies partitions, some at a time: threads of this process, or Spark's tasks."""

    def __call__(
        self,
        planned: BackupPlan,
        partitions: Collection[TopicPartition],
        stop: threading.Event,
        done: Callable[[Copied], None],
    ) -> None:
        """Copy partitions of a plan, as far as it says.

        :param stop: when it is set, those that are copied end early, and no other one begins.
        :param done: called in the caller's thread with what came of each, as soon as that is known. If it
            raises an error, no other one begins.
        """


def bring_up_to_date(source: Source, log: BackupLog, bounds: CopyBounds, topic_id: str, hooks: Hooks) -> None:
    """Copy what the log lacks, if the source has all of it, and the same history.

    :raises GapError: if the source no longer has a range behind the end of the log.
    :raises DivergedError: if the log has records that the source does not have, or no longer; nothing of a
        new history is appended then.
    :raises UnprovenError: if nothing tells whether the histories are the same.
    :raises DataLossError: if offsets, or the topic, are gone.
    :raises CorruptRecordError: if a batch can't be read; the caller must then open the log again.
    """
    check_epochs(source, log, bounds.high_watermark)
    start = bounds.log_start_offset
    if log.next_offset < start:
        begin = whole_batch(source, log.partition, start) if start < bounds.high_watermark else start
        if topic_id and begin < log.batches_end:
            raise DivergedError(log, begin)
        raise GapError(OffsetRange(log.next_offset, start), begin)
    shared = SharedEnd(source, log, start, topic_id)
    wanted = OffsetRange(max(shared.first, start), max(bounds.end, log.next_offset))
    if wanted.end > bounds.high_watermark:  # a new leader does not know yet how far it may be read
        return
    pieces = iter(source.fetch(Fetch(log.partition, wanted, topic_id=topic_id)))
    first = next(pieces, None)
    shared.check(first)
    if first is not None:
        _append(source, log, chain([first], pieces), wanted.end, hooks)


def _append(source: Source, log: BackupLog, pieces: Iterable[Slice], end: int, hooks: Hooks) -> None:
    unflushed = 0
    for piece in pieces:
        if log.epochs and _newest_epoch(piece) > log.epochs[-1][0]:
            check_epochs(source, log, end)
        try:
            size = log.append(piece, max_record_bytes=hooks.max_record_bytes)
        except OverlapError as e:
            raise DivergedError(log, e.offset or 0) from e
        hooks.copied(size)
        unflushed += size
        if unflushed >= FLUSH_BYTES:
            hooks.flushed(log.flush())
            unflushed = 0
        hooks.limit(size)
        if hooks.stopped():
            break
    hooks.flushed(log.flush())


def _newest_epoch(piece: Slice) -> int:
    batches = batches_of(piece)
    return int(np.where(batches.magic == 2, batches.leader_epoch, -1).max(initial=-1))
