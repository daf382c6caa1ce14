"""The two ends of a backup: what is asked of the source, and of the directory that follows it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import LogSettings, OffsetRange, Place, Slice, TopicPartition, Watermarks


class Bounds(NamedTuple):
    """What the source has of a partition, and what to copy of it: offsets from ``first``, if the partition
    is new, to before ``end``.
    """

    log_start_offset: int
    high_watermark: int
    first: int
    end: int


class Complete(Protocol):
    """All that the source had at ``time`` (ms; 0 if unknown) is in the copy, below ``offset``."""

    @property
    def time(self) -> int:
        """When it was looked for, by the clock of who copied."""

    @property
    def offset(self) -> int:
        """Where the copy ended."""


class Source(Place, Protocol):
    """What is backed up: a cluster or a log directory."""

    def try_watermarks(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, Watermarks], dict[TopicPartition, KafkaLogError]]:
        """Bounds of those partitions that exist, and the error of each that has none to give."""

    def topic_overrides(self, topic: str) -> Mapping[str, str] | None:
        """The configs that were set for this topic alone; None if they can't be seen."""

    def cluster_id(self) -> str | None:
        """The cluster's id, if there is one."""


class Follower(Protocol):
    """The log of one partition, which takes batches that have their offsets."""

    partition: TopicPartition
    next_offset: int
    epochs: list[tuple[int, int]]

    @property
    def is_empty(self) -> bool:
        """Whether it has no record batch."""

    @property
    def first_offset(self) -> int:
        """Where its first segment begins; the next offset if it has none."""

    def read(self, offsets: OffsetRange) -> Iterator[Slice]:
        """The batches of ``offsets`` that it has, or the next one."""

    def append(self, piece: Slice) -> int:
        """Append the batches of a slice, but those that it has already; returns how many bytes.

        :raises OverlapError: if one begins before the end of the log and ends behind it.
        """

    def flush(self) -> int:
        """Flush to disk; returns the next offset."""

    def close(self, *, cleanly: bool = True) -> None:
        """Close its files; ``cleanly`` means so that a broker needs no recovery."""


class Target(Protocol):
    """A log directory whose partitions follow, held for this process alone."""

    root: str
    broken: dict[TopicPartition, KafkaLogError]
    """Partitions that are not to be opened, and why."""

    @property
    def is_backup(self) -> bool:
        """Whether it is known to be a backup."""

    @property
    def cluster_id(self) -> str | None:
        """The cluster that it is a backup of, if known."""

    def set_cluster_id(self, cluster_id: str | None) -> None:
        """Note of which cluster this is the backup."""

    def gaps(self, partition: TopicPartition) -> tuple[OffsetRange, ...]:
        """The ranges of offsets that were gone before they could be copied."""

    def add_gap(self, partition: TopicPartition, gap: OffsetRange) -> None:
        """Note that a range could not be copied, and let the partition's log go on behind it."""

    def complete(self, partition: TopicPartition) -> Complete | None:
        """When the partition's copy was last complete, and up to where; None if that was never noted."""

    def set_complete(self, found: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Note when copies were complete (ms), and up to where."""

    def partitions(self) -> set[TopicPartition]:
        """All partitions that are here."""

    def topic_id(self, partition: TopicPartition) -> str | None:
        """The id of its topic, empty if it has none; None if the partition is not here."""

    def is_empty(self, partition: TopicPartition) -> bool:
        """Whether no record of the partition is here."""

    def log_start_offset(self, partition: TopicPartition) -> int:
        """Where a partition begins."""

    def log_end_offset(self, partition: TopicPartition) -> int:
        """Where it ends, as far as it was flushed."""

    def set_log_start_offset(self, partition: TopicPartition, offset: int) -> None:
        """Set where a partition begins."""

    def topic_configs(self) -> dict[str, dict[str, str]]:
        """The configurations of each topic that has some."""

    def set_topic_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Replace all configurations."""

    def open(
        self, partition: TopicPartition, settings: LogSettings, *, start: int, topic_id: str
    ) -> Follower:
        """The log of a partition; an empty one begins at ``start``, and a new one gets the ``topic_id``."""

    def truncate(self, partition: TopicPartition, settings: LogSettings, offset: int) -> Follower:
        """Cut a log back so that nothing at ``offset`` or later is left."""

    def begin_anew(
        self, partition: TopicPartition, settings: LogSettings, *, start: int, topic_id: str
    ) -> Follower:
        """The log of a new copy, which :meth:`exchange` puts in the place of the old one."""

    def exchange(self, partition: TopicPartition, log: Any, start: int, time: int) -> None:
        """Replace a partition's copy by the new one, which begins at ``start``; begun at ``time`` (ms)."""

    def discard(self, partition: TopicPartition) -> None:
        """Forget a log whose state is not certain."""

    def remove_empty(self, partition: TopicPartition) -> None:
        """Remove a log without records."""

    def flushed(self, partition: TopicPartition, offset: int) -> None:
        """Note that all below ``offset`` is on disk."""

    def closed(self, partition: TopicPartition, offset: int) -> None:
        """Note that a task has closed the partition cleanly, which ends at ``offset``."""

    def disk_errors(self, partition: TopicPartition) -> AbstractContextManager[None]:
        """Within, errors of the system become a LogDirectoryError that names the partition's files."""

    def checkpoint(self) -> None:
        """Write down how far each log is on disk."""

    def close(self) -> dict[TopicPartition, KafkaLogError]:
        """Close all logs; returns the partitions that can't be closed cleanly, and why."""
