"""Copies partitions by threads of this process, with all that the rules allow to do about what is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import TYPE_CHECKING

from pyspark_kafkalog.codec.indexing import MAX_RECORD_BYTES
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, KafkaLogError
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.tools.backup.compacted import Tombstones, now_ms
from pyspark_kafkalog.tools.backup.copying import Copied, GapError, Hooks, RateLimit, bring_up_to_date
from pyspark_kafkalog.tools.backup.groups import delete_commits
from pyspark_kafkalog.tools.backup.history import DivergedError, UnprovenError
from pyspark_kafkalog.tools.backup.plan import (
    GONE,
    BackupPlan,
    BackupRules,
    CopyBounds,
    Source,
    bounds_to_copy,
    changed_topic,
    whole_batch,
)

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.backup.copies.directory import BackupDirectory

_CHECKPOINT_SECONDS = 5.0
_ATTEMPTS = 5
"""The most looks at a partition whose log has just changed."""


class Threads:
    """An :class:`.copying.Executor`.

    :param open_source: opens the source, for the thread that calls it.
    :param saved: the groups of the directory; None if it has none.
    :param copied: called, from any thread, with the number of bytes that were copied.
    :param max_record_bytes: see :class:`.copying.Hooks`.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        target: BackupDirectory,
        rules: BackupRules,
        saved: GroupOffsets | None,
        copied: Callable[[int], None],
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._open_source = open_source
        self._own = threading.local()
        self._target = target
        self._rules = rules
        self._saved = saved
        self._copied = copied
        self._max_record_bytes = max_record_bytes
        self._tombstones = Tombstones(target)
        self._limit = RateLimit(rules.rate)
        self._stop = threading.Event()
        self._failed = threading.Event()
        self._next_checkpoint = 0.0

    def __call__(
        self,
        planned: BackupPlan,
        partitions: Collection[TopicPartition],
        stop: threading.Event,
        done: Callable[[Copied], None],
    ) -> None:
        """The first error that is not a partition's own ends it."""
        self._stop = stop
        self._failed.clear()
        with ThreadPoolExecutor(self._rules.threads) as pool:
            try:
                futures = [pool.submit(self._copy, partition, planned) for partition in partitions]
                for future in as_completed(futures):
                    copied = future.result()
                    if copied is not None:
                        done(copied)
            except BaseException:
                self._failed.set()
                raise

    def _is_stopped(self) -> bool:
        return self._stop.is_set() or self._failed.is_set()

    @property
    def _source(self) -> Source:
        """The source, over this thread's connections to it."""
        if not hasattr(self._own, "source"):
            self._own.source = self._open_source()
        source: Source = self._own.source
        return source

    def _copy(self, partition: TopicPartition, planned: BackupPlan) -> Copied | None:
        """Copy a partition, as far as the rules allow it; None if all was stopped before."""
        if self._is_stopped():
            return None
        copied = Copied(partition)
        try:
            with self._target.disk_errors(partition):
                self._try(copied, planned)
        except KafkaLogError as e:
            copied.error = e
        return copied

    def _try(self, copied: Copied, planned: BackupPlan) -> None:
        partition = copied.partition
        bounds = planned.bounds.get(partition)
        for _ in range(_ATTEMPTS):
            if bounds is None:
                copied.problem = GONE
                break
            try:
                self._bring_up_to_date(copied, bounds, planned)
                copied.problem = self._without_tombstones(copied, bounds, planned)
                break
            except CorruptRecordError as e:
                self._target.discard(partition)
                copied.problem = str(e)
                break
            except (GapError, DivergedError, DataLossError) as e:
                changed = changed_topic(self._source, partition.topic, planned.topic_ids[partition.topic])
                copied.problem = changed or str(e)
                if changed or not self._can_go_on(copied, e, planned):
                    break
                found, failures = bounds_to_copy(self._source, [partition], self._rules)
                for error in failures.values():
                    raise error from e
                bounds = found.get(partition)

    def _can_go_on(self, copied: Copied, error: Exception, planned: BackupPlan) -> bool:
        """Make the log one that the source's can follow, as far as the rules allow it."""
        partition = copied.partition
        if isinstance(error, GapError):
            if self._rules.allow_gaps and not planned.topic_ids[partition.topic]:
                raise UnprovenError(partition, "all that it shared with the copy was deleted")
            if self._rules.allow_gaps:
                self._target.add_gap(partition, error.offsets, error.begin)
            return self._rules.allow_gaps
        if isinstance(error, DivergedError):
            if error.is_whole or not self._rules.truncate:
                return False
            start, end = error.offsets
            if self._saved is not None:
                delete_commits(self._saved, {partition: start})
            self._target.truncate(partition, planned.settings[partition.topic], start)
            copied.truncated.append(OffsetRange(start, end))
        return True

    def _bring_up_to_date(self, copied: Copied, bounds: CopyBounds, planned: BackupPlan) -> None:
        """Copy a partition up to its planned end."""
        target, partition = self._target, copied.partition
        topic_id = planned.topic_ids[partition.topic]
        if self._rules.since is not None and target.is_empty(partition):
            first = whole_batch(self._source, partition, bounds.first)
            bounds = bounds._replace(first=max(first, bounds.log_start_offset))
        is_new = target.topic_id(partition) is None
        log = target.open(partition, planned.settings[partition.topic], start=bounds.first, topic_id=topic_id)
        flushed = partial(self._flushed, partition)
        try:
            bring_up_to_date(self._source, log, bounds, topic_id, self._hooks(copied, flushed))
            if target.log_end_offset(partition) != log.next_offset:  # a killed run has left more
                flushed(log.flush())
        except KafkaLogError:
            if is_new and log.is_empty:  # it would look like a partition without records
                target.remove_empty(partition)
            raise
        finally:
            log.close(cleanly=False)

    def _without_tombstones(self, copied: Copied, bounds: CopyBounds, planned: BackupPlan) -> str | None:
        """The problem of a copy that may lack tombstones, unless it is copied again."""
        if not self._rules.is_whole or self._is_stopped():
            return None
        partition = copied.partition
        problem = self._tombstones.problem(self._source, partition)
        if problem is None or not self._rules.renew_compacted:
            return problem
        written = self._target.written_from(partition)
        if written is not None:
            return (
                "Keys that the source has deleted may live on in the copy, and --renew-compacted leaves it"
                f" as it is: rows were written to it from offset {written} on, which a new copy would not"
                " have. Write them to another topic, and move the partition's folder away"
            )
        topic_id, started = planned.topic_ids[partition.topic], now_ms()
        start = bounds.log_start_offset
        log = self._target.begin_anew(
            partition, planned.settings[partition.topic], start=start, topic_id=topic_id
        )
        try:
            bring_up_to_date(self._source, log, bounds, topic_id, self._hooks(copied))
            if self._is_stopped():
                return problem
            self._target.exchange(partition, log, start, started)
        finally:
            log.close(cleanly=False)
        copied.renewed = True
        return self._tombstones.problem(self._source, partition)

    def _hooks(self, copied: Copied, flushed: Callable[[int], None] = lambda offset: None) -> Hooks:
        def count(size: int) -> None:
            copied.copied_bytes += size
            self._copied(size)

        return Hooks(self._limit_rate, count, flushed, self._is_stopped, self._max_record_bytes)

    def _limit_rate(self, size: int) -> None:
        if pause := self._limit.pause(size):
            self._stop.wait(pause)

    def _flushed(self, partition: TopicPartition, offset: int) -> None:
        self._target.flushed(partition, offset)
        if time.monotonic() >= self._next_checkpoint:
            self._next_checkpoint = time.monotonic() + _CHECKPOINT_SECONDS
            self._target.checkpoint()
