"""What a streaming query has finished, committed to its consumer group, so that every lag tool sees it.

Spark's checkpoint decides where a query goes on; the group only tells others. So
a commit comes after the micro-batch that it tells of, never before, and one that
fails is made up for by the next.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import CommittedOffset, GroupOffsets, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.streams.query_log import QueryLog

TIMEOUT = 2.0
"""Seconds that a commit may hold up a query."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds without another attempt after one that failed, doubled with each that fails."""
METADATA = "pyspark-kafkalog"
"""What lag tools show beside our commits."""
_FIRST_LOOK, _LONGEST_WAIT = 0.3, 1.0
"""Seconds between two looks whether a micro-batch is complete, the longer the longer it takes.

Spark itself asks sooner after a short one, if another follows.
"""

_log = logging.getLogger("pyspark_kafkalog")


AsCommitted = Callable[[Offsets], Mapping[TopicPartition, CommittedOffset]]
"""What is to be committed once all below some offsets is processed. May read, in the thread of commits."""


def as_they_are(offsets: Offsets) -> Mapping[TopicPartition, CommittedOffset]:
    """Commit offsets as such."""
    return {partition: CommittedOffset(offset, metadata=METADATA) for partition, offset in offsets.items()}


class OffsetCommitter:
    """Commits for one query what is news to its group, in a thread of its own.

    :param groups: the place's, opened by the caller: imports that two threads begin can deadlock.
    :param required: raise where a commit fails, instead of a warning and another attempt later.
    :param as_committed: if it fails, so does the commit.
    :param clock: seconds that only grow.
    """

    def __init__(
        self,
        groups: GroupOffsets,
        group: str,
        *,
        required: bool,
        as_committed: AsCommitted = as_they_are,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._groups = groups
        self._group = group
        self._required = required
        self._as_committed = as_committed
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "kafkalog commits")
        self._last: Future[None] | None = None
        self._finished: Offsets = {}
        self._committed: Offsets = {}
        self._pause = 0.0
        self._not_before = float("-inf")

    def finished(self, offsets: Offsets, *, wait: bool = True) -> None:
        """Commit those of ``offsets`` that have changed, all of which the query has processed.

        :param wait: until it is committed. Without this, and unless it is required, the commit goes
            on while the query does; those that wait for one under way become one, of the latest.
        :raises KafkaLogError: if it fails and is required.
        """
        self._finished = offsets
        if wait or self._required:
            self._thread.submit(self._commit, offsets).result()
        elif self._last is None or self._last.running() or self._last.done():
            self._last = self._thread.submit(lambda: self._commit(self._finished))

    def settle(self) -> None:
        """Wait until all that is finished is committed, or has failed to be, for 2 seconds at most.

        Spark kills its planner when a query is stopped, so what is not committed by then is not
        before the query starts again.
        """
        if self._last is not None:
            wait_for([self._last], TIMEOUT)

    def prepare(self, offsets: Offsets) -> None:
        """Read what a commit of ``offsets`` will need, if anything, so that it takes no longer than others.

        :raises KafkaLogError: if that fails.
        """
        self._thread.submit(self._prepare, offsets).result()

    def _prepare(self, offsets: Offsets) -> None:
        if (news := self._news(offsets)) and self._clock() >= self._not_before:
            self._as_committed(news)

    def _news(self, offsets: Offsets) -> Offsets:
        return {
            partition: offset
            for partition, offset in offsets.items()
            if self._committed.get(partition) != offset
        }

    def _commit(self, offsets: Offsets) -> None:
        news = self._news(offsets)
        if not news or self._clock() < self._not_before:
            return
        try:
            self._groups.commit(self._group, self._as_committed(news))
        except Exception as e:
            # Whatever it is, a query that reads on is worth more than its lag.
            if self._required:
                raise
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            self._not_before = self._clock() + self._pause
            trouble = e if isinstance(e, KafkaLogError) else repr(e)
            _log.warning(
                "What group %s has read is not committed, next attempt in %.0f s: %s",
                self._group,
                self._pause,
                trouble,
            )
            return
        self._committed.update(offsets)
        self._pause = 0.0


class CompletionWatch:
    """Commits a micro-batch when Spark's commit log has it, without waiting for Spark's next question.

    Spark asks at the next trigger, which may be hours away, or never come. This
    needs to know the query's checkpoint, and has a thread and connections of its own.
    """

    def __init__(self, log: QueryLog, committer: OffsetCommitter) -> None:
        self._log = log
        self._committer = committer
        self._changed = threading.Condition()
        self._end: Offsets | None = None
        self._thread: threading.Thread | None = None

    def begin(self, end: Offsets) -> None:
        """Watch the micro-batch that ends at ``end``, which Spark has just planned."""
        with self._changed:
            self._end = end
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="kafkalog commits", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Spark has asked, so there is nothing to watch. A commit that is under way is waited for."""
        with self._changed:
            if self._end is not None:
                self._end = None
                self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._end is not None)
                end = self._end
            try:
                if end is not None and self._becomes_complete(end):
                    self._committer.prepare(end)
                    with self._changed:
                        if self._end is end:
                            self._committer.finished(end)
            except Exception as e:
                # The commit at Spark's next question tells the user, if it fails too.
                _log.debug("A micro-batch was not committed when it was complete: %r", e)
            with self._changed:
                if self._end is end:
                    self._end = None

    def _becomes_complete(self, end: Offsets) -> bool:
        """Wait for it; False if there is no more need to."""
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
