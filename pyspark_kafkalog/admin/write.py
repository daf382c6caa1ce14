"""Writes records to a topic without Spark: as one batch, by the same sinks as ``df.write``."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.model import HEADERS_FIELD, Plan, QueryBatch, TaskAttempt
from pyspark_kafkalog.options.columns import SINK_FIELDS, check_different, check_written_columns
from pyspark_kafkalog.options.settings import write_options
from pyspark_kafkalog.places import open_sink
from pyspark_kafkalog.writing.routing import Router
from pyspark_kafkalog.writing.rows import make_splitter, write_rows

_log = logging.getLogger("pyspark_kafkalog")


def write(options: Mapping[str, str], rows: Any) -> int:
    """See :meth:`.kafka.Kafka.write`."""
    settings = write_options(options)
    arrow_batches = _batches(rows)
    batch = settings.batch or QueryBatch(uuid.uuid4().hex)
    sink = open_sink(settings, batch)
    splitter, written = make_splitter(settings.splitter), 0
    messages: list[Any] = []
    try:
        with sink.open(batch, TaskAttempt(stage=0, task=0, attempt=0)) as task:
            router = Router.to_sink(task, settings)
            try:
                for found in arrow_batches:
                    written += found.num_rows
                    write_rows([_as_columns(found, settings.topic)], router, task, splitter=splitter)
                    task.advance(flush=True)
                messages.append(task.finish())
            except KafkaLogError as e:
                raise _with_count(e, task.visible_records()) from e
            except Exception:
                _log.warning("Writing ended with an error. %s", _visible(task.visible_records()))
                raise
        sink.commit(batch, messages, Plan())
    except BaseException:
        sink.abort(batch, messages)
        raise
    return written


def _batches(rows: Any) -> Iterable[pa.RecordBatch]:
    """The rows as batches: of a reader or table of any library that speaks Arrow, or as they are."""
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if hasattr(rows, "__arrow_c_stream__"):
        batches: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(rows)
        return batches
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise _not_arrow("an Arrow table, reader or batches to write", rows)
    return map(_checked, rows)


def _checked(batch: Any) -> pa.RecordBatch:
    if not isinstance(batch, pa.RecordBatch):
        raise _not_arrow("each item to write to be a pyarrow.RecordBatch", batch)
    return batch


def _not_arrow(expected: str, got: Any) -> OptionError:
    return OptionError(
        f"Expected {expected}, got {type(got).__name__}",
        hint="Make a table, for example with pyarrow.table({'value': [b'...']}).",
    )


def _as_columns(rows: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """The columns of records with the types that Spark hands over.

    :raises OptionError: if ``value`` is missing, a column occurs twice or has another type, or a time or a
        partition is too large.
    """
    names = [name for name in rows.schema.names if name in SINK_FIELDS]
    check_different(names)
    check_written_columns({field.name: _spark_type(field.type) for field in rows.schema}, topic=topic)
    return pa.RecordBatch.from_pydict({name: _as_column(name, rows.column(name)) for name in names})


def _as_column(name: str, column: pa.Array) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    try:
        if name == "timestamp":
            finer = column.type.unit == "ns"  # else a cast is refused if the time does not fit
            return column.cast(pa.timestamp("us", column.type.tz), safe=not finer)
        return column.cast(pa.int32()) if name == "partition" else column
    except pa.ArrowInvalid as e:
        raise OptionError(f"Column {name!r} has a value that a record can't hold: {e}") from None


def _spark_type(kind: pa.DataType) -> str:
    """The type as Spark writes it, if a record can have it; else as Arrow does."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    for name, checks in _SPARK_TYPES.items():
        if any(check(kind) for check in checks):
            return name
    return str(kind)


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    item = kind.value_type
    kinds = [(field.name, _spark_type(field.type)) for field in item] if pa.types.is_struct(item) else []
    return {name for name, _ in kinds} == {"key", "value"} and {kind for _, kind in kinds} <= {
        "string",
        "binary",
    }


_SPARK_TYPES: Mapping[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "binary": (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
        pa.types.is_null,
    ),
    "string": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "int": (pa.types.is_integer,),
    "timestamp": (pa.types.is_timestamp,),
    HEADERS_FIELD[1]: (_is_headers,),
}


def _with_count(error: KafkaLogError, records: int) -> KafkaLogError:
    """``error``, saying how many records are visible although the write failed."""
    said = _visible(records)
    return error.with_hint(f"{error.hint} {said}" if error.hint else said)


def _visible(records: int) -> str:
    if not records:
        return "No records were written before."
    return f"At least {records} record{'s were' if records > 1 else ' was'} written before."
