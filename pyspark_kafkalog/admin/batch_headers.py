"""Headers of record batches as Arrow: the rows of ``view=batches``, a column of numbers at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.admin.partitions import EVERY_TOPIC, bounds_of
from pyspark_kafkalog.admin.rows import MAX_MS, arrow_types
from pyspark_kafkalog.codec.buffers import Stage, as_array
from pyspark_kafkalog.codec.compression import decompress
from pyspark_kafkalog.codec.format import COMPRESSION_NAMES, RECORDS_V2
from pyspark_kafkalog.codec.indexing import DecodeLimits
from pyspark_kafkalog.codec.size_kernels import UNKNOWN, stated_sizes
from pyspark_kafkalog.codec.walk import Batches, batches_of, right_checksums
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, Place, Slice, TopicPartition
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.options.views import VIEWS
from pyspark_kafkalog.reading.offsets import look_up_partitions
from pyspark_kafkalog.reading.splits import Split, split_ranges

_log = logging.getLogger("pyspark_kafkalog")

_UNKNOWN_COMPRESSION = "unknown"
_COMPRESSIONS = pa.array([*COMPRESSION_NAMES, *[_UNKNOWN_COMPRESSION] * (8 - len(COMPRESSION_NAMES))])
"""The names by id."""


def batches(
    place: Place,
    selection: Selection = EVERY_TOPIC,
    *,
    columns: Collection[str] | None = None,
    check_crcs: bool = True,
    measure_raw_bytes: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The record batches of a place, a row each, in order of partition and offset.

    Reads headers, at the speed of the disk, and no records. Bytes that are no batch are skipped, with a
    warning in the log; :func:`verify` tells more.

    :param columns: those of ``view=batches`` to make, in this order; all by default.
    :param check_crcs: whether to verify checksums for the column ``valid``, which is null without.
    :param measure_raw_bytes: whether to decompress batches that don't state their size before compression;
        ``rawBytes`` is null for them without, and where they can't be decompressed.
    :raises UnknownTopicOrPartitionError: if a named topic does not exist.
    """
    for split in plan_batches(place, selection):
        yield from batches_of_split(
            place, split, columns, check_crcs=check_crcs, measure_raw_bytes=measure_raw_bytes
        )


def plan_batches(
    place: Place, selection: Selection = EVERY_TOPIC, *, min_partitions: int | None = None
) -> list[Split]:
    """Ranges of offsets for :func:`batches_of_split`: one for each segment, or partition of a broker.

    The last of a partition ends at LATEST, and the first begins at EARLIEST, so that a plan that is carried
    out again shows what has been added.

    :param min_partitions: cut large ranges until there are about this many.
    """
    partitions = look_up_partitions(place, selection)
    bounds = place.watermarks(partitions, read_committed=False)
    sizes = place.stored_sizes(bounds)
    ranges = []
    for partition, watermarks in sorted(bounds.items()):
        start, end = watermarks.log_start_offset, watermarks.high_watermark
        segments = (sizes[partition].segments if partition in sizes else None) or ()
        cuts = [start, *(offset for offset in segments if start < offset < end), end]
        ranges += [Split(partition, OffsetRange(*cut)) for cut in pairwise(cuts)]
    splits = split_ranges(ranges, min_partitions=min_partitions, max_records_per_partition=None)
    starts: dict[TopicPartition, list[int]] = {partition: [] for partition in bounds}
    for split in splits:
        starts[split.partition].append(split.offsets.start)
    return [
        Split(partition, OffsetRange(*offsets))
        for partition, found in sorted(starts.items())
        for offsets in pairwise([EARLIEST, *found[1:], LATEST])
    ]


