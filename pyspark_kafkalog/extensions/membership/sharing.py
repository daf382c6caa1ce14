"""The share of a stream that reads its topics together with the other members of a consumer group.

Of what the group assigns, a partition begins where the group has committed, or where the query itself has
got, if that is further: everything below either has been processed. So a micro-batch may begin further on
than the one before has ended. Where it began is stored beside the checkpoint: it always holds the same rows.

Partitions that are assigned to others keep their offsets in the checkpoint. All changes take place between
two micro-batches, and everything that is processed is committed before the group may move it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from operator import is_not

from pyspark_kafkalog.errors import listed
from pyspark_kafkalog.model import Assigned, CommittedOffset, Place, TopicPartition
from pyspark_kafkalog.model.groups import (
    CommittedOffsets,
    GroupOffsets,
    Membership,
    PendingOffsetsError,
    TakesCommits,
)
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.read.commits import check_commits
from pyspark_kafkalog.stream.committing import OffsetCommitter
from pyspark_kafkalog.stream.share import Share
from pyspark_kafkalog.stream.subscription import Assignment

WAIT = 2.0
"""Seconds to wait for an assignment before a stream is told that there is nothing new."""
_PAUSE = 0.1
"""Seconds between two looks at an assignment that can't be used yet."""
_NAMED, _NAMED_IN_WARNINGS = 10, 5
"""The number of partitions that a line of the log lists."""

_log = logging.getLogger("pyspark_kafkalog")


