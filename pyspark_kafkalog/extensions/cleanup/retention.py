"""Delete the oldest segments of a partition, by time, by size and by its log start offset.

Segments are deleted by the rules of Kafka's ``UnifiedLog.deleteOldSegments`` and ``deletableSegments``; other
state is cut as in ``maybeIncrementLogStartOffset`` and ``LeaderEpochFileCache.truncateFromStart``.

A crash at any step leaves a valid log, and the next deletion completes it. The steps: if all segments go, an
empty one is created at the log end; the log start offset moves, in its checkpoint; leader epochs are cut;
files get the suffix ``.deleted``, oldest first, and are removed. A reader that has a segment open may finish
it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyspark_kafkalog.errors import CorruptRecordError, LogDirectoryError
from pyspark_kafkalog.extensions.cleanup.policies import DeletePolicy, LogSegment
from pyspark_kafkalog.filesystem.durable import replace, sync_folder
from pyspark_kafkalog.log.checkpoints import read_epochs, read_offsets, write_epochs, write_offsets
from pyspark_kafkalog.log.layout import (
    DELETED_SUFFIX,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.read.partition import Partition
from pyspark_kafkalog.log.read.root import LogRoot
from pyspark_kafkalog.log.read.times import largest_timestamp
from pyspark_kafkalog.log.segment.recovery import begin_segment, offsets_of
from pyspark_kafkalog.log.segment.segment import Segment
from pyspark_kafkalog.log.segment.snapshots import producers_at, read_snapshot
from pyspark_kafkalog.log.topic_settings import invalid, number
from pyspark_kafkalog.model import TopicPartition, not_here
from pyspark_kafkalog.model.topics import INTERNAL_TOPICS, cleanup_policies

_log = logging.getLogger("pyspark_kafkalog")
_POLICIES = {"delete", "compact"}
DELETE_POLICY = "deletePolicy"
"""The rule by whose name a delete policy is shown: its option."""


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The limits after which segments are due; None: never. Without ``deletes`` only the log start counts."""

    retention_ms: int | None = None
    retention_bytes: int | None = None
    deletes: bool = True

    @classmethod
    def of(cls, topic: str, configs: Mapping[str, str]) -> RetentionRules:
        """The rules in a topic's configurations, under Kafka's names.

        What is not configured is kept for ever, also where a broker has a default.

        :raises LogDirectoryError: if a value is invalid.
        """
        policy = cleanup_policies(configs)
        if not policy <= _POLICIES:
            raise invalid(topic, "cleanup.policy", configs["cleanup.policy"])
        # Brokers compact internal topics, whatever is said of them here, and delete none of their records.
        return cls(
            _limit(topic, "retention.ms", configs),
            _limit(topic, "retention.bytes", configs),
            deletes="delete" in policy and topic not in INTERNAL_TOPICS,
        )

    @property
    def have_limits(self) -> bool:
        """Whether anything becomes due by itself."""
        return self.deletes and not (self.retention_ms is None and self.retention_bytes is None)


