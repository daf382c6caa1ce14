"""What says that a batch was committed: the marker in the cluster, and what a query expects of it.

The marker is the offset that the group named like the transactional id has committed for partition 0 of one
topic: the batch id + 1, with details as metadata. It is committed in the batch's own transaction, so it is
there if and only if the rows are. Beside the checkpoint stands the intent: that this query writes here, and
which batch it has tried. Without it, a first batch looks like one whose marker the cluster lost.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark_kafkalog.broker.transactions.epochs import CommittedEpochs
from pyspark_kafkalog.codec.marker import PREFIX, MarkerDetails, marker_details, marker_metadata
from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.model import CommittedOffset, Plan
from pyspark_kafkalog.sinks import LastBatch, Standing, standing

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Kept = TypeVar("_Kept")
_INTENT = "intent.json"
_MOST_ENDS = 32
"""Partitions of which a marker says where their rows end: brokers limit the metadata of an offset."""
_LONGEST_ATTEMPT_MS = 24 * 3600 * 1000
"""How long a first batch may be tried: a marker outlives that (offsets.retention.minutes: 7 days)."""
WRITE_IT = (
    "Set failOnMissingMarker to false for one run, which writes the batch whether it was written or not."
)
_CUT_OFF = (
    "A broker that is cut off from the controllers may have given an old marker: see that all are up, and run"
    " the query again."
)
_WAYS_OUT = (
    "Bring back the newer data, or use a new checkpoint, which writes all rows again."
    " failOnMissingMarker=false for one run writes this batch, whether it was written or not"
)
_UNREADABLE = (ValueError, TypeError, KeyError, RecursionError, OverflowError, AttributeError)


class OldMarkerError(TransactionError):
    """The marker lacks a batch that was committed: it is lost, or a coordinator that was deposed gave it."""


class LostRowsError(TransactionError):
    """A partition lacks rows that were committed: it went back, or a leader that was deposed answers."""


def _batches(first: int, end: int) -> str:
    return f"batch {first}" if end - first == 1 else f"batches {first} to {end - 1}"


def check_newest(
    marker: Marker | None, intent: Intent, committed: RowsOf | None, skipped: RowsOf | None
) -> None:
    """See that a marker is not older than what is known to be committed.

    What is told by no epoch counts as no older: that of another producer id, or of an earlier version.

    :param committed: of the newest transaction, if it was; if it carried out another one, that one counts.
    :param skipped: of a marker that has let a run skip its batch.
    :raises OldMarkerError: if it is older.
    """
    known = [] if skipped is None else [skipped]
    if committed is not None:
        carried_out = [
            RowsOf(each.producer_id, each.epoch)
            for each in (*intent.settling, *intent.carried_out)
            if RowsOf(each.producer_id, each.by) == committed
        ]
        known += carried_out or [committed]
    if marker is None:
        if not known or intent.confirmed:
            return  # if it is confirmed, the Expectation refuses that
        got = "there is no marker"
    elif any(marker.producer_id == rows.producer_id and marker.epoch < rows.epoch for rows in known):
        got = f"the marker is that of batch {marker.batch_id}"
    else:
        return
    raise OldMarkerError(
        f"The cluster has committed a later batch of this query than its marker says: {got}",
        hint=f"{_CUT_OFF} Else its __consumer_offsets was set back, or the marker's group"
        f" {transactional_id(intent.query_id)} was deleted. Bring back the newer one, or use a new"
        " checkpoint, which writes the rows again. With failOnMissingMarker=false, for one run, the"
        " batch is written, and is there twice if it is the one that was committed.",
    )


def transactional_id(query_id: str) -> str:
    """The transactional id of a query, and the name of its marker's group: the same for all of its runs."""
    digest = hashlib.sha256(query_id.encode()).digest()
    return PREFIX + base64.b32encode(digest).decode().lower()[:26]


