"""Backs up a place into a log directory: once, or again and again as records come.

What is wrong with one partition hinders none of the others; what is wrong with all, as a source that does not
answer or a directory that can't be written to, ends the run.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from pyspark_kafkalog.backups.compacted import Tombstones, now_ms
from pyspark_kafkalog.backups.copying import GapError, Hooks, bring_up_to_date
from pyspark_kafkalog.backups.groups import SavedGroups, delete_commits, delete_earlier
from pyspark_kafkalog.backups.history import DivergedError, UnprovenError
from pyspark_kafkalog.backups.plan import (
    GONE,
    BackedUpPartition,
    BackupRules,
    Bounds,
    Plan,
    Source,
    bounds_of,
    changed_topic,
    check_source,
    close,
    plan,
    whole_batch,
)
from pyspark_kafkalog.backups.rate import RateLimit
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, KafkaLogError, LogDirectoryError
from pyspark_kafkalog.groups import GroupOffsets
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.topics import INTERNAL_TOPICS

if TYPE_CHECKING:
    from pyspark_kafkalog.log.backup.directory import BackupDirectory

_CHECKPOINT_SECONDS = 5.0
_GROUPS_SECONDS = 10.0
"""How often the offsets of groups are looked up while following."""
_NOTE_SECONDS = 60.0
"""How often it is noted while following that copies are complete."""
_IDLE_SECONDS = 0.5
"""How long to wait for new records while following."""
_ATTEMPTS = 5
"""How often to look again at a partition whose log has just changed."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
"""Seconds until a partition with a problem is tried again: while a dead leader is asked, the others wait."""


