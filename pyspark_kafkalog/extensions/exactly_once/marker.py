"""The marker in the cluster, which says that a batch was committed.

The marker is the offset that the group named like the transactional id has committed for partition 0 of one
topic: the batch id + 1, with details as metadata. It is committed in the batch's own transaction, so it is
there if and only if the rows are. Beside the checkpoint stands what a run notes first: :mod:`.intent`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.extensions.exactly_once.group_marker import (
    MarkerDetails,
    marker_details,
    marker_metadata,
)
from pyspark_kafkalog.extensions.exactly_once.intent import Intent, Producers, RowsOf
from pyspark_kafkalog.model import CommittedOffset
from pyspark_kafkalog.model.groups import OWN_PREFIX

_MOST_ENDS = 32
"""Partitions of which a marker says where their rows end: brokers limit the metadata of an offset."""
_MOST_RANGES = 64
"""A query that fails now and then adds a range each time, and brokers limit the metadata of an offset."""
WRITE_IT = (
    "Set failOnMissingMarker to false for one run, which writes the batch whether it was written or not."
)
CUT_OFF = (
    "A broker that is cut off from the controllers may have given an old marker: see that all are up, and run"
    " the query again."
)


class OldMarkerError(TransactionError):
    """The marker lacks a batch that was committed: it is lost, or a coordinator that was deposed gave it."""


class LostRowsError(TransactionError):
    """A partition lacks rows that were committed: it went back, or a leader that was deposed answers."""


def check_newest(
    marker: Marker | None, intent: Intent, committed: RowsOf | None, producers: Producers
) -> None:
    """See that a marker is not older than what is known to be committed.

    What nothing tells counts as no older: a producer id that is not noted.

    :param committed: of the newest transaction, if it was; if it carried out another one, that one counts.
    :param producers: of the query.
    :raises OldMarkerError: if it is older.
    """
    known = [] if producers.skipped is None else [producers.skipped]
    if committed is not None:
        carried_out = [
            RowsOf(each.producer_id, each.epoch)
            for each in (*intent.settling, *intent.carried_out)
            if RowsOf(each.producer_id, each.by) == committed
        ]
        known += carried_out or [committed]
    if marker is None:
        if not known or intent.confirmed:
            return  # if it is confirmed, the Work refuses that
        got = "there is no marker"
    elif any(producers.is_before(RowsOf(marker.producer_id, marker.epoch), rows) for rows in known):
        got = f"the marker is that of batch {marker.batch_id}"
    else:
        return
    raise OldMarkerError(
        f"The cluster has committed a later batch of this query than its marker says: {got}",
        hint=f"{CUT_OFF} Else its __consumer_offsets was set back, or the marker's group"
        f" {transactional_id(intent.query_id)} was deleted. Bring back the newer one, or use a new"
        " checkpoint, which writes the rows again. With failOnMissingMarker=false, for one run, the"
        " batch is written, and is there twice if it is the one that was committed.",
    )


def transactional_id(query_id: str) -> str:
    """The transactional id of a query, and the name of its marker's group: the same for all of its runs."""
    digest = hashlib.sha256(query_id.encode()).digest()
    return OWN_PREFIX + base64.b32encode(digest).decode().lower()[:26]


