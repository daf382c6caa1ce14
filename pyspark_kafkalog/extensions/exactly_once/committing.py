"""The steps of a commit against a real cluster: see :class:`.commit.Steps`."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from kafka.protocol.metadata import CoordinatorType

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.coordinator import doubt
from pyspark_kafkalog.broker.cluster.metadata import PROVEN_AFTER, Identity
from pyspark_kafkalog.broker.groups.groups import BrokerGroups, with_leader_epochs
from pyspark_kafkalog.broker.groups.protocol import group_error
from pyspark_kafkalog.broker.produce.ids import ProducerId
from pyspark_kafkalog.broker.produce.producer import Producer, Transaction
from pyspark_kafkalog.broker.produce.state import OldAnswerError
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import AbortableTransactionError, ErrorCode
from pyspark_kafkalog.codec.stamp import stamp
from pyspark_kafkalog.errors import (
    AuthorizationError,
    BrokerError,
    CorruptRecordError,
    FencedError,
    KafkaLogError,
    RecordTooLargeError,
    TransactionError,
    UnknownTopicOrPartitionError,
    listed,
)
from pyspark_kafkalog.extensions.exactly_once.commit import (
    EndedTransactionError,
    Outcome,
    UnknownResultError,
    commit_once,
)
from pyspark_kafkalog.extensions.exactly_once.intent import RowsOf, Settling
from pyspark_kafkalog.extensions.exactly_once.marker import LostRowsError, Marker, OldMarkerError
from pyspark_kafkalog.extensions.exactly_once.query_marker import QueryMarker
from pyspark_kafkalog.extensions.exactly_once.requests import FENCED_HINT, Described, Requests, pending_error
from pyspark_kafkalog.extensions.exactly_once.settling import (
    CutShortError,
    ProducerSeen,
    Settlement,
    all_of,
    check_no_other,
    check_nothing_lost,
    committed_as,
    decided,
    decided_by,
    ends_of,
    everywhere,
    is_unsettled,
    newest_epoch,
    open_epochs,
    seen_rows,
    settled_by,
)
from pyspark_kafkalog.extensions.exactly_once.staged_rows import staged_rows
from pyspark_kafkalog.extensions.exactly_once.stops import stop_at
from pyspark_kafkalog.extensions.exactly_once.work import Work
from pyspark_kafkalog.model import CommittedOffset, EncodeSettings, TopicPartition
from pyspark_kafkalog.model.sinks import JOB_SKIPPED
from pyspark_kafkalog.options.brokers import ProduceOptions

_FASTEST = 1 << 30
"""Bytes a second that no cluster takes from one producer."""
_PROGRESS_SECONDS = 5.0
_CALM_SECONDS = (0.2, 1.0)
"""The pause before all is run again: random, for two drivers that fence each other."""
_ELSEWHERE_SECONDS = 1.0
"""The time that partitions of the same topics that get no rows have to say what they have seen."""
_RUN_AGAIN = "Check that the brokers are up, and run it again."
_GIVE_UP_SECONDS = 5.0
"""The time that an error may wait for its transaction to be ended."""

_log = logging.getLogger("pyspark_kafkalog")


class Committing:
    """The steps for one batch, over the calling thread's connections.

    :param timeout_ms: how long the transaction may be open (transaction.timeout.ms).
    :param marker: of the batch's query; None for a job that has none.
    """

    def __init__(
        self,
        cluster: Cluster,
        requests: Requests,
        options: ProduceOptions,
        work: Work,
        *,
        timeout_ms: int,
        marker: QueryMarker | None,
    ) -> None:
        self._cluster = cluster
        self._requests = requests
        self._options = options
        self._work = work
        self._timeout_ms = timeout_ms
        self._marker = marker
        self._producer: ProducerId | None = None
        """The fenced producer; :meth:`outcome` and :meth:`open_outcome` set ``_decided`` (and ``_seen``)."""
        self._newest: Described | None = None
        """The newest transaction as :meth:`is_pending` has found it, unless something is pending."""
        self._identity: Identity | None = None
        self._decided: Settlement | None = None
        self._seen: dict[TopicPartition, Collection[ProducerSeen]] = {}
        self._is_committed = self._has_settled_group = False
        self._backoff = cluster.new_backoff(self._patience())

    def is_pending(self) -> bool:
        """See :meth:`.commit.Steps.is_pending`."""
        marker, self._newest = self._marker, None
        if marker is None:
            return False
        if marker.is_pending(deadline=self._patience()) or marker.settling():
            return True
        self._newest = found = self._requests.describe(deadline=self._patience())
        if found.outcome is Outcome.ENDING:
            return True  # only what is over shows whether the marker is older
        is_open = found.outcome is Outcome.OPEN
        return is_open and committed_as(found, marker.glimpse, marker.carried_out()) is not None

    def outcome(self) -> Outcome:
        """See :meth:`.commit.Steps.outcome`."""
        assert self._marker is not None, "only a marker is pending"
        cluster_id = self._cluster.identity([], deadline=self._patience()).cluster_id
        found = self._requests.describe(deadline=self._patience())
        if found.outcome is Outcome.NOT_TOLD and not self._marker.is_required:
            # What a fence does not end is taken for aborted.
            fenced = self._requests.init_producer_id(self._timeout_ms, deadline=self._patience())
            found = Described(Outcome.NOT_KNOWN, *fenced)
        known = self._marker.settling()
        # Asked first: if it is not pending any more, the last one says so.
        is_pending = bool(known) and self._marker.is_pending(deadline=self._patience())
        last, required = self._marker.last_committed(deadline=self._patience()), self._marker.is_required
        newest = ProducerId(found.producer_id, found.epoch, cluster_id)
        self._decided = decided(
            found,
            self._unsettled(known, newest, last, is_pending=is_pending),
            last,
            carried_out=self._marker.carried_out(),
            required=required,
            cluster_id=cluster_id,
        )
        return self._decided.outcome

    def _unsettled(
        self, known: Sequence[Settling], newest: ProducerId, last: Marker | None, *, is_pending: bool
    ) -> list[Settling]:
        """The entries that :func:`.settling.is_unsettled` says are left; the intent has no others now."""
        marker = self._marker
        assert marker is not None, "without one nothing is noted"
        left = []
        for each in known:
            try:
                if is_unsettled(each, newest, last, is_pending=is_pending):
                    left.append(each)
            except CutShortError:
                if marker.is_required:
                    raise
        if over := [each for each in known if each not in left]:
            marker.store_settling(newest.cluster_id, over=over)
        return left

    def _check_not_cut_short(
        self, newest: ProducerId, last: Marker | None = None, *, is_pending: bool = True
    ) -> None:
        """See that a fence has ended nothing that was being settled, as far as the last marker tells."""
        if self._marker is not None:
            self._unsettled(self._marker.settling(), newest, last, is_pending=is_pending)

    def abort_open(self) -> None:
        """See :meth:`.commit.Steps.abort_open`."""
        self._requests.abort_open(self._timeout_ms, deadline=self._patience())

    def carry_out(self, outcome: Outcome) -> None:
        """See :meth:`.commit.Steps.carry_out`."""
        known, marker = self._decided, self._marker
        assert known is not None, "outcome() or open_outcome() comes first"
        assert marker is not None, "without a marker nothing is settled"
        producer = known.producer
        seen = seen_rows(
            self._cluster,
            self._work.partitions,
            [producer.id],
            deadline=self._patience(),
            elsewhere=everywhere(self._cluster),
        )
        open_at = open_epochs(seen, producer.id)
        chosen = [partition for partition, epoch in open_at.items() if epoch in known.of]
        is_commit = outcome is Outcome.COMMITTED
        _log.warning(
            "An earlier transaction of %s is %s, but open on %s, or in its group: writing what is missing",
            self._requests.transactional_id,
            "committed" if is_commit else "aborted",
            listed(chosen, 5) or "no partition",
        )
        own, *others = self._groups()
        if is_commit:
            marker.store_settling(producer.cluster_id, new=known.settling._replace(started=False))
            stop_at("noted")
        self._requests.add_offsets(producer, own, deadline=self._patience())
        if self._producer is producer and not is_commit:
            # It is the marker that does not say so, and it may be an old one.
            marker.commit(producer, 0, deadline=self._patience())
        if is_commit and (others or chosen):
            marker.store_settling(producer.cluster_id, new=known.settling)
        for group in others:
            self._requests.add_offsets(producer, group, deadline=self._patience())
            if is_commit and self._producer is producer:
                # Else what a later attempt has left pending would be committed, too.
                self._commit_source(producer, self._known_offsets())
        if chosen:
            self._requests.add_partitions(producer, chosen, deadline=self._patience())
        stop_at("settling")
        self._requests.end(producer, commit=is_commit, deadline=self._patience())
        if is_commit:
            over = settled_by(marker.settling(), producer)
            marker.store_settling(producer.cluster_id, over=over, carried_out=known.settling)

    def wait(self) -> None:
        """See :meth:`.commit.Steps.wait`."""
        self._backoff.pause(pending_error(self._requests.transactional_id))

    def calm_down(self, error: TransactionError | FencedError) -> None:
        """See :meth:`.commit.Steps.calm_down`: of two drivers that fence each other one comes through."""
        _log.warning("Running the commit of %s again: %s", self._work.batch, error)
        if isinstance(error, OldMarkerError):
            doubt(self._cluster, CoordinatorType.GROUP, self._requests.transactional_id)
        if isinstance(error, LostRowsError):
            self._cluster.forget(self._topics())
        if isinstance(error, (OldMarkerError, LostRowsError)):
            time.sleep(PROVEN_AFTER)  # a broker that goes on after a pause has new metadata by then
        time.sleep(random.uniform(*_CALM_SECONDS))
        self._backoff = self._cluster.new_backoff(self._patience())

    def check_newest(self) -> None:
        """See :meth:`.commit.Steps.check_newest`."""
        marker = self._marker
        found = self._newest
        if marker is None or not marker.is_required or found is None:
            return
        is_committed = found.outcome is Outcome.COMMITTED
        committed = RowsOf(found.producer_id, found.epoch) if is_committed else None
        marker.check_newest(committed, deadline=self._patience())

    def fence(self) -> None:
        """See :meth:`.commit.Steps.fence`."""
        if self._work.size > _FASTEST * self._timeout_ms / 1000:
            raise self._too_slow(f"A batch of {self._work.size} bytes can't be produced")
        # Asked first: if the cluster is replaced in between, the new id matches no cluster and is never used.
        self._identity = self._cluster.identity(self._topics(), deadline=self._patience())
        found = self._requests.init_producer_id(self._timeout_ms, deadline=self._patience())
        self._producer = ProducerId(*found, self._identity.cluster_id)
        self._check_not_cut_short(self._producer)
        stop_at("fenced")

    def _topics(self) -> set[str]:
        return {partition.topic for partition in self._work.partitions}

    def read_marker(self) -> Marker | None:
        """See :meth:`.commit.Steps.read_marker`."""
        if self._marker is None:
            return None
        found = self._marker.read(self._current().cluster_id, deadline=self._patience())
        self._check_not_cut_short(self._current(), found, is_pending=False)
        stop_at("looked")
        return found

    def is_committed(self, marker: Marker | None) -> bool:
        """See :meth:`.commit.Steps.is_committed`."""
        if self._marker is not None:
            self._is_committed = self._marker.is_committed(marker, self._current().id)
        return self._is_committed

    def open_outcome(self, marker: Marker | None) -> Outcome | None:
        """See :meth:`.commit.Steps.open_outcome`."""
        return self._outcome_of_open_rows(marker) or self._outcome_of_pending_offsets(marker)

    def _outcome_of_open_rows(self, marker: Marker | None) -> Outcome | None:
        needed = self._work.partitions
        if self._marker is None or not needed:
            return None
        producer, required = self._current(), self._marker.is_required
        self._cluster.look_up(self._topics(), deadline=self._patience())
        self._seen = seen_rows(
            self._cluster,
            needed,
            {producer.id, *self._marker.producer_ids()},
            deadline=self._patience(),
            elsewhere=all_of(self._cluster, needed),
            patience=Deadline.after(_ELSEWHERE_SECONDS),
        )
        if marker is not None and required:
            check_nothing_lost(marker, self._marker.topic, self._seen)
        check_no_other(marker, self._seen, producer, needed, required=required)
        open_at = open_epochs(self._seen, producer.id)
        if not open_at:
            return None
        self._decided = decided_by(marker, open_at, producer, needed, required=required)
        return None if self._decided is None else self._decided.outcome

    def _outcome_of_pending_offsets(self, marker: Marker | None) -> Outcome | None:
        """The outcome of pending offsets of the source's group, if the marker tells.

        They are those of the marker's batch: later ones would be committed, or ended by the fence, except
        those whose marker was left out, and these are replaced.
        """
        producer, plan = self._current(), self._work.plan
        if plan.group is None or marker is None or marker.producer_id != producer.id:
            return None
        known = self._known_offsets()
        if self._has_settled_group or not known:
            return None
        found = self._requests.committed_now(plan.group, known, deadline=self._patience())
        if found is not None:
            return None
        self._has_settled_group = True
        self._decided = Settlement(producer, {marker.epoch}, Outcome.COMMITTED)
        return Outcome.COMMITTED

    def _known_offsets(self) -> Mapping[TopicPartition, CommittedOffset]:
        """The offsets that the source's group has committed if all is right: with the marker's batch."""
        plan = self._work.plan
        return plan.offsets if self._is_committed else plan.offsets_before

    def outrun(self, marker: Marker | None) -> bool:
        """See :meth:`.commit.Steps.outrun`.

        :raises FencedError: if another driver fences, too.
        """
        fenced = now = self._current()
        newest = newest_epoch(marker, self._seen, fenced.id)
        if fenced.epoch > newest:
            return False
        _log.warning(
            "The cluster gave %s epoch %d, but has seen %d: its __transaction_state went back. Taking later"
            " epochs",
            self._requests.transactional_id,
            fenced.epoch,
            newest,
        )
        while now.id == fenced.id and now.epoch <= newest:
            found = self._requests.init_producer_id(self._timeout_ms, deadline=self._patience())
            expected, now = now.epoch + 1, ProducerId(*found, fenced.cluster_id)
            if now.id == fenced.id and now.epoch != expected:
                raise FencedError(
                    f"Epoch {now.epoch} of {self._requests.transactional_id}: expected {expected}",
                    hint=FENCED_HINT,
                )
        self._check_not_cut_short(now)
        return True

    def begin(self) -> None:
        """See :meth:`.commit.Steps.begin`."""
        producer = self._current()
        if self._work.plan.group is not None:
            self._check_members(self._work.plan.group)
        if partitions := self._work.partitions:
            try:
                self._requests.add_partitions(producer, partitions, deadline=self._patience())
            except UnknownTopicOrPartitionError as e:
                raise e.with_hint(
                    "The topic was deleted, or recreated with fewer partitions, since the rows were staged."
                    " Nothing of the batch is visible. Create the topic again, or name another one, and run"
                    " the query again."
                ) from None
        for group in self._groups():
            self._requests.add_offsets(producer, group, deadline=self._patience())
        stop_at("begun")

    def _check_members(self, group: str) -> None:
        """Refuse a group with live members, for which brokers let a transaction commit (KIP-447)."""
        try:
            groups = BrokerGroups(self._cluster.options, timeout=self._options.delivery_timeout_ms / 1000)
            found = groups.find(group)
        except AuthorizationError:
            return  # the next request needs the same right, and says which
        if found is not None and found.members:
            raise group_error(
                ErrorCode.NON_EMPTY_GROUP, f"Committing offsets of group {group} in a transaction", group
            )

    def _groups(self) -> list[str]:
        """The groups whose offsets are parts of the transaction."""
        of_marker = [] if self._marker is None else [self._marker.group]
        return of_marker if self._work.plan.group is None else [*of_marker, self._work.plan.group]

    def produce(self) -> None:
        """See :meth:`.commit.Steps.produce`."""
        producer_id = self._current()
        # What is not delivered within the transaction never will be.
        delivery_timeout_ms = min(self._options.delivery_timeout_ms, self._timeout_ms)
        options = replace(self._options, delivery_timeout_ms=delivery_timeout_ms)
        try:
            # The others have told that they have nothing of this epoch.
            untold = self._work.partitions - self._seen.keys()
            ends = ends_of(self._cluster, untold, self._patience())
            transaction = Transaction(self._requests.transactional_id, producer_id, ends)
            with Producer(
                self._cluster,
                options,
                EncodeSettings(),
                transaction=transaction,
                listener=self._work.listener,
            ) as producer:
                for partition, data in self._watched():
                    encoded = stamp(
                        data,
                        producer_id=producer_id.id,
                        producer_epoch=producer_id.epoch,
                        base_sequence=producer_id.sequences[partition],
                    )
                    producer.append(partition, encoded)
                    producer.advance()
                    stop_at("producing")
                producer.finish()
        except FencedError as e:
            raise e.with_hint(FENCED_HINT) from None
        except (AuthorizationError, RecordTooLargeError):
            raise  # which say what to do
        except OldAnswerError as e:
            raise EndedTransactionError(
                e.message,
                topic_partition=e.topic_partition,
                hint="The cluster's __transaction_state, or the partition, went back, or the topic was"
                " recreated. Nothing of the batch is visible. Run the query again.",
            ) from e
        except BrokerError as e:
            kind = EndedTransactionError if isinstance(e, AbortableTransactionError) else TransactionError
            raise kind(
                f"The rows of a batch could not be produced: {e.message}",
                topic_partition=e.topic_partition,
                broker=e.broker,
                hint=f"Nothing of the batch is visible. {e.hint or _RUN_AGAIN}",
            ) from e
        except CorruptRecordError as e:
            raise TransactionError(
                f"Staged rows are damaged: {e.message}", hint="Nothing of the batch is visible. Run it again."
            ) from None
        stop_at("produced")

    def _watched(self) -> Iterator[tuple[TopicPartition, np.ndarray]]:
        """The staged record batches, within the transaction's time; progress is logged now and then."""
        work, total = self._work, self._work.size
        done, started, ends = 0, time.monotonic(), Deadline.after_ms(self._timeout_ms)
        next_log = Deadline.after(_PROGRESS_SECONDS)
        folder = work.folders.of_rows(work.transactional_id, work.batch)
        for staged in work.staged:
            for partition, data in staged_rows(staged, folder):
                yield partition, data
                done += data.size
                if ends.expired:
                    took = time.monotonic() - started
                    raise self._too_slow(f"Producing {done} of {total} bytes took {took:.0f} s")
                if next_log.expired:
                    next_log = Deadline.after(_PROGRESS_SECONDS)
                    _log.info("%s: produced %d of %d bytes", work.batch, done, total)

    def _too_slow(self, what: str) -> TransactionError:
        return TransactionError(
            f"{what}, which is more than kafka.transaction.timeout.ms = {self._timeout_ms} allows",
            hint="Raise it, up to the brokers' transaction.max.timeout.ms, or write smaller batches"
            " (maxOffsetsPerTrigger, maxBytesPerTrigger).",
        )

    def mark(self) -> None:
        """See :meth:`.commit.Steps.mark`."""
        producer, plan = self._current(), self._work.plan
        if self._marker is not None:
            self._marker.commit(producer, self._work.records, deadline=self._patience())
        self._commit_source(producer, plan.offsets)
        stop_at("marked")
        self._check_topics()

    def _commit_source(self, producer: ProducerId, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets of the source's group, if there is one, as a part of the transaction.

        With the newest leader epochs: by these a later start finds out whether the log is still the same.
        """
        group = self._work.plan.group
        if group is None or not offsets:
            return
        told = with_leader_epochs(self._cluster, offsets, self._options.delivery_timeout_ms / 1000)
        self._requests.commit_offsets(producer, group, told, deadline=self._patience())

    def _check_topics(self) -> None:
        """Refuse to commit to topics that are not those to which the rows were produced."""
        before = self._identity
        assert before is not None, "fence() comes first"
        now = self._cluster.identity(self._topics(), deadline=self._patience())
        if changed := dict(before.topic_ids.items() - now.topic_ids.items()):
            raise EndedTransactionError(
                f"Topic {min(changed)} was deleted or recreated while the batch was produced to it",
                hint="Nothing of the batch is visible. Run the query again once the topic is there.",
            )

    def end(self) -> None:
        """See :meth:`.commit.Steps.end`.

        :raises TransactionError: if the result stays unknown.
        """
        if not (self._work.partitions or self._groups()):
            return  # a job without rows: nothing has begun
        try:
            self._requests.end(self._current(), commit=True, deadline=self._patience())
        except KafkaLogError as e:
            # Even if this attempt was refused, an earlier one may have got through without an answer.
            kind = TransactionError if self._marker is None else UnknownResultError
            raise kind(
                f"It is unknown whether the transaction was committed: {e.message}",
                broker=e.broker,
                hint="Look whether the rows are there before you write them again. With txnAppId and"
                " txnVersion that is not needed."
                if self._marker is None
                else "Run the query again: it asks the cluster, and writes the batch if it is not there.",
            ) from e
        stop_at("ended")

    def give_up(self) -> None:
        """See :meth:`.commit.Steps.give_up`.

        A new epoch also fences requests that are still under way, which an abort by EndTxn would not. But
        InitProducerId ends an open transaction before it compares epochs, and that may be a later run's. So
        something is asked first that only the newest epoch may.
        """
        try:
            producer, group = self._current(), self._requests.transactional_id
            deadline = Deadline.after(_GIVE_UP_SECONDS).bounded_by(self._patience())
            self._requests.add_offsets(producer, group, deadline=deadline)
            self._requests.init_producer_id(self._timeout_ms, deadline=deadline, current=producer)
        except KafkaLogError as e:
            _log.info("Left a transaction to the coordinator, which will abort it: %s", e)

    def _current(self) -> ProducerId:
        assert self._producer is not None, "fence() comes first"
        return self._producer

    def _patience(self) -> Deadline:
        """The deadline of a request with all attempts."""
        return Deadline.after_ms(self._options.delivery_timeout_ms)


def commit_work(cluster: Cluster, options: ProduceOptions, timeout_ms: int, work: Work) -> bool:
    """Commit a batch in one transaction, unless it is a micro-batch that was committed before.

    :param timeout_ms: how long the transaction may be open (transaction.timeout.ms).
    :return: False if there is nothing to commit, or the batch was committed before.
    """
    batch = work.batch
    requests = Requests(cluster, work.transactional_id)
    marker = None if batch.batch_id is None else QueryMarker(requests, work)
    steps = Committing(cluster, requests, options, work, timeout_ms=timeout_ms, marker=marker)
    is_written = commit_once(steps)
    if is_written:
        _log.info("%s committed %d records as %s", batch, work.records, work.transactional_id)
    elif work.is_job and work.records:
        _log.warning(JOB_SKIPPED, work.number)
    else:
        _log.info("%s has nothing to commit, or was committed before, as %s", batch, work.transactional_id)
    if marker is not None:
        marker.confirm()
    stop_at("confirmed")
    return is_written
