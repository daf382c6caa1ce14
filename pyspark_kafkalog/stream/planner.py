"""Decides what each micro-batch of a stream holds: partitions, limits, delays, AvailableNow, data loss."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from pyspark_kafkalog.model import OffsetRange, Place, Seen, TopicPartition
from pyspark_kafkalog.model.groups import CommittedOffsets
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import ReadOptions
from pyspark_kafkalog.read.offsets import initial_offsets, start_from_group
from pyspark_kafkalog.read.splits import Split, split_ranges, with_decided
from pyspark_kafkalog.stream.data_loss import (
    check_nothing_lost_while_available_now,
    find_data_loss,
    find_recreated,
    log_went_back,
)
from pyspark_kafkalog.stream.history import Positions, Shared, SharedHistory
from pyspark_kafkalog.stream.limits import BatchLimits
from pyspark_kafkalog.stream.share import Share
from pyspark_kafkalog.stream.subscription import Subscription
from pyspark_kafkalog.stream.topic_ids import TopicIds, topics_of

_log = logging.getLogger("pyspark_kafkalog")

_ATTEMPTS = 5
"""The most lookups of ends while topics change. Tasks check their topic again."""


class _Ends(NamedTuple):
    """Offsets, and the ids of their topics as far as they are known."""

    offsets: Offsets
    topic_ids: Mapping[str, str]
    epochs: Mapping[TopicPartition, int] = {}
    """The leader epochs in which the offsets were looked up, or newer ones; of what is planned."""


class StreamPlanner:
    """The decisions of one run of a streaming query (Spark's KafkaMicroBatchStream).

    Unlike Spark's, it remembers topic ids, so that a recreated topic is not read on
    from the offsets of the old one.

    :param topic_ids: what an earlier run left of :class:`.topic_ids.TopicIds`.
    :param store_topic_ids: called with what the next run needs of it.
    :param shared: what an earlier run left of :class:`.history.SharedHistory`.
    :param store_shared: called with what the next run needs of it.
    :param groups: the consumer groups of the place; opened only to start from one.
    :param share: the partitions that it reads; all by default.
    :param topics_max_age: seconds after which topics are listed again.
    :param clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        place: Place,
        options: ReadOptions,
        *,
        topic_ids: Mapping[str, str] | None = None,
        store_topic_ids: Callable[[Mapping[str, str], Mapping[str, str] | None], None] = lambda ids, before: (
            None
        ),
        shared: Shared | None = None,
        store_shared: Callable[[Shared], None] = lambda shared: None,
        groups: Callable[[], CommittedOffsets],
        share: Share | None = None,
        topics_max_age: float = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.latest: Offsets = {}
        """The ends of all partitions as :meth:`next_offsets` last saw them."""
        self._place = place
        self._options = options
        self._limits = BatchLimits(options.limits, clock)
        self._truncated: dict[TopicPartition, int] = {}
        """Partitions that end below what was read of them, even after the place has waited."""
        self._open: Offsets = {}
        """Positions above the last stable offset, where others have read open transactions."""
        self._is_expected = False
        self._at_rest: tuple[Offsets, _Ends] | None = None
        """The last start from which there was nothing to read, and the ends."""
        self._subscription = Subscription(place, options.selection, max_age=topics_max_age, clock=clock)
        self._topic_ids = TopicIds(topic_ids or {}, store_topic_ids)
        self._history = SharedHistory(place, shared or {}, store_shared, clock)
        self._groups = groups
        self._share = share or Share()
        self._data_loss = partial(find_data_loss, selection=options.selection)
        self._offered = self._planned = _Ends({}, {})
        self._available_now = False
        self._begins: Offsets = {}
        """The positions at which the offered micro-batch begins."""
        self._frozen: _Ends | None = None
        self._initial: Offsets = {}

    def initial_offsets(self) -> Offsets:
        """The start offsets of a new query; see :func:`pyspark_kafkalog.read.offsets.initial_offsets`."""
        self._initial = self._share.first(self._chosen, self._subscription.assignment)
        return self._initial

    def _chosen(self) -> Offsets:
        options = start_from_group(self._options, self._place, self._groups)
        return initial_offsets(self._place, options)

    def prepare_for_available_now(self) -> None:
        """Freeze the ends at the next lookup: the query reads up to them and stops."""
        self._available_now = True

    def next_offsets(self, start: Offsets, *, all_available: bool = False) -> Offsets:
        """The end offsets of the next micro-batch; ``start`` if there is none.

        :param start: the end of the previous one, which has been processed.
        :param all_available: ignore all limits, as ``Trigger.Once`` requires.
        :raises DataLossError: with failOnDataLoss, before Spark logs the offsets; without
            it, data loss is logged when the micro-batch is planned.
        """
        self._expect(start)
        must_wait = self._available_now or all_available
        default = partial(_log_start_offsets, self._place)
        while True:
            mine = self._share.begin(
                start, self._subscription.assignment, default, self._history.offset, must_wait=must_wait
            )
            if mine is None:
                self.latest = {}
                return start
            if self._frozen is not None:  # what has come since then is read by the next run
                mine = self._share.only(mine, self._frozen.offsets)
            end = self._next_offsets(start, mine, all_available=all_available)
            if end is not None and end is not start:
                self._share.offer(end, self._begins)
                return end
            self._share.release()
            if end is start or not must_wait:
                return start

    def _next_offsets(self, start: Offsets, mine: Offsets, *, all_available: bool) -> Offsets | None:
        """See :meth:`next_offsets`; None if the partitions were lost meanwhile.

        :param mine: where its partitions go on.
        """
        ends = self._look_up_ends(mine)
        is_waiting = self._share.is_unconfirmed or self._history.is_waiting()
        if (mine, ends) == self._at_rest and not is_waiting:
            return start
        ends = ends._replace(epochs=self._place.leader_epochs(ends.offsets))
        if start == self._planned.offsets:
            self._topic_ids.remember({**self._topic_ids.known, **self._planned.topic_ids}, start)
            self._history.advance(Positions(self._share.only(start, mine), *self._planned[1:]))
        self.latest = ends.offsets
        if not self.latest:
            # Empty offsets would forget what was read so far (SPARK-41375).
            return start
        begins, recreated = self._without_recreated(start, ends.topic_ids, mine)
        truncated = self._truncated.keys()
        self.latest = {**self.latest, **self._recheck_lower_ends(begins, ends)}
        added = _log_start_offsets(self._place, self.latest.keys() - begins.keys())
        if self._options.fail_on_data_loss:
            for loss in self._data_loss(begins, self.latest, added, recreated):
                raise loss
        self._history.check(
            Positions(begins, ends.topic_ids, ends.epochs),
            self.latest,
            self._lost,
            is_last=self._available_now and mine == self.latest,
            is_odd=not self._truncated.keys() <= truncated,
        )
        if not self._share.confirm(begins):
            return None
        self._begins = {**added, **begins}
        unread = {
            partition: OffsetRange(begin, end)
            for partition, end in self.latest.items()
            if (begin := self._begins.get(partition, end)) < end
        }
        if all_available:
            offered = self.latest
        elif not self._available_now and self._limits.is_too_early(unread):
            return start
        else:
            offered = {**self.latest, **self._limits.ends(self._place, unread)}
        # The partitions that others read stay where this query has got.
        offered = {p: o for p, o in start.items() if p not in mine and p.topic not in recreated} | offered
        if offered == start and unread:
            # A recreated topic has exactly as many records as were read of the old one.
            # For Spark equal offsets mean no micro-batch, so the last record waits for the next.
            last = max(unread)
            offered = {**offered, last: offered[last] - 1}
        self._offered = ends._replace(offsets=offered)
        if offered == start:
            self._at_rest = mine, ends._replace(epochs={})
            return start
        return offered

    def plan(self, start: Offsets, end: Offsets) -> list[Split]:
        """The tasks of the micro-batch from ``start`` to ``end``, in order of partition and offset.

        :raises DataLossError: like :meth:`next_offsets`; and, whatever failOnDataLoss says, if
            AvailableNow can't reach its frozen ends.
        """
        self._expect(start)
        if start == self._initial:
            # Chosen again for a replay of the first micro-batch, they may include newer partitions.
            start = {partition: offset for partition, offset in start.items() if partition in end}
        is_replay = end != self._offered.offsets  # Spark logged the end before this run.
        planned, spark_start = end, start
        start, end = self._share.ranges(start, end, is_replay=is_replay)
        if not is_replay:
            _, topic_ids, epochs = self._offered
            self._topic_ids.prove(topic_ids)
        else:
            topic_ids, epochs = self._subscription.assignment().topic_ids, self._place.leader_epochs(end)
        topic_ids = self._share.topic_ids(topic_ids, end)
        if self._frozen is not None:
            for partition, offset in end.items():
                self._place.expect(partition, Seen(topic_ids.get(partition.topic, ""), end=offset))
            now = self._consistent_ends()
            check_nothing_lost_while_available_now(
                {p: offset for p, offset in end.items() if p not in self._truncated and p not in self._open},
                now.offsets,
                find_recreated(topics_of(end), topic_ids, now.topic_ids),
            )
        begins, recreated = self._without_recreated(spark_start, topic_ids, start)
        added = _log_start_offsets(self._place, end.keys() - begins.keys())
        for loss in self._data_loss(begins, end, added, recreated):
            if self._options.fail_on_data_loss:
                raise loss
            _log.warning("Continuing, because failOnDataLoss=false: %s", loss.with_hint(None))
        # Frozen ends asked no broker, but the look above did.
        leader_epochs = self._place.leader_epochs(end) if self._frozen is not None else epochs
        if is_replay or leader_epochs != epochs:
            self._history.check(Positions(begins, topic_ids, leader_epochs), end, self._lost)
        begins = {**begins, **added}
        if is_replay and recreated and (ended := self._ended_before(end, recreated)):
            begins = {
                partition: offset for partition, offset in begins.items() if partition.topic not in ended
            }
            topic_ids = {**topic_ids, **{topic: self._topic_ids.known[topic] for topic in ended}}
        self._planned = _Ends(planned, topic_ids, leader_epochs)
        self._topic_ids.announce(topic_ids, end)
        splits = split_ranges(
            [
                Split(
                    partition,
                    OffsetRange(begins[partition], offset),
                    seen=Seen(topic_ids.get(partition.topic, ""), epochs.get(partition, -1), offset),
                )
                for partition, offset in sorted(end.items())
                if partition in begins
            ],
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        if not self._options.read_committed:
            return splits
        return with_decided(self._place, splits, look=lambda _: True)

    def _lost(self, partition: TopicPartition, offset: int, why: str) -> None:
        loss = log_went_back(partition, offset, why)
        if self._options.fail_on_data_loss:
            raise loss
        _log.warning("Continuing, because failOnDataLoss=false: %s", loss.with_hint(None))

    def _look_up_ends(self, start: Offsets) -> _Ends:
        if self._frozen is not None:
            return self._frozen._replace(offsets=self._share.only(self._frozen.offsets, start))
        ends = self._look_up_now()
        if self._available_now or ends.offsets != start:
            ends = self._consistent_ends(ends)
        if self._available_now:
            self._frozen = ends
        return ends

    def _consistent_ends(self, ends: _Ends | None = None) -> _Ends:
        """Ends and topic ids that belong together, although topics may be recreated meanwhile.

        Known ids may be outdated, but ids that hold after the lookup of the ends also held during it.
        """
        for _ in range(_ATTEMPTS):
            ends = ends or self._look_up_now()
            topics = topics_of(ends.offsets)
            known = {topic: topic_id for topic, topic_id in ends.topic_ids.items() if topic in topics}
            if self._place.topic_ids(topics) == known:
                return ends
            self._subscription.forget()
            ends = None
        return self._look_up_now()

    def _look_up_now(self) -> _Ends:
        assignment = self._share.of(self._subscription.assignment())
        offsets = self._place.end_offsets(assignment.partitions, read_committed=self._options.read_committed)
        return _Ends(offsets, assignment.topic_ids)

    def _expect(self, start: Offsets) -> None:
        """Expect the topics that an earlier run has read, until more than one broker denies them."""
        if not self._is_expected:
            self._is_expected = True
            for partition in start:
                topic_id = self._topic_ids.known.get(partition.topic, "")
                self._place.expect(partition, Seen(topic_id, self._history.leader_epoch(partition)))

    def _ended_before(self, end: Offsets, recreated: Collection[str]) -> set[str]:
        """The recreated topics that are too short for ``end``, which is thus the old topic's."""
        end = {partition: offset for partition, offset in end.items() if partition.topic in recreated}
        ends = self._place.end_offsets(end, read_committed=self._options.read_committed)
        return {partition.topic for partition, offset in end.items() if ends.get(partition, 0) < offset}

    def _recheck_lower_ends(self, begins: Offsets, ends: _Ends) -> Offsets:
        """New ends for the partitions that end below what was read of them, as a deposed leader would report.

        The place waits for another answer. If it stays the same, it is data loss. With failOnDataLoss=false
        the end of the same topic then never goes back: the partition stays where it was read to. If the
        topic may be another one, whose records are there, the end goes back.
        """
        lower = {p: begin for p, begin in begins.items() if ends.offsets.get(p, begin) < begin}
        self._open = self._in_open_transactions(lower)
        lower = {p: begin for p, begin in lower.items() if p not in self._open}
        self._truncated = {p: begin for p, begin in self._truncated.items() if lower.get(p) == begin}
        new = lower.keys() - self._truncated.keys()
        if begins == self._initial or not lower:
            return self._open  # the user gave these offsets: nothing was read below them
        for partition in sorted(new):
            end, begin = ends.offsets[partition], begins[partition]
            text = "%s ends at offset %d, but was read up to %d; looking again"
            if not ends.topic_ids.get(partition.topic):
                text += ". No topic id tells whether the topic was recreated"
            elif not self._topic_ids.is_proven(partition.topic):
                text += ". With the option checkpointLocation a recreated topic is recognized at once"
            _log.warning(text, partition, end, begin)
            self._place.expect(partition, Seen(ends.topic_ids.get(partition.topic, ""), end=begin))
        read_committed = self._options.read_committed
        found = dict(self._place.end_offsets(new, read_committed=read_committed)) if new else {}
        self._truncated |= {p: lower[p] for p, end in found.items() if end < lower[p]}
        if not self._options.fail_on_data_loss:
            same = [p for p in self._truncated if self._topic_ids.is_proven(p.topic)]
            found |= {partition: lower[partition] for partition in same}
        return found | self._open

    def _in_open_transactions(self, begins: Offsets) -> Offsets:
        """The positions that others may have reached in open transactions, whose end they do not await."""
        if not begins or not self._share.has_others or not self._options.read_committed:
            return {}
        ends = self._place.end_offsets(begins, read_committed=False)
        return {p: begin for p, begin in begins.items() if begin <= ends.get(p, -1)}

    def _without_recreated(
        self, start: Offsets, topic_ids: Mapping[str, str], mine: Offsets
    ) -> tuple[Offsets, set[str]]:
        """The positions to go on from, without those of recreated topics; and these topics.

        :param start: what the query has read so far.
        :param mine: where its partitions go on.
        """
        self._topic_ids.remember({**topic_ids, **self._topic_ids.known}, start)
        recreated = self._topic_ids.recreated(mine, topic_ids)
        return {p: offset for p, offset in mine.items() if p.topic not in recreated}, recreated


def _log_start_offsets(place: Place, partitions: Collection[TopicPartition]) -> Offsets:
    """The log start offset of each of ``partitions`` that exists."""
    if not partitions:
        return {}
    bounds = place.watermarks(partitions, read_committed=False)
    return {partition: watermarks.log_start_offset for partition, watermarks in sorted(bounds.items())}
