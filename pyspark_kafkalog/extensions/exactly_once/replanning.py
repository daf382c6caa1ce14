"""The marker of a query whose last plan was changed in its checkpoint: it gets the digest of the new plan.

It is written as a driver writes it, in a transaction that has no rows. So a driver that still runs is fenced:
nothing that it has begun is committed, and if it begins again, it finds another plan before its batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.extensions.exactly_once.commit import commit_once, take_over
from pyspark_kafkalog.extensions.exactly_once.committing import Committing
from pyspark_kafkalog.extensions.exactly_once.folders import Folders
from pyspark_kafkalog.extensions.exactly_once.intent import Intent, stored_intent
from pyspark_kafkalog.extensions.exactly_once.marker import Marker, transactional_id
from pyspark_kafkalog.extensions.exactly_once.options import TransactionOptions
from pyspark_kafkalog.extensions.exactly_once.query_marker import QueryMarker
from pyspark_kafkalog.extensions.exactly_once.requests import Requests
from pyspark_kafkalog.extensions.exactly_once.work import Work, check_cluster
from pyspark_kafkalog.model import Plan, QueryBatch, TopicPartition
from pyspark_kafkalog.options.brokers import ProduceOptions

if TYPE_CHECKING:
    from pyspark_kafkalog.broker.cluster.cluster import Cluster


class Glimpse(NamedTuple):
    """The marker of a query as it is; with ``is_open`` a transaction that commits it is not over."""

    marker: Marker | None
    is_open: bool = False


@dataclass(frozen=True)
class Replanning:
    """The change of the marker of a query, with its checkpoint at ``location``."""

    cluster: Cluster
    query_id: str
    location: str = field(repr=False)

    def look(self) -> Glimpse:
        """Look at the marker, and fence nothing.

        :raises TransactionError: if it is of another cluster.
        """
        group = transactional_id(self.query_id)
        deadline = Deadline.after_ms(ProduceOptions().delivery_timeout_ms)
        requests = Requests(self.cluster, group)
        # For all partitions brokers don't tell what is pending.
        cells = {*requests.committed(group, None, deadline=deadline, require_stable=False)}
        intent = stored_intent(self._folders.of_intent(group))
        if intent is not None and intent.topic:
            cells.add(TopicPartition(intent.topic, 0))
        found = requests.committed_now(group, cells, deadline=deadline) if cells else {}
        if found is None:
            return Glimpse(None, is_open=True)
        markers = [Marker.of(offset, group) for offset in found.values()]
        marker = max(markers, key=lambda each: each.batch_id, default=None)
        if marker is not None:
            self._check_cluster(marker, deadline)
        return Glimpse(marker)

    def take_over(self, batch_id: int) -> Marker | None:
        """Fence the query's driver, and read its marker.

        :param batch_id: the last one that is planned.
        :raises TransactionError: if it can't be read, or is of another cluster.
        """
        steps, _ = self._steps(_Replanned(*self._work(batch_id, "")))
        marker = take_over(steps)
        if marker is not None:
            self._check_cluster(marker, Deadline.after_ms(ProduceOptions().delivery_timeout_ms))
        return marker

    def store(self, marker: Marker, digest: str) -> None:
        """Replace the marker by one with this digest.

        :raises TransactionError: if there is another one by now, or the transaction fails.
        """
        work = _Replanned(*self._work(marker.batch_id, digest), known=marker)
        steps, own = self._steps(work)
        commit_once(steps)
        own.confirm()

    def _check_cluster(self, marker: Marker, deadline: Deadline) -> None:
        check_cluster(marker.cluster_id, self.cluster.identity([], deadline=deadline).cluster_id)

    @property
    def _folders(self) -> Folders:
        return Folders.of(TransactionOptions(checkpoint_location=self.location))

    def _work(self, batch_id: int, digest: str) -> tuple[QueryBatch, tuple[()], Folders, Plan]:
        return QueryBatch(self.query_id, batch_id), (), self._folders, Plan(digest)

    def _steps(self, work: Work) -> tuple[Committing, QueryMarker]:
        requests = Requests(self.cluster, work.transactional_id)
        marker = QueryMarker(requests, work)
        timeout_ms = TransactionOptions().timeout_ms
        steps = Committing(
            self.cluster, requests, ProduceOptions(), work, timeout_ms=timeout_ms, marker=marker
        )
        return steps, marker


@dataclass(frozen=True)
class _Replanned(Work):
    """A batch without rows that replaces the marker ``known``, which has its number."""

    known: Marker | None = None

    @property
    def records(self) -> int:
        """The number of rows that the batch was committed with."""
        return 0 if self.known is None else self.known.records

    def is_committed(self, marker: Marker | None, intent: Intent | None, cluster_id: str | None) -> bool:
        """Whether the marker has the digest. See :meth:`.work.Work.is_committed`."""
        if marker == self.known:
            return False
        if marker is not None and (marker.batch_id, marker.plan) == (self.number, self.plan.digest):
            return True
        raise TransactionError(
            f"A driver of query {self.batch.query_id} has committed while its marker was changed",
            hint="Stop the query.",
        )
