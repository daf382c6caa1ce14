"""Producer ids of a process, each with the sequence numbers that it has used (KIP-98).

A task borrows an id and gives it back only if all that it sent was
acknowledged: then brokers hold exactly the sequence numbers that are noted
here. An id whose last batches are in doubt is forgotten, so that what another
attempt sends is not taken for a repetition.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions

_SEQUENCE_MASK = 0x7FFFFFFF
"""Sequence numbers are int32 without a sign: 0 follows 2147483647."""


@dataclass(slots=True, eq=False)
class ProducerId:
    """An idempotent producer as brokers know it; ``sequences`` are the next ones, by partition."""

    id: int
    epoch: int
    sequences: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))

    def advance(self, partition: TopicPartition, records: int) -> None:
        """So many records were given numbers."""
        self.sequences[partition] = (self.sequences[partition] + records) & _SEQUENCE_MASK


_free: defaultdict[ConnectionOptions, list[ProducerId]] = defaultdict(list)


def borrow(cluster: ConnectionOptions, new: Callable[[], tuple[int, int]]) -> ProducerId:
    """An id that no task of this process uses now, or one of which ``new`` tells id and epoch."""
    try:
        return _free[cluster].pop()
    except IndexError:
        return ProducerId(*new())


def give_back(cluster: ConnectionOptions, producer_id: ProducerId) -> None:
    """All that was sent under the id is acknowledged."""
    _free[cluster].append(producer_id)


# Two processes must not go on with the numbers of one.
os.register_at_fork(after_in_child=_free.clear)