def _limit(topic: str, name: str, configs: Mapping[str, str]) -> int | None:
    limit = number(topic, configs, name, -1)
    return None if limit < 0 else limit


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of a partition's records below ``new_start``: the oldest segments and other files.

    ``files`` are the names of the files to delete, in this order. If all segments go, an empty one begins
    ``at_end``. ``reasons`` name the rules by which segments go.
    """

    partition: TopicPartition
    folder: str
    start: int
    new_start: int
    segments: int
    stored_bytes: int
    reasons: tuple[str, ...]
    files: tuple[str, ...]
    first_base: int
    """The base offset of the first segment that stays."""
    at_end: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.new_start == self.start and not self.files


def plan_deletion(
    partition: Partition,
    rules: RetentionRules,
    now_ms: int,
    *,
    below: int = 0,
    policy: DeletePolicy | None = None,
) -> Deletion | None:
    """The deletion from a partition by the rules at a moment; None if it has no segment. Changes nothing.

    To carry it out, the partition must be in order (:func:`.leftovers.clear_leftovers`).

    :param below: raise the log start offset to this, if it is lower.
    :param policy: names segments, too, unless the topic is only compacted.
    :raises LogDirectoryError: if something would go of a log whose beginning is elsewhere, or of that
        beginning. The broker finds it by the leader epochs that a deletion cuts, and may not have moved yet
        what would be deleted. And if the leader epochs of what loses something are malformed,
        or the policy's answer can't be used.
    :raises FileNotFoundError: if files vanish meanwhile.
    """
    segments = partition.segments(fresh=True)
    if not segments:
        return None
    end = partition.log_end_offset(segments)
    start = partition.log_start_offset(segments)
    sizes = partition.sizes(segments)
    new_start = max(start, below)
    count, reasons = _deletable(partition, segments, sizes, end, new_start, rules, now_ms)
    if policy is not None and rules.deletes and len(segments) > 1:
        shown = _log_segments(partition, segments, sizes, end)
        named = policy.count(partition.topic_partition, shown, now_ms, folder=partition.folder.label())
        if named > count:
            count, reasons = named, (*reasons, DELETE_POLICY)
    at_end = count == len(segments)
    first_base = end if at_end else segments[count].base_offset
    deletion = Deletion(
        partition.topic_partition,
        partition.folder.label(),
        start,
        max(new_start, first_base),
        count,
        sum(sizes[:count]),
        reasons,
        _files_below(os.listdir(partition.folder.label()), first_base),
        first_base,
        at_end,
    )
    tiered = partition.elsewhere(segments) if below or not deletion.is_empty else None
    if tiered is not None and (below > tiered.start or not deletion.is_empty):
        raise LogDirectoryError(
            f"{not_here(tiered)}. Only the broker can delete records of such a log",
            topic_partition=partition.topic_partition,
            file=partition.folder.label(),
            hint="Start the broker, and delete them there, or leave the topic out.",
        )
    if not deletion.is_empty:
        read_epochs(deletion.folder)  # they are cut when other partitions have lost theirs
    return deletion


def _deletable(
    partition: Partition,
    segments: list[Segment],
    sizes: list[int],
    end: int,
    start: int,
    rules: RetentionRules,
    now_ms: int,
) -> tuple[int, tuple[str, ...]]:
    """The number of oldest segments that are due, and by which rules. Each stops at the first that is not."""
    # An empty last segment stays: deleting it would only create it again.
    most = len(segments) - (end == segments[-1].base_offset)
    count, reasons = 0, []

    def walk(rule: str, is_due: Callable[[int], bool]) -> None:
        nonlocal count
        before = count
        while count < most and is_due(count):
            count += 1
        if count > before:
            reasons.append(rule)

    walk("log start offset", lambda at: at + 1 < len(segments) and segments[at + 1].base_offset <= start)
    if rules.deletes and rules.retention_bytes is not None:
        excess = sum(sizes[count:]) - rules.retention_bytes

        def exceeds(at: int) -> bool:
            nonlocal excess
            excess -= sizes[at]
            return excess >= 0

        walk("retention.bytes", exceeds)
    if rules.deletes and rules.retention_ms is not None:
        oldest = now_ms - rules.retention_ms
        walk("retention.ms", lambda at: _timestamp(partition, segments[at]) < oldest)
    return count, tuple(reasons)


def _log_segments(
    partition: Partition, segments: list[Segment], sizes: list[int], end: int
) -> list[LogSegment]:
    """The segments as a delete policy gets them."""
    ends = [*(segment.base_offset for segment in segments[1:]), end]
    return [
        LogSegment(
            segment.base_offset, below - 1, size, _timestamp(partition, segment), segment is segments[-1]
        )
        for segment, size, below in zip(segments, sizes, ends, strict=True)
    ]


def _timestamp(partition: Partition, segment: Segment) -> int:
    """The largest timestamp (ms) of a segment's records, or when it was last changed if none has one."""
    largest = largest_timestamp(partition, segment)
    return largest if largest >= 0 else segment.mtime_ns // 1_000_000


