"""The columns of a read whose values are decoded, or changed by the function of the option ``transform``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.columns import check_different, read_columns, way_to_column
from pyspark_kafkalog.options.contracts import RowTransform, Transforms, transforms_of
from pyspark_kafkalog.options.settings import ReadOptions
from pyspark_kafkalog.options.user_options import near_names, suggestion
from pyspark_kafkalog.plugins import shown
from pyspark_kafkalog.read.reader import (
    columns_of,
    decoded_parts,
    decoded_schema,
    record_columns,
    transformed,
)
from pyspark_kafkalog.read.values import Values, values_of
from pyspark_kafkalog.spark.features import arrow_schema, nullable, spark_schema
from pyspark_kafkalog.spark.session import session_zone

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_kafkalog.read.splits import Split
    from pyspark_kafkalog.read.values import Decode, DecodedColumn

ReadRows = Callable[..., Iterator[pa.RecordBatch]]
"""The rows of a split, the first parameter."""


@dataclass(frozen=True)
class Shaping:
    """The shaping of rows for Spark, as a task of a read needs it. Sent to the tasks.

    ``read`` are the columns of records. ``decoded`` says which of them are decoded, by ``values``.
    ``transform`` says which function changes them, which columns it gets, and which it returned where the
    query was planned. ``wanted`` are some of what comes of that, with Spark's types.
    """

    read: pa.Schema
    decoded: tuple[DecodedColumn, ...]
    values: Values
    transform: tuple[Transforms, pa.Schema, pa.Schema] | None
    wanted: pa.Schema

    def load(self) -> Callable[..., Iterator[pa.RecordBatch]]:
        """A function that gives the rows of a split, from what reads the records and its parameters.

        :raises OptionError: if the transform is not here what it was where the query was planned.
        """
        decoding = self.values.decoding(self.decoded, session_zone())
        transform = None
        if self.transform is not None:
            transforms, given, promised = self.transform
            transform = transforms.load(given, promised)
        return partial(self._rows, decoding, transform)

    def _rows(
        self,
        decoding: Decode | None,
        transform: RowTransform | None,
        read: ReadRows,
        split: Split,
        *found: object,
    ) -> Iterator[pa.RecordBatch]:
        rows: Iterable[pa.RecordBatch] = read(split, *found)
        if decoding is not None:
            rows = decoding(rows, split.partition)
        if transform is not None:
            rows = transformed(rows, transform, split.partition)
        for arrow_batch in rows:
            yield self._with_wanted_types(transform, arrow_batch, split.partition)

    def _with_wanted_types(
        self, transform: RowTransform | None, rows: pa.RecordBatch, partition: TopicPartition
    ) -> pa.RecordBatch:
        columns = [rows.column(field.name) for field in self.wanted]
        try:
            columns = [
                column if column.type == field.type else column.cast(field.type, safe=not _is_finer(column))
                for column, field in zip(columns, self.wanted, strict=True)
            ]
        except pa.ArrowException as e:
            if transform is None:
                raise
            raise transform.error(
                f"returned a value that Spark can't hold: {e}", topic_partition=partition
            ) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.wanted)


def _is_finer(column: pa.Array) -> bool:
    """Whether these are times that Spark, which has microseconds, cuts."""
    return bool(pa.types.is_timestamp(column.type) and column.type.unit == "ns")


def shaped_columns(options: ReadOptions, decoded: Iterable[DecodedColumn]) -> StructType:
    """The columns of a DataFrame of decoded or transformed rows.

    :raises OptionError: if the transform can't be called, or returns types that Spark does not have.
    """
    given = decoded_schema(options.record_fields, decoded)
    transform = transforms_of(options).load(given)
    return spark_schema(given) if transform is None else _in_spark(transform)


def shaping_of(
    options: ReadOptions, wanted: StructType, decoded: tuple[DecodedColumn, ...] | None = None
) -> Shaping:
    """The shaping with which tasks give Spark the columns ``wanted``.

    :param decoded: what decodes columns; None if the schema is the user's, so that it is not known yet.
    :raises OptionError: if decoding, or the transform, does not give them with these types.
    :raises SchemaRegistryError: if the registry has no schema, or does not answer.
    """
    names, decoded = (
        options.record_fields,
        values_of(options).columns_of(options) if decoded is None else decoded,
    )
    check_different(field.name for field in wanted)
    transforms = transforms_of(options)
    if not transforms.is_set:
        return _decoded_alone(names, decoded, options, wanted)
    given = decoded_schema(names, decoded)
    returned, decoded = transforms.load(given), decoded_parts(decoded, given)
    assert returned is not None, "one is set"
    _check_returned(returned.path, _in_spark(returned), wanted)
    transform = transforms, given, returned.schema
    read = columns_of(record_columns(decoded, names))
    return Shaping(read, decoded, values_of(options), transform, arrow_schema(wanted))


def _decoded_alone(
    names: Mapping[str, str],
    decoded: Iterable[DecodedColumn],
    options: ReadOptions,
    wanted: StructType,
) -> Shaping:
    """The schema of the user may name some fields of a decoded struct; the others are not decoded then."""
    by_name = {column.name: column for column in decoded}
    plain = [field for field in wanted if field.name not in by_name]
    of_ids = spark_schema(pa.schema([field for column in decoded for field in column.ids.items()]))
    ids = {field.name: field.dataType.simpleString() for field in of_ids}
    allowed = {name: kind for name, kind in {**names, **ids}.items() if name not in by_name}
    unknown = next((field for field in plain if field.name not in allowed), None)
    if unknown is not None:
        column, known = min(by_name), [*allowed, *by_name]
        hint = way_to_column(unknown.name, known)
        if not near_names(unknown.name, known):
            inner = f"{unknown.name}: {unknown.dataType.simpleString()}"
            hint += f' Decoded fields are in a struct: .schema("{column} struct<{inner}, ...>").'
        raise OptionError(f"Unknown column {unknown.name!r}", hint=hint)
    if plain:
        read_columns(((f.name, f.dataType.simpleString(), f.nullable) for f in plain), allowed)
    if not wanted.fields:
        raise OptionError("The schema has no columns", hint=f"Use some of {', '.join(names)}.")
    if wanted != nullable(wanted):
        for field in wanted:
            if field.name in by_name and field != nullable(type(wanted)([field]))[0]:
                raise OptionError(
                    f"Column {field.name!r} must be nullable, with all that is in it, because it may be null",
                    hint="Spark would believe NOT NULL, and leave out tests for null. Make a StructType with"
                    f" nullable=True, or give it as {field.name}.schema, which takes all as nullable.",
                )
    types = arrow_schema(wanted)
    used = decoded_parts(decoded, types)
    read = columns_of(record_columns(used, wanted.names))
    return Shaping(read, used, values_of(options), None, types)


def _check_returned(path: str, returned: StructType, wanted: StructType) -> None:
    kinds = {field.name: field.dataType.simpleString() for field in returned}
    for field in nullable(wanted):
        kind = field.dataType.simpleString()
        if field.name not in kinds:
            raise OptionError(
                f"Unknown column {field.name!r}: the transform {shown(path)!r} does not return it",
                hint=suggestion(field.name, kinds),
            )
        if kind != kinds[field.name]:
            raise OptionError(
                f"Column {field.name!r} has type {kind}, but the transform {shown(path)!r} returns"
                f" {kinds[field.name]}"
            )
    for field in wanted:
        if not field.nullable:
            raise OptionError(f"Column {field.name!r} must be nullable, because it may be null")
    if not wanted.fields:
        raise OptionError("The schema has no columns", hint=f"Use some of {', '.join(kinds)}.")


def _in_spark(transform: RowTransform) -> StructType:
    for field in transform.schema:
        try:
            arrow_schema(spark_schema(pa.schema([field])))  # which refuses numbers too long for Spark, too
        except (PySparkException, ValueError) as e:
            raise transform.error(
                f"returned column {field.name!r} of type {field.type}, which Spark does not have",
                kind=OptionError,
            ) from e
    return spark_schema(transform.schema)
