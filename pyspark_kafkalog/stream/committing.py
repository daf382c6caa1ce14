"""Commits what a streaming query has finished to its consumer group, so that every lag tool sees it.

Spark's checkpoint decides where a query continues; the group only informs others. So
a commit follows its micro-batch and never precedes it, and the next commit makes
up for one that failed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.groups import CommittedOffsets, TakesCommits
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.read.partitions import names_of
from pyspark_kafkalog.stream.checkpoint import QueryLog

TIMEOUT = 2.0
"""The most seconds that a commit may delay a query."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds to wait after a failed attempt, doubled with each failure."""
REPEAT = 3600.0
"""Seconds after which all offsets are committed again: meanwhile brokers drop those that don't change
(``offsets.retention.minutes``), and others may move the group or restore an older ``__consumer_offsets``.
"""
METADATA = "pyspark-kafkalog"
"""The metadata of our commits, which lag tools show."""
_FIRST_LOOK, _LONGEST_WAIT = 0.3, 1.0
"""Seconds between checks whether a micro-batch is complete; they grow while it runs.

After a short micro-batch Spark itself asks sooner, if another follows.
"""

_log = logging.getLogger("pyspark_kafkalog")


AsCommitted = Callable[[Offsets], Mapping[TopicPartition, CommittedOffset]]
"""Gives the commits for offsets below which all is processed. It may read, in the committing thread."""


def as_they_are(offsets: Offsets) -> Mapping[TopicPartition, CommittedOffset]:
    """Commit the offsets themselves."""
    return {partition: CommittedOffset(offset, metadata=METADATA) for partition, offset in offsets.items()}


class OffsetCommitter:
    """Commits the changed offsets of one query to its group, in a thread of its own.

    :param groups: of the place; opened by the caller, since imports in two threads can deadlock.
    :param before: has what earlier runs have committed; None if the group decides where the query goes on.
        Where it is further than the first commit of this run, it stays there: the checkpoint may have been
        set back, and then only the group knows how far its query was.
    :param required: if a commit fails, raise instead of logging a warning and trying again later.
    :param as_committed: if it fails, so does the commit.
    :param clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        groups: TakesCommits,
        group: str,
        *,
        required: bool,
        before: CommittedOffsets | None = None,
        as_committed: AsCommitted = as_they_are,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._groups = groups
        self._group = group
        self._required = required
        self._before = before
        self._as_committed = as_committed
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "kafkalog-commits")
        self._last: Future[None] | None = None
        self._finished: Offsets = {}
        self._committed: Offsets = {}
        self._pause = 0.0
        self._not_before = float("-inf")
        self._repeated = clock()

    def finished(self, offsets: Offsets, *, wait: bool = True) -> None:
        """Commit those of ``offsets`` that have changed; the query has processed everything below them.

        :param wait: wait for the commit. Otherwise, unless commits are required, it runs in the
            background, and commits that wait for a running one are merged into the latest.
        :raises KafkaLogError: if the commit fails and commits are required.
        """
        self._finished = offsets
        if wait or self._required:
            self._thread.submit(self._commit, offsets).result()
        elif self._last is None or self._last.running() or self._last.done():
            self._last = self._thread.submit(lambda: self._commit(self._finished))

    def flush(self) -> None:
        """Wait at most 2 seconds until everything finished is committed, or the commit has failed.

        Spark kills its planner when a query is stopped. What is not committed by then is
        committed when the query starts again.
        """
        if self._last is not None:
            wait_for([self._last], TIMEOUT)

    def end(self, offsets: Offsets | None) -> None:
        """The query has ended: like :meth:`finished`, if it has finished more; wait at most 2 seconds."""
        last = self._thread.submit(self._commit, offsets) if offsets else self._thread.submit(lambda: None)
        wait_for([last], TIMEOUT)

    def prepare(self, offsets: Offsets) -> None:
        """Read in advance what a commit of ``offsets`` needs, so that the commit itself is fast.

        :raises KafkaLogError: if the read fails.
        """
        self._thread.submit(self._prepare, offsets).result()

    def _prepare(self, offsets: Offsets) -> None:
        if (uncommitted := self._uncommitted(offsets)) and self._clock() >= self._not_before:
            self._as_committed(uncommitted)

    def _uncommitted(self, offsets: Offsets) -> Offsets:
        return {
            partition: offset
            for partition, offset in offsets.items()
            if self._committed.get(partition) != offset
        }

    def _commit(self, offsets: Offsets) -> None:
        self._commit_changed(offsets)
        if self._clock() - self._repeated < REPEAT:
            return
        self._repeated = self._clock()
        try:
            self._groups.commit(self._group, self._as_committed(offsets))
        except Exception as e:
            # What is required is committed by now. A topic that was deleted must not end the query here.
            _log.debug("The offsets of group %s were not committed again: %r", self._group, e)

    def _commit_changed(self, offsets: Offsets) -> None:
        uncommitted = self._uncommitted(offsets)
        if not uncommitted or self._clock() < self._not_before:
            return
        try:
            if commits := self._not_back(self._as_committed(uncommitted)):
                self._groups.commit(self._group, commits)
        except Exception as e:
            # A query that keeps reading is worth more than its reported lag, whatever the error.
            if self._required:
                raise
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            self._not_before = self._clock() + self._pause
            trouble = e if isinstance(e, KafkaLogError) else repr(e)
            _log.warning(
                "The offsets of group %s were not committed; next attempt in %.0f s: %s",
                self._group,
                self._pause,
                trouble,
            )
            return
        self._before = None
        self._committed.update(offsets)
        self._pause = 0.0

    def _not_back(
        self, commits: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """``commits``; of the first ones those that don't set the group back."""
        if self._before is None:
            return commits
        found = self._before.committed(self._group, list(commits))
        ahead = {p: now.offset for p, now in found.items() if now.offset > commits[p].offset}
        if ahead:
            first = min(ahead)
            _log.warning(
                "Group %s is ahead of the checkpoint in %s: the first is at %d, not at %d. If kafkalog"
                " checkpoint has set it back, the group follows. If it was restored from an older copy, begin"
                " with a new one: on this one, sinks that count micro-batches, as files and Delta do, leave"
                " rows out.",
                self._group,
                names_of(sorted(ahead)),
                ahead[first],
                commits[first].offset,
            )
        return {partition: commit for partition, commit in commits.items() if partition not in ahead}


