"""Kafka's default partitioner, on Arrow columns.

Sources: ``Utils.murmur2``, ``BuiltInPartitioner`` (KIP-480, KIP-794).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec import write_kernels as kernels
from pyspark_kafkalog.codec.buffers import binary_column


def murmur2_partitions(keys: pa.Array, num_partitions: int) -> np.ndarray:
    """Partition of each key, int32: (murmur2(key) & 0x7fffffff) % num_partitions; -1 where the key is null.

    An empty key is hashed like any other.
    """
    partitions = np.empty(len(keys), np.int32)
    kernels.murmur2_partitions(binary_column(keys), num_partitions, partitions)
    return partitions


class StickyPartitioner:
    """Partitions for records without a key: one partition for ``batch_size`` bytes, then the next.

    This fills batches, and over time each partition gets the same share of
    bytes. Kafka picks the next partition at random; here it is the next in
    number, so ``first`` should differ between writers.
    """

    def __init__(self, num_partitions: int, batch_size: int, first: int = 0) -> None:
        self._num_partitions = num_partitions
        self._batch_size = max(batch_size, 1)
        self._partition = first % num_partitions
        self._filled = 0

    def partitions(self, sizes: np.ndarray) -> np.ndarray:
        """Partition of each record, int32, given the bytes of each, in order."""
        partitions = np.empty(sizes.size, np.int32)
        self._partition, self._filled = kernels.sticky_partitions(
            sizes, self._batch_size, self._num_partitions, self._partition, self._filled, partitions
        )
        return partitions


def payload_sizes(*columns: pa.Array) -> np.ndarray:
    """Bytes of each row in all the binary or string columns, int64; a null has none."""
    sizes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if column.null_count < len(column):
            kernels.add_lengths(binary_column(column), sizes)
    return sizes


def rows_by_partition(partitions: np.ndarray, num_partitions: int) -> list[np.ndarray]:
    """The row numbers (int64) of each partition, in order, given each row's partition (int32)."""
    ends = np.zeros(num_partitions, np.int64)
    rows = np.empty(partitions.size, np.int64)
    kernels.group_rows(partitions, ends, rows)
    return [rows[start:end] for start, end in pairwise([0, *ends.tolist()])]
