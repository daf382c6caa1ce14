"""The driver's part of a stream: it plans micro-batches, and commits them to the query's group."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from pyspark_kafkalog.garbage import loading
from pyspark_kafkalog.model import LATEST
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets, to_json
from pyspark_kafkalog.places import identity, import_reading, open_groups, open_place
from pyspark_kafkalog.read.messages import messages_of
from pyspark_kafkalog.read.record_sizes import RecordSizes
from pyspark_kafkalog.read.splits import Split
from pyspark_kafkalog.saying import name_work, said
from pyspark_kafkalog.spark.features import StreamCalls
from pyspark_kafkalog.spark.reader import LogInputPartition, LogReader
from pyspark_kafkalog.spark.worker import exit_if_stopped, exit_when_stopped
from pyspark_kafkalog.stream.checkpoint import NamedCheckpoint, QueryLog, check_apart
from pyspark_kafkalog.stream.committing import TIMEOUT, CompletionWatch, OffsetCommitter, as_they_are
from pyspark_kafkalog.stream.planner import StreamPlanner
from pyspark_kafkalog.stream.share import Share, StreamRun, sharing_of
from pyspark_kafkalog.stream.source_state import Reader, SourceState

if TYPE_CHECKING:
    from pyspark_kafkalog.model import Place
    from pyspark_kafkalog.stream.committing import AsCommitted

_log = logging.getLogger("pyspark_kafkalog")

_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 0.1
_PAUSE_PER_IDLE_SECOND = 0.05
_PAUSE_PER_CPU_SECOND = 60
_TOPICS_SECONDS = 1.0
"""The longest time until a new topic of a cluster is noticed; metadata.max.age.ms can shorten it."""
_DIRECTORY_SECONDS = 2.0
"""The longest pause before an idle stream looks at a directory, where a look is at each partition."""
_FIRST_HAS_NO_LIMIT = (
    "This Spark does not tell a source its trigger, so the first micro-batch of a run has no limit, and with"
    " Trigger.AvailableNow it holds everything. Later ones keep to the options. Unless the trigger is"
    " AvailableNow or Once, limitFirstTrigger=true limits the first, too."
)
_FIRST_IS_LIMITED = (
    "limitFirstTrigger=true: on this Spark, a run with Trigger.AvailableNow or Once ends after one limited"
    " micro-batch. The next run reads on from there."
)

_RESUMED_WITHOUT_CHECKPOINT = (
    "This query goes on from an earlier run, and its reader is not given the checkpoint: a topic that was"
    " recreated, or a log that went back, between the runs may not be noticed. %s"
)
_LATEST_WITHOUT_CHECKPOINT = (
    "This query starts at the latest records. If it fails in its first micro-batch, its next run starts at"
    " what is latest by then, and skips what came in between, unless its reader is given the checkpoint. %s"
)
_GIVE_CHECKPOINT = (
    'Add .option("checkpointLocation", "…") to readStream, as to writeStream, or begin with'
    " pyspark_kafkalog.QueryCheckpoint, which gives it to both."
)


def _store_nothing(*content: object) -> None:
    """Store nothing: the user names no checkpoint."""


class MicroBatches:
    """The micro-batches of one run of a query (Spark's MicroBatchStream)."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._options = reader.options
        self._place_options = reader.place_options
        self._looked_up = self._changed = float("-inf")
        self._lookup_began = self._lookup_took = 0.0
        """The thread's CPU time when the last lookup began, and how much it took, in seconds."""
        self._start: tuple[dict[str, Any], Offsets] | None = None
        self._calls = StreamCalls()
        self._has_planned = False
        name_work(reader.about)

    @cached_property
    def _planner(self) -> StreamPlanner:
        brokers, group, state = self._place_options.brokers, self._options.group.group_id, self._source_state
        once_own = self._checkpoint.once_own
        if self._place_options.offsets_store is not None and group is not None:
            self._reader.open_committed().committed(group, ())  # is it there, and the brokers'?
        return StreamPlanner(
            self._place,
            self._options,
            topic_ids={} if state is None else state.topic_ids(),
            store_topic_ids=once_own(_store_nothing if state is None else state.store_topic_ids),
            shared={} if state is None else state.shared(),
            store_shared=once_own(_store_nothing if state is None else state.store_shared),
            groups=self._reader.open_committed,
            share=self._share,
            topics_max_age=0 if brokers is None else min(_TOPICS_SECONDS, brokers.metadata_max_age_ms / 1000),
        )

    @cached_property
    def _checkpoint(self) -> NamedCheckpoint:
        return NamedCheckpoint(self._options.checkpoint_location)

    @cached_property
    def _place(self) -> Place:
        return self._reader.open_place()

    @cached_property
    def _record_sizes(self) -> RecordSizes:
        return RecordSizes(self._place)

    @cached_property
    def _query_id(self) -> str:
        """The id of the query whose checkpoint the user names; empty without one."""
        location = self._options.checkpoint_location
        if location is None:
            return ""
        check_apart(location, self._place_options.paths)
        query_id = QueryLog(location).query_id()
        name_work(f"query {query_id}, {self._reader.about}")
        return query_id

    @cached_property
    def _initial(self) -> Offsets:
        state, options = self._source_state, self._options
        with said("Looking up where the query starts"):
            if state is None:
                found = self._choose_start()
            else:
                others = options.no_match_is_latest, options.group.none_committed
                found = state.start_offsets(options.starting, self._choose_start, others)
                self._checkpoint.once_own(state.store_start_offsets)()
        return found

    def _choose_start(self) -> Offsets:
        messages_of(self._options).check_start(self._options, self._place)
        return self._planner.initial_offsets()

    @cached_property
    def _share(self) -> Share:
        share = sharing_of(self._options).open(
            StreamRun(
                self._options,
                self._place_options,
                self._place,
                self._reader.open_committed,
                self._as_committed,
                dict if self._source_state is None else self._source_state.begins,
                self._store_begins,
            )
        )
        if share.has_others:
            exit_when_stopped()
        return share

    def _store_begins(self, begins: Offsets) -> None:
        if self._checkpoint.is_own and self._source_state is not None:
            self._source_state.store_begins(begins)

    @cached_property
    def _committer(self) -> OffsetCommitter | None:
        group = self._options.group
        if group.group_id is None or not group.commits:
            return None
        required = group.required or self._share.has_others
        # A required commit waits for the failover of its coordinator.
        timeout = None if required else TIMEOUT
        groups, before = self._share.takes_commits(partial(open_groups, self._place_options, timeout=timeout))
        return OffsetCommitter(
            groups, group.group_id, required=required, before=before, as_committed=self._as_committed()
        )

    def _as_committed(self) -> AsCommitted:
        """The commits for processed offsets, for one thread.

        All is imported now, since imports in two threads can deadlock.
        """
        with loading():
            found = messages_of(self._options).as_committed(
                partial(open_place, self._place_options), self._reader.rules()
            )
            if found is None:
                return as_they_are
            import_reading(self._place_options)
        return found

    @cached_property
    def _watch(self) -> CompletionWatch | None:
        if self._committer is None or self._options.checkpoint_location is None:
            return None
        log, share = QueryLog(self._options.checkpoint_location), self._share
        return CompletionWatch(log, self._committer, own=share.own, committed=share.release)

    @cached_property
    def _source_state(self) -> SourceState | None:
        """The state that the query stores beside the checkpoint that the user names; None without one."""
        location, options, place = self._options.checkpoint_location, self._options, self._place_options
        if location is None:
            return None
        given = place.paths if place.brokers is None else place.brokers.bootstrap_servers
        return SourceState(
            location,
            Reader(
                self._identity[1],
                options.selection,
                options.group.group_id,
                source=(given, options.selection),
            ),
        )

    @cached_property
    def _identity(self) -> tuple[str | None, str]:
        with loading():
            return identity(self._place_options)

    @property
    def initial(self) -> dict[str, dict[str, int]]:
        """The start offsets of a query without a checkpoint, chosen once: Spark asks more than once."""
        return to_json(self._initial)

    def latest_offset(self, start: dict[str, Any] | None, *, all_available: bool | None) -> dict[str, Any]:
        """The end offsets of the next micro-batch; ``start`` itself if there is none.

        All micro-batches up to ``start`` are complete. This call is the first sign of it, since
        Spark calls :meth:`commit` only when it plans the next one.

        :param all_available: whether it has no limit; None if Spark tells neither this nor ``start``.
        """
        if all_available is None:
            start, all_available = self._calls.begin, self._must_not_limit()
        begin = self._initial if start is None else self._parsed(start)
        known = self._planner.latest
        self._commit(begin, wait=False)
        self._wait_while_idle()
        end = self._planner.next_offsets(begin, all_available=all_available)
        if self._planner.latest is not known and self._planner.latest != known:
            self._changed = self._looked_up
        self._lookup_took = time.thread_time() - self._lookup_began
        if end is begin or end == begin:
            # No micro-batch follows, and this may be Spark's last call.
            self._commit(begin, wait=True)
            if start is not None:
                return start
        elif self._committer is not None:
            self._committer.flush()
        return to_json(end)

    def _must_not_limit(self) -> bool:
        """Whether this call has no limit, where Spark passes none; see StreamCalls."""
        limits, may_be_the_last = self._options.limits, self._calls.may_be_the_last
        self._calls.look_up()
        if may_be_the_last and limits:
            _log.warning(_FIRST_IS_LIMITED if limits.limit_first else _FIRST_HAS_NO_LIMIT)
        return may_be_the_last and not limits.limit_first

    def _parsed(self, start: dict[str, Any]) -> Offsets:
        """The offsets that Spark passes; for an idle stream they are the same each time."""
        if self._start is None or self._start[0] != start:
            self._start = start, parse_offsets(start, option="offsets")
        return self._start[1]

    def commit(self, end: dict[str, Any]) -> None:
        """A micro-batch is complete, and the next one is planned."""
        if not self._share.has_others:  # else it was committed before the next one was planned
            self._commit(parse_offsets(end, option="offsets"), wait=False)

    def _commit(self, finished: Offsets, *, wait: bool) -> None:
        if self._watch is not None:
            self._watch.stop()
        is_new = finished == self.__dict__.get("_initial")
        self._share.finished(self._committer, finished, is_new=is_new, wait=wait)

    def stop(self) -> None:
        """The query has ended. Spark gives no time for more than a commit, and a word to the group."""
        share = self.__dict__.get("_share")
        if share is not None and share.has_others:
            if (watch := self.__dict__.get("_watch")) is not None:
                watch.end()
            share.leave()
            exit_if_stopped()

    def _wait_while_idle(self) -> None:
        """Wait before the lookup: longer the longer the stream is idle, as Spark asks 92 times a second.

        The pause is a twentieth of the time since records last came, within bounds, so it
        adds little to the wait for the next records. With many partitions it is longer, so
        that lookups take only a small share of a core.
        """
        pause = _PAUSE_PER_IDLE_SECOND * (self._looked_up - self._changed)
        most = _TOPICS_SECONDS if self._place_options.brokers is not None else _DIRECTORY_SECONDS
        longest = max(_LONGEST_PAUSE, min(_PAUSE_PER_CPU_SECOND * self._lookup_took, most))
        pause = min(max(pause, _SHORTEST_PAUSE), longest)
        wait = self._looked_up + pause - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        self._looked_up, self._lookup_began = time.monotonic(), time.thread_time()

    @property
    def latest(self) -> dict[str, Any] | None:
        """The ends of all partitions, from which Spark's progress shows the lag."""
        return to_json(self._planner.latest) or None

    def prepare_for_available_now(self) -> None:
        """The query reads what exists at the next lookup, and stops."""
        self._planner.prepare_for_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The splits of one micro-batch."""
        self._calls.plan(start, end)
        begin, stop = (parse_offsets(offsets, option="offsets") for offsets in (start, end))
        self._checkpoint.planned(stop)
        self._warn_without_checkpoint(begin)
        if start == end:
            return self._partitions_of([])  # after a restart some Sparks only show the last offsets
        splits = self._planner.plan(begin, stop)
        if self._watch is not None and self._checkpoint.is_own:
            self._watch.begin(stop)
        return self._partitions_of(self._reader.tasks_of(splits, self._place, self._record_sizes))

    def _warn_without_checkpoint(self, begin: Offsets) -> None:
        """Say at the first micro-batch if it is without the checkpoint that the reader needs it."""
        if self._has_planned or self._options.checkpoint_location is not None:
            return
        self._has_planned = True
        starting = self._options.starting
        if begin != self.__dict__.get("_initial"):
            _log.warning(_RESUMED_WITHOUT_CHECKPOINT, _GIVE_CHECKPOINT)
        elif starting.values == LATEST and not starting.are_timestamps:
            _log.warning(_LATEST_WITHOUT_CHECKPOINT, _GIVE_CHECKPOINT)

    def _partitions_of(self, tasks: Sequence[tuple[Split, ...]]) -> list[LogInputPartition]:
        """The partitions for the tasks. If the user names the query's checkpoint, the first tells the sink
        which cluster the run reads: only tasks know their run. Without rows there is a task for that alone.
        """
        partitions = [LogInputPartition(splits, self._query_id) for splits in tasks]
        if self._query_id:
            first = partitions[0] if partitions else LogInputPartition((), self._query_id)
            partitions[:1] = [replace(first, cluster=self._identity[0] or "")]
        return partitions
