"""The outcome of an earlier transaction, which is written where the coordinator has not written it.

A coordinator that is killed right after it answered EndTxn completes the transaction when it starts again;
but as long as its broker does not know of the partitions, it takes them for deleted and leaves their markers
out (TransactionMarkerChannelManager). So a transaction may be committed, and its rows and offsets stay open
for ever: the next marker of the same producer would decide about them. They are ended as was decided, by a
transaction of the same producer without rows, which needs no right that writing does not need.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeProducersRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import by_topic, call_leaders
from pyspark_kafkalog.broker.fetch.list_offsets import (
    MAX_VERSION,
    MIN_VERSION,
    bounds_requests,
    ends_requests,
    read_bounds,
    read_offsets,
)
from pyspark_kafkalog.broker.produce.ids import ProducerId
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import Refused
from pyspark_kafkalog.errors import (
    AuthorizationError,
    KafkaLogError,
    TransactionError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    listed,
)
from pyspark_kafkalog.extensions.exactly_once.commit import Outcome
from pyspark_kafkalog.extensions.exactly_once.intent import RowsOf, Settling
from pyspark_kafkalog.extensions.exactly_once.marker import LostRowsError, Marker, OldMarkerError
from pyspark_kafkalog.extensions.exactly_once.requests import Described
from pyspark_kafkalog.model import TopicPartition, Watermarks
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

_INTERNAL = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


@dataclass(frozen=True, slots=True)
class Settlement:
    """A transaction of ``producer``, of one of the epochs ``of``: the producer's own epoch is to end it."""

    producer: ProducerId
    of: Collection[int]
    outcome: Outcome

    @property
    def settling(self) -> Settling:
        """The entry for the intent."""
        return Settling(self.producer.id, max(self.of), self.producer.epoch)


def decided(
    found: Described,
    settling: Collection[Settling],
    marker: Marker | None,
    *,
    carried_out: Collection[Settling] = (),
    required: bool,
    cluster_id: str | None,
) -> Settlement:
    """The outcome of the newest transaction, whose marker may be pending.

    :param settling: the intent's entries for transactions that are not complete; see :func:`is_unsettled`.
    :param marker: the one before; rows of which it knows that they were committed are never aborted.
    :param carried_out: as the intent has it.
    :param required: whether an unknown outcome must not be taken for an abort.
    """
    if marker is not None and marker.producer_id != found.producer_id:
        marker = None
    outcome, epochs, of = found.outcome, [found.epoch], committed_as(found, marker, carried_out)
    settled = [each.epoch for each in settling if each.by == found.epoch]
    fenced = [each.epoch for each in settling if each.by != found.epoch]
    if settled:
        if outcome is not Outcome.ENDING:
            outcome, epochs = Outcome.COMMITTED, settled[:1]
    elif fenced and outcome in (Outcome.ABORTED, Outcome.NOT_KNOWN):
        outcome, epochs = Outcome.COMMITTED, fenced[-1:]
    elif of is not None and outcome in (Outcome.OPEN, Outcome.COMMITTED):
        outcome, epochs = Outcome.COMMITTED, [of]
    elif outcome is Outcome.ABORTED:
        epochs = [found.epoch - 1, found.epoch]  # a fence aborts by the epoch after that of the rows
        epochs = [epoch for epoch in epochs if marker is None or not marker.was_committed(epoch)]
    elif outcome is Outcome.NOT_KNOWN and found.epoch >= 0 and not required:
        outcome, epochs = Outcome.ABORTED, list(range(found.epoch + 1))
        epochs = [epoch for epoch in epochs if marker is None or marker.was_committed(epoch) is False]
    return Settlement(ProducerId(found.producer_id, found.epoch, cluster_id), epochs, outcome)


def committed_as(found: Described, marker: Marker | None, carried_out: Collection[Settling]) -> int | None:
    """The epoch of the committed rows that the newest transaction is about; None if none are known.

    A request that comes late opens a transaction again that is over: then it is empty, except for rows whose
    markers were left out.
    """
    for each in carried_out:
        if (each.producer_id, each.by) == (found.producer_id, found.epoch):
            return each.epoch
    rows = RowsOf(found.producer_id, found.epoch)
    return rows.epoch if _was_committed(marker, rows, required=True) else None


