"""How far a number of bytes reaches in a partition: no request of Kafka's asks that."""

from __future__ import annotations

import numpy as np

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.fetch.fetcher import headers_at
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.options.brokers import FetchOptions

_SAMPLES = 4
_SAMPLE_BYTES = 256 << 10


def offset_after_bytes(
    cluster: Cluster,
    options: FetchOptions,
    partition: TopicPartition,
    offsets: OffsetRange,
    max_bytes: int,
) -> int:
    """An end in (start, end], from the headers of sampled batches; exact for few bytes.

    Each sample stands for an equal share of the bytes that the samples before it have left.
    """
    position, bytes_left = offsets.start, max_bytes
    for shares in range(_SAMPLES, 0, -1):
        rest = OffsetRange(position, offsets.end)
        try:
            batches = headers_at(cluster, options, partition, rest, min(max(bytes_left, 1), _SAMPLE_BYTES))
        except CorruptRecordError:  # the reader will handle it
            return offsets.end
        if batches is None or not len(batches):
            return offsets.end
        taken = np.cumsum(batches.size)
        fitting = int(np.searchsorted(taken, bytes_left, side="right"))
        if fitting < len(batches):
            if position == offsets.start:
                fitting = max(fitting, 1)
            if fitting:
                position = int(batches.last_offset[fitting - 1]) + 1
            break
        next_offset = int(batches.last_offset[-1]) + 1
        bytes_left -= int(taken[-1])
        bytes_per_offset = int(taken[-1]) / (next_offset - min(position, int(batches.base_offset[0])))
        jump = int(bytes_left / shares / bytes_per_offset)
        position = next_offset + jump
        bytes_left -= int(jump * bytes_per_offset)
        if bytes_left <= 0 or position >= offsets.end:
            break
    return min(position, offsets.end)
