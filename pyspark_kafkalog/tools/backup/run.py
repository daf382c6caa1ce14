"""Backs up a place into a log directory: once, or again and again as records come.

What is wrong with one partition hinders none of the others; what is wrong with all, as a source that does not
answer or a directory that can't be written to, ends the run. But a source that is followed, and has answered
before, is tried again. An executor copies the partitions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, TypeVar

from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError, LogDirectoryError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.tools.backup.compacted import Tombstones, now_ms
from pyspark_kafkalog.tools.backup.copying import Copied, Executor
from pyspark_kafkalog.tools.backup.groups import SavedGroups, delete_earlier
from pyspark_kafkalog.tools.backup.plan import (
    BackedUpPartition,
    BackupPlan,
    BackupRules,
    Source,
    check_source,
    close,
    plan,
)

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.backup.copies.directory import BackupDirectory

_log = logging.getLogger("pyspark_kafkalog")
_T = TypeVar("_T")

_GROUPS_SECONDS = 10.0
"""The pause between look-ups of the offsets of groups while following."""
_NOTE_SECONDS = 60.0
"""The pause between notes that copies are complete while following."""
_STOP_SECONDS = 0.1
"""The time after which a look at the source that goes on is given up, once the run is stopped."""
_IDLE_SECONDS = 0.5
"""The time to wait for new records while following."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
"""Seconds until a partition with a problem is tried again: while a dead leader is asked, the others wait."""


class _StoppedError(Exception):
    """The run was stopped while it looked at its source."""


