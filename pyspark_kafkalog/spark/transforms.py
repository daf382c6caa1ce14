"""The columns of a read with the option ``transform``: what its function returns is what Spark gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.columns import check_different
from pyspark_kafkalog.options.settings import default_columns
from pyspark_kafkalog.options.user_options import suggestion
from pyspark_kafkalog.reading.reader import columns_of, transformed
from pyspark_kafkalog.spark.features import arrow_schema, nullable, spark_schema
from pyspark_kafkalog.transform import Transform

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_kafkalog.reading.splits import Split

Read = Callable[..., Iterator[pa.RecordBatch]]
"""The rows of a split, the first parameter."""


@dataclass(frozen=True)
class Shaping:
    """What a task needs to give Spark the rows that a transform returns. Sent to the tasks.

    ``path`` is that of the transform, ``given`` are the columns that it gets, and ``promised`` those that it
    returned where the query was planned. ``wanted`` are some of these, with Spark's types.
    """

    path: str
    given: pa.Schema
    promised: pa.Schema
    wanted: pa.Schema

    def load(self) -> Callable[..., Iterator[pa.RecordBatch]]:
        """A function that gives the rows of a split, from what reads the records and its parameters.

        :raises OptionError: if the transform is not here what it was where the query was planned.
        """
        return partial(self._rows, Transform(self.path, self.given, self.promised))

    def _rows(
        self, transform: Transform, read: Read, split: Split, *found: object
    ) -> Iterator[pa.RecordBatch]:
        for rows in transformed(read(split, *found), transform, split.partition):
            yield self._with_wanted_types(transform, rows, split.partition)

    def _with_wanted_types(
        self, transform: Transform, rows: pa.RecordBatch, partition: TopicPartition
    ) -> pa.RecordBatch:
        columns = [rows.column(field.name) for field in self.wanted]
        try:
            columns = [
                column if column.type == field.type else column.cast(field.type, safe=not _is_finer(column))
                for column, field in zip(columns, self.wanted, strict=True)
            ]
        except pa.ArrowException as e:
            raise transform.error(
                f"returned a value that Spark can't hold: {e}", topic_partition=partition
            ) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.wanted)


def _is_finer(column: pa.Array) -> bool:
    """Whether these are times that Spark, which has microseconds, cuts."""
    return bool(pa.types.is_timestamp(column.type) and column.type.unit == "ns")


def transformed_columns(path: str, names: Iterable[str]) -> StructType:
    """The columns that a transform returns for columns of records.

    :raises OptionError: if it can't be called, or returns types that Spark does not have.
    """
    return _in_spark(Transform(path, columns_of(names)))


def shaping_of(options: Mapping[str, str], path: str, wanted: StructType) -> Shaping:
    """What tasks need to give Spark the columns ``wanted``.

    :raises OptionError: if the transform does not return them with these types.
    """
    given = columns_of(default_columns(options))
    transform = Transform(path, given)
    check_different(field.name for field in wanted)
    returned = {field.name: field.dataType.simpleString() for field in _in_spark(transform)}
    for field in nullable(wanted):
        kind = field.dataType.simpleString()
        if field.name not in returned:
            raise OptionError(
                f"Unknown column {field.name!r}: the transform {path!r} does not return it",
                hint=suggestion(field.name, returned),
            )
        if kind != returned[field.name]:
            raise OptionError(
                f"Column {field.name!r} has type {kind}, but the transform {path!r} returns"
                f" {returned[field.name]}"
            )
    for field in wanted:
        if not field.nullable:
            raise OptionError(f"Column {field.name!r} must be nullable, because it may be null")
    if not wanted.fields:
        raise OptionError("The schema has no columns", hint=f"Use some of {', '.join(returned)}.")
    return Shaping(path, given, transform.schema, arrow_schema(wanted))


def _in_spark(transform: Transform) -> StructType:
    for field in transform.schema:
        try:
            arrow_schema(spark_schema(pa.schema([field])))  # which refuses numbers too long for Spark, too
        except (PySparkException, ValueError) as e:
            raise transform.error(
                f"returned column {field.name!r} of type {field.type}, which Spark does not have",
                kind=OptionError,
            ) from e
    return spark_schema(transform.schema)
