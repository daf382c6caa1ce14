"""Records as Arrow, without Spark: in one go, in splits for other engines, and what came since a commit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, TypeAlias

import pyarrow as pa

from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.groups import GroupOffsets
from pyspark_kafkalog.model import DROPPED_FIELD, LATEST, CommittedOffset, Place, TopicPartition
from pyspark_kafkalog.options.offsets_json import PLANNED
from pyspark_kafkalog.options.settings import default_columns, place_options, read_options
from pyspark_kafkalog.options.user_options import suggestion
from pyspark_kafkalog.places import open_groups, open_place
from pyspark_kafkalog.reading.filters import ALL_ROWS, Bounds, Comparison, bounds_of, compared
from pyspark_kafkalog.reading.offsets import check_compacted_start, plan_batch, start_from_group
from pyspark_kafkalog.reading.reader import read_rules, split_reader
from pyspark_kafkalog.reading.record_sizes import RecordSizes
from pyspark_kafkalog.reading.splits import Split, join_small
from pyspark_kafkalog.streams.safe_offsets import SafeOffsets, WantedOffsets

Filters: TypeAlias = Sequence[tuple[str, str, Any]]
"""Conditions that every row meets: column, one of ``= == < <= > >= != in``, and a value (or values)."""

_SEGMENT = pa.struct([("offset", pa.int64()), ("number", pa.int32()), ("value", pa.binary())])
_TYPES: Mapping[str, pa.DataType] = {
    **ROW_TYPES,
    DROPPED_FIELD[0]: pa.struct(
        [
            ("reason", pa.string()),
            ("messageId", pa.binary()),
            ("startingOffset", pa.int64()),
            ("segmentCount", pa.int32()),
            ("segments", pa.list_(pa.field("element", _SEGMENT))),
        ]
    ),
}


@dataclass(frozen=True, slots=True)
class RecordSplit:
    """A share of a read, which any process carries out by itself: Ray, Dask and others pickle it.

    Carried out again, it gives the same rows. It holds the options of the place, secrets included.
    """

    options: Mapping[str, str] = field(repr=False)
    columns: tuple[str, ...]
    filters: tuple[tuple[str, str, Any], ...] = field(repr=False)
    splits: tuple[Split, ...]

    def read(self) -> pa.RecordBatchReader:
        """The rows, in offset order of each topic-partition.

        :raises DataLossError: if offsets are gone, and :class:`CorruptRecordError` at damaged bytes, both
            unless ``failOnDataLoss`` is false.
        """
        reading = Reading(self.options, self.columns, self.filters)
        return reading.reader(reading.rows(self.splits))


class Reading:
    """One read of a place.

    :param columns: None for those of a DataFrame.
    :raises OptionError: for invalid options, columns and filters.
    """

    def __init__(self, options: Mapping[str, str], columns: Collection[str] | None, filters: Filters) -> None:
        self.given = dict(options)
        self.filters = tuple(filters)
        self._place_options = place_options(options)
        self.options = read_options(options, batch=True)
        if self.options.audit is not None:
            raise OptionError("Only Spark's queries are audited", hint="Leave out the options of the audit.")
        default = default_columns(options)
        has_dropped = DROPPED_FIELD[0] in default
        allowed = [name for name in _TYPES if name != DROPPED_FIELD[0] or has_dropped]
        names = tuple(default) if columns is None else tuple(columns)
        for name in (*names, *(column for column, _, _ in filters)):
            if name not in allowed:
                raise OptionError(f"Unknown column {name!r}", hint=suggestion(name, allowed))
        self.schema = pa.schema([(name, _TYPES[name]) for name in names])
        extra = dict.fromkeys(column for column, _, _ in filters if column not in names)
        self._read = pa.schema([*self.schema, *((name, _TYPES[name]) for name in extra)])
        self._condition, self._bounds = _condition(self.filters), _bounds(self.filters)

    def plan(self) -> list[tuple[Split, ...]]:
        """The shares of a read of what is there now, each of which is worth a task."""
        place = self.place()
        options = self.options
        if options.ending.values == LATEST:
            options = replace(options, ending=replace(options.ending, values=PLANNED))
        check_compacted_start(options, place)
        options = start_from_group(options, place, self.committed)
        splits = plan_batch(place, options, self._bounds)
        if options.wants_tasks:
            return [(split,) for split in splits]
        return join_small(splits, RecordSizes(place))

    def place(self) -> Place:
        """The place, opened for this thread."""
        return open_place(self._place_options)

    def groups(self) -> GroupOffsets:
        """The groups of the place."""
        return open_groups(self._place_options)

    def committed(self) -> GroupOffsets | WantedOffsets:
        """What to start from: for large messages the first wanted one, not the safe offset before it."""
        return WantedOffsets(self.groups()) if self.options.large_messages.enabled else self.groups()

    def rows(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        """The rows of some splits, one after the other; no batch is empty."""
        place, rules = self.place(), read_rules(self.options, self._read)
        reader = split_reader(place, self.options, rules)
        for split in splits:
            for rows in reader.read(split):
                wanted = rows if self._condition is None else _filtered(rows, self._condition)
                if wanted.num_rows:
                    yield wanted.select(self.schema.names)

    def reader(self, rows: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
        """The rows as what other libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, rows)

    def safe_offsets(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, CommittedOffset]:
        """What a group commits that has processed all below ``ends``."""
        if not self.options.large_messages.safe_offsets:
            return {partition: CommittedOffset(end) for partition, end in ends.items()}
        from pyspark_kafkalog.reading.looking_back import OpenMessages

        rules = read_rules(self.options, self._read)
        return SafeOffsets(OpenMessages(self.place, rules, self.options.large_messages.settings))(dict(ends))