class Backup:
    """A run of a backup. Call :meth:`once` or :meth:`follow`, once.

    :param groups: those of the source; None to save no offsets of groups.
    :param saved: those of the directory; None if it has none.
    :param failed: called with a partition whose problem is new, or another one than before.
    """

    def __init__(
        self,
        source: Source,
        target: BackupDirectory,
        rules: BackupRules,
        executor: Executor,
        *,
        groups: GroupOffsets | None = None,
        saved: GroupOffsets | None = None,
        failed: Callable[[BackedUpPartition], None] = lambda row: None,
    ) -> None:
        self._source = source
        self._target = target
        self._rules = rules
        self._executor = executor
        self._saved = saved
        self._groups = None
        if groups is not None and saved is not None:
            self._groups = SavedGroups(groups, saved, rules.groups)
        self._tell = failed
        self._stop = threading.Event()
        self._is_hopeless = False
        """Whether the directory is damaged or its disk fails: going on could make that worse."""
        self._told: dict[TopicPartition, str | None] = {}
        self._later: dict[TopicPartition, tuple[float, float]] = {}
        """The time of the next attempt at a partition with a problem, and the pause until then."""
        self._rows: dict[TopicPartition, BackedUpPartition] = {}
        self._looked_at: set[TopicPartition] = set()
        self._leader_epochs: dict[TopicPartition, int | None] = {}
        """The time at which the partitions were last looked at."""
        self._next_groups = self._next_note = 0.0
        self._tombstones = Tombstones(target)
        self._complete: dict[TopicPartition, tuple[int, int]] = {}
        """The time (ms) at which each copy was last complete, and up to which offset."""

    def once(self) -> list[BackedUpPartition]:
        """Copy all that is there now. What came of each partition, sorted."""
        self._begin()
        self._pass()
        return self._end()

    def follow(self, stop: threading.Event) -> list[BackedUpPartition]:
        """Copy what is there, and what comes, until ``stop`` is set. What came of each partition, sorted.

        Partitions with a problem of the source are tried again, after growing pauses, and so is a source
        that has answered before. Damage in the directory, or an error of its disk, ends it when the others
        are copied.
        """
        self._stop = stop
        self._begin()
        answered = True
        while not stop.is_set() and not self._is_hopeless:
            before, now = self._bytes(), time.monotonic()
            try:
                self._pass([partition for partition, (when, _) in self._later.items() if now < when])
                answered = True
            except BrokerConnectionError as e:
                if not self._looked_at:
                    raise
                if answered:
                    _log.warning("The source does not answer, and is tried again: %s", e)
                answered = False
            except _StoppedError:
                break
            if before == self._bytes():
                stop.wait(_IDLE_SECONDS)
        return self._end()

    def _begin(self) -> None:
        check_source(self._source, self._target)
        if self._groups is not None:
            self._groups.check_names()

    def _bytes(self) -> int:
        return sum(row.copied_bytes for row in self._rows.values())

    def _pass(self, later: Collection[TopicPartition] = ()) -> None:
        """Copy what is there now, but of ``later``."""
        groups = self._groups if time.monotonic() >= self._next_groups else None
        if groups is not None:
            self._look(groups.read)
            self._next_groups = time.monotonic() + _GROUPS_SECONDS
        looked_at = now_ms()
        planned = self._look(lambda: plan(self._source, self._target, self._rules, later))
        if self._saved is not None and planned.bounds.keys() - self._looked_at:
            delete_earlier(self._saved, planned, self._target.partitions())
        self._update_rows(planned, later)
        for partition in sorted(planned.failures.keys() - later):
            self._fail(partition, planned.failures[partition])
        if self._rules.is_whole:
            self._tombstones.begin(planned, looked_at)
        due = [partition for partition in planned.bounds if self._is_due(partition, planned)]
        self._executor(planned, due, self._stop, lambda copied: self._take(copied, planned))
        self._target.checkpoint()
        if self._rules.is_whole and not self._stop.is_set():
            for partition in planned.bounds:
                if self._rows[partition].problem is None:
                    self._complete[partition] = looked_at, self._target.log_end_offset(partition)
        if time.monotonic() >= self._next_note:
            self._target.set_complete(self._complete)
            self._next_note = time.monotonic() + _NOTE_SECONDS
        if groups is not None:
            groups.save([self._rows[partition] for partition in self._looked_at])

    def _look(self, ask: Callable[[], _T]) -> _T:
        """The answer of the source, which is asked in a thread: if it is down, that takes over a minute.

        :raises _StoppedError: if the run is stopped before. The thread is left alone then.
        """
        found: Future[_T] = Future()

        def run() -> None:
            try:
                found.set_result(ask())
            except BaseException as e:
                found.set_exception(e)

        threading.Thread(target=run, name="look at the source", daemon=True).start()
        while not found.done() and not self._stop.is_set():
            wait([found], _STOP_SECONDS)
        if not found.done():
            raise _StoppedError
        return found.result()

    def _update_rows(self, planned: BackupPlan, later: Collection[TopicPartition]) -> None:
        """Bring the rows up to date; partitions that the source no longer has keep theirs."""
        wanted = self._rules.selection
        for partition in self._target.partitions() | planned.bounds.keys() | planned.failures.keys():
            if partition not in self._rows and wanted.covers(partition.topic):
                self._rows[partition] = BackedUpPartition(*partition)
                self._rows[partition].describe(self._target)
        for partition in self._rows.keys() - later:
            row, bounds = self._rows[partition], planned.bounds.get(partition)
            row.high_watermark = None if bounds is None else bounds.high_watermark
            if partition.topic in planned.problems:
                row.problem = planned.problems[partition.topic]
                self._report(partition)

    def _is_due(self, partition: TopicPartition, planned: BackupPlan) -> bool:
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

    def _take(self, copied: Copied, planned: BackupPlan) -> None:
        """Note what came of a partition.

        :raises KafkaLogError: if nothing can be copied of any partition.
        """
        partition, row = copied.partition, self._rows[copied.partition]
        row.copied_bytes += copied.copied_bytes
        row.truncated += copied.truncated
        row.renewed |= copied.renewed
        if copied.error is not None:
            self._fail(partition, copied.error)
        else:
            row.problem = copied.problem
            self._report(partition)
        row.describe(self._target)
        self._looked_at.add(partition)
        self._leader_epochs[partition] = planned.leader_epochs.get(partition)

    def _fail(self, partition: TopicPartition, error: KafkaLogError) -> None:
        """Note the error of a partition.

        :raises KafkaLogError: if the source answers nothing at all.
        """
        if isinstance(error, LogDirectoryError):
            self._target.discard(partition)
            self._is_hopeless = True
        else:
            self._look(self._source.cluster_id)
        self._rows[partition].problem = str(error)
        self._report(partition)

    def _report(self, partition: TopicPartition) -> None:
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

    def _end(self) -> list[BackedUpPartition]:
        """Close the directory; what came of each partition, sorted."""
        self._target.set_complete(self._complete)
        for partition in close(self._target, self._rows):
            self._report(partition)
        about_groups = [] if self._groups is None else self._groups.rows()
        return about_groups + [self._rows[partition] for partition in sorted(self._rows)]
