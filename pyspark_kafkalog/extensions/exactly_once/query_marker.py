"""The marker of one query and its intent: how a batch finds, reads, checks and commits them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from pyspark_kafkalog.broker.produce.ids import ProducerId
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.codec.stamp import SEQUENCE_MASK
from pyspark_kafkalog.errors import TransactionError, UnknownTopicOrPartitionError
from pyspark_kafkalog.extensions.exactly_once.intent import (
    Intent,
    RowsOf,
    Settling,
    store_intent,
    store_producers,
    stored_intent,
    stored_producers,
)
from pyspark_kafkalog.extensions.exactly_once.marker import (
    WRITE_IT,
    CommittedEpochs,
    Marker,
    OldMarkerError,
    RowsEnd,
    check_newest,
    ends_with,
)
from pyspark_kafkalog.extensions.exactly_once.requests import Requests
from pyspark_kafkalog.extensions.exactly_once.work import Work
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.private import make_folder
from pyspark_kafkalog.model import CommittedOffset, TopicPartition

_log = logging.getLogger("pyspark_kafkalog")


class QueryMarker:
    """The marker as one run of a batch sees it. :meth:`read` comes first, and after the fence.

    :raises TransactionError: if the folder of the query's intent can't be made.
    """

    def __init__(self, requests: Requests, work: Work) -> None:
        self.group = requests.transactional_id
        self.is_required = work.required
        self._requests = requests
        self._work = work
        self._folder = _made(work.folders.of_intent(self.group))
        self._glimpse: tuple[Marker | None] | None = None
        """The marker as :meth:`is_pending` has found it, unless it was pending or there was no cell."""
        self._cell: TopicPartition | None = None
        self._seen: Marker | None = None
        self._cluster_id: str | None = None
        self._intent: Intent | None = None
        self._producer_ids: set[int] = set()

    def is_pending(self, *, deadline: Deadline) -> bool:
        """Whether a transaction that commits the marker is not over."""
        self._glimpse = None
        cells = self._cells(stored_intent(self._folder), deadline)
        if not cells:
            return False
        found = self._requests.committed_now(self.group, cells, deadline=deadline)
        if found is not None:
            self._glimpse = (self._marker_in(found, cells[0]),)
        return found is None

    def _cells(self, intent: Intent | None, deadline: Deadline) -> list[TopicPartition]:
        places = self._places(intent, deadline, require_stable=False)
        return [TopicPartition(topic, 0) for topics in places for topic in [*topics][:1]]

    @property
    def glimpse(self) -> Marker | None:
        """The marker as :meth:`is_pending` has found it; None if that is pending, or there is none."""
        return None if self._glimpse is None else self._glimpse[0]

    def check_newest(self, committed: RowsOf | None, *, deadline: Deadline) -> None:
        """See :func:`.marker.check_newest`, of the marker that :meth:`is_pending` has found.

        Without an intent this query has written nothing here, and nothing is checked.
        """
        try:
            self._check_newest(committed)
        except OldMarkerError:
            if self.is_pending(deadline=deadline):
                raise  # it has been sent since then: all is run again
            self._check_newest(committed)  # another driver may have committed it since then

    def _check_newest(self, committed: RowsOf | None) -> None:
        intent = stored_intent(self._folder)
        if intent is None or self._glimpse is None:
            return
        (marker,) = self._glimpse
        check_newest(marker, intent, committed, stored_producers(self._folder))
        if marker is not None and marker.batch_id == self._work.number:
            self._store_skipped(marker)

    def last_committed(self, *, deadline: Deadline) -> Marker | None:
        """The marker as it was before what is pending; to be asked at any time."""
        cells = self._cells(stored_intent(self._folder), deadline)
        if not cells:
            return None
        found = self._requests.committed(self.group, cells[:1], deadline=deadline, require_stable=False)
        return self._marker_in(found, cells[0])

    def _marker_in(
        self, found: Mapping[TopicPartition, CommittedOffset], cell: TopicPartition
    ) -> Marker | None:
        return Marker.of(found[cell], self.group) if cell in found else None

    def read(self, cluster_id: str | None, *, deadline: Deadline) -> Marker | None:
        """The marker in the cluster, after every transaction that is over."""
        self._cluster_id, self._intent = cluster_id, stored_intent(self._folder)
        places = self._places(self._intent, deadline, require_stable=True)
        return max(
            filter(None, [self._look_in(topics, deadline) for topics in places]),
            key=lambda marker: marker.batch_id,
            default=None,
        )

    def _places(
        self, intent: Intent | None, deadline: Deadline, *, require_stable: bool
    ) -> list[Collection[str]]:
        """Topics of which the first may have the marker; that of the last list will have the next one."""
        known = self._work.marker_topics
        if intent is not None and intent.topic:
            topics: Collection[str] = [intent.topic]
        else:
            found = self._requests.committed(
                self.group, None, deadline=deadline, require_stable=require_stable
            )
            newest = sorted(found, key=lambda cell: found[cell].offset, reverse=True)
            topics = [cell.topic for cell in newest] or known
        if not self.is_required and known and {*topics}.isdisjoint(known):
            return [topics, known]  # the topic that had it may be gone
        return [topics]

    def _look_in(self, topics: Collection[str], deadline: Deadline) -> Marker | None:
        self._cell = next((TopicPartition(topic, 0) for topic in topics), None)
        self._seen = self._look(deadline, require_stable=True)
        return self._seen

    def _look(self, deadline: Deadline, *, require_stable: bool) -> Marker | None:
        if self._cell is None:
            return None
        found = self._requests.committed(
            self.group, [self._cell], deadline=deadline, require_stable=require_stable
        )
        return self._marker_in(found, self._cell)

    def is_committed(self, marker: Marker | None, producer_id: int) -> bool:
        """Whether the batch was committed before, or has nothing to commit; if not, its intent is stored.

        :param producer_id: that of the rows that may be produced next.
        """
        work, intent = self._work, self._intent
        if work.is_committed(marker, intent, self._cluster_id):
            assert marker is not None, "it says so"
            self._store_skipped(marker)
            return True
        is_tried = intent is not None and (intent.confirmed or intent.batch == work.number)
        if intent is None or intent.topic != self.topic or not is_tried:
            self._store_intent()
        if self._cell is None:
            return True  # without a topic there are no rows; the first batch that has some will be marked
        known = stored_producers(self._folder)
        now = known.with_id(producer_id)
        if not self.is_required:  # what went back counts as it is now
            now = replace(now, skipped=None)
        if now != known:
            store_producers(self._folder, now)
        self._producer_ids = {*now.ids}
        return False

    def _store_skipped(self, marker: Marker) -> None:
        """Store that the batch is there, before the fence if possible: the coordinator forgets it by that.

        Never raises.
        """
        skipped = RowsOf(marker.producer_id, marker.epoch)
        try:
            known = stored_producers(self._folder)
            if known.skipped != skipped:
                store_producers(self._folder, replace(known, skipped=skipped))
        except Exception as e:
            _log.warning("Could not store that the query's last batch is committed: %s", e)

    def _store_intent(self, *, confirmed: bool = False) -> None:
        known = stored_intent(self._folder)  # as it is now: another driver may have changed it
        self._intent = self._work.new_intent(known, self.topic, self._cluster_id, confirmed=confirmed)
        store_intent(self._folder, self._intent)

    def commit(self, producer: ProducerId, records: int, *, deadline: Deadline) -> None:
        """Commit the marker as a part of the open transaction, and see that :meth:`read` saw the newest one.

        A coordinator that was deposed may answer reads from its memory, but can commit nothing.

        :raises OldMarkerError: if another one has been committed since then.
        """
        work, cell = self._work, self._cell
        assert cell is not None, "nothing is committed without a cell"
        marker = Marker(
            work.batch.query_id,
            self._cluster_id,
            work.number,
            work.plan.digest or "",
            records,
            producer.id,
            producer.epoch,
            self._epochs_with(producer),
            self._ends_with(producer, cell.topic),
        )
        try:
            self._requests.commit_offsets(producer, self.group, {cell: marker.as_offset()}, deadline=deadline)
        except UnknownTopicOrPartitionError:
            raise TransactionError(
                f"Topic {cell.topic}, which had the marker of this query, is gone",
                hint=f"Nothing of this attempt is visible. {WRITE_IT}",
            ) from None
        now = self._look(deadline, require_stable=False)
        if now != self._seen:
            raise OldMarkerError(
                "The marker of this query is not the one that was read before the batch was produced",
                hint="A coordinator that was deposed gave an old one, or the marker's group was deleted."
                " Nothing of this attempt is visible: run the query again.",
            )

    def _epochs_with(self, producer: ProducerId) -> CommittedEpochs:
        if self._seen is None:
            return CommittedEpochs.alone(producer.epoch, since=0 if self.is_required else producer.epoch)
        return self._seen.epochs_with(producer.id, producer.epoch, is_next=self.is_required)

    def _ends_with(self, producer: ProducerId, topic: str) -> tuple[RowsEnd, ...]:
        new = [
            RowsEnd(partition.partition, producer.epoch, (following - 1) & SEQUENCE_MASK)
            for partition, following in producer.sequences.items()
            if partition.topic == topic and following > 0
        ]
        return ends_with(self._seen, producer.id, new)

    @property
    def topic(self) -> str:
        """The topic that has the marker; empty as long as no row said one."""
        return "" if self._cell is None else self._cell.topic

    def producer_ids(self) -> set[int]:
        """The producer ids that the query's rows may have."""
        return {*self._producer_ids, *([] if self._seen is None else [self._seen.producer_id])}

    def confirm(self) -> None:
        """Note that the query's marker exists: from now on a missing one is an error.

        Never raises, as the batch is visible by now.
        """
        if self._cell is None or (self._intent is not None and self._intent.confirmed):
            return
        try:
            self._store_intent(confirmed=True)
        except Exception as e:
            _log.warning("Could not store that the query's first batch is committed: %s", e)

    def settling(self) -> tuple[Settling, ...]:
        """See :class:`.marker.Intent`."""
        intent = stored_intent(self._folder)
        return () if intent is None else intent.settling

    def carried_out(self) -> tuple[Settling, ...]:
        """See :class:`.marker.Intent`."""
        intent = stored_intent(self._folder)
        return () if intent is None else intent.carried_out

    def store_settling(
        self,
        cluster_id: str | None,
        *,
        new: Settling | None = None,
        over: Collection[Settling] = (),
        carried_out: Settling | None = None,
    ) -> None:
        """Store what is being settled, so that the next run does not abort it.

        :param new: is added; what another driver has stored stays.
        :param over: are removed.
        :param carried_out: what was, and is over: a committed transaction without a marker.
        :raises TransactionError: if it can't be written.
        """
        intent = stored_intent(self._folder)
        if intent is None:
            intent = self._work.new_intent(None, next(iter(self._work.marker_topics), ""), cluster_id)
        store_intent(self._folder, intent.with_settling(new=new, over=over, carried_out=carried_out))


def _made(folder: Folder) -> Folder:
    try:
        make_folder(folder)
    except OSError as e:
        raise TransactionError(
            f"Could not make a folder for what the query keeps about its writes: {e}",
            file=folder.label(),
            hint="Let the user that runs Spark's driver write to the checkpoint, or to the stagingLocation.",
        ) from None
    return folder