class CompletionWatch:
    """Commits a micro-batch as soon as it is in Spark's commit log, before Spark calls the source again.

    Spark calls at the next trigger, which may be hours away or never come. The watch needs the
    query's checkpoint, and has its own thread and connections.

    :param own: what of the end of a micro-batch is committed.
    :param committed: called once that is done.
    """

    def __init__(
        self,
        log: QueryLog,
        committer: OffsetCommitter,
        *,
        own: Callable[[Offsets], Offsets] = lambda end: end,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._committer = committer
        self._own = own
        self._committed = committed
        self._changed = threading.Condition()
        self._end: Offsets | None = None
        self._thread: threading.Thread | None = None

    def begin(self, end: Offsets) -> None:
        """Watch the micro-batch that ends at ``end``, which Spark has just planned."""
        with self._changed:
            self._end = end
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="kafkalog-commits", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop watching, since Spark has called. Waits for a running commit."""
        with self._changed:
            if self._end is not None:
                self._end = None
                self._changed.notify()

    def end(self) -> None:
        """The query has ended: commit the micro-batch if it is complete, in seconds."""
        if not self._changed.acquire(timeout=TIMEOUT):
            return  # a commit hangs
        try:
            end, self._end = self._end, None
            batch = None if end is None else self._log.batch_to(end)
            is_complete = batch is not None and self._log.is_complete(batch)
            self._committer.end(self._own(end) if is_complete and end is not None else None)
        except Exception as e:
            _log.debug("Could not see whether the last micro-batch was complete: %r", e)
        finally:
            self._changed.release()

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._end is not None)
                end = self._end
            try:
                if end is not None and self._becomes_complete(end):
                    self._committer.prepare(self._own(end))
                    with self._changed:
                        if self._end is end:
                            self._committer.finished(self._own(end))
                            self._committed()
            except Exception as e:
                # If the commit at Spark's next call fails, too, it is reported there.
                _log.debug("Could not commit a micro-batch when it was complete: %r", e)
            with self._changed:
                if self._end is end:
                    self._end = None

    def _becomes_complete(self, end: Offsets) -> bool:
        """Wait until the micro-batch is complete; False if the watch has been stopped."""
        pause = _FIRST_LOOK
        batch: int | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._end is not end, pause)
                if self._end is not end:
                    return False
            if batch is None:
                batch = self._log.batch_to(end)
            if batch is None or self._log.is_complete(batch):
                return batch is not None
            pause = min(1.5 * pause, _LONGEST_WAIT)
