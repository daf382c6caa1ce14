"""Makes of stored record batches those that a producer sends: the same records, without their offsets.

A batch of format v2 is sent as it is, except for the producer in its header. These are decoded and encoded
again, with the same compression:

- message sets of formats v0 and v1, as brokers take v2 only;
- batches with gaps between their offsets, as compaction leaves them (``LogValidator`` refuses them from
  clients), or with a delete horizon (KIP-534) in place of their base timestamp;
- batches with LogAppendTime, as their records' own timestamps are not those that readers see;
- batches of which only some records are wanted;
- batches larger than a segment of the target may be (``segment.bytes``);
- small batches that follow one another, which become larger ones: a request carries one batch per partition,
  and thousands of them would take all the time.

Control batches are left out, as only a coordinator may write them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import as_array
from pyspark_kafkalog.codec.decode import DecodeLimits, decode
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.format import (
    COMPRESSION_NAMES,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
)
from pyspark_kafkalog.codec.isolation import Visibility
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.codec.walk import Batches, batches_of, first_bad_checksum
from pyspark_kafkalog.errors import CorruptRecordError, InvalidRecordError, OversizedRecordError
from pyspark_kafkalog.model import EncodeSettings, OffsetRange, Origin, Slice, TopicPartition
from pyspark_kafkalog.write.rows import to_records

_SCHEMA = pa.schema([(name, ROW_TYPES[name]) for name in ("key", "value", "offset", "timestamp", "headers")])
_AT_ONCE_BYTES = 256 << 10
"""About how many stored bytes are given at a time: a rate is kept in steps of these."""
_SMALL_BYTES = 16 << 10
"""Bytes of a batch that is joined with its neighbours; the default of batch.size in Kafka's producer."""
_BATCH_BYTES = 256 << 10
"""Bytes before compression of a batch that is encoded again, unless it holds a single record."""
ANY_SIZE = (1 << 31) - 1
DEFAULT_LIMITS = DecodeLimits()
_LEFT_OUT, _AS_IT_IS = -2, -1
_SMALL = len(COMPRESSION_NAMES) + 3
"""The ways of a batch. Other values are the compression with which it is encoded again, plus this if
it could also be sent as it is."""


@dataclass(frozen=True, slots=True)
class RestorableBatches:
    """Whole record batches of format v2, and where their records came from.

    ``spans`` has a row for each stretch of source offsets without gaps, its first and the one after its
    last.
    """

    data: np.ndarray
    records: int
    spans: np.ndarray


