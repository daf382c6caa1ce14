"""The batch readers, of records and of views, and what they share with the stream reader."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_kafkalog.errors import listed
from pyspark_kafkalog.garbage import freeze_modules, loading
from pyspark_kafkalog.model import OffsetRange, Place, Seen, TopicPartition
from pyspark_kafkalog.model.groups import CommittedOffsets
from pyspark_kafkalog.options.columns import RECORD_FIELDS, read_columns
from pyspark_kafkalog.options.contracts import transforms_of
from pyspark_kafkalog.options.settings import place_options, read_options
from pyspark_kafkalog.places import open_groups, open_place
from pyspark_kafkalog.read.counting import read_counting_of
from pyspark_kafkalog.read.filters import ALL_ROWS, Comparison, bounds_of, compared
from pyspark_kafkalog.read.messages import messages_of
from pyspark_kafkalog.read.offsets import plan_batch, say_uncommitted, start_from_group
from pyspark_kafkalog.read.record_sizes import RecordSizes
from pyspark_kafkalog.read.splits import PARALLELISM, TASK_BYTES, Split, tasks_of
from pyspark_kafkalog.read.values import values_of
from pyspark_kafkalog.saying import name_work, said
from pyspark_kafkalog.spark.features import FILTER_OPERATORS, arrow_schema
from pyspark_kafkalog.spark.running_query import QueryRun, RunningQuery
from pyspark_kafkalog.spark.worker import with_short_errors, without_delay

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from pyspark_kafkalog.read.ranges import Existing, ReadRules
    from pyspark_kafkalog.read.values import DecodedColumn
    from pyspark_kafkalog.spark.shaping import Shaping


@dataclass(frozen=True)
class LogInputPartition(InputPartition):
    """The splits of one task, as they are sent to it.

    ``query_id`` is that of the checkpoint that the user names to the reader of a stream; empty without.
    ``cluster`` is the id of the cluster that the query reads, if the task is to tell the query's sink: empty
    for a place that has none, and None if the task need not.
    """

    splits: tuple[Split, ...]
    query_id: str = ""
    cluster: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Plain values plan a topic of 2,000 partitions a quarter faster.
        values = [(*split.partition, *split.offsets, *split.within, *split.seen) for split in self.splits]
        if self.cluster is not None:
            return _telling_partition, (self.cluster, self.query_id, *values)
        return _input_partition, (self.query_id, *values)


def _input_partition(query_id: str, *values: tuple[Any, ...]) -> LogInputPartition:
    splits = [
        Split(TopicPartition(topic, number), OffsetRange(start, end), OffsetRange(first, last), Seen(*seen))
        for topic, number, start, end, first, last, *seen in values
    ]
    return LogInputPartition(tuple(splits), query_id)


def _telling_partition(cluster: str, *values: Any) -> LogInputPartition:
    return replace(_input_partition(*values), cluster=cluster)


@with_short_errors
class LogReader:
    """The base of batch and stream readers. Pickled to the tasks, so it opens nothing by itself.

    ``decoded`` is what decodes columns, if that is known already; ``parallelism`` is the least
    number of tasks that small splits share; 0 for the default.
    """

    _streaming: ClassVar[bool]

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        decoded: tuple[DecodedColumn, ...] | None = None,
        parallelism: int = 0,
    ) -> None:
        self._parallelism = parallelism
        self.place_options = place_options(options)
        self.options = read_options(options, batch=not self._streaming)
        messages_of(self.options).load()
        self._counted = tuple(read_counting_of(self.options).counted_columns())
        self._run = QueryRun(uuid.uuid4().hex, self._streaming)
        self._shaping: Shaping | None = None
        if not transforms_of(self.options).is_set and not values_of(self.options).decoded:
            allowed = {**RECORD_FIELDS, **self.options.record_fields}
            fields = ((field.name, field.dataType.simpleString(), field.nullable) for field in schema)
            read_columns(fields, allowed)
        else:
            from pyspark_kafkalog.spark.shaping import shaping_of

            self._shaping = shaping_of(self.options, schema, decoded)
        self._schema: pa.Schema = arrow_schema(schema)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        without_delay()

    @property
    def about(self) -> str:
        """The topics that the options name, for lines of the log."""
        selection = self.options.selection
        if selection.names is not None:
            return f"topic{'' if len(selection.names) == 1 else 's'} {listed(selection.names, 3)}"
        return "all topics" if selection.pattern is None else f"topics of {selection.pattern}"

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task as arrow batches, in offset order of each topic-partition."""
        context = TaskContext.get()
        query = None if context is None else RunningQuery.of(context)
        name_work(self.about if query is None else query.about)
        if not isinstance(partition, LogInputPartition) or not partition.splits:
            return  # for an empty plan Spark makes one empty partition
        shape = None if self._shaping is None else self._shaping.load()
        splits, place, rules = partition.splits, self.open_place(reached=True), self.rules()
        read = partial(self._rows_of, place, rules)
        if shape is not None:
            read = partial(shape, read)
        if len(splits) == 1:
            yield from read(splits[0])
        else:
            from pyspark_kafkalog.read.together import prefetch, rows_together

            found = prefetch(place, splits, rules, max_bytes=2 * TASK_BYTES)
            yield from rows_together(found, read, max_bytes=rules.limits.max_bytes)
        freeze_modules()

    def _rows_of(
        self,
        place: Place,
        rules: ReadRules,
        split: Split,
        found: Existing | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        counting = read_counting_of(self.options)
        count = counting.of_split(split, self._run.batch()) if counting.is_set else None
        on_dropped = None if count is None else count.dropped
        with loading():
            reader = messages_of(self.options).reader(place, rules, on_dropped)
        rows = reader.read(split, found)
        if count is None:
            return rows
        names = self._read_columns.names
        return (passed.select(names) for passed in count.passing(rows))

    def tasks_of(self, splits: Sequence[Split], place: Place, sizes: RecordSizes) -> list[tuple[Split, ...]]:
        """The splits of each task; see :func:`.splits.tasks_of`."""
        return tasks_of(place, splits, sizes, self.options, parallelism=self._parallelism or PARALLELISM)

    def open_place(self, *, reached: bool = False) -> Place:
        """The place that the options name; see :func:`.places.open_place`."""
        with loading():
            return open_place(self.place_options, reached=reached)

    def open_committed(self, timeout: float | None = None) -> CommittedOffsets:
        """The committed offsets of the place's groups, to start from; see :func:`open_groups`."""
        return messages_of(self.options).start_from(open_groups(self.place_options, timeout=timeout))

    def rules(self) -> ReadRules:
        """The rules for the reading of splits."""
        with loading():
            from pyspark_kafkalog.read.reader import read_rules, with_columns
        return read_rules(self.options, with_columns(self._read_columns, self._counted))

    @property
    def _read_columns(self) -> pa.Schema:
        """The columns of records that the query reads."""
        return self._schema if self._shaping is None else self._shaping.read


@with_short_errors
class LogBatchReader(LogReader, DataSourceReader):
    """``spark.read``."""

    _streaming = False
    _bounds = ALL_ROWS

    def partitions(self) -> Sequence[InputPartition]:
        """The splits; the tasks look up open ends."""
        name_work(self.about)
        say_uncommitted(self.options.group, "A stream with .trigger(availableNow=True)")
        place = self.open_place()
        with said("Looking up partitions and offsets"):
            messages_of(self.options).check_start(self.options, place)
            options = start_from_group(self.options, place, self.open_committed)
            splits = plan_batch(place, options, self._bounds)
            tasks = self.tasks_of(splits, place, RecordSizes(place))
        freeze_modules()
        return [LogInputPartition(splits) for splits in tasks]


@with_short_errors
class FilteringLogBatchReader(LogBatchReader):
    """``spark.read`` where ``spark.sql.python.filterPushdown.enabled`` is true.

    It is a class of its own, because PySpark fails a reader that has this method while
    the conf is false, the default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Skip partitions and offsets that the filters rule out. Spark applies the filters to each row."""
        if not transforms_of(self.options).is_set:  # what it returns need not be where the records are
            self._bounds = bounds_of(_comparisons(filters))
        return filters


def _comparisons(filters: Iterable[Filter]) -> Iterator[Comparison]:
    """The comparisons of columns with values among ``filters``, all of which hold for every wanted row."""
    for condition in filters:
        operator = FILTER_OPERATORS.get(type(condition))
        if operator is not None and len(condition.attribute) == 1:  # type: ignore[attr-defined]
            value = compared(condition.value)  # type: ignore[attr-defined]
            yield Comparison(condition.attribute[0], operator, value)  # type: ignore[attr-defined]