class CutShortError(OldMarkerError):
    """A committed transaction was being carried out, and something ended that."""


def is_unsettled(each: Settling, newest: ProducerId, marker: Marker | None, *, is_pending: bool) -> bool:
    """Whether something is left to settle: a time-out or a fence may have aborted it.

    What had not started is left as long as its marker is pending, and over once that is committed.

    :param newest: the epoch that the coordinator knows.
    :param marker: the last one that is committed; None as long as that is not known.
    :param is_pending: whether another one is, or may be, pending.
    :raises CutShortError: if it was aborted, perhaps in part; if the coordinator has another producer id, or
        does not tell.
    """
    if (each.producer_id, each.by) == (newest.id, newest.epoch):
        return True
    known = _was_committed(marker, RowsOf(each.producer_id, each.epoch), required=True)
    if known is False and is_pending and each.producer_id == newest.id and not each.started:
        return True
    if not known or each.started:
        raise CutShortError(
            "A driver was stopped while it made rows visible that were committed, and the coordinator"
            " aborted them, perhaps some only",
            hint="Look which rows of the query's last batch are there. To go on, set failOnMissingMarker"
            " to false for one run, which writes the batch unless its marker is there; or use a new"
            " checkpoint.",
        )
    return False


def settled_by(settling: Collection[Settling], producer: ProducerId) -> list[Settling]:
    """The entries that are over once a transaction of ``producer`` has completed them."""
    return [each for each in settling if each.producer_id != producer.id or each.by <= producer.epoch]


class ProducerSeen(NamedTuple):
    """The newest epoch of a producer that a partition has seen.

    ``open_from`` is where its open transaction begins there, -1 if it has none; ``last_sequence`` that of its
    last record of this epoch, -1 if there is none.
    """

    producer_id: int
    epoch: int
    open_from: int
    last_sequence: int = -1

    @property
    def is_open(self) -> bool:
        """Whether it has a transaction open there."""
        return self.open_from >= 0


def seen_rows(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    producer_ids: Collection[int],
    *,
    deadline: Deadline,
    elsewhere: Collection[TopicPartition] = (),
    patience: Deadline | None = None,
) -> dict[TopicPartition, Collection[ProducerSeen]]:
    """The state of producers in the partitions that tell it (DescribeProducers).

    :param deadline: for all attempts, and for open transactions of which brokers don't tell whose they are.
    :param elsewhere: others, of which those count that tell within ``patience``, or request.timeout.ms.
    :raises TransactionError: if one of these stays open on one of ``partitions``.
    """
    failures: dict[TopicPartition, KafkaLogError] = {}

    def ask(
        of: Collection[TopicPartition], until: Deadline | None
    ) -> dict[TopicPartition, Collection[ProducerSeen]]:
        return call_leaders(
            cluster,
            of,
            lambda epochs: [_request(epochs)],
            lambda responses: _read(responses[0], producer_ids),
            doing="Looking up open transactions",
            max_version=0,
            failures=failures,
            deadline=until,
        )

    try:
        answers = ask(partitions, deadline) | ask({*elsewhere} - {*partitions}, patience)
    except UnsupportedVersionError:  # before Kafka 2.8
        answers, untold = {}, set(partitions)
    else:
        untold = {p for p in partitions if isinstance(failures.get(p), AuthorizationError)}
        for partition in {*partitions} & (failures.keys() - untold):
            if not isinstance(failures[partition], UnknownTopicOrPartitionError):  # where nothing is open
                raise failures[partition]
    _wait_for_untold(cluster, untold, deadline)
    return answers