def restorable(
    piece: Slice,
    partition: TopicPartition,
    offsets: OffsetRange,
    visible: Visibility | None,
    largest: int = ANY_SIZE,
    limits: DecodeLimits = DEFAULT_LIMITS,
) -> Iterator[RestorableBatches]:
    """The records of a slice within ``offsets``, in order.

    :param visible: hides the transactions that are left out; None hides nothing. The same for all slices of
        a partition.
    :param largest: bytes that a batch may have in the target, unless it holds a single record.
    :param limits: of what is decoded.
    :raises CorruptRecordError: at the first batch that is damaged.
    :raises OversizedRecordError: at a record that is larger than ``limits`` allow, if it has to be decoded.
    """
    data, batches = as_array(piece.buffer), batches_of(piece)
    kinds = _kinds(batches, offsets, visible, largest)
    shares = (batches.position + batches.size) // _AT_ONCE_BYTES
    cuts = np.flatnonzero((np.diff(kinds) != 0) | (np.diff(shares) != 0)) + 1
    for first, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(kinds)], strict=True):
        if stop == first or kinds[first] == _LEFT_OUT:
            continue
        kind, is_small = int(kinds[first]), kinds[first] >= _SMALL
        run = batches.take(np.arange(first, stop))
        if kind == _AS_IT_IS or (is_small and len(run) == 1):
            yield _as_they_are(data, run, partition, piece.origin)
            continue
        begin, end = int(run.position[0]), int(run.position[-1] + run.size[-1])
        origin = Origin(piece.origin.file, piece.origin.position + begin)
        # Half leaves room for the header, and for what compression makes larger.
        batch_bytes = min(_BATCH_BYTES, largest // 2)
        settings = EncodeSettings(_compression_name(kind % _SMALL), batch_bytes, ANY_SIZE)
        anew = _encoded_anew(data[begin:end], partition, offsets, origin, settings, limits)
        if not is_small:
            yield from anew
            continue
        try:
            joined = list(anew)
        except (InvalidRecordError, CorruptRecordError, OversizedRecordError):
            # a timestamp that only bytes can hold, damage, or a record that is too large to be decompressed
            joined = [_as_they_are(data, run, partition, piece.origin)]
        yield from joined


def _kinds(batches: Batches, offsets: OffsetRange, visible: Visibility | None, largest: int) -> np.ndarray:
    is_whole = (
        (batches.magic == 2)
        & (batches.count == batches.last_offset - batches.base_offset + 1)
        & (batches.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT) == 0)
        & (batches.base_offset >= offsets.start)
        & (batches.last_offset < offsets.end)
        & (batches.size <= largest)
    )
    left_out = (
        batches.is_control
        | (batches.count == 0)
        | (batches.last_offset < offsets.start)
        | (batches.base_offset >= offsets.end)
    )
    if visible is not None:
        left_out |= visible.hidden(batches, 0, len(batches))
    is_large = is_whole & (batches.size >= _SMALL_BYTES)
    anew = batches.compression + np.where(is_whole, _SMALL, 0)
    return np.where(left_out, _LEFT_OUT, np.where(is_large, _AS_IT_IS, anew))


def _compression_name(compression: int) -> str:
    """Unknown ids are left to the decoder, whose error has the place."""
    return COMPRESSION_NAMES[compression] if compression < len(COMPRESSION_NAMES) else COMPRESSION_NAMES[0]


def _as_they_are(
    data: np.ndarray, batches: Batches, partition: TopicPartition, origin: Origin
) -> RestorableBatches:
    """Neighbouring batches. Their checksums are verified, as new ones would hide damage."""
    bad = first_bad_checksum(data, batches, 0, len(batches))
    if bad < len(batches):
        raise CorruptRecordError(
            "The record batch's checksum is wrong",
            topic_partition=partition,
            offset=int(batches.base_offset[bad]),
            file=origin.file,
            position=origin.position + int(batches.position[bad]),
            hint="kafkalog repair --salvage mends the source and keeps what is valid behind the damage, which"
            " repair alone cuts off. Or restore up to this offset.",
        )
    begin, end = int(batches.position[0]), int(batches.position[-1] + batches.size[-1])
    return RestorableBatches(
        data[begin:end].copy(),
        int(batches.count.sum()),
        _joined(batches.base_offset, batches.last_offset + 1),
    )


def _encoded_anew(
    data: np.ndarray,
    partition: TopicPartition,
    offsets: OffsetRange,
    origin: Origin,
    settings: EncodeSettings,
    limits: DecodeLimits,
) -> Iterator[RestorableBatches]:
    rows = decode(
        data,
        topic_partition=partition,
        offsets=offsets,
        visible=None,
        schema=_SCHEMA,
        limits=limits,
        origin=origin,
    )
    for arrow_batch, _ in rows:
        if arrow_batch.num_rows:
            encoded = encode(to_records(arrow_batch, now_ms=-1), None, settings, topic_partition=partition)
            found = arrow_batch.column("offset").to_numpy()
            yield RestorableBatches(encoded.data, encoded.records, _joined(found, found + 1))


def _joined(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Ranges of offsets, in order, with neighbours made one."""
    apart = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    return np.stack([starts[np.append(0, apart)], ends[np.append(apart - 1, starts.size - 1)]], axis=1)
