"""Writes records to a topic without Spark: as one batch, by the same sinks as ``df.write``."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.errors import AuthorizationError, KafkaLogError, LogDirectoryError, OptionError
from pyspark_kafkalog.model import Plan, QueryBatch, TaskAttempt
from pyspark_kafkalog.options.contracts import transforms_of
from pyspark_kafkalog.options.settings import WriteOptions, local_root, place_options, write_options
from pyspark_kafkalog.places import open_place, open_sink
from pyspark_kafkalog.write.columns import Shaped, as_columns
from pyspark_kafkalog.write.completing import TaskNews, complete
from pyspark_kafkalog.write.counting import write_counting_of
from pyspark_kafkalog.write.listening import listening_of
from pyspark_kafkalog.write.routing import Router
from pyspark_kafkalog.write.rows import slices_to_encode, write_rows
from pyspark_kafkalog.write.splitting import splitting_of
from pyspark_kafkalog.write.values import written_values_of

_log = logging.getLogger("pyspark_kafkalog")


def write(options: Mapping[str, str], rows: Any, numbered: tuple[QueryBatch, Plan] | None = None) -> int:
    """See :meth:`.kafka.Kafka.write`.

    :param numbered: the batch, if it is one of a sequence, and how it was planned: it is written once.
    """
    settings = write_options(options)
    arrow_batches = _batches(rows)
    records_of = _shaping(settings, getattr(arrow_batches, "schema", None))
    splitter, counting, written = splitting_of(settings).splitter(), write_counting_of(settings), 0
    counting.load()
    listening = listening_of(settings)
    listening.load()
    is_encoded = bool(written_values_of(settings).encoded)
    batch, plan = numbered or (settings.batch or QueryBatch(uuid.uuid4().hex), Plan())
    sink = open_sink(settings, None if numbered else batch)
    finished: list[Any] = []
    doubtful: int | None = None
    attempt, awaits_commit = TaskAttempt(stage=0, task=0, attempt=0), sink.needs_commit
    try:
        with (
            listening.of_task(batch, attempt, awaits_commit=awaits_commit) as listener,
            sink.open(batch, attempt, listener) as task,
            counting.of_task(batch, attempt, awaits_commit=awaits_commit) as count,
        ):
            router = Router.to_sink(task, settings)
            try:
                for found in slices_to_encode(arrow_batches) if is_encoded else arrow_batches:
                    records = records_of(found)
                    written += records.num_rows
                    found_time = write_rows([records], router, task, splitter=splitter, count=count)
                    doubtful = found_time if doubtful is None else doubtful
                    task.advance(flush=True)
                finished.append(task.finish())
            except KafkaLogError as e:
                raise _with_count(e, task.visible_records()) from e
            except Exception:
                _log.warning("Writing ended with an error. %s", _visible(task.visible_records()))
                raise
        news = TaskNews(finished[0], listening.heard(listener), counting.counted(count), doubtful)
        complete(settings, sink, batch, [news], plan, tasks=1)
    except BaseException:
        sink.abort(batch, finished)
        raise
    return written


def is_missing(options: Mapping[str, str], topic: str) -> bool:
    """Whether there is no such topic yet, which a write creates if the place lets it."""
    found = place_options(options)
    for path in found.paths:
        local_root(path)  # a store may take seconds to say that it is not there
    try:
        return topic not in open_place(found).topics([topic])
    except LogDirectoryError:  # it is not there yet, either
        return True
    except AuthorizationError:  # the write says which right is missing
        return False


def _shaping(settings: WriteOptions, first: pa.Schema | None) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The function that gives rows the columns of records: the transform, the formats and casts.

    :param first: the columns of the rows, if they are known before the first one; then they are checked here.
    :raises OptionError: for a transform or a format that can't be used with them.
    """
    if not transforms_of(settings).is_set and not written_values_of(settings).encoded:
        return partial(as_columns, topic=settings.topic)
    of_columns = lru_cache(1)(partial(Shaped, settings))
    if first is not None:
        of_columns(first)
    return lambda rows: of_columns(rows.schema)(rows)


def _batches(rows: Any) -> Iterable[pa.RecordBatch]:
    """The rows as batches: of a reader or table of any library that speaks Arrow, or as they are."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if hasattr(rows, "__arrow_c_stream__"):
        batches: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(rows)
        return batches
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise _not_arrow("rows as an Arrow table or record batches", rows)
    return map(_checked, rows)


def _checked(batch: Any) -> pa.RecordBatch:
    if not isinstance(batch, pa.RecordBatch):
        raise _not_arrow("rows as an Arrow table or record batches", batch)
    return batch


def _not_arrow(expected: str, got: Any) -> OptionError:
    is_lazy = hasattr(got, "collect")  # Polars' LazyFrame
    return OptionError(
        f"Expected {expected}, got {type(got).__name__}",
        hint="Call collect() first."
        if is_lazy
        else "Make a table, for example with pyarrow.table({'value': [b'...']}).",
    )


def _with_count(error: KafkaLogError, records: int) -> KafkaLogError:
    """``error``, saying how many records are visible although the write failed."""
    said = _visible(records)
    return error.with_hint(f"{error.hint} {said}" if error.hint else said)


def _visible(records: int) -> str:
    if not records:
        return "No records were written before."
    return f"At least {records} record{'s were' if records > 1 else ' was'} written before."
