"""The work of one commit, and whether the marker of its query says that it was written before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.extensions.exactly_once.folders import Folders
from pyspark_kafkalog.extensions.exactly_once.intent import Intent
from pyspark_kafkalog.extensions.exactly_once.marker import (
    CUT_OFF,
    WRITE_IT,
    Marker,
    OldMarkerError,
    transactional_id,
)
from pyspark_kafkalog.model import Plan, QueryBatch, TopicPartition
from pyspark_kafkalog.model.sinks import LastBatch, Standing, older_version, standing
from pyspark_kafkalog.staging import Staged

if TYPE_CHECKING:
    from pyspark_kafkalog.model.listening import WriteListener

_LONGEST_ATTEMPT_MS = 24 * 3600 * 1000
"""The time for which a first batch may be tried: a marker outlives it (offsets.retention.minutes: 7 days)."""
_START_OVER = (
    "Use a new checkpoint, which writes all rows again, unless its source begins where its group is"
    " (startingOffsets=committed)."
)
_WAYS_OUT = (
    "Bring back the newer data, or use a new checkpoint, which writes all rows again."
    " failOnMissingMarker=false for one run writes this batch, whether it was written or not"
)


@dataclass(frozen=True)
class Work:
    """The work of a commit: the rows that tasks have staged, and a group's offsets of ``plan``.

    :param is_job: whether a job names its batches, rather than a streaming query, whose first batch is 0.
    :param required: whether a missing marker is an error, unless it can't be there yet.
    :param listener: hears of the record batches as they are produced; None if nothing listens.
    """

    batch: QueryBatch
    staged: Sequence[Staged]
    folders: Folders
    plan: Plan
    is_job: bool = False
    required: bool = True
    listener: WriteListener | None = None

    @property
    def transactional_id(self) -> str:
        """The transactional id of the batch's query or job."""
        return transactional_id(self.batch.query_id)

    @cached_property
    def partitions(self) -> set[TopicPartition]:
        """The partitions that get rows."""
        return {partition for staged in self.staged for partition in staged.partitions}

    @cached_property
    def size(self) -> int:
        """Bytes of all that is staged."""
        return sum(staged.size for staged in self.staged)

    @property
    def records(self) -> int:
        """The number of all that is staged."""
        return sum(staged.records for staged in self.staged)

    @property
    def number(self) -> int:
        """The number of the batch, which its marker names."""
        assert self.batch.batch_id is not None, "only numbered batches have a marker"
        return self.batch.batch_id

    @property
    def marker_topics(self) -> list[str]:
        """Topics that may have the marker, the best first; empty if no row has one."""
        written, read = (
            sorted({partition.topic for partition in partitions})
            for partitions in (self.partitions, self.plan.offsets)
        )
        return [*written, *read]

    def is_committed(self, marker: Marker | None, intent: Intent | None, cluster_id: str | None) -> bool:
        """Whether the batch was committed before; if not, it may be written now.

        :param intent: stored before; None for a query that has written nothing here yet.
        :param cluster_id: of the cluster that has given the marker.
        :raises TransactionError: if the marker is another's, is ahead, is of another plan, or is missing.
        """
        if intent is not None:
            check_cluster(intent.cluster_id, cluster_id)
        if marker is None:
            if self.required:
                self._check_missing(intent)
            return False
        if marker.query_id != self.batch.query_id:
            raise TransactionError(
                f"Another query has committed to this one's marker: expected {self.batch.query_id},"
                f" got {marker.query_id}",
                hint="Give each query its own checkpoint, and each job its own txnAppId.",
            )
        check_cluster(marker.cluster_id, cluster_id)
        last = LastBatch(marker.batch_id, marker.plan)
        found = standing(self.number, self.plan, last, is_job=self.is_job)
        if found is Standing.AHEAD and self.is_job:
            message, hint = older_version(self.number, last)
            raise TransactionError(message, hint=hint)
        if found is Standing.AHEAD:
            raise TransactionError(
                f"The cluster has batch {marker.batch_id} of this query already, but batch {self.number}"
                " is to be written",
                hint="Another run of the query is ahead of this one, or the checkpoint was set back: then"
                f" rows would be lost or doubled. {_START_OVER}",
            )
        if found is Standing.OTHER:
            raise TransactionError(
                f"The cluster has batch {marker.batch_id} of this query already, but with other offsets of"
                " its sources than the checkpoint has",
                hint="The checkpoint was set back or copied, and the batch was planned again: rows would be"
                " lost or doubled. If kafkalog checkpoint has set it back, name the cluster by --with-sink."
                f" {_START_OVER}",
            )
        if found is Standing.BEHIND and self.required:
            raise self._behind(marker, intent)
        if found is Standing.UNKNOWN and self.required:
            raise TransactionError(
                f"The cluster has batch {self.number} of this query, and nothing tells whether it was"
                " planned as the checkpoint has it",
                hint=f"If it is the same, its rows are there already. {WRITE_IT}",
            )
        return found is Standing.SAME

    def _behind(self, marker: Marker, intent: Intent | None) -> OldMarkerError:
        topic = "the topic" if intent is None or not intent.topic else f"topic {intent.topic}"
        first = marker.batch_id + 1
        between = f"batch {first}" if first == self.number - 1 else f"batches {first} to {self.number - 1}"
        return OldMarkerError(
            f"The cluster has no later batch of this query than {marker.batch_id}, but batch"
            f" {self.number} is to be written",
            hint=f"{CUT_OFF} Else the cluster, or its __consumer_offsets (group {self.transactional_id}), was"
            f" set back, or batches between were written at least once. If {topic} went back, too,"
            f" the rows of {between} are missing, and nothing"
            f" writes them again. {_WAYS_OUT}, and goes on without those rows.",
        )

    def _check_missing(self, intent: Intent | None) -> None:
        """Refuse a batch that may have been written by a run whose marker is lost."""
        if intent is None:
            if self.number > 0 and not self.is_job:
                raise TransactionError(
                    f"Batch {self.number} of this query is to be written, but neither the cluster nor the"
                    " checkpoint knows of an earlier batch that was written exactly once",
                    hint=f"If so far the query has written at least once, that is as expected. {WRITE_IT}",
                )
            return
        if not intent.topic:
            return  # nothing has been written yet
        if intent.confirmed or (intent.batch != self.number and not self.is_job):
            raise OldMarkerError(
                f"The marker of this query is missing, so batch {self.number} may have been written or not",
                hint=f"{CUT_OFF} Else the cluster has lost it (offsets.retention.minutes without a batch,"
                f" the deletion of topic {intent.topic} or of the marker's group"
                f" {self.transactional_id}). If the topic was recreated, or went back, the rows"
                " of earlier batches are missing, and nothing writes them again."
                f" {_WAYS_OUT}: its rows are there twice if it was.",
            )
        age = time.time_ns() // 1_000_000 - intent.since_ms
        if intent.batch == self.number and age > _LONGEST_ATTEMPT_MS:
            raise TransactionError(
                f"The first batch of this query was tried {age // 3_600_000} hours ago, and no marker says"
                " how it ended",
                hint=f"If it was written, its marker may have expired. {WRITE_IT}",
            )

    def new_intent(
        self, known: Intent | None, topic: str, cluster_id: str | None, *, confirmed: bool = False
    ) -> Intent:
        """The intent to store in place of ``known`` before the batch is written, or ``confirmed``."""
        since_ms = time.time_ns() // 1_000_000
        if known is not None and known.batch == self.number:
            since_ms = known.since_ms
        intent = Intent(self.batch.query_id, cluster_id, topic, self.number, since_ms, confirmed)
        if known is None:
            return intent
        return replace(intent, settling=known.settling, carried_out=known.carried_out)


def check_cluster(known: str | None, found: str | None) -> None:
    """:raises TransactionError: if the query has written to another cluster than the one found."""
    if known != found:
        raise TransactionError(
            f"The query has written to another cluster: expected cluster id {known}, got {found}",
            hint="Use a new checkpoint for another cluster.",
        )