def read(
    options: Mapping[str, str], columns: Collection[str] | None, filters: Filters
) -> pa.RecordBatchReader:
    """See :meth:`.kafka.Kafka.read`."""
    reading = Reading(options, columns, filters)
    return reading.reader(reading.rows([split for share in reading.plan() for split in share]))


def plan(options: Mapping[str, str], columns: Collection[str] | None, filters: Filters) -> list[RecordSplit]:
    """See :meth:`.kafka.Kafka.plan`."""
    reading = Reading(options, columns, filters)
    names = tuple(reading.schema.names)
    return [RecordSplit(reading.given, names, reading.filters, splits) for splits in reading.plan()]


class Changes:
    """What came since a group's last commit: read it within ``with``, which commits at its end.

    Nothing is committed if the block raises, or if not all was read: then the next run reads it again.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        group: str,
        columns: Collection[str] | None,
        filters: Filters,
    ) -> None:
        options = {**options, "kafka.group.id": group, "startingOffsets": "committed"}
        self._group = group
        self._reading = Reading(options, columns, filters)
        self._splits = [split for share in self._reading.plan() for split in share]
        self._is_read = False

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The offsets that are committed at the end: after the last record of each partition now."""
        ends: dict[TopicPartition, int] = {}
        for split in self._splits:
            ends[split.partition] = max(split.offsets.end, ends.get(split.partition, 0))
        return ends

    def read(self) -> pa.RecordBatchReader:
        """The rows. Called again, it reads them again."""
        return self._reading.reader(self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        yield from self._reading.rows(self._splits)
        self._is_read = True

    def __enter__(self) -> Changes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None or not self._splits:
            return
        if not self._is_read:
            raise KafkaLogError(
                f"Not all was read of what came since the last commit of group {self._group!r}, so nothing is"
                " committed",
                hint="Read to the end, or leave the block by an error to read it all again.",
            )
        self._reading.groups().commit(self._group, self._reading.safe_offsets(self.ends))


def _condition(filters: Filters) -> pa.compute.Expression | None:
    """What a row must meet."""
    if not filters:
        return None
    from pyarrow.parquet import filters_to_expression

    try:
        return filters_to_expression(list(filters))
    except (ValueError, TypeError, pa.ArrowException) as e:
        raise OptionError(f"Not a filter: {e}", hint='Write, for example, ("offset", ">=", 100).') from None


def _bounds(filters: Filters) -> Bounds:
    """Which partitions and offsets need not be read."""
    if not filters:
        return ALL_ROWS
    return bounds_of(
        Comparison(name, "=" if how == "==" else how, compared(value)) for name, how, value in filters
    )


def _filtered(rows: pa.RecordBatch, condition: pa.compute.Expression) -> pa.RecordBatch:
    found = pa.Table.from_batches([rows]).filter(condition).combine_chunks().to_batches()
    return found[0] if found else rows.slice(0, 0)
