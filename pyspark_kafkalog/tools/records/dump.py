"""Record batches and records as stored, as Kafka's DumpLogSegments shows them; from brokers, too."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.client.partitions import bounds_of
from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.buffers import as_array
from pyspark_kafkalog.codec.format import (
    COMPRESSION_NAMES,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_KEY_SIZE,
    CONTROL_TYPE,
    DELETE_HORIZON_BIT,
)
from pyspark_kafkalog.codec.indexing import DamageError, DecodeLimits, Indexer
from pyspark_kafkalog.codec.rows import ROW_TYPES, RowColumns
from pyspark_kafkalog.codec.walk import batches_of, first_bad_checksum
from pyspark_kafkalog.errors import OversizedRecordError
from pyspark_kafkalog.model import Fetch, OffsetRange, OnCorrupt, Place, Slice, TopicPartition

_LIMITS = DecodeLimits()
_COLUMNS = pa.schema([(name, ROW_TYPES[name]) for name in ("offset", "key", "value", "headers")])
_MARKERS = {CONTROL_ABORT: "ABORT", CONTROL_COMMIT: "COMMIT"}
_TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """A record as stored; ``control_type`` is COMMIT or ABORT for a transaction's marker."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    control_type: str | None


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A record batch, or a message of magic 0 or 1, under the names that DumpLogSegments gives.

    ``position`` counts from the start of ``file``, or of a broker's response. ``records`` is None
    unless they were requested and can be read. Without them, compressed messages of magic 0 or 1
    have a ``count`` of None, and their ``base_offset`` is a lower bound.
    """

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    count: int | None
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    file: str | None
    position: int
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    compression: str
    crc: int
    is_valid: bool
    records: tuple[DumpedRecord, ...] | None = None


def dump(
    place: Place,
    partition: TopicPartition,
    offsets: OffsetRange | None = None,
    *,
    limits: DecodeLimits = _LIMITS,
    records: bool = False,
    on_corrupt: OnCorrupt | None = None,
) -> Iterator[DumpedBatch]:
    """The batches that hold any of ``offsets``, in order; all batches by default.

    See :meth:`.kafka.Records.dump`.
    """
    bounds = bounds_of(place, [partition])[partition]
    existing = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
    wanted = existing if offsets is None else offsets.within(existing)
    if wanted.start >= wanted.end:
        return
    for piece in place.fetch(Fetch(partition, wanted, on_corrupt=on_corrupt)):
        yield from _Dump(partition, piece, limits, records=records).batches(wanted)


class _Dump:
    """The batches of one slice."""

    def __init__(
        self, partition: TopicPartition, piece: Slice, limits: DecodeLimits, *, records: bool
    ) -> None:
        self._partition = partition
        self._origin = piece.origin
        self._data = as_array(piece.buffer)
        self._walked = batches_of(piece)
        self._indexer = Indexer(self._data, self._walked, limits) if records else None
        self._columns = RowColumns(_COLUMNS, partition)

    def batches(self, wanted: OffsetRange) -> Iterator[DumpedBatch]:
        batches = self._walked
        for row in np.flatnonzero(
            (batches.last_offset >= wanted.start) & (batches.base_offset < wanted.end)
        ).tolist():
            yield self._batch(row, wanted)

    def _batch(self, row: int, wanted: OffsetRange) -> DumpedBatch:
        batches = self._walked
        base_offset, last_offset, sequence, attributes, count = (
            int(column[row])
            for column in (
                batches.base_offset,
                batches.last_offset,
                batches.base_sequence,
                batches.attributes,
                batches.count,
            )
        )
        is_control = bool(batches.is_control[row])
        is_valid = first_bad_checksum(self._data, batches, row, row + 1) > row
        records = self._records(row, wanted, is_control=is_control) if is_valid and self._indexer else None
        last_sequence = (sequence + last_offset - base_offset) & 0x7FFFFFFF if sequence >= 0 else -1
        has_horizon = batches.magic[row] == 2 and attributes & DELETE_HORIZON_BIT
        compression = int(batches.compression[row])
        return DumpedBatch(
            topic=self._partition.topic,
            partition=self._partition.partition,
            base_offset=base_offset,
            last_offset=last_offset,
            count=count if count >= 0 else None if records is None else len(records),
            base_sequence=sequence,
            last_sequence=last_sequence,
            producer_id=int(batches.producer_id[row]),
            producer_epoch=int(batches.producer_epoch[row]),
            partition_leader_epoch=int(batches.leader_epoch[row]),
            is_transactional=bool(batches.is_transactional[row]),
            is_control=is_control,
            delete_horizon_ms=int(batches.base_timestamp[row]) if has_horizon else None,
            file=self._origin.file,
            position=self._origin.position + int(batches.position[row]),
            timestamp_type=_TIMESTAMP_TYPES[int(batches.timestamp_type[row])],
            max_timestamp=int(batches.max_timestamp[row]),
            size=int(batches.size[row]),
            magic=int(batches.magic[row]),
            compression=COMPRESSION_NAMES[compression] if compression < len(COMPRESSION_NAMES) else "unknown",
            crc=int(batches.crc[row]),
            is_valid=is_valid and (records is not None or self._indexer is None),
            records=records,
        )

    def _records(self, row: int, wanted: OffsetRange, *, is_control: bool) -> tuple[DumpedRecord, ...] | None:
        """The ``wanted`` records of one batch; None if they can't be read although the checksum is right."""
        assert self._indexer is not None
        all_batches = np.ones(len(self._walked), bool)
        found: list[DumpedRecord] = []
        try:
            for indexed in self._indexer.index(row, row + 1, all_batches, wanted):
                arrow_batch = self._columns.build(indexed.source, indexed.table, indexed.timestamp_type)
                times = indexed.table[kernels.TIMESTAMP].tolist()
                for record, timestamp in zip(arrow_batch.to_pylist(), times, strict=True):
                    headers = tuple((header["key"], header["value"]) for header in record["headers"] or ())
                    marker = _marker(record["key"]) if is_control else None
                    found.append(
                        DumpedRecord(
                            record["offset"], timestamp, record["key"], record["value"], headers, marker
                        )
                    )
        except DamageError:
            return None
        except OversizedRecordError as e:
            raise e.within(self._partition, self._origin.file, self._origin.position) from None
        return tuple(found)


def _marker(key: bytes | None) -> str | None:
    if key is None or len(key) < CONTROL_KEY_SIZE:
        return None
    kind = struct.unpack_from(">h", key, CONTROL_TYPE)[0]
    return _MARKERS.get(kind, f"UNKNOWN {kind}")