def _files_below(names: Iterable[str], first_base: int) -> tuple[str, ...]:
    """The files of older segments, and those renamed before: oldest first, the log before its indexes."""
    parsed = [(*found, name) for name in names if (found := parse_segment_file(name)) is not None]
    old = [
        (base, suffix != LOG_SUFFIX, name)
        for base, suffix, name in parsed
        if base < first_base or suffix.endswith(DELETED_SUFFIX)
    ]
    return tuple(name for _, _, name in sorted(old))


def delete(root: LogRoot, deletion: Deletion, progress: Callable[[], None] = lambda: None) -> None:
    """Carry out what :func:`plan_deletion` has planned; the caller holds the directory's lock.

    :raises OSError: if files can't be written or deleted; what is left to do is planned again.
    :raises LogDirectoryError: if a checkpoint can't be understood.
    """
    if deletion.is_empty:
        return
    folder, partition = root.folder.label(), deletion.partition
    with journal.unclean(folder):
        _keep_producers(deletion, progress)
        if deletion.at_end:
            begin_segment(deletion.folder, deletion.first_base)
            sync_folder(deletion.folder)
        _set_start(folder, partition, deletion.new_start)
        _cut_epochs(deletion)
        _delete_files(deletion)
        progress()
        if deletion.new_start == deletion.first_base and not root.knows_start_of(partition):
            _set_start(folder, partition, 0)


def _keep_producers(deletion: Deletion, progress: Callable[[], None]) -> None:
    """Save what the log says of producers at the first base offset, if no later snapshot has it.

    A broker takes a snapshot wherever a segment begins. Segments written here have none, so what is deleted
    is read, once, as far as it can be read.
    """
    retained = [base for base in offsets_of(deletion.folder, SNAPSHOT_SUFFIX) if base >= deletion.first_base]
    if any(read_snapshot(deletion.folder, base) is not None for base in retained):
        return
    bases = [base for base in offsets_of(deletion.folder, LOG_SUFFIX) if base < deletion.first_base]
    try:
        producers = producers_at(deletion.folder, [*bases, deletion.first_base], progress)
    except (OSError, CorruptRecordError) as e:
        _log.warning("%s: its producers are forgotten with the records deleted: %s", deletion.partition, e)
        return
    if producers.entries:
        path = os.path.join(deletion.folder, segment_file(deletion.first_base, SNAPSHOT_SUFFIX))
        replace(path, producers.snapshot())


def _set_start(folder: str, partition: TopicPartition, start: int) -> None:
    """Change an entry of the checkpoint of log start offsets; 0 removes it."""
    known = read_offsets(folder, LOG_START_OFFSET_CHECKPOINT)
    changed = {partition: offset for partition, offset in {**known, partition: start}.items() if offset}
    if changed != known:
        write_offsets(folder, LOG_START_OFFSET_CHECKPOINT, changed)


def _cut_epochs(deletion: Deletion) -> None:
    """Let the leader epochs begin with the one of the log start offset."""
    epochs = read_epochs(deletion.folder)
    up_to_start = [epoch for epoch, offset in epochs if offset <= deletion.new_start]
    later = [(epoch, offset) for epoch, offset in epochs if offset > deletion.new_start]
    cut = [(epoch, deletion.new_start) for epoch in up_to_start[-1:]] + later
    if cut != epochs:
        write_epochs(deletion.folder, cut)


def _delete_files(deletion: Deletion) -> None:
    paths = [os.path.join(deletion.folder, name) for name in deletion.files]
    renamed = [path if path.endswith(DELETED_SUFFIX) else path + DELETED_SUFFIX for path in paths]
    for path, new in zip(paths, renamed, strict=True):
        if path != new:
            os.replace(path, new)
    if paths:
        sync_folder(deletion.folder)
    for path in renamed:
        os.unlink(path)
    if paths:
        sync_folder(deletion.folder)