class CommittedEpochs(NamedTuple):
    """Ranges of epochs that were committed, both ends in them. Of those from ``since`` on no other was.

    They decide about rows whose markers a coordinator left out. Each run of a batch has an epoch of its own,
    and each that is committed has a marker. So a marker that adds its epoch to those of the marker before
    tells of all: those that are missing were not committed.
    """

    since: int
    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def alone(cls, epoch: int, *, since: int) -> CommittedEpochs:
        """A single committed epoch."""
        return cls(since, ((epoch, epoch),))

    @classmethod
    def parse(cls, numbers: Sequence[int]) -> CommittedEpochs:
        """See :meth:`numbers`.

        :raises ValueError: if they are not such numbers.
        """
        since, *ends = numbers
        ranges = tuple(zip(ends[::2], ends[1::2], strict=True))
        if not ranges or ends != sorted(ends):
            raise ValueError("not ranges of epochs")
        return cls(since, ranges)

    def numbers(self) -> list[int]:
        """``since``, then first and last of each range, as a marker has them."""
        return [self.since, *(number for ends in self.ranges for number in ends)]

    def has(self, epoch: int) -> bool | None:
        """Whether an epoch was committed; None if that is not known."""
        if any(first <= epoch <= last for first, last in self.ranges):
            return True
        return None if epoch < self.since else False

    def then(self, epoch: int) -> CommittedEpochs:
        """The epochs with a later committed one; the oldest range is dropped if there are too many."""
        *older, (first, last) = self.ranges
        newest = [(first, epoch)] if epoch == last + 1 else [(first, last), (epoch, epoch)]
        ranges = (*older, *newest)
        if len(ranges) <= _MOST_RANGES:
            return CommittedEpochs(self.since, ranges)
        return CommittedEpochs(max(self.since, ranges[1][0]), ranges[1:])


class RowsEnd(NamedTuple):
    """The newest committed rows of a partition of the marker's topic: epoch, and last sequence number."""

    partition: int
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch that a query has committed to a cluster.

    ``plan`` is a digest of what the checkpoint says of the batch, empty if that is not known; ``producer_id``
    and ``epoch`` are those of its rows. ``epochs`` are those of this producer which the query has committed.
    ``ends`` are those of some partitions, for which the marker's topic shows whether it still has what was
    committed.
    """

    query_id: str
    cluster_id: str | None
    batch_id: int
    plan: str
    records: int
    producer_id: int
    epoch: int
    epochs: CommittedEpochs
    ends: tuple[RowsEnd, ...]

    def was_committed(self, epoch: int) -> bool | None:
        """Whether the batch was whose rows have this epoch of the producer; None if that is not known."""
        return self.epochs.has(epoch)

    def epochs_with(self, producer_id: int, epoch: int, *, is_next: bool = True) -> CommittedEpochs:
        """The epochs of the next marker; if it may not be the next one, those between are not known."""
        if self.producer_id != producer_id:
            return CommittedEpochs.alone(epoch, since=epoch)
        epochs = self.epochs.then(epoch)
        return epochs if is_next else epochs._replace(since=epoch)

    def as_offset(self) -> CommittedOffset:
        """The marker as its group commits it."""
        details = MarkerDetails(
            self.query_id,
            self.cluster_id,
            self.plan,
            self.records,
            self.producer_id,
            self.epoch,
            tuple(self.epochs.numbers()),
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
            if details is None:
                raise ValueError("not a marker's")
            epochs, ends = CommittedEpochs.parse(details.epochs), _ends(details.ends)
        except ValueError:
            raise TransactionError(
                f"The offset of group {group} is not a marker of this package",
                hint="Another version of this package, or something else, commits to that group. Find it, and"
                " let it use another group.",
            ) from None
        query_id, cluster_id, plan, records, producer_id, epoch, *_ = details
        return cls(query_id, cluster_id, offset.offset - 1, plan, records, producer_id, epoch, epochs, ends)


def ends_with(before: Marker | None, producer_id: int, new: Collection[RowsEnd]) -> tuple[RowsEnd, ...]:
    """The ends in the next marker, with what it adds; of too many partitions some are left out."""
    old = before.ends if before is not None and before.producer_id == producer_id else ()
    known = {end.partition: end for end in (*old, *new)}
    return tuple(sorted(sorted(known.values(), key=lambda end: -end.epoch)[:_MOST_ENDS]))


def _ends(numbers: Sequence[int]) -> tuple[RowsEnd, ...]:
    """:raises ValueError: if they are not three for each."""
    return tuple(RowsEnd(*end) for end in zip(*(numbers[place::3] for place in range(3)), strict=True))
