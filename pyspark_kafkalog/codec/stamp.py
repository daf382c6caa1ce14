"""Makes encoded record batches those of a producer: its id, its epoch, and sequence numbers."""

from __future__ import annotations

import numpy as np

from pyspark_kafkalog.codec import write_kernels as kernels
from pyspark_kafkalog.codec.encode import put_checksums
from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_V2,
    BASE_SEQUENCE_V2,
    PRODUCER_EPOCH_V2,
    PRODUCER_ID_V2,
    TRANSACTIONAL_BIT,
)
from pyspark_kafkalog.codec.walk import WalkStatus, walk
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import Encoded

SEQUENCE_MASK = 0x7FFFFFFF
"""Sequence numbers are non-negative int32: 0 follows 2147483647 (DefaultRecordBatch.incrementSequence)."""


def stamp(
    data: np.ndarray, *, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool = True
) -> Encoded:
    """Stamp consecutive v2 record batches of one partition, in place.

    :param data: uint8 array of whole batches, which nothing else uses.
    :param base_sequence: of the first record.
    :param transactional: whether they are parts of a transaction.
    :raises CorruptRecordError: if there is anything else in ``data``.
    """
    batches = walk(data)
    if batches.status != WalkStatus.END or (batches.magic != 2).any() or (batches.count < 1).any():
        raise CorruptRecordError("Expected whole record batches of format v2", position=batches.end)
    position, count = batches.position, batches.count
    sequences = (base_sequence + np.cumsum(count) - count) & SEQUENCE_MASK
    attributes = batches.attributes & ~TRANSACTIONAL_BIT
    for field, values, size in (
        (ATTRIBUTES_V2, attributes | TRANSACTIONAL_BIT if transactional else attributes, 2),
        (PRODUCER_ID_V2, np.full_like(position, producer_id), 8),
        (PRODUCER_EPOCH_V2, np.full_like(position, producer_epoch), 2),
        (BASE_SEQUENCE_V2, sequences, 4),
    ):
        kernels.put_ints(data, position + field, values, size)
    put_checksums(data, position, batches.size)
    return Encoded(data, int(count.sum()), position, batches.size, count)
