"""A process's producer ids, each with the sequence numbers that it has used (KIP-98).

A task borrows an id and returns it only if all that it sent was acknowledged:
then brokers have exactly the sequence numbers noted here. An id whose last batches
are in doubt is discarded, so that brokers do not take another attempt's batches for
duplicates. So is an id of a cluster that was replaced: the new cluster gives the same
id to another producer, and would take the records of one for duplicates of the other's.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from pyspark_kafkalog.broker.cluster.metadata import Identity
from pyspark_kafkalog.codec.stamp import SEQUENCE_MASK
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions

KIP_360 = 3
"""The version of InitProducerId since which brokers accept any sequence number of an unknown producer, and a
producer may name the epoch that it believes to be the newest."""


@dataclass(slots=True, eq=False)
class ProducerId:
    """An idempotent producer as the brokers of a cluster know it.

    ``topic_ids`` are the ids of the topics that it wrote to, ``sequences`` the next numbers by partition.
    """

    id: int
    epoch: int
    cluster_id: str | None
    topic_ids: dict[str, str] = field(default_factory=dict)
    sequences: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))

    def advance(self, partition: TopicPartition, records: int) -> None:
        """Count records that were given sequence numbers."""
        self.sequences[partition] = (self.sequences[partition] + records) & SEQUENCE_MASK


_free: defaultdict[ConnectionOptions, list[ProducerId]] = defaultdict(list)


def borrow(
    cluster: ConnectionOptions,
    identify: Callable[[Collection[str]], Identity],
    new: Callable[[], tuple[int, int]],
) -> ProducerId:
    """An id that no other task of this process is using.

    :param identify: asks the brokers for the cluster's id, and for the ids of these topics.
    :param new: asks them for a new producer id and its epoch.
    """
    while _free[cluster]:
        free = _free[cluster].pop()
        # A cluster may be recreated under its old id, but its topics get new ids.
        if identify(free.topic_ids) == (free.cluster_id, free.topic_ids):
            return free
    # Asked first: if the cluster is replaced in between, the new id matches no cluster and is never used.
    cluster_id = identify([]).cluster_id
    return ProducerId(*new(), cluster_id)


def give_back(cluster: ConnectionOptions, producer_id: ProducerId) -> None:
    """Return an id for which everything sent was acknowledged."""
    _free[cluster].append(producer_id)


# A forked process must not continue its parent's sequence numbers.
os.register_at_fork(after_in_child=_free.clear)
