"""The marker of one query and its intent: how a batch finds, reads, checks and commits them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.transactions.marker import (
    Expectation,
    Marker,
    confirmed,
    store_intent,
    stored_intent,
)
from pyspark_kafkalog.broker.transactions.requests import Requests
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.model import CommittedOffset, TopicPartition

_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class QueryMarker:
    """The marker that one batch reads and commits.

    :param group: that commits it, named like the transactional id.
    :param cell: the partition that it is committed for.
    :param folder: of the intent.
    """

    group: str
    cell: TopicPartition
    expectation: Expectation
    folder: Folder

    def read(self, requests: Requests, *, deadline: Deadline) -> Marker | None:
        """The marker in the cluster, after every transaction that is over."""
        found = requests.committed(self.group, [self.cell], deadline=deadline).get(self.cell)
        return None if found is None else Marker.of(found, self.group)

    def is_committed(self, marker: Marker | None) -> bool:
        """Whether the batch was committed before; if not, the intent to write it is stored now."""
        if self.expectation.is_met_by(marker):
            return True
        if self.expectation.intent is None:
            store_intent(self.folder, self.expectation.new_intent(self.cell.topic))
        return False

    def offsets(self, records: int) -> Mapping[TopicPartition, CommittedOffset]:
        """What the group commits with a batch of so many records."""
        batch = self.expectation
        marker = Marker(batch.query_id, batch.cluster_id, batch.batch_id, records)
        return {self.cell: marker.as_offset()}

    def confirm(self) -> None:
        """Note that the query's marker exists: from now on a missing one is an error.

        Never raises, as the batch is visible by now.
        """
        intent = self.expectation.intent
        if intent is None or not intent.confirmed:
            known = intent or self.expectation.new_intent(self.cell.topic)
            try:
                store_intent(self.folder, confirmed(known))
            except OSError as e:
                _log.warning("Could not store that the query's first batch is committed: %s", e)


def find_marker(
    cluster: Cluster,
    requests: Requests,
    query_id: str,
    batch_id: int,
    *,
    folder: Folder,
    topics: Collection[str],
    required: bool,
    deadline: Deadline,
) -> QueryMarker | None:
    """The marker of a query; None if it has none yet, and the batch has no topic for one.

    :param folder: of the query's intent.
    :param topics: those that the batch writes to.
    :param required: whether a missing marker is an error, unless it can't be there yet.
    """
    group, intent = requests.transactional_id, stored_intent(folder)
    if intent is not None:
        cell: TopicPartition | None = TopicPartition(intent.topic, 0)
    else:
        earlier = requests.committed(group, None, deadline=deadline)
        cell = min(earlier, default=TopicPartition(min(topics), 0) if topics else None)
    if cell is None:
        return None
    cluster_id = cluster.identity([], deadline=deadline).cluster_id
    expectation = Expectation(query_id, cluster_id, batch_id, intent, required)
    return QueryMarker(group, cell, expectation, folder)