class Backup:
    """One run, of which :meth:`once` or :meth:`follow` is called, once.

    :param open_source: opens the source, for the thread that calls it.
    :param groups: those of the source; None to save no offsets of groups.
    :param saved: those of the directory; None if it has none.
    :param copied: called, from any thread, with the number of bytes that were copied.
    :param failed: called, from any thread, with a partition whose problem is new, or another one than before.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        target: BackupDirectory,
        rules: BackupRules,
        *,
        groups: GroupOffsets | None = None,
        saved: GroupOffsets | None = None,
        copied: Callable[[int], None] = lambda size: None,
        failed: Callable[[BackedUpPartition], None] = lambda row: None,
    ) -> None:
        self._open_source = open_source
        self._own = threading.local()
        self._target = target
        self._rules = rules
        self._saved = saved
        self._groups = None
        if groups is not None and saved is not None:
            self._groups = SavedGroups(groups, saved, rules.groups)
        self._copied, self._tell = copied, failed
        self._stop = threading.Event()
        self._failed = threading.Event()
        self._hopeless = threading.Event()
        """Whether something is wrong with the directory, which this process only makes worse."""
        self._told: dict[TopicPartition, str | None] = {}
        self._later: dict[TopicPartition, tuple[float, float]] = {}
        """For partitions with a problem: when to try again, and the pause until then."""
        self._limit = RateLimit(rules.rate)
        self._rows: dict[TopicPartition, BackedUpPartition] = {}
        self._looked_at: set[TopicPartition] = set()
        self._leader_epochs: dict[TopicPartition, int | None] = {}
        """When the partitions were last looked at."""
        self._next_checkpoint = self._next_groups = self._next_note = 0.0
        self._tombstones = Tombstones(target)
        self._complete: dict[TopicPartition, tuple[int, int]] = {}
        """When the copies of partitions were last complete (ms), and up to where."""

    def once(self) -> list[BackedUpPartition]:
        """Copy all that is there now. What came of each partition, sorted."""
        self._begin()
        self._pass()
        self._close()
        return self.rows()

    def follow(self, stop: threading.Event) -> list[BackedUpPartition]:
        """Copy what is there, and what comes, until ``stop`` is set. What came of each partition, sorted.

        Partitions with a problem of the source are tried again, after growing pauses. Damage in the
        directory, or an error of its disk, ends it when the others are copied.
        """
        self._stop = stop
        self._begin()
        while not stop.is_set() and not self._hopeless.is_set():
            before, now = self._bytes(), time.monotonic()
            self._pass([partition for partition, (when, _) in self._later.items() if now < when])
            if before == self._bytes():
                stop.wait(_IDLE_SECONDS)
        self._close()
        return self.rows()

    def rows(self) -> list[BackedUpPartition]:
        """What came of each partition so far, sorted."""
        about_groups = [] if self._groups is None else self._groups.rows()
        return about_groups + [self._rows[partition] for partition in sorted(self._rows)]

    def _begin(self) -> None:
        check_source(self._source, self._target)
        if self._groups is not None:
            self._groups.check_names()

    @property
    def _source(self) -> Source:
        """The source, over this thread's connections to it."""
        if not hasattr(self._own, "source"):
            self._own.source = self._open_source()
        source: Source = self._own.source
        return source

    def _bytes(self) -> int:
        return sum(row.copied_bytes for row in self._rows.values())

    def _pass(self, later: Collection[TopicPartition] = ()) -> None:
        """Copy what is there now, but of ``later``."""
        groups = self._groups if time.monotonic() >= self._next_groups else None
        if groups is not None:
            groups.read()
            self._next_groups = time.monotonic() + _GROUPS_SECONDS
        looked_at = now_ms()
        planned = plan(self._source, self._target, self._rules, later)
        if self._saved is not None and planned.bounds.keys() - self._looked_at:
            delete_earlier(self._saved, planned, self._target.partitions())
        self._note(planned, later)
        for partition in sorted(planned.failures.keys() - later):
            self._fail(partition, planned.failures[partition])
        if self._rules.is_whole:
            self._tombstones.begin(planned, looked_at)
        self._copy_all([p for p in planned.bounds if self._is_due(p, planned)], planned)
        self._target.checkpoint()
        if self._rules.is_whole and not self._is_stopped():
            for partition in planned.bounds:
                if self._rows[partition].problem is None:
                    self._complete[partition] = looked_at, self._target.log_end_offset(partition)
        if time.monotonic() >= self._next_note:
            self._target.set_complete(self._complete)
            self._next_note = time.monotonic() + _NOTE_SECONDS
        if groups is not None:
            groups.save([self._rows[partition] for partition in self._looked_at])

    def _note(self, planned: Plan, later: Collection[TopicPartition]) -> None:
        """Bring the rows up to date; partitions that the source no longer has keep theirs."""
        rules = self._rules
        for partition in self._target.partitions() | planned.bounds.keys() | planned.failures.keys():
            is_wanted = partition.topic in rules.topics or not (
                rules.topics or partition.topic in INTERNAL_TOPICS
            )
            if partition not in self._rows and is_wanted and partition.topic not in rules.exclude:
                self._rows[partition] = BackedUpPartition(*partition)
                self._rows[partition].describe(self._target)
        for partition in self._rows.keys() - later:
            row, bounds = self._rows[partition], planned.bounds.get(partition)
            row.high_watermark = None if bounds is None else bounds.high_watermark
            if partition.topic in planned.problems:
                row.problem = planned.problems[partition.topic]
                self._noted(partition)

    def _is_due(self, partition: TopicPartition, planned: Plan) -> bool:
        """Whether to look at a partition: first of all, and whenever its source has another end or leader.

        A log that its new leader has truncated may end where the old one did.
        """
        row = self._rows[partition]
        return (
            partition not in self._looked_at
            or bool(row.problem)
            or row.log_end_offset != planned.bounds[partition].end
            or self._leader_epochs.get(partition) != planned.leader_epochs.get(partition)
        )

    def _copy_all(self, partitions: Collection[TopicPartition], planned: Plan) -> None:
        """Copy partitions by several threads; the first error that is not a partition's own ends it."""
        due: queue.SimpleQueue[TopicPartition] = queue.SimpleQueue()
        for partition in partitions:
            due.put(partition)

        def work() -> None:
            while not self._is_stopped():
                try:
                    partition = due.get_nowait()
                except queue.Empty:
                    return
                self._copy(partition, planned)

        with ThreadPoolExecutor(self._rules.threads) as pool:
            futures = [pool.submit(work) for _ in range(min(self._rules.threads, due.qsize()))]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._failed.set()
                raise

    def _is_stopped(self) -> bool:
        return self._stop.is_set() or self._failed.is_set()

    def _copy(self, partition: TopicPartition, planned: Plan) -> None:
        """Copy a partition, or say in its row why that can't be.

        :raises KafkaLogError: if nothing can be copied of any partition.
        """
        try:
            with self._target.disk_errors(partition):
                self._try(partition, planned)
        except KafkaLogError as e:
            self._fail(partition, e)
        else:
            self._noted(partition)
        self._rows[partition].describe(self._target)
        self._looked_at.add(partition)
        self._leader_epochs[partition] = planned.leader_epochs.get(partition)

    def _fail(self, partition: TopicPartition, error: KafkaLogError) -> None:
        """Note the error of a partition.

        :raises KafkaLogError: if the source answers nothing at all.
        """
        if isinstance(error, LogDirectoryError):
            self._target.discard(partition)
            self._hopeless.set()
        else:
            self._source.cluster_id()
        self._rows[partition].problem = str(error)
        self._noted(partition)

    def _noted(self, partition: TopicPartition) -> None:
        """Tell a partition's problem if it is new, and see that it is not tried again at once."""
        row = self._rows[partition]
        if row.problem is None:
            self._later.pop(partition, None)
        else:
            pause = min(2 * self._later.get(partition, (0.0, _FIRST_PAUSE / 2))[1], _LONGEST_PAUSE)
            self._later[partition] = time.monotonic() + pause, pause
            if self._told.get(partition) != row.problem:
                self._tell(row)
        self._told[partition] = row.problem

    def _try(self, partition: TopicPartition, planned: Plan) -> None:
        """Copy a partition, as far as the rules allow it; else its row has the problem."""
        row, bounds = self._rows[partition], planned.bounds.get(partition)
        for _ in range(_ATTEMPTS):
            if bounds is None:
                row.problem = GONE
                break
            try:
                self._bring_up_to_date(partition, bounds, planned)
                row.problem = self._without_tombstones(partition, bounds, planned)
                break
            except CorruptRecordError as e:
                self._target.discard(partition)
                row.problem = str(e)
                break
            except (GapError, DivergedError, DataLossError) as e:
                changed = changed_topic(self._source, partition.topic, planned.topic_ids[partition.topic])
                row.problem = changed or str(e)
                if changed or not self._can_go_on(partition, e, planned):
                    break
                found, failures = bounds_of(self._source, [partition], self._rules)
                for error in failures.values():
                    raise error from e
                bounds = found.get(partition)

    def _can_go_on(self, partition: TopicPartition, error: Exception, planned: Plan) -> bool:
        """Make the log one that the source's can follow, as far as the rules allow it."""
        if isinstance(error, GapError):
            if self._rules.allow_gaps and not planned.topic_ids[partition.topic]:
                raise UnprovenError(partition, "all that it shared with the copy was deleted")
            if self._rules.allow_gaps:
                self._target.add_gap(partition, error.offsets)
            return self._rules.allow_gaps
        if isinstance(error, DivergedError):
            if error.is_whole or not self._rules.truncate:
                return False
            start, end = error.offsets
            if self._saved is not None:
                delete_commits(self._saved, {partition: start})
            self._target.truncate(partition, planned.settings[partition.topic], start)
            self._rows[partition].truncated.append(OffsetRange(start, end))
        return True

    def _bring_up_to_date(self, partition: TopicPartition, bounds: Bounds, planned: Plan) -> None:
        """Copy a partition up to its planned end."""
        target, topic_id = self._target, planned.topic_ids[partition.topic]
        if self._rules.since is not None and target.is_empty(partition):
            first = whole_batch(self._source, partition, bounds.first)
            bounds = bounds._replace(first=max(first, bounds.log_start_offset))
        is_new = target.topic_id(partition) is None
        log = target.open(partition, planned.settings[partition.topic], start=bounds.first, topic_id=topic_id)
        hooks = Hooks(self._limit_rate, self._count, self._flushed, self._is_stopped)
        try:
            bring_up_to_date(self._source, log, bounds, topic_id, hooks)
            if target.log_end_offset(partition) != log.next_offset:  # a killed run has left more
                self._flushed(partition, log.flush())
        except KafkaLogError:
            if is_new and log.is_empty:  # it would look like a partition without records
                target.remove_empty(partition)
            raise
        finally:
            log.close(cleanly=False)

    def _without_tombstones(self, partition: TopicPartition, bounds: Bounds, planned: Plan) -> str | None:
        """What is wrong with a copy that may lack tombstones, unless it is copied again."""
        if not self._rules.is_whole or self._is_stopped():
            return None
        problem = self._tombstones.problem(self._source, partition)
        if problem is None or not self._rules.renew_compacted:
            return problem
        topic_id, begun = planned.topic_ids[partition.topic], now_ms()
        start = bounds.log_start_offset
        log = self._target.begin_anew(
            partition, planned.settings[partition.topic], start=start, topic_id=topic_id
        )
        hooks = Hooks(self._limit_rate, self._count, stopped=self._is_stopped)
        try:
            bring_up_to_date(self._source, log, bounds, topic_id, hooks)
            if self._is_stopped():
                return problem
            self._target.exchange(partition, log, start, begun)
        finally:
            log.close(cleanly=False)
        self._rows[partition].renewed = True
        return self._tombstones.problem(self._source, partition)

    def _close(self) -> None:
        self._target.set_complete(self._complete)
        for partition in close(self._target, self._rows):
            self._noted(partition)

    def _limit_rate(self, size: int) -> None:
        if pause := self._limit.pause(size):
            self._stop.wait(pause)

    def _count(self, partition: TopicPartition, size: int) -> None:
        self._rows[partition].copied_bytes += size
        self._copied(size)

    def _flushed(self, partition: TopicPartition, offset: int) -> None:
        self._target.flushed(partition, offset)
        if time.monotonic() >= self._next_checkpoint:
            self._next_checkpoint = time.monotonic() + _CHECKPOINT_SECONDS
            self._target.checkpoint()