class SharedGroup(Share):
    """The share of one stream in the partitions of its group.

    :param member: in the group; not joined yet.
    :param groups: to read what the group has committed.
    :param as_committed: what is committed for offsets below which everything is processed.
    :param patience: seconds to wait for a first partition, where others may have to give it up before.
    :param stored: where the newest planned micro-batch began, as far as the one before ended elsewhere.
    :param store: stores that for the micro-batch that is planned now.
    :param fail_on_data_loss: whether to refuse commits that are not of the logs that are there.
    """

    has_others = True

    def __init__(
        self,
        member: Membership,
        group: str,
        place: Place,
        groups: Callable[[], CommittedOffsets],
        as_committed: Callable[[Offsets], Mapping[TopicPartition, CommittedOffset]],
        *,
        patience: float,
        stored: Offsets,
        store: Callable[[Offsets], None],
        fail_on_data_loss: bool,
    ) -> None:
        self._member = member
        self._group = group
        self._logs = place
        self._groups = groups
        self._as_committed = as_committed
        self._patience = patience
        self._stored = stored
        self._store = store
        self._fail_on_data_loss = fail_on_data_loss
        self._subscribed: Collection[TopicPartition] = ()
        """The partitions that exist, as they were given last; and as a set."""
        self._existing: frozenset[TopicPartition] = frozenset()
        self._assigned: Assigned | None = None
        self._mine: tuple[TopicPartition, ...] = ()
        """The assigned partitions that exist, or existed when they were read, sorted; each has a position."""
        self._sure: Collection[TopicPartition] = ()
        """The partitions whose positions belong to the logs that are there."""
        self._ahead: Offsets = {}
        """The positions that the query has reached, and the group does not know yet."""
        self._moved: Offsets = {}
        """The positions of newly assigned partitions, if not where the last micro-batch has ended."""
        self._begins: tuple[Offsets, Offsets] = {}, {}
        """The offsets that Spark has last passed, and where the partitions of this stream go on then."""
        self._offered: Offsets = {}
        """The end of the micro-batch that was offered last."""
        self._offered_begins: Offsets = {}
        """The positions at which its partitions begin."""
        self._own: tuple[tuple[object, ...], Offsets] = (), {}
        """The last that was asked of :meth:`own`, with what it was made of."""
        self._replayed: tuple[Offsets, Offsets] | None = None
        self._positions: Offsets = {}
        """The positions that :meth:`begin` gave last, by partition."""
        self._partitions: Collection[TopicPartition] = ()
        """The assigned partitions: the same object as long as they are the same."""
        self._assignment: tuple[Assignment, Collection[TopicPartition], Assignment] | None = None
        """The subscribed partitions, those of this stream, and the latter as an assignment."""
        self._has_had_partitions = False
        """Whether the stream has had a partition."""
        self._finished: Offsets | None = None
        """The offsets that were committed last."""

    def first(self, chosen: Callable[[], Offsets], subscribed: Callable[[], Assignment]) -> Offsets:
        """See :meth:`.share.Share.first`: where the group has committed something, that counts."""

        def default(partitions: Collection[TopicPartition]) -> Offsets:
            found = chosen()
            return {partition: found[partition] for partition in partitions if partition in found}

        begins = self.begin({}, subscribed, default, lambda partition: -1, must_wait=True)
        assert begins is not None, "it has waited for an assignment"
        self.release()
        return dict(begins)

    def begin(
        self,
        start: Offsets,
        subscribed: Callable[[], Assignment],
        default: Callable[[Collection[TopicPartition]], Offsets],
        reached: Callable[[TopicPartition], int],
        *,
        must_wait: bool,
    ) -> Offsets | None:
        """See :meth:`.share.Share.begin`: what is assigned now stays until :meth:`release`. None while the
        group assigns nothing.

        It waits however long that takes. For an assignment with partitions it waits only as long as
        :class:`SharedGroup` is to be patient.
        """
        begins = self._hold(start, subscribed().partitions, default, must_wait=must_wait)
        if begins is None:
            return None
        if begins and not self._has_had_partitions:
            self._has_had_partitions = True
            _warn_if_set_back(start, begins, reached)
        if self._positions is not begins:
            self._positions = begins
            if self._partitions != begins.keys():
                self._partitions = begins.keys()
        return begins

    def of(self, subscribed: Assignment) -> Assignment:
        """See :meth:`.share.Share.of`."""
        known = self._assignment
        if known is None or known[0] is not subscribed or known[1] is not self._partitions:
            known = subscribed, self._partitions, subscribed.only(self._partitions)
            self._assignment = known
        return known[2]

    def only(self, offsets: Offsets, partitions: Collection[TopicPartition]) -> Offsets:
        """See :meth:`.share.Share.only`."""
        return {partition: offset for partition, offset in offsets.items() if partition in partitions}

    def topic_ids(self, topic_ids: Mapping[str, str], end: Offsets) -> Mapping[str, str]:
        """See :meth:`.share.Share.topic_ids`."""
        return {topic: topic_ids.get(topic, "") for topic in {partition.topic for partition in end}}

    def _hold(
        self,
        start: Offsets,
        partitions: Collection[TopicPartition],
        default: Callable[[Collection[TopicPartition]], Offsets],
        *,
        must_wait: bool,
    ) -> Offsets | None:
        """See :meth:`begin`.

        :param partitions: that exist and are subscribed to; the same object as long as they are the same.
        """
        if partitions is not self._subscribed:
            self._subscribe(partitions)
        end = time.monotonic() + self._patience
        while True:
            assigned = self._member.hold(WAIT)
            if assigned is not None and (
                assigned.partitions or not must_wait or not partitions or time.monotonic() > end
            ):
                begins = self._begin(assigned, start, default)
                if begins is not None:
                    return begins
            if assigned is not None:
                self._member.release()
            if not must_wait:
                return None
            if assigned is not None:
                time.sleep(_PAUSE)

    def _begin(
        self,
        assigned: Assigned,
        start: Offsets,
        default: Callable[[Collection[TopicPartition]], Offsets],
    ) -> Offsets | None:
        """See :meth:`begin`; None if the assignment is lost again."""
        if assigned is self._assigned and start is self._begins[0]:
            return self._begins[1]
        # What was not read of these is lost, whatever the group assigns now.
        gone = [p for p in self._mine if p in start and p not in self._existing]
        if start == self._offered:
            self._moved = self._not_offered()
            self._offered_begins = {}
        if assigned is not self._assigned:
            self._assigned, self._mine, self._moved, self._begins = assigned, (), {}, ({}, {})
        self._mine = tuple(p for p in self._mine if p in start or p in self._moved)
        mine = tuple(sorted({*assigned.partitions & self._existing, *gone}))
        if mine != self._mine and not self._place(start, mine, assigned, default):
            return None
        self._moved = {p: offset for p, offset in self._moved.items() if start.get(p) != offset}
        self._begins = start, {p: self._moved[p] if p in self._moved else start[p] for p in self._mine}
        return self._begins[1]

    def _subscribe(self, partitions: Collection[TopicPartition]) -> None:
        counts: dict[str, int] = {}
        for topic, number in partitions:
            counts[topic] = max(counts.get(topic, 0), number + 1)
        self._member.subscribe(counts)
        self._subscribed, self._existing = partitions, frozenset(partitions)
        self._begins = {}, {}

    def _place(
        self,
        start: Offsets,
        mine: tuple[TopicPartition, ...],
        assigned: Assigned,
        default: Callable[[Collection[TopicPartition]], Offsets],
    ) -> bool:
        """Find where newly assigned partitions go on, and have the group know it; False if that fails.

        Where the query itself has got is not committed yet: it may be an offset of another log.
        """
        new = [p for p in mine if p not in self._mine]
        try:
            committed = self._groups().committed(self._group, new, require_stable=True) if new else {}
        except PendingOffsetsError as e:
            _log.warning("Waiting for what another member of group %s has left: %s", self._group, e)
            return False
        offsets = {p: commit.offset for p, commit in committed.items()}
        read = {p: start[p] for p in new if p in start}
        ahead = {p: commit for p, commit in committed.items() if commit.offset > read.get(p, -1)}
        if ahead:
            check_commits(self._logs, self._group, ahead, fail_on_data_loss=self._fail_on_data_loss)
            if not self._fail_on_data_loss:  # what is beyond the end is not there
                ends = self._logs.end_offsets(list(ahead), read_committed=False)
                offsets |= {p: min(offset, offsets[p]) for p, offset in ends.items()}
        found = {p: max(offsets.get(p, -1), read.get(p, -1)) for p in offsets.keys() | read.keys()}
        chosen = default(unknown) if (unknown := [p for p in new if p not in found]) else {}
        if chosen and not self._member.commit(self._as_committed(chosen), assigned):
            return False
        found |= chosen
        self._ahead = {p: offset for p, offset in read.items() if offset > offsets.get(p, -1)}
        self._mine = tuple(p for p in mine if p in found or p in self._mine)
        self._moved |= {p: offset for p, offset in found.items() if start.get(p) != offset}
        if self._moved:
            text = ", ".join(f"{p} at {offset}" for p, offset in sorted(self._moved.items())[:_NAMED])
            _log.info("As a member of group %s the stream goes on with %s", self._group, text)
        return True

    def release(self) -> None:
        """See :meth:`.share.Share.release`: the group may move partitions."""
        self._member.release()

    def confirm(self, begins: Offsets) -> bool:
        """See :meth:`.share.Share.confirm`: the group gets to know them."""
        news = {p: offset for p, offset in self._ahead.items() if begins.get(p) == offset}
        if news:
            assert self._assigned is not None, "positions are those of an assignment"
            if not self._member.commit(self._as_committed(news), self._assigned):
                return False
        self._sure, self._ahead = begins.keys(), {}
        return True

    @property
    def is_unconfirmed(self) -> bool:
        """See :attr:`.share.Share.is_unconfirmed`."""
        return bool(self._ahead)

    def offer(self, end: Offsets, begins: Offsets) -> None:
        """See :meth:`.share.Share.offer`."""
        self._offered, self._offered_begins = end, begins

    def _not_offered(self) -> Offsets:
        return {p: offset for p, offset in self._moved.items() if p not in self._offered_begins}

    def own(self, offsets: Offsets) -> Offsets:
        """See :meth:`.share.Share.own`: the positions that belong to the logs that are there."""
        made_of = offsets, self._mine, self._moved, self._sure, self._offered_begins
        if len(self._own[0]) != len(made_of) or any(map(is_not, made_of, self._own[0])):
            moved, sure = self._moved, self._sure
            if offsets == self._offered:
                moved, sure = self._not_offered(), {*sure, *self._offered_begins}
            found = {p: moved.get(p, offsets.get(p)) for p in self._mine if p in sure}
            self._own = made_of, {p: offset for p, offset in found.items() if offset is not None}
        return self._own[1]

    def takes_commits(
        self, open_groups: Callable[[], GroupOffsets]
    ) -> tuple[TakesCommits, CommittedOffsets | None]:
        """See :meth:`.share.Share.takes_commits`: this member. The group decides where the query goes on."""
        return self, None

    def finished(self, committer: OffsetCommitter | None, end: Offsets, *, is_new: bool, wait: bool) -> None:
        """See :meth:`.share.Share.finished`: then the group may move partitions."""
        assert committer is not None, "a member commits"
        own = self.own(end)
        if own is not self._finished:
            committer.finished(own)
            self._finished = own
        self.release()

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, as_they_are: bool = False
    ) -> None:
        """Commit as the member that was assigned these partitions, if it still is."""
        if self._assigned is not None:
            self._member.commit(offsets, self._assigned)

    def ranges(self, start: Offsets, end: Offsets, *, is_replay: bool) -> tuple[Offsets, Offsets]:
        """See :meth:`.share.Share.ranges`: the partitions that it moves on."""
        if not is_replay:
            begins = {p: b for p, b in self._offered_begins.items() if p in end}
            moving = {p: end[p] for p, begin in begins.items() if not begin == start.get(p) == end[p]}
            begins = {p: begins[p] for p in moving}
            elsewhere = {p: begin for p, begin in begins.items() if begin != start.get(p)}
            if elsewhere:
                self._store(elsewhere)
            return begins, moving
        self._replayed = self._replayed or (start, end)
        stored = self._stored if (start, end) == self._replayed else {}
        moving = {p: offset for p, offset in end.items() if start.get(p) != offset or p in stored}
        begins = {p: stored[p] if p in stored else start[p] for p in moving if p in stored or p in start}
        if unknown := moving.keys() - begins.keys():
            # No task has read them, as they would be stored. Since then others may have.
            committed = self._groups().committed(self._group, unknown, require_stable=True)
            found = {p: min(commit.offset, moving[p]) for p, commit in committed.items()}
            begins |= found
            self._stored = stored | found
            self._store(self._stored)
        return begins, moving

    def leave(self) -> None:
        """See :meth:`.share.Share.leave`."""
        self._member.leave()


def _warn_if_set_back(start: Offsets, begins: Offsets, reached: Callable[[TopicPartition], int]) -> None:
    """Say which records a checkpoint that was set back does not bring again, as the group has them."""
    left_out = [
        f"{p} from {start[p]} to {begin}"
        for p, begin in sorted(begins.items())
        if start.get(p, begin) < min(begin, reached(p))
    ]
    if left_out:
        _log.warning(
            "The query had read more than its checkpoint says, and goes on where its group is, so it does"
            " not read %s again. If the checkpoint was set back for that, give another kafka.group.id",
            listed(left_out, _NAMED_IN_WARNINGS),
        )