class RowsEnd(NamedTuple):
    """The newest committed rows of a partition of the marker's topic: epoch, and last sequence number."""

    partition: int
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch that a query has committed to a cluster.

    ``plan`` is a digest of what the checkpoint says of the batch, empty if that is not known; ``producer_id``
    and ``epoch`` are those of its rows, -1 if the marker is older than this field. ``epochs`` are those of
    this producer which the query has committed, None in an older marker. ``ends`` are those of some
    partitions, for which the marker's topic shows whether it still has what was committed.
    """

    query_id: str
    cluster_id: str | None
    batch_id: int
    plan: str = ""
    records: int = 0
    producer_id: int = -1
    epoch: int = -1
    epochs: CommittedEpochs | None = None
    ends: tuple[RowsEnd, ...] = ()

    def was_committed(self, epoch: int) -> bool | None:
        """Whether the batch was whose rows have this epoch of the producer; None if that is not known."""
        return None if self.epoch < 0 else self._epochs.has(epoch)

    def epochs_with(self, producer_id: int, epoch: int, *, is_next: bool = True) -> CommittedEpochs:
        """Those of the next marker; if it may not be the next one, the epochs between are not known."""
        if self.producer_id != producer_id:
            return CommittedEpochs.alone(epoch, since=epoch)
        epochs = self._epochs.then(epoch)
        return epochs if is_next else epochs._replace(since=epoch)

    @property
    def _epochs(self) -> CommittedEpochs:
        return self.epochs or CommittedEpochs.alone(self.epoch, since=self.epoch)

    def as_offset(self) -> CommittedOffset:
        """The marker as its group commits it."""
        details = MarkerDetails(
            self.query_id,
            self.cluster_id,
            self.plan,
            self.records,
            self.producer_id,
            self.epoch,
            () if self.epochs is None else tuple(self.epochs.numbers()),
            tuple(number for end in self.ends for number in end),
        )
        return CommittedOffset(self.batch_id + 1, metadata=marker_metadata(details))

    @classmethod
    def of(cls, offset: CommittedOffset, group: str) -> Marker:
        """The marker in an offset.

        :raises TransactionError: if this package did not write it.
        """
        details = marker_details(offset.metadata)
        try:
            epochs = CommittedEpochs.parse(details.epochs) if details and details.epochs else None
            ends = () if details is None else _ends(details.ends)
        except ValueError:
            details = None
        if details is None:
            raise TransactionError(
                f"The offset of group {group} is not a marker of this package",
                hint="Something else commits to that group. Find it, and let it use another group.",
            )
        query_id, cluster_id, plan, records, producer_id, epoch, *_ = details
        return cls(query_id, cluster_id, offset.offset - 1, plan, records, producer_id, epoch, epochs, ends)

    def ends_with(self, producer_id: int, new: Collection[RowsEnd]) -> tuple[RowsEnd, ...]:
        """Those of the next marker, with what it adds; of too many partitions some are left out."""
        known = {end.partition: end for end in self.ends} if self.producer_id == producer_id else {}
        known |= {end.partition: end for end in new}
        return tuple(sorted(sorted(known.values(), key=lambda end: -end.epoch)[:_MOST_ENDS]))


def _ends(numbers: Sequence[int]) -> tuple[RowsEnd, ...]:
    """:raises ValueError: if they are not three for each."""
    return tuple(RowsEnd(*end) for end in zip(*(numbers[place::3] for place in range(3)), strict=True))


class RowsOf(NamedTuple):
    """The producer whose rows a transaction has, and their epoch."""

    producer_id: int
    epoch: int


class Settling(NamedTuple):
    """That a transaction with the epoch ``by`` writes the markers of a committed one with ``epoch``.

    Until it has ``begun``, an abort of it can reach the marker of the query, but no rows and no other group.
    """

    producer_id: int
    epoch: int
    by: int
    begun: bool = True


@dataclass(frozen=True, slots=True)
class Intent:
    """That a query writes to a cluster, exactly once.

    ``topic`` has the marker; it is empty as long as no row said one. ``batch`` was tried first, or by a job
    last, at ``since_ms`` by this machine's clock. ``confirmed`` says that one is known to be committed.
    ``settling`` has the committed transactions whose markers are being written, ``carried_out`` the last one
    of which that is done.
    """

    query_id: str
    cluster_id: str | None
    topic: str
    batch: int
    since_ms: int
    confirmed: bool = False
    settling: tuple[Settling, ...] = ()
    carried_out: tuple[Settling, ...] = ()

    def noting(
        self,
        *,
        new: Settling | None = None,
        over: Collection[Settling] = (),
        carried_out: Settling | None = None,
    ) -> Intent:
        """With what is settled from now on, and without what is over; what has begun stays so."""
        settling = [each for each in self.settling if each not in over]
        if new is not None:
            same = [each for each in settling if each[:3] == new[:3]]
            settling = [*(each for each in settling if each not in same), max([new, *same])]
        done = self.carried_out if carried_out is None else (carried_out,)
        return replace(self, settling=tuple(settling), carried_out=done)


_INTENT_TYPES: dict[str, tuple[type, ...]] = {
    "query_id": (str,),
    "cluster_id": (str, type(None)),
    "topic": (str,),
    "batch": (int,),
    "since_ms": (int,),
    "confirmed": (bool,),
}


def stored_intent(folder: Folder) -> Intent | None:
    """The intent in a query's folder; None if there is none.

    :raises TransactionError: if it can't be read or parsed.
    """
    return stored_json(folder, _INTENT, _intent)


def _intent(found: Any) -> Intent:
    if not all(isinstance(found[name], kinds) for name, kinds in _INTENT_TYPES.items()):
        raise TypeError
    settling, carried_out = (
        tuple(map(_settling, found.pop(name, ()))) for name in ("settling", "carried_out")
    )
    return Intent(**found, settling=settling, carried_out=carried_out)


def _settling(found: Any) -> Settling:
    producer_id, epoch, by, *begun = map(int, found)
    return Settling(producer_id, epoch, by, begun != [False])


def store_intent(folder: Folder, intent: Intent) -> None:
    """Store the intent, before the first transaction begins.

    :raises TransactionError: if it can't be written.
    """
    store_json(folder, _INTENT, intent)


def stored_json(folder: Folder, name: str, parse: Callable[[Any], _Kept]) -> _Kept | None:
    """What a file in a query's folder has, parsed; None if there is none.

    :raises TransactionError: if it can't be read or parsed.
    """
    try:
        data = folder.read_replaced(name)
        return None if data is None else parse(json.loads(data))
    except OSError as e:
        raise _cannot("read", folder, name, e) from None
    except _UNREADABLE:
        raise TransactionError(
            "What the query keeps about its writes is corrupt",
            file=folder.label(name),
            hint="Stop all runs of the query, then delete the file.",
        ) from None


def store_json(folder: Folder, name: str, kept: DataclassInstance) -> None:
    """Replace a file in a query's folder, and flush it.

    :raises TransactionError: if it can't be written.
    """
    try:
        folder.replace(name, json.dumps(asdict(kept)).encode(), flush=True)
    except OSError as e:
        raise _cannot("store", folder, name, e) from None


def _cannot(do: str, folder: Folder, name: str, error: OSError) -> TransactionError:
    return TransactionError(
        f"Could not {do} what the query keeps about its writes: {error}",
        file=folder.label(name),
        hint="Let the user that runs Spark's driver read and write the checkpoint, or the stagingLocation.",
    )


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a run of a batch expects of the marker.

    :param is_job: a job that names its batches, rather than a streaming query, whose first batch is 0.
    :param plan: as in the marker, None if unknown; ``before`` is that of the batch before.
    :param intent: stored before; None for a query that has written nothing here yet.
    :param required: whether a missing marker is an error, unless it can't be there yet.
    """

    query_id: str
    cluster_id: str | None
    batch_id: int
    plan: str | None
    intent: Intent | None
    is_job: bool = False
    required: bool = True
    before: str = ""

    def is_met_by(self, marker: Marker | None) -> bool:
        """Whether the batch was committed before; if not, it may be written now.

        :raises TransactionError: if the marker is another's, is ahead, is of another plan, or is missing.
        """
        if self.intent is not None:
            self._check_cluster(self.intent.cluster_id)
        if marker is None:
            if self.required:
                self._check_missing()
            return False
        if marker.query_id != self.query_id:
            raise TransactionError(
                f"Another query has committed to this one's marker: expected {self.query_id},"
                f" got {marker.query_id}",
                hint="Give each query its own checkpoint, and each job its own txnAppId.",
            )
        self._check_cluster(marker.cluster_id)
        last, plan = LastBatch(marker.batch_id, marker.plan), Plan(self.plan, before=self.before)
        found = standing(self.batch_id, plan, last, is_job=self.is_job)
        if found is Standing.AHEAD:
            raise TransactionError(
                f"The cluster has batch {marker.batch_id} of this query already, but batch {self.batch_id}"
                " is to be written",
                hint="Another run of the query is ahead of this one, or the checkpoint was set back: then"
                " rows would be lost or doubled. Use a new checkpoint.",
            )
        if found is Standing.OTHER:
            raise TransactionError(
                f"The cluster has batch {marker.batch_id} of this query already, but with other offsets of"
                " its sources than the checkpoint has",
                hint="The checkpoint was set back or copied, and the batch was planned again: rows would be"
                " lost or doubled. Use a new checkpoint.",
            )
        if found is Standing.BEHIND and self.required:
            group = transactional_id(self.query_id)
            raise OldMarkerError(
                f"The cluster has no later batch of this query than {marker.batch_id}, but batch"
                f" {self.batch_id} is to be written",
                hint=f"{_CUT_OFF} Else the cluster, or its __consumer_offsets (group {group}), was set"
                f" back, or batches between were written at least once. If {self._topic()} went back, too,"
                f" the rows of {_batches(marker.batch_id + 1, self.batch_id)} are missing, and nothing"
                f" writes them again. {_WAYS_OUT}, and goes on without those rows.",
            )
        if found is Standing.UNKNOWN and self.required:
            raise TransactionError(
                f"The cluster has batch {self.batch_id} of this query, and nothing tells whether it was"
                " planned as the checkpoint has it",
                hint=f"If it is the same, its rows are there already. {WRITE_IT}",
            )
        return found is Standing.SAME

    def _topic(self) -> str:
        return "the topic" if self.intent is None or not self.intent.topic else f"topic {self.intent.topic}"

    def _check_cluster(self, known: str | None) -> None:
        if known != self.cluster_id:
            raise TransactionError(
                "The query has written to another cluster: expected cluster id"
                f" {known}, got {self.cluster_id}",
                hint="Use a new checkpoint for another cluster.",
            )

    def _check_missing(self) -> None:
        """Refuse a batch that may have been written by a run whose marker is lost."""
        intent = self.intent
        if intent is None:
            if self.batch_id > 0 and not self.is_job:
                raise TransactionError(
                    f"Batch {self.batch_id} of this query is to be written, but neither the cluster nor the"
                    " checkpoint knows of an earlier batch that was written exactly once",
                    hint=f"If so far the query has written at least once, that is as expected. {WRITE_IT}",
                )
            return
        if not intent.topic:
            return  # nothing has been written yet
        if intent.confirmed or (intent.batch != self.batch_id and not self.is_job):
            raise OldMarkerError(
                f"The marker of this query is missing, so batch {self.batch_id} may have been written or not",
                hint=f"{_CUT_OFF} Else the cluster has lost it (offsets.retention.minutes without a batch,"
                f" the deletion of topic {intent.topic} or of the marker's group"
                f" {transactional_id(self.query_id)}). If the topic was recreated, or went back, the rows"
                " of earlier batches are missing, and nothing writes them again."
                f" {_WAYS_OUT}: its rows are there twice if it was.",
            )
        age = time.time_ns() // 1_000_000 - intent.since_ms
        if intent.batch == self.batch_id and age > _LONGEST_ATTEMPT_MS:
            raise TransactionError(
                f"The first batch of this query was tried {age // 3_600_000} hours ago, and no marker says"
                " how it ended",
                hint=f"If it was written, its marker may have expired. {WRITE_IT}",
            )

    def new_intent(self, topic: str, *, confirmed: bool = False) -> Intent:
        """The intent to store before the batch is written, or ``confirmed`` once it is."""
        known = self.intent
        since_ms = time.time_ns() // 1_000_000
        if known is not None and known.batch == self.batch_id:
            since_ms = known.since_ms
        intent = Intent(self.query_id, self.cluster_id, topic, self.batch_id, since_ms, confirmed)
        if known is None:
            return intent
        return replace(intent, settling=known.settling, carried_out=known.carried_out)
