"""Which partition a record goes to: Kafka's default partitioner, on Arrow columns.

Sources: ``Utils.murmur2``, ``BuiltInPartitioner`` (KIP-480, KIP-794).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec import write_kernels as kernels
from pyspark_kafkalog.codec.columns import binary_column


def murmur2_partitions(keys: pa.Array, num_partitions: int) -> np.ndarray:
    """Partition of each key, int32: (murmur2(key) & 0x7fffffff) % num_partitions; -1 where the key is null.

    An empty key is hashed as any other.
    """
    partitions = np.empty(len(keys), np.int32)
    kernels.murmur2_partitions(binary_column(keys), num_partitions, partitions)
    return partitions


class StickyPartitioner:
    """Partitions for records without a key: one partition for ``batch_size`` bytes, then the next.

    Full batches come of it, and over time each partition gets the same share of
    bytes. Kafka picks the next partition at random; here it is the next in
    number, so ``first`` should differ between writers.
    """

    def __init__(self, num_partitions: int, batch_size: int, first: int = 0) -> None:
        self._num_partitions = num_partitions
        self._batch_size = max(batch_size, 1)
        self._partition = first % num_partitions
        self._filled = 0

    def partitions(self, sizes: np.ndarray) -> np.ndarray:
        """Partition of each record, int32, given the bytes that each takes, in order."""
        ends = self._filled + np.cumsum(sizes, dtype=np.int64)
        switches = (ends - sizes) // self._batch_size
        partitions = ((self._partition + switches) % self._num_partitions).astype(np.int32)
        if ends.size:
            switched, self._filled = divmod(int(ends[-1]), self._batch_size)
            self._partition = (self._partition + switched) % self._num_partitions
        return partitions


def rows_by_partition(partitions: np.ndarray, num_partitions: int) -> list[np.ndarray]:
    """For each partition the numbers of its rows (int64), in order, given each row's partition (int32)."""
    counts = np.bincount(partitions, minlength=num_partitions)
    ends = np.cumsum(counts) - counts
    rows = np.empty(partitions.size, np.int64)
    kernels.group_rows(partitions, ends, rows)
    return np.split(rows, ends[:-1])
