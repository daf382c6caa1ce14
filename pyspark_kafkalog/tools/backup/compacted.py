"""Whether compaction has taken tombstones that a copy never got.

A tombstone stays for ``delete.retention.ms`` after it was written. If longer than that passes from one
complete look to the end of the next, a copy may miss some, and then has values of keys that the source has
deleted. If all offsets that came since then are there, nothing was taken.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pyspark_kafkalog.codec.walk import batches_of
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition
from pyspark_kafkalog.model.topics import CLEANUP_POLICY, cleanup_policies
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.tools.backup.plan import BackupPlan, Source

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.backup.copies.directory import BackupDirectory

_RETENTION_MS = 24 * 3600 * 1000
"""Kafka's default of delete.retention.ms."""


def now_ms() -> int:
    """The time by the clock of the machine that copies: only the time between runs counts."""
    return time.time_ns() // 1_000_000


class Tombstones:
    """Notes when copies were complete, and judges by that what they may miss."""

    def __init__(self, target: BackupDirectory) -> None:
        self._target = target
        self._configs: dict[str, Mapping[str, str]] = {}

    def begin(self, planned: BackupPlan, looked_at: int) -> None:
        """Store where copies begin of which nothing is known, before anything is copied."""
        target, here = self._target, self._target.partitions()
        unknown = {p for p in planned.bounds if p not in here or not self._is_known(p)}
        target.set_complete(
            {
                p: (looked_at, planned.bounds[p].first)
                if p not in here or target.is_empty(p)
                else (0, target.log_end_offset(p))
                for p in unknown
            }
        )

    def problem(self, source: Source, partition: TopicPartition) -> str | None:
        """The problem of a copy that has just come to the end of its source; None without one."""
        known = self._target.complete(partition)
        end = self._target.log_end_offset(partition)
        if known is None or known.offset >= end:
            return None
        retention = self._retention_ms(source, partition.topic)
        if retention is None or 0 <= now_ms() - known.time < retention:
            return None
        start = max(known.offset, self._target.log_start_offset(partition))  # deleted in the copy since
        if start >= end or not self._lacks_some(partition, OffsetRange(start, end)):
            return None
        since = "an unknown time" if known.time == 0 else f"more than delete.retention.ms = {retention}"
        return (
            f"Keys that the source has deleted may live on in the copy: compaction took records from offset"
            f" {known.offset} on, {since} after the copy was last complete, and maybe tombstones with"
            " them. Copy the partition again with --renew-compacted, and back up more often than that"
        )

    def _is_known(self, partition: TopicPartition) -> bool:
        """Whether the log still has all that it had when it was complete: a repair may have cut it since."""
        known, target = self._target.complete(partition), self._target
        ends = target.log_start_offset(partition), target.log_end_offset(partition)
        return known is not None and known.offset <= max(ends)

    def _retention_ms(self, source: Source, topic: str) -> int | None:
        """The time that tombstones stay; None if the topic is not compacted. Unknown topics may be."""
        if topic not in self._configs:
            self._configs[topic] = source.topic_config(topic)
        configs = self._configs[topic]
        if CLEANUP_POLICY in configs and "compact" not in cleanup_policies(configs):
            return None
        return int(configs.get("delete.retention.ms", _RETENTION_MS))

    def _lacks_some(self, partition: TopicPartition, offsets: OffsetRange) -> bool:
        """Whether the copy has not every one of these offsets, as after compaction."""
        place = open_place(place_options({"path": self._target.root}))
        expected = offsets.start
        for piece in place.fetch(Fetch(partition, offsets)):
            batches = batches_of(piece)
            ends = batches.last_offset + 1
            starts = np.where(batches.magic == 2, batches.base_offset, batches.last_offset)
            follows = starts == np.append(expected, ends[:-1])
            is_full = batches.count == ends - starts
            if not (follows & is_full).all():
                return True
            expected = int(ends[-1])
        return False
