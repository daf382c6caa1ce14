"""The reader of splits that options ask for, with Spark or without."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.model import DROPPED_FIELD, TopicPartition
from pyspark_kafkalog.options.settings import ReadOptions
from pyspark_kafkalog.read.ranges import ReadRules

if TYPE_CHECKING:
    from pyspark_kafkalog.options.contracts import RowTransform
    from pyspark_kafkalog.read.values import DecodedColumn

_SEGMENT = pa.struct([("offset", pa.int64()), ("number", pa.int32()), ("value", pa.binary())])
COLUMN_TYPES: Mapping[str, pa.DataType] = {
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
"""The columns that a read may have, as PySpark wants them."""


def read_rules(options: ReadOptions, schema: pa.Schema) -> ReadRules:
    """The rules for rows of ``schema``."""
    return ReadRules(
        schema=schema,
        read_committed=options.read_committed,
        fail_on_data_loss=options.fail_on_data_loss,
        limits=DecodeLimits(check_crcs=options.check_crcs, max_record_bytes=options.max_record_bytes),
    )


def columns_of(names: Iterable[str]) -> pa.Schema:
    """The schema of some of :data:`COLUMN_TYPES`."""
    return pa.schema([(name, COLUMN_TYPES[name]) for name in names])


def with_columns(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """A schema of columns of records, and those of ``names`` that it lacks."""
    for name in names:
        if name not in schema.names:
            schema = schema.append(pa.field(name, COLUMN_TYPES[name]))
    return schema


def record_columns(columns: Iterable[DecodedColumn], wanted: Iterable[str]) -> list[str]:
    """The columns of records that are read for ``wanted`` ones, of which ``columns`` are decoded."""
    names = dict.fromkeys(name for name in wanted if name in COLUMN_TYPES)
    for column in columns:
        names.update(dict.fromkeys(column.reads))
    return list(names)


def decoded_schema(names: Iterable[str], columns: Iterable[DecodedColumn]) -> pa.Schema:
    """The schema of the columns ``names`` of records, of which ``columns`` are decoded.

    :raises OptionError: if the type of one is not known.
    """
    types = dict(COLUMN_TYPES)
    for column in columns:
        types.update(column.types)
    return pa.schema([(name, types[name]) for name in names])


def decoded_parts(columns: Iterable[DecodedColumn], wanted: pa.Schema) -> tuple[DecodedColumn, ...]:
    """The decoders of the columns ``wanted``, or of the parts of structs in them.

    :raises OptionError: if what is wanted isn't a part of what they are decoded to.
    """
    found = (column.part(wanted) for column in columns)
    return tuple(part for part in found if part is not None)


def transformed(
    rows: Iterable[pa.RecordBatch], transform: RowTransform, partition: TopicPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of one partition after a transform; no batch is empty.

    It gets the columns that it got when it was called first, and no others that decoding needs.
    """
    for arrow_batch in rows:
        offset = arrow_batch.column("offset")[0].as_py()
        given = arrow_batch.select(transform.given)
        found = transform(given, topic_partition=partition, offset=offset)
        if found.num_rows:
            yield found
