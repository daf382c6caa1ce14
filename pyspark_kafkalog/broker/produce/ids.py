"""Producer ids of a process, each with the sequence numbers that it has used (KIP-98).

A task borrows an id and gives it back only if all that it sent was
acknowledged: then brokers hold exactly the sequence numbers that are noted
here. An id whose last batches are in doubt is forgotten, so that what another
attempt sends is not taken for a repetition. So is one of a cluster that is gone:
the one that came after it gives the same id to somebody else, and then takes the
records of one for a repetition of the other's.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from pyspark_kafkalog.broker.cluster.identity import Identity
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions

_SEQUENCE_MASK = 0x7FFFFFFF
"""Sequence numbers are int32 without a sign: 0 follows 2147483647."""


@dataclass(slots=True, eq=False)
class ProducerId:
    """An idempotent producer as the brokers of a cluster know it.

    ``topic_ids`` are of the topics that it wrote to, ``sequences`` the next numbers by partition.
    """

    id: int
    epoch: int
    cluster_id: str | None
    topic_ids: dict[str, str] = field(default_factory=dict)
    sequences: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))

    def advance(self, partition: TopicPartition, records: int) -> None:
        """So many records were given numbers."""
        self.sequences[partition] = (self.sequences[partition] + records) & _SEQUENCE_MASK


_free: defaultdict[ConnectionOptions, list[ProducerId]] = defaultdict(list)


def borrow(
    cluster: ConnectionOptions,
    identify: Callable[[Collection[str]], Identity],
    new: Callable[[], tuple[int, int]],
) -> ProducerId:
    """An id that no task of this process uses now.

    :param identify: asks the brokers who they are, and for the ids of these topics.
    :param new: asks them for a new id and its epoch.
    """
    while _free[cluster]:
        kept = _free[cluster].pop()
        # A cluster may be set up anew under its old id, but its topics have new ones.
        if identify(kept.topic_ids) == (kept.cluster_id, kept.topic_ids):
            return kept
    # Told first: if the cluster is replaced meanwhile, the id belongs to none, and is never sent.
    cluster_id = identify([]).cluster_id
    return ProducerId(*new(), cluster_id)


def give_back(cluster: ConnectionOptions, producer_id: ProducerId) -> None:
    """All that was sent under the id is acknowledged."""
    _free[cluster].append(producer_id)


# Two processes must not go on with the numbers of one.
os.register_at_fork(after_in_child=_free.clear)
