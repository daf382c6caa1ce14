"""The commits of one run at a time for a consumer group of a cluster: a later run fences an earlier one.

See :class:`.sole_commits.SoleCommits`. Each commit is a transaction. Its transactional id is
taken over before the group is read, so what is read holds until a later run does the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.groups.groups import with_leader_epochs
from pyspark_kafkalog.broker.produce.ids import ProducerId
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.errors import FencedError, KafkaLogError
from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id
from pyspark_kafkalog.extensions.exactly_once.options import TransactionOptions
from pyspark_kafkalog.extensions.exactly_once.requests import Requests
from pyspark_kafkalog.extensions.exactly_once.stops import stop_at
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions, ProduceOptions


class FencedCommits:
    """The commits of one run. It takes over the transactional id now.

    :param name: what the runs have in common that exclude each other.
    """

    def __init__(
        self,
        connection: ConnectionOptions,
        produce: ProduceOptions,
        transactions: TransactionOptions,
        group: str,
        name: str,
    ) -> None:
        self._cluster = cluster_of(connection)
        self._requests = Requests(self._cluster, transactional_id(name))
        self._patience_ms = produce.delivery_timeout_ms
        self._group = group
        self._known: dict[TopicPartition, tuple[int, str]] = {}
        found = self._requests.init_producer_id(transactions.timeout_ms, deadline=self._patience())
        self._producer = ProducerId(*found, None)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """See :meth:`.sole_commits.SoleCommits.committed`."""
        found = self._requests.committed(self._group, partitions, deadline=self._patience())
        self._asked, self._known = frozenset(partitions), _said(found)
        return found

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """See :meth:`.sole_commits.SoleCommits.commit`."""
        told = with_leader_epochs(self._cluster, offsets, self._patience_ms / 1000)
        try:
            is_known = self._stage(told)
            self._requests.end(self._producer, commit=is_known, deadline=self._patience())
        except FencedError:
            return False
        self._known |= _said(offsets)
        return is_known

    def _stage(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """Commit as a part of a transaction. Returns whether all is as this run has seen it last.

        That is asked here, as only the newest coordinator of the group takes part in a transaction.
        """
        try:
            self._requests.add_offsets(self._producer, self._group, deadline=self._patience())
            self._requests.commit_offsets(self._producer, self._group, offsets, deadline=self._patience())
            stop_at("committing")
            now = self._requests.committed(
                self._group, self._asked, deadline=self._patience(), require_stable=False
            )
        except FencedError:
            raise
        except BaseException:
            with suppress(KafkaLogError):
                self._requests.end(self._producer, commit=False, deadline=self._patience())
            raise
        return _said(now) == self._known

    def _patience(self) -> Deadline:
        return Deadline.after_ms(self._patience_ms)


def _said(offsets: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, tuple[int, str]]:
    return {partition: committed.said for partition, committed in offsets.items()}
