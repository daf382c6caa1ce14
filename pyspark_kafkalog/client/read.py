"""Records as Arrow, without Spark: in one go, in splits for other engines, and what came since a commit."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import operator
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.isolation import AbortedRecords
from pyspark_kafkalog.errors import GroupError, KafkaLogError, OptionError
from pyspark_kafkalog.model import (
    DROPPED_FIELD,
    LATEST,
    CommittedOffset,
    Place,
    QueryBatch,
    TopicPartition,
)
from pyspark_kafkalog.model.groups import CommittedOffsets, GroupOffsets
from pyspark_kafkalog.options.columns import check_different, way_to_column
from pyspark_kafkalog.options.contracts import RowTransform, transforms_of
from pyspark_kafkalog.options.offsets_json import PLANNED
from pyspark_kafkalog.options.settings import ReadOptions, place_options, read_options
from pyspark_kafkalog.options.user_options import suggestion
from pyspark_kafkalog.places import open_groups, open_place
from pyspark_kafkalog.read.counting import read_counting_of
from pyspark_kafkalog.read.filters import ALL_ROWS, Bounds, Comparison, bounds_of, compared
from pyspark_kafkalog.read.messages import messages_of
from pyspark_kafkalog.read.offsets import plan_batch, say_uncommitted, start_from_group
from pyspark_kafkalog.read.partitions import look_up_partitions
from pyspark_kafkalog.read.reader import (
    COLUMN_TYPES,
    columns_of,
    decoded_parts,
    decoded_schema,
    read_rules,
    record_columns,
    transformed,
    with_columns,
)
from pyspark_kafkalog.read.record_sizes import RecordSizes
from pyspark_kafkalog.read.splits import Split, tasks_of
from pyspark_kafkalog.read.values import DecodedColumn, values_of

if TYPE_CHECKING:
    from pyspark_kafkalog.read.ranges import ReadRules
    from pyspark_kafkalog.read.values import Decode

_log = logging.getLogger("pyspark_kafkalog")

Filters: TypeAlias = Sequence[tuple[str, str, Any]]
"""Conditions that every row meets: column, one of ``= == < <= > >= != in``, and a value (or values)."""

_NOT_OF_CHANGES = ("starting", "ending", "kafka.group.id")
_WITHOUT_COMMIT = "startingoffsetsbycommittedstrategy"
_CHANGES = 'kafka.changes(topic, group="...")'


@dataclass(frozen=True, slots=True)
class RecordSplit:
    """A share of a read, which any process carries out by itself: Ray, Dask and others pickle it.

    Carried out again, it gives the same rows. It holds the options of the place, secrets included.
    """

    options: Mapping[str, str] = field(repr=False)
    columns: tuple[str, ...]
    filters: tuple[tuple[str, str, Any], ...] = field(repr=False)
    splits: tuple[Split, ...]
    name: str = ""
    """The name of the read that this is a share of, for its audit."""
    decoded: tuple[DecodedColumn, ...] = field(default=(), repr=False)
    """The decoded columns, by the schemas that were valid when the read was planned."""

    def read(self) -> pa.RecordBatchReader:
        """The rows, in offset order of each topic-partition.

        :raises DataLossError: if offsets are gone, and :class:`CorruptRecordError` at damaged bytes, both
            unless ``failOnDataLoss`` is false.
        """
        reading = Reading(self.options, self.columns, self.filters, name=self.name, decoded=self.decoded)
        return reading.reader(reading.rows(self.splits))


class Reading:
    """A read of a place.

    :param columns: None for those of a DataFrame.
    :param name: of the read, for its audit; a random one if it is empty.
    :param decoded: the decoded columns of a plan, so that no registry is asked for a newer schema.
    :raises OptionError: for invalid options, columns and filters.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        columns: Collection[str] | None,
        filters: Filters | None,
        *,
        name: str = "",
        decoded: tuple[DecodedColumn, ...] = (),
    ) -> None:
        self.given = dict(options)
        self.batch = QueryBatch(name or uuid.uuid4().hex)
        self._place_options = place_options(options)
        self.options = read_options(options, batch=True)
        default = self.options.record_fields
        self._values = values_of(self.options)
        self.decoded = decoded or self._values.columns_of(self.options)
        self._decoded = self.decoded
        self._messages = messages_of(self.options)
        self._messages.load()
        self.counting = read_counting_of(self.options)
        counted = self.counting.counted_columns()
        self._transform: RowTransform | None = None
        if not transforms_of(self.options).is_set:
            has_dropped = DROPPED_FIELD[0] in default
            names = [name for name in COLUMN_TYPES if name != DROPPED_FIELD[0] or has_dropped]
            made = dict.fromkeys(name for column in self._decoded for name in column.types)
            allowed = decoded_schema(dict.fromkeys([*names, *made]), self._decoded)
            default_names = list(default)
        else:
            self._transform = transforms_of(self.options).load(decoded_schema(default, self._decoded))
            assert self._transform is not None, "one is set"
            allowed = self._transform.schema
            default_names = allowed.names
        self.filters = filters = _checked(() if filters is None else filters, allowed)
        names = default_names if columns is None else list(columns)
        if not names:
            raise OptionError(
                "Expected at least one column, got none", hint=f"Name some of {', '.join(allowed.names)}."
            )
        for name in (*names, *(column for column, _, _ in filters)):
            if name not in allowed.names:
                way = way_to_column if self._transform is None else suggestion
                raise OptionError(f"Unknown column {name!r}", hint=way(str(name), allowed.names))
        check_different(names)
        self.schema = pa.schema([allowed.field(name) for name in names])
        extra = dict.fromkeys(column for column, _, _ in filters if column not in names)
        found = pa.schema([*self.schema, *(allowed.field(name) for name in extra)])
        self._condition = _condition(found, filters)
        if self._transform is None:
            self._decoded = decoded_parts(self._decoded, found)
            self._read = columns_of(record_columns(self._decoded, found.names))
            self._bounds = _bounds(filters)
        else:
            # Filters hold for what the transform returns, which need not be where the records are.
            self._decoded = decoded_parts(self._decoded, decoded_schema(default, self._decoded))
            self._read, self._bounds = columns_of(record_columns(self._decoded, default)), ALL_ROWS
        self._read_names, self._read = self._read.names, with_columns(self._read, counted)

    def plan(self) -> list[tuple[Split, ...]]:
        """The shares of a read of what is there now, each of which is worth a task."""
        place = self.place()
        self._messages.check_start(self.options, place)
        splits = self.splits(place, start_from_group(self.options, place, self.committed))
        return tasks_of(place, splits, RecordSizes(place), self.options)

    def splits(self, place: Place, options: ReadOptions) -> list[Split]:
        """The splits of a read that ends, for all time, where the logs end now."""
        ending = options.ending
        if ending.values == LATEST:
            options = replace(options, ending=replace(ending, values=PLANNED))
        splits = plan_batch(place, options, self._bounds)
        open_ends = {split.partition for split in splits if split.offsets.end == LATEST}
        ends = place.end_offsets(open_ends, read_committed=options.read_committed) if open_ends else {}
        return [
            replace(split, offsets=split.offsets._replace(end=ends[split.partition]))
            if split.partition in ends
            else split
            for split in splits
        ]

    def place(self) -> Place:
        """The place, opened for this thread."""
        return open_place(self._place_options)

    def groups(self) -> GroupOffsets:
        """The groups of the place."""
        return open_groups(self._place_options)

    def committed(self) -> CommittedOffsets:
        """The committed offsets to start from, as offsets of messages."""
        return self._messages.start_from(self.groups())

    def rows(self, splits: Sequence[Split], *, are_numbered: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows of some splits, one after the other; no batch is empty.

        :param are_numbered: whether they are all splits of a batch that counts as a whole.
        """
        place, aborted = self.place(), AbortedRecords()
        rules = replace(read_rules(self.options, self._read), aborted=aborted)
        decoding = self._values.decoding(self._decoded)
        try:
            for number, split in enumerate(splits):
                found = self._records(place, rules, split, number if are_numbered else None)
                yield from self._rows(found, decoding, split)
        finally:
            if aborted.count:
                said = aborted.among(is_narrowed=bool(self.filters))
                _log.warning("%s; kafka.isolation.level=read_committed leaves them out", said)

    def _records(
        self, place: Place, rules: ReadRules, split: Split, number: int | None
    ) -> Iterator[pa.RecordBatch]:
        """The messages of a split, counted if that is asked for."""
        if not self.counting.is_set:
            return self._messages.reader(place, rules).read(split)
        count = self.counting.of_split(split, self.batch, number)
        assert count is not None, "it is set"
        passing = count.passing(self._messages.reader(place, rules, count.dropped).read(split))
        return (rows.select(self._read_names) for rows in passing)

    def _rows(
        self, found: Iterator[pa.RecordBatch], decoding: Decode | None, split: Split
    ) -> Iterator[pa.RecordBatch]:
        if decoding is not None:
            found = decoding(found, split.partition)
        if self._transform is not None:
            found = transformed(found, self._transform, split.partition)
        for rows in found:
            wanted = rows if self._condition is None else _filtered(rows, self._condition)
            if wanted.num_rows:
                yield wanted.select(self.schema.names)

    def reader(self, rows: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
        """The rows as what other libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, rows)

    def safe_offsets(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, CommittedOffset]:
        """The offsets for the commit of a group that has processed all records below ``ends``."""
        as_committed = self._messages.as_committed(self.place, read_rules(self.options, self._read))
        if as_committed is None:
            return {partition: CommittedOffset(end) for partition, end in ends.items()}
        return as_committed(dict(ends))