def _request(epochs: Mapping[TopicPartition, int]) -> Any:
    kind = DescribeProducersRequest.TopicRequest
    topics = [kind(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(epochs).items()]
    return DescribeProducersRequest(topics=topics)


def _read(
    response: Any, producer_ids: Collection[int]
) -> dict[TopicPartition, Collection[ProducerSeen] | Refused]:
    found: dict[TopicPartition, Collection[ProducerSeen] | Refused] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                found[partition] = Refused(answer.error_code)
                continue
            found[partition] = [
                ProducerSeen(
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.current_txn_start_offset,
                    producer.last_sequence,
                )
                for producer in answer.active_producers
                if producer.producer_id in producer_ids
            ]
    return found


def open_epochs(
    seen: Mapping[TopicPartition, Collection[ProducerSeen]], producer_id: int
) -> dict[TopicPartition, int]:
    """The partitions on which a producer has a transaction open, and its epoch there."""
    return {
        partition: each.epoch
        for partition, producers in seen.items()
        for each in producers
        if each.is_open and each.producer_id == producer_id
    }


def newest_epoch(
    marker: Marker | None, seen: Mapping[TopicPartition, Collection[ProducerSeen]], producer_id: int
) -> int:
    """The newest epoch of a producer that its marker and partitions have ``seen``; -1 if there is none."""
    of_marker = [] if marker is None or marker.producer_id != producer_id else [marker.epoch]
    of_partitions = (
        each.epoch for producers in seen.values() for each in producers if each.producer_id == producer_id
    )
    return max([*of_marker, *of_partitions], default=-1)


def _wait_for_untold(cluster: Cluster, partitions: Collection[TopicPartition], deadline: Deadline) -> None:
    """Wait until all transactions that are open now are over, also those of other producers."""
    until: dict[TopicPartition, int] = {}

    def attempt(remaining: list[TopicPartition]) -> dict[TopicPartition, KafkaLogError]:
        bounds = _bounds(cluster, remaining, deadline)
        for partition, found in bounds.items():
            until.setdefault(partition, found.high_watermark)
        still_open = [p for p, found in bounds.items() if found.last_stable_offset < until[p]]
        error = TransactionError(
            f"A transaction is open on {listed(still_open, 5)}, and the brokers do not tell whose it is",
            hint="If it is an earlier one of this query, a new one would decide about its rows. Wait"
            " until it is over, or let the brokers (Kafka 2.8 or newer) tell: grant the principal Read on"
            " the topic.",
        )
        return dict.fromkeys(still_open, error)

    cluster.new_backoff(deadline).repeat_each(partitions, attempt)


def _bounds(
    cluster: Cluster, partitions: Collection[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, Watermarks]:
    found: dict[TopicPartition, Watermarks] = call_leaders(
        cluster,
        partitions,
        lambda epochs: bounds_requests(epochs, read_committed=True),
        read_bounds,
        doing="Looking up the last stable offset",
        min_version=2,
        max_version=9,
        deadline=deadline,
    )
    return found


def ends_of(
    cluster: Cluster, partitions: Collection[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Offsets that all earlier acknowledged records are below, and later ones are not."""
    found: dict[TopicPartition, int] = call_leaders(
        cluster,
        partitions,
        lambda epochs: ends_requests(epochs, read_committed=False),
        read_offsets,
        doing="Looking up offsets",
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        deadline=deadline,
    )
    return found


def all_of(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """The partitions of all topics of ``partitions``, whose leaders are known by now."""
    known = cluster.metadata.topics
    return [
        TopicPartition(topic, number)
        for topic in {partition.topic for partition in partitions} & known.keys()
        for number in known[topic].leaders
    ]


def everywhere(cluster: Cluster) -> list[TopicPartition]:
    """The partitions of the cluster that may have rows of a producer."""
    return [
        TopicPartition(topic, number)
        for topic, numbers in cluster.topics().items()
        if topic not in _INTERNAL
        for number in numbers
    ]


def decided_by(
    marker: Marker | None,
    open_at: Mapping[TopicPartition, int],
    current: ProducerId,
    needed: Collection[TopicPartition],
    *,
    required: bool,
) -> Settlement | None:
    """The outcomes of the open transactions' rows by the marker: first of those that were committed.

    :param open_at: the epochs of the open transactions, by partition.
    :param needed: partitions that get rows now. Elsewhere what is not known may stay open.
    :param required: whether the marker is the newest one. Else it tells only what was committed.
    :raises TransactionError: if it does not tell.
    """
    committed = {
        epoch: _was_committed(marker, RowsOf(current.id, epoch), required=required)
        for epoch in open_at.values()
    }
    for is_committed, outcome in ((True, Outcome.COMMITTED), (False, Outcome.ABORTED)):
        epochs = [epoch for epoch, known in committed.items() if known is is_committed]
        if epochs:
            return Settlement(current, {max(epochs)} if is_committed else {*epochs}, outcome)
    unknown = [partition for partition in open_at if partition in needed]
    if not unknown:
        return None
    raise TransactionError(
        f"Rows of an earlier batch are open on {listed(unknown, 5)}, and nothing tells whether they count",
        hint="read_uncommitted readers see them. kafka-transactions.sh abort ends them; until then, others"
        " see no rows behind them, from any producer. Then run the query again, or use a new checkpoint,"
        " which writes all rows again, if these are needed.",
    )


def _was_committed(marker: Marker | None, rows: RowsOf, *, required: bool) -> bool | None:
    known: bool | None = False
    if marker is not None:
        known = marker.was_committed(rows.epoch) if marker.producer_id == rows.producer_id else None
    return known or (False if required and known is False else None)


def check_nothing_lost(
    marker: Marker, topic: str, seen: Mapping[TopicPartition, Collection[ProducerSeen]]
) -> None:
    """See that the marker's ``topic`` has the rows that the marker says were committed.

    What a partition has forgotten of a producer (``producer.id.expiration.ms``) tells nothing.

    :raises LostRowsError: if some are gone: then the topic, or this partition, went back.
    """
    for number, epoch, sequence in marker.ends:
        partition = TopicPartition(topic, number)
        for each in seen.get(partition, ()):
            if each.producer_id != marker.producer_id or each.epoch > epoch:
                continue
            if each.epoch < epoch or 0 <= each.last_sequence < sequence:
                raise LostRowsError(
                    f"Rows up to batch {marker.batch_id} of this query were committed, and the partition no"
                    " longer has all of them: it went back, for example in an unclean leader election, or"
                    " because a disk was set back",
                    topic_partition=partition,
                    hint="Bring back the newer data. Or use a new checkpoint, which writes all rows again."
                    " failOnMissingMarker=false, for one run, goes on without those that are gone.",
                )


def check_no_other(
    marker: Marker | None,
    seen: Mapping[TopicPartition, Collection[ProducerSeen]],
    current: ProducerId,
    needed: Collection[TopicPartition],
    *,
    required: bool,
) -> None:
    """See that no rows of an earlier producer id of the query are open where rows are ``needed``.

    No request of a later producer id ends them.

    :raises TransactionError: if there are some.
    """
    for partition in needed:
        for each in seen.get(partition, ()):
            if each.is_open and each.producer_id != current.id:
                rows = RowsOf(each.producer_id, each.epoch)
                raise _other(_was_committed(marker, rows, required=required), partition, each)


def _other(was_committed: bool | None, partition: TopicPartition, seen: ProducerSeen) -> TransactionError:
    end = (
        f"kafka-transactions.sh abort --topic {partition.topic} --partition {partition.partition}"
        f" --start-offset {seen.open_from}"
    )
    count, hint = {
        True: (
            "they count",
            f"Bring back the newer one. Else {end} ends them, and they are lost: a new checkpoint writes them"
            " again, with all others.",
        ),
        False: ("they don't count", f"Run {end}, and then the query again."),
        None: (
            "nothing tells whether they count",
            f"read_uncommitted readers see them. {end} ends them. Then run the query again, or use a new"
            " checkpoint, which writes all rows again, if these are needed.",
        ),
    }[was_committed]
    return TransactionError(
        "Rows of an earlier batch are open, and their producer id is not the query's any more, as the"
        f" cluster's __transaction_state went back, or its epochs were used up: {count}. Readers see no rows"
        " behind them, from any producer",
        topic_partition=partition,
        hint=hint,
    )
