"""Writes records to a topic without Spark: as one batch, by the same sinks as ``df.write``."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.model import Plan, QueryBatch, TaskAttempt
from pyspark_kafkalog.options.settings import write_options
from pyspark_kafkalog.places import open_sink
from pyspark_kafkalog.writing.routing import Router
from pyspark_kafkalog.writing.rows import make_splitter, write_rows


def write(
    options: Mapping[str, str], rows: pa.RecordBatchReader | pa.Table | Iterable[pa.RecordBatch]
) -> int:
    """See :meth:`.kafka.Kafka.write`."""
    arrow_batches = rows.to_batches() if isinstance(rows, pa.Table) else rows
    settings = write_options(options)
    if settings.audit is not None:
        raise OptionError("Only Spark's queries are audited", hint="Leave out the options of the audit.")
    batch = settings.batch or QueryBatch(uuid.uuid4().hex)
    sink = open_sink(settings, batch)
    splitter, written = make_splitter(settings.splitter), 0
    messages: list[Any] = []
    try:
        with sink.open(batch, TaskAttempt(stage=0, task=0, attempt=0)) as task:
            router = Router.to_sink(task, settings)
            try:
                for rows in arrow_batches:
                    if settings.topic is None and "topic" not in rows.schema.names:
                        raise OptionError("The option 'topic' is required if there is no column 'topic'")
                    write_rows([rows], router, task, splitter=splitter)
                    task.advance(flush=True)
                    written += rows.num_rows
                messages.append(task.finish())
            except KafkaLogError as e:
                raise _with_count(e, task.visible_records()) from e
        sink.commit(batch, messages, Plan())
    except BaseException:
        sink.abort(batch, messages)
        raise
    return written


def _with_count(error: KafkaLogError, records: int) -> KafkaLogError:
    """``error``, saying how many records are visible although the write failed."""
    said = "No records were written before."
    if records:
        said = f"At least {records} record{'s were' if records > 1 else ' was'} written before."
    return error.with_hint(f"{error.hint} {said}" if error.hint else said)
