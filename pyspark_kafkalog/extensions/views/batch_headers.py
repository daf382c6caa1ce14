"""Headers of record batches as Arrow: the rows of ``view=batches``, a column of numbers at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.client.partitions import EVERY_TOPIC, bounds_of
from pyspark_kafkalog.codec.buffers import as_array
from pyspark_kafkalog.codec.format import COMPRESSION_NAMES
from pyspark_kafkalog.codec.read_kernels import POSITION
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, batches_of, right_checksums
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, OptionError
from pyspark_kafkalog.extensions.views.views import MAX_MS, VIEWS, arrow_types
from pyspark_kafkalog.model import EARLIEST, LATEST, Fetch, OffsetRange, Place, Slice, TopicPartition
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.options.user_options import suggestion
from pyspark_kafkalog.read.partitions import look_up_partitions
from pyspark_kafkalog.read.splits import Split, cuts_between, split_ranges

_log = logging.getLogger("pyspark_kafkalog")

_COMPRESSIONS = pa.array([*COMPRESSION_NAMES, "unknown", "unknown", "unknown"])
"""The names by id."""
_MOST_ROWS = 16_384
"""The least number of rows of an arrow batch, except the last one."""


def batches(
    place: Place,
    selection: Selection = EVERY_TOPIC,
    *,
    columns: Collection[str] | None = None,
    check_crcs: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The record batches of a place, a row each, in order of partition and offset.

    See :meth:`.kafka.Records.batches`.
    """
    for name in columns or ():
        if name not in VIEWS["batches"]:
            raise OptionError(f"Unknown column {name!r}", hint=suggestion(name, VIEWS["batches"]))
    for split in plan_batches(place, selection):
        yield from batches_of_split(place, split, columns, check_crcs=check_crcs)


def plan_batches(
    place: Place, selection: Selection = EVERY_TOPIC, *, min_partitions: int | None = None
) -> list[Split]:
    """Ranges of offsets for :func:`batches_of_split`: one for each segment, or partition of a broker.

    The last of a partition ends at LATEST, and the first begins at EARLIEST, so that a plan that is carried
    out again shows what has been added.

    :param min_partitions: cut large ranges until there are about this many.
    """
    partitions = look_up_partitions(place, selection)
    bounds = bounds_of(place, partitions)
    sizes = place.stored_sizes(bounds)
    ranges = []
    for partition, watermarks in sorted(bounds.items()):
        start, end = watermarks.log_start_offset, watermarks.high_watermark
        segments = (sizes[partition].segments if partition in sizes else None) or ()
        cuts = [start, *(offset for offset in segments if start < offset < end), end]
        ranges += [Split(partition, OffsetRange(*cut)) for cut in pairwise(cuts)]
    between = cuts_between(
        split_ranges(ranges, min_partitions=min_partitions, max_records_per_partition=None)
    )
    return [
        Split(partition, OffsetRange(*offsets))
        for partition in sorted(bounds)
        for offsets in pairwise([EARLIEST, *between.get(partition, ()), LATEST])
    ]


def batches_of_split(
    place: Place,
    split: Split,
    columns: Collection[str] | None = None,
    *,
    check_crcs: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The batches whose last offset is in ``split``; see :func:`batches`."""
    partition = split.partition
    bounds = bounds_of(place, [partition])[partition]
    existing = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
    start, end = split.offsets
    wanted = OffsetRange(start, existing.end if end == LATEST else end).within(existing)
    if wanted.start >= wanted.end:
        return
    rows = _Rows(partition, VIEWS["batches"] if columns is None else columns, check_crcs)
    for piece in place.fetch(Fetch(partition, wanted, on_corrupt=_skipped)):
        if rows.count >= _MOST_ROWS or (rows.count and rows.file != piece.origin.file):
            yield rows.take()
        found = batches_of(piece)
        inside = (found.last_offset >= wanted.start) & (found.last_offset < wanted.end)
        rows.add(piece, found if inside.all() else found.take(np.flatnonzero(inside)))
    if rows.count:
        yield rows.take()


def _skipped(error: CorruptRecordError | DataLossError) -> None:
    if isinstance(error, DataLossError):
        _log.warning("%s", error)
        return
    _log.warning(
        "%s: skipped bytes that are not a record batch, in %s from byte %s on",
        error.topic_partition,
        error.file,
        error.position,
    )


class _Rows:
    """The rows of the batches of consecutive slices, which lie in one file."""

    def __init__(self, partition: TopicPartition, columns: Collection[str], check_crcs: bool) -> None:
        self._partition = partition
        types = arrow_types(VIEWS["batches"])
        self._schema = pa.schema([(name, types[name]) for name in columns])
        self._check_crcs = check_crcs and "valid" in columns
        self._clear()

    def _clear(self) -> None:
        self.file: str | None = None
        self.count = 0
        self._tables: list[np.ndarray] = []
        self._right: list[np.ndarray] = []

    def add(self, piece: Slice, found: Batches) -> None:
        """Keep the headers of ``found``, batches of a slice, and check their bytes now."""
        self.file = piece.origin.file
        self.count += len(found)
        if self._check_crcs:
            self._right.append(right_checksums(as_array(piece.buffer), found))
        table = found.table.copy()
        table[POSITION] += piece.origin.position
        self._tables.append(table)

    def take(self) -> pa.RecordBatch:
        """The rows since the last call."""
        found = Batches(np.concatenate(self._tables, axis=1), 0, WalkStatus.END, 0)
        columns = [self._column(field, found) for field in self._schema]
        self._clear()
        return pa.record_batch(columns, schema=self._schema)

    def _column(self, field: pa.Field, found: Batches) -> pa.Array:
        name, kind = field.name, field.type
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
        if name == "valid":
            return pa.array(np.concatenate(self._right)) if self._right else pa.nulls(len(found), kind)
        segment = None if self.file is None else self.file.rpartition("/")[2]
        same = {**self._partition._asdict(), "segment": segment}[name]
        return pa.repeat(pa.scalar(same, kind), len(found))


_STORED: Mapping[str, Callable[[Batches], np.ndarray]] = {
    "position": lambda found: found.position,
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