def read(
    options: Mapping[str, str], columns: Collection[str] | None, filters: Filters | None
) -> pa.RecordBatchReader:
    """See :meth:`.kafka.Kafka.read`."""
    reading = Reading(options, columns, filters)
    say_uncommitted(reading.options.group, _CHANGES)
    return reading.reader(reading.rows([split for share in reading.plan() for split in share]))


def plan(
    options: Mapping[str, str], columns: Collection[str] | None, filters: Filters | None
) -> list[RecordSplit]:
    """See :meth:`.kafka.Kafka.plan`."""
    reading = Reading(options, columns, filters)
    say_uncommitted(reading.options.group, _CHANGES)
    names = tuple(reading.schema.names)
    name = reading.batch.query_id
    return [
        RecordSplit(reading.given, names, reading.filters, splits, name, reading.decoded)
        for splits in reading.plan()
    ]


class Changes:
    """The records since a group's last commit: read them within ``with``, which commits at its end.

    Nothing is committed if the block raises, if not all rows were read, if another run has committed before
    this block ends, or if a topic was recreated: the next run then reads the rows again. Runs that end at the
    same moment may all commit, and have then read the same rows.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        group: str,
        columns: Collection[str] | None,
        filters: Filters | None,
    ) -> None:
        if not isinstance(group, str) or not group:
            raise OptionError(
                f"Expected the name of a consumer group, got {group!r}",
                hint='Write changes("orders", group="etl").',
            )
        for name in options:
            if name.lower().startswith(_NOT_OF_CHANGES) and name.lower() != _WITHOUT_COMMIT:
                raise OptionError(
                    f"Option {name!r} can't be given: what is read begins where the group has committed, and"
                    " ends where the logs end",
                    hint="Leave it out. Set where the group goes on by kafkalog offsets reset.",
                )
        self._group = group
        self._reading = Reading(
            {**options, "kafka.group.id": group, "startingOffsets": "committed"}, columns, filters
        )
        from pyspark_kafkalog.read.commits import check_inactive

        place, chosen = self._reading.place(), self._reading.options
        check_inactive(self._reading.groups(), group)
        partitions = look_up_partitions(place, chosen.selection)
        self._topic_ids = place.topic_ids({partition.topic for partition in partitions})
        self._before = self._reading.groups().committed(group, partitions)
        started = start_from_group(chosen, place, self._reading.committed, may_be_new=True)
        self._splits = self._reading.splits(place, started)
        starts = started.starting.values
        assert isinstance(starts, Mapping), "the group's offsets, or where partitions without one start"
        self.ends: dict[TopicPartition, int] = {
            p: s for p, s in starts.items() if isinstance(s, int) and s >= 0
        }
        """The offsets to commit: where each partition ends now, or begins if filters rule it out."""
        for split in self._splits:
            self.ends[split.partition] = max(split.offsets.end, self.ends.get(split.partition, 0))
        # A run that does not commit is followed by one that begins at the same offsets: what that one counts
        # replaces what this one has counted.
        begins = sorted((*p, starts.get(p)) for p in self.ends)
        digest = hashlib.sha256(json.dumps(begins).encode()).hexdigest()[:16]
        self._reading.batch = QueryBatch(f"{group}.{digest}")
        self._is_read = not self._splits

    def read(self) -> pa.RecordBatchReader:
        """The rows. Called again, it reads them again."""
        return self._reading.reader(self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        yield from self._reading.rows(self._splits, are_numbered=True)
        self._is_read = True

    def __enter__(self) -> Changes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return
        if not self._is_read:
            raise self._not_committed(
                "not all was pulled of what came since its last commit",
                "Read to the end, or leave the block by an error to read it all again.",
            )
        place, groups = self._reading.place(), self._reading.groups()
        now = place.topic_ids(self._topic_ids)
        for topic, before in self._topic_ids.items():
            if before and now.get(topic) != before:
                raise self._not_committed(
                    f"topic {topic} was deleted, or recreated, meanwhile",
                    "Run it again: it reads the new topic.",
                )
        if groups.committed(self._group, self.ends) != {
            partition: known for partition, known in self._before.items() if partition in self.ends
        }:
            raise self._not_committed(
                "it has other commits than at the start, as of a run at the same time",
                "Run one at a time. What both have read is read twice.",
            )
        if self._splits:
            self._reading.counting.all_read(self._reading.batch, len(self._splits))
        groups.commit(self._group, self._reading.safe_offsets(self.ends))

    def _not_committed(self, why: str, hint: str) -> KafkaLogError:
        return GroupError(f"Nothing is committed for group {self._group!r}: {why}", hint=hint)


def _checked(filters: Iterable[tuple[str, str, Any]], columns: pa.Schema) -> tuple[tuple[str, str, Any], ...]:
    """Conditions on these columns with plain values: several as a list, text for bytes as bytes.

    :raises OptionError: for what is not a condition, and for a time without a zone.
    """
    found = []
    if isinstance(filters, (str, bytes, Mapping, pc.Expression)) or not isinstance(filters, Iterable):
        raise _not_a_filter(f"expected a list of conditions, got {type(filters).__name__}")
    if isinstance(filters, tuple) and filters and isinstance(filters[0], str):
        raise _not_a_filter("expected a list of conditions, got one")
    for each in filters:
        if isinstance(each, (tuple, list)) and each and all(isinstance(one, (tuple, list)) for one in each):
            raise _not_a_filter("expected a column, an operator and a value, got a list of them", _ANY)
        if not (isinstance(each, (tuple, list)) and len(each) == 3 and isinstance(each[0], str)):
            raise _not_a_filter(f"expected a column, an operator and a value, got {each!r}")
        name, how, value = each
        if not isinstance(how, str) or how not in _OPERATORS:
            raise _not_a_filter(f"expected one of {' '.join(_OPERATORS)}, got {how!r}")
        is_binary = name in columns.names and columns.field(name).type == pa.binary()
        if how == "in":
            if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
                raise _not_a_filter(
                    f"expected several values for in, got {value!r}", f'Write ("{name}", "in", [{value!r}]).'
                )
            value = [_plain(item, is_binary=is_binary) for item in value]
        else:
            value = _plain(value, is_binary=is_binary)
        found.append((name, how, value))
    return tuple(found)


def _plain(value: Any, *, is_binary: bool) -> Any:
    if is_binary and isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as e:
            raise _not_a_filter(f"expected text that UTF-8 can hold, got {value!r}: {e.reason}") from None
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        raise _not_a_filter(
            f"expected a time with a zone, got {value!r}",
            f"If it is UTC, write {value.replace(tzinfo=datetime.timezone.utc)!r}.",
        )
    return value.item() if isinstance(value, np.generic) else value


_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": pc.Expression.isin,
}


def _condition(schema: pa.Schema, filters: Filters) -> pc.Expression | None:
    """The condition that a row must meet."""
    condition: pc.Expression | None = None
    name = ""
    try:
        for name, how, value in filters:
            column = pc.field(name)
            if value is None and how in ("=", "==", "!="):
                wanted = column.is_valid() if how == "!=" else column.is_null()
            else:
                typed = pa.array if how == "in" else pa.scalar
                wanted = _OPERATORS[how](column, typed(value, schema.field(name).type))
            condition = wanted if condition is None else condition & wanted
        if condition is not None:
            schema.empty_table().filter(condition)
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        raise _not_a_filter(
            f"column {name!r} has type {schema.field(name).type}, which {value!r} is not",
            _WITH_TYPES.get(name),
        ) from None
    return condition


_ANY = 'All conditions hold, in one list. For any of several values write ("offset", "in", [1, 2]).'

_WITH_TYPES: Mapping[str, str] = {
    "timestamp": (
        'A timestamp is compared with a datetime that has a zone: ("timestamp", ">=",'
        " datetime.datetime(2026, 1, 31, tzinfo=datetime.timezone.utc))."
    ),
    "partition": 'A partition is a number: ("partition", "=", 0), or ("partition", "in", [0, 1]).',
}
"""The hints of columns whose values are often given as text."""


def _not_a_filter(why: str, hint: str | None = None) -> OptionError:
    example = 'Write, for example, filters=[("offset", ">=", 100)].'
    return OptionError(f"Not a filter: {why}", hint=hint or example)


def _bounds(filters: Filters) -> Bounds:
    """The bounds of partitions and offsets outside of which nothing needs to be read."""
    if not filters:
        return ALL_ROWS
    return bounds_of(
        Comparison(name, "=" if how == "==" else how, compared(value)) for name, how, value in filters
    )


def _filtered(rows: pa.RecordBatch, condition: pc.Expression) -> pa.RecordBatch:
    found = pa.Table.from_batches([rows]).filter(condition).combine_chunks().to_batches()
    return found[0] if found else rows.slice(0, 0)