def batches_of_split(
    place: Place,
    split: Split,
    columns: Collection[str] | None = None,
    *,
    check_crcs: bool = True,
    measure_raw_bytes: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The batches whose last offset is in ``split``; see :func:`batches`."""
    partition = split.partition
    bounds = bounds_of(place, [partition])[partition]
    existing = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
    start, end = split.offsets
    wanted = OffsetRange(start, existing.end if end == LATEST else end).within(existing)
    if wanted.start >= wanted.end:
        return
    names = tuple(VIEWS["batches"] if columns is None else columns)
    for piece in place.fetch(partition, wanted, read_committed=False, on_corrupt=_skipped):
        found = batches_of(piece)
        inside = (found.last_offset >= wanted.start) & (found.last_offset < wanted.end)
        found = found if inside.all() else found.take(np.flatnonzero(inside))
        if len(found):
            rows = _Rows(partition, piece, found, check_crcs, measure_raw_bytes)
            yield pa.record_batch([rows.column(name) for name in names], schema=_schema(names))


def _skipped(error: CorruptRecordError) -> None:
    _log.warning(
        "%s: skipped bytes that are no record batch, in %s from byte %s on",
        error.topic_partition,
        error.file,
        error.position,
    )


def _schema(names: Collection[str]) -> pa.Schema:
    types = arrow_types(VIEWS["batches"])
    return pa.schema([(name, types[name]) for name in names])


class _Rows:
    """The columns of the record batches of one slice."""

    def __init__(
        self,
        partition: TopicPartition,
        piece: Slice,
        found: Batches,
        check_crcs: bool,
        measure_raw_bytes: bool,
    ) -> None:
        self._partition = partition
        self._piece = piece
        self._data = as_array(piece.buffer)
        self._batches = found
        self._check_crcs = check_crcs
        self._measure_raw_bytes = measure_raw_bytes

    def column(self, name: str) -> pa.Array:
        """One of the columns of ``view=batches``."""
        found, kind = self._batches, arrow_types(VIEWS["batches"])[name]
        stored = _STORED.get(name)
        if stored is not None:
            return pa.array(stored(found)).cast(kind)
        if name in _TIMESTAMPS:
            ms = _TIMESTAMPS[name](found)
            return pa.array(ms * 1000, mask=(ms < 0) | (ms > MAX_MS)).cast(kind)
        if name == "records":
            return pa.array(found.count, mask=found.count < 0).cast(kind)
        if name == "compression":
            return _COMPRESSIONS.take(pa.array(found.compression))
        if name == "position":
            return pa.array(found.position + self._piece.origin.position)
        if name == "rawBytes":
            return self._raw_bytes()
        if name == "valid":
            right = right_checksums(self._data, found) if self._check_crcs else None
            return pa.nulls(len(found), kind) if right is None else pa.array(right)
        return pa.repeat(pa.scalar(self._same(name), kind), len(found))

    def _same(self, name: str) -> Any:
        """What is the same in all rows: where they are."""
        file = self._piece.origin.file
        segment = None if file is None else file.rpartition("/")[2]
        return {**self._partition._asdict(), "segment": segment}[name]

    def _raw_bytes(self) -> pa.Array:
        sizes = np.empty(len(self._batches), np.int64)
        stated_sizes(self._data, np.ascontiguousarray(self._batches.table), sizes)
        if self._measure_raw_bytes:
            stage = Stage()
            for row in np.flatnonzero((sizes == UNKNOWN) & (self._batches.magic == 2)).tolist():
                stage.clear()
                sizes[row] = self._measured(row, stage)
        return pa.array(sizes, mask=sizes == UNKNOWN)

    def _measured(self, row: int, stage: Stage) -> int:
        position, size = int(self._batches.position[row]), int(self._batches.size[row])
        body = self._data[position + RECORDS_V2 : position + size]
        try:
            content = decompress(
                int(self._batches.compression[row]),
                body,
                magic=2,
                max_bytes=DecodeLimits().max_decompressed_bytes,
                stage=stage,
            )
        except CorruptRecordError:
            return UNKNOWN
        return RECORDS_V2 + int(content.size)


_STORED: Mapping[str, Callable[[Batches], np.ndarray]] = {
    "baseOffset": lambda found: found.base_offset,
    "lastOffset": lambda found: found.last_offset,
    "storedBytes": lambda found: found.size,
    "producerId": lambda found: found.producer_id,
    "producerEpoch": lambda found: found.producer_epoch,
    "transactional": lambda found: found.is_transactional,
    "control": lambda found: found.is_control,
    "magic": lambda found: found.magic,
}
_TIMESTAMPS: Mapping[str, Callable[[Batches], np.ndarray]] = {
    "firstTimestamp": lambda found: found.first_timestamp,
    "maxTimestamp": lambda found: found.max_timestamp,
}
