"""``dead_letters(df, topic)``: records that could not be decoded, as rows for the sink.

Their headers are those of Kafka Connect's DeadLetterQueueReporter
(https://github.com/apache/kafka/blob/4.3.1/connect/runtime/src/main/java/org/apache/kafka/connect/runtime/errors/DeadLetterQueueReporter.java).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, MapType, StructType

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import CORRUPT_FIELD, ERROR_HEADERS, HEADERS_FIELD, check_topic
from pyspark_kafkalog.options.arguments import check_rows
from pyspark_kafkalog.options.columns import SINK_FIELDS
from pyspark_kafkalog.options.user_options import suggestion

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CLASS, _EXCEPTION = "pyspark_kafkalog.DefaultSource", "pyspark_kafkalog.CorruptRecordError"
_BEFORE_TIMES = -1000
"""The timestamp of a record that has none, in microseconds."""


def dead_letters(df: DataFrame, topic: str, good: Mapping[str, Column] | None = None) -> DataFrame:
    """The records of ``df`` that could not be decoded, as rows for ``format("kafkalog")``.

    Key, value, headers and timestamp are as they were. Then come the headers by which Kafka Connect says
    where a dead letter is from, and why it is one.

    :param df: rows of a reader with ``includeCorrupt=true``, whose column ``corrupt`` this needs.
    :param topic: where the dead letters go, as the column ``topic``.
    :param good: for the other rows, the sink's columns by name, among them ``topic`` and ``value``: one write
        then has all rows, and reads them once. By default these rows are left out.
    :raises OptionError: for a DataFrame without the column, and for columns that a sink does not take.
    """
    check_rows(df, "dead_letters(rows, 'orders-dead')")
    check_topic(topic)
    kinds = {field.name: field.dataType.simpleString() for field in df.schema}
    name, kind = CORRUPT_FIELD
    if kinds.get(name) != kind:
        found = f"has type {kinds[name]}" if name in kinds else "is not there"
        raise OptionError(
            f"Column {name!r} {found}, expected that of a reader with includeCorrupt",
            hint="Give .option('includeCorrupt', 'true') to the reader, and keep the column.",
        )
    corrupt = f.col(name)
    is_old = corrupt["timestamp"] == f.timestamp_micros(f.lit(_BEFORE_TIMES))
    letter = {
        "topic": f.lit(topic),
        "key": corrupt["key"],
        "value": corrupt["value"],
        "headers": _headers(corrupt),
        "timestamp": f.when(~is_old, corrupt["timestamp"]),
    }
    if good is None:
        return df.where(corrupt.isNotNull()).select(
            *(part.alias(part_of) for part_of, part in letter.items())
        )
    for column in good:
        if column not in SINK_FIELDS:
            raise OptionError(f"Unknown column {column!r}", hint=suggestion(column, SINK_FIELDS))
    if missing := [column for column in ("topic", "value") if column not in good]:
        raise OptionError(f"Column {missing[0]!r} of the good rows is not given", hint="Add it to good.")
    for field in df.select(*(good[key].alias(key) for key in ("key", "value") if key in good)).schema:
        if isinstance(field.dataType, StructType | ArrayType | MapType):
            raise OptionError(
                f"Column {field.name!r} of the good rows has type {field.dataType.simpleString()}, expected"
                " binary or string",
                hint="Encode it, for example with to_json.",
            )
    given = {**good, **{key: good[key].cast("binary") for key in ("key", "value") if key in good}}
    nothing = f.lit(None)
    return df.select(
        *(
            f.when(corrupt.isNotNull(), letter.get(column, nothing))
            .otherwise(given.get(column, nothing))
            .alias(column)
            for column in dict.fromkeys([*letter, *good])
        )
    )


def _headers(corrupt: Column) -> Column:
    """The headers of the record, and Kafka Connect's."""
    values = {
        "topic": corrupt["topic"],
        "partition": corrupt["partition"].cast("string"),
        "offset": corrupt["offset"].cast("string"),
        "stage": f.concat(f.upper(corrupt["column"]), f.lit("_CONVERTER")),
        "class.name": f.lit(_CLASS),
        "exception.class.name": f.lit(_EXCEPTION),
        "exception.message": corrupt["reason"],
    }
    added = f.array(
        *(
            f.struct(f.lit(ERROR_HEADERS + name).alias("key"), value.cast("binary").alias("value"))
            for name, value in values.items()
        )
    )
    kind = HEADERS_FIELD[1]
    return f.concat(f.coalesce(corrupt["headers"], f.array().cast(kind)), added.cast(kind))
