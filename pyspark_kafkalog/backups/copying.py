"""Copies one partition: from where its log ends to where the source's does, if they have the same history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pyspark_kafkalog.backups.ends import Bounds, Follower, Source
from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.model import OffsetRange, Slice, TopicPartition

FLUSH_BYTES = 32 << 20
"""Bytes of a partition that may be lost with the machine, and have to be copied again."""


class DivergedError(Exception):
    """The source's log has other records at these offsets, or none (KIP-320)."""

    def __init__(self, offsets: OffsetRange) -> None:
        start, end = self.offsets = offsets
        super().__init__(
            f"Offsets {start} to {end - 1} are not those of the source: its log was truncated after they were"
            " copied, as by the election of a leader that was behind. Cut them off, as a follower would, with"
            " --truncate, or keep them, and begin a new backup in another directory"
        )


class GapError(Exception):
    """The source has deleted these offsets, which were not copied before."""

    def __init__(self, offsets: OffsetRange) -> None:
        start, end = self.offsets = offsets
        super().__init__(
            f"Offsets {start} to {end - 1} are gone from the source, and were never copied. Go on behind them"
            " with --allow-gaps, or begin a new backup in another directory"
        )


@dataclass(frozen=True, slots=True)
class Hooks:
    """What happens while a partition is copied."""

    limit: Callable[[int], None] = lambda size: None
    """Waits until so many more bytes may be copied."""
    copied: Callable[[TopicPartition, int], None] = lambda partition, size: None
    """Called with the number of bytes that were appended."""
    flushed: Callable[[TopicPartition, int], None] = lambda partition, offset: None
    """Called with the offset below which all is on disk."""
    stopped: Callable[[], bool] = lambda: False
    """Whether to end early."""


def diverged_at(source: Source, log: Follower, high_watermark: int) -> int:
    """The first offset from which on the source has other records than the log; the log's end if none.

    As a follower finds it (KIP-101, KIP-279): by the ends of leader epochs in the source.

    :param high_watermark: the source's, which decides where there are no leader epochs.
    """
    number = len(log.epochs) - 1
    while number >= 0:
        epoch = log.epochs[number][0]
        known = source.epoch_ends({log.partition: epoch}).get(log.partition)
        if known is None:
            break
        their_epoch, their_end = known
        while number >= 0 and log.epochs[number][0] > their_epoch:
            number -= 1
        if number < 0:
            return log.epochs[0][1]
        own_end = log.epochs[number + 1][1] if number + 1 < len(log.epochs) else log.next_offset
        if log.epochs[number][0] == their_epoch:
            return min(their_end, own_end)
    return log.next_offset if log.is_empty else min(high_watermark, log.next_offset)


def check_history(source: Source, log: Follower, high_watermark: int) -> None:
    """:raises DivergedError: if the log has records that the source does not have, or no longer."""
    offset = diverged_at(source, log, high_watermark)
    if offset < log.next_offset:
        raise DivergedError(OffsetRange(offset, log.next_offset))


def bring_up_to_date(source: Source, log: Follower, bounds: Bounds, topic_id: str, hooks: Hooks) -> None:
    """Copy what the log lacks, if the source has all of it, and the same history.

    :raises GapError: if the source no longer has a range behind the end of the log.
    :raises DivergedError: if the log has records that the source does not have, or no longer.
    """
    check_history(source, log, bounds.high_watermark)
    gap = OffsetRange(log.next_offset, bounds.log_start_offset)
    if gap.start < gap.end:
        raise GapError(gap)
    if log.next_offset < bounds.end:
        copy_to(source, log, bounds.end, topic_id, hooks)


def copy_to(source: Source, log: Follower, end: int, topic_id: str, hooks: Hooks) -> None:
    """Append what the source has from the end of the log up to ``end``.

    :raises DivergedError: if the source's log was truncated meanwhile; nothing of the new history is
        appended then.
    :raises DataLossError: if offsets, or the topic, are gone.
    :raises CorruptRecordError: if a batch can't be read; the log is to be opened anew then.
    """
    unflushed = 0
    wanted = OffsetRange(log.next_offset, end)
    for piece in source.fetch(log.partition, wanted, read_committed=False, topic_id=topic_id):
        if log.epochs and _newest_epoch(piece) > log.epochs[-1][0]:
            check_history(source, log, end)
        log.append(piece)
        size = piece.buffer.size
        hooks.copied(log.partition, size)
        unflushed += size
        if unflushed >= FLUSH_BYTES:
            hooks.flushed(log.partition, log.flush())
            unflushed = 0
        hooks.limit(size)
        if hooks.stopped():
            break
    hooks.flushed(log.partition, log.flush())


def _newest_epoch(piece: Slice) -> int:
    batches = batches_of(piece)
    return int(np.where(batches.magic == 2, batches.leader_epoch, -1).max(initial=-1))
