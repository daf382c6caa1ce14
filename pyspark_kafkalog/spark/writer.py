"""Batch and stream writers over one base: tasks stage, the driver's commit publishes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.log.lock import check_unlocked
from pyspark_kafkalog.options.columns import check_written_columns
from pyspark_kafkalog.options.settings import write_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_kafkalog.log.journal import PublishedBatch
    from pyspark_kafkalog.log.staging import StagedFile


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task staged, if anything; ``query_id`` is None in a batch job."""

    file: StagedFile | None
    query_id: str | None


class _LogWriter:
    """What batch and stream share. Made on the driver, anew for every micro-batch, so it imports little."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = write_options(options)
        check_written_columns({f.name: f.dataType.simpleString() for f in schema}, topic=self._options.topic)
        check_unlocked(self._options.root)

    def _stage(self, job: str, query_id: str | None, rows: Iterator[pa.RecordBatch]) -> Staged:
        from pyspark_kafkalog.codec.encode import EncodeSettings
        from pyspark_kafkalog.log.directory import LogDirectory
        from pyspark_kafkalog.log.staging import Staging
        from pyspark_kafkalog.transfer.routing import Router, load_partitioner
        from pyspark_kafkalog.transfer.writing import write_rows

        options = self._options
        context = TaskContext.get()
        assert context is not None, "Spark runs write() in a task"
        existing = LogDirectory.open(options.root).topics() if os.path.isdir(options.root) else {}
        router = Router(
            topic=options.topic,
            partition_count=lambda topic: len(existing.get(topic, ())) or options.num_partitions,
            partitioner=load_partitioner(options.partitioner),
            batch_size=options.batch_size,
            first=context.taskAttemptId(),
        )
        settings = EncodeSettings(
            compression=options.compression,
            batch_size=options.batch_size,
            max_message_bytes=options.max_message_bytes,
        )
        task = f"{context.partitionId():05d}.{context.attemptNumber()}"
        with Staging(options.root, job, task, settings) as staging:
            write_rows(rows, router, staging)
            return Staged(staging.finish(), query_id)

    def _publish(
        self, job: str, messages: list[WriterCommitMessage | None], batch: PublishedBatch | None
    ) -> None:
        from pyspark_kafkalog.log.publish import LogSettings, publish

        staged = [message for message in messages if isinstance(message, Staged)]
        if len(staged) != len(messages):
            raise KafkaLogError(f"Only {len(staged)} of {len(messages)} tasks reported: nothing is published")
        options = self._options
        publish(
            options.root,
            [message.file for message in staged if message.file is not None],
            job=job,
            settings=LogSettings(
                segment_bytes=options.segment_bytes,
                segment_ms=options.segment_ms,
                index_interval_bytes=options.index_interval_bytes,
                log_append_time=options.log_append_time,
            ),
            num_partitions=options.num_partitions,
            batch=batch,
        )

    def _discard(self, job: str) -> None:
        from pyspark_kafkalog.log.staging import abort

        abort(self._options.root, job)


class LogBatchWriter(_LogWriter, DataSourceArrowWriter):
    """``df.write``: all rows become visible at once, or none."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "mode('overwrite') is not supported: a log is only appended to", hint="Use mode('append')."
            )
        super().__init__(options, schema)
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        return self._stage(self._job, None, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks staged."""
        self._publish(self._job, messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged; never raises, for that would hide the cause."""
        self._discard(self._job)


class LogStreamWriter(_LogWriter, DataSourceStreamArrowWriter):
    """``df.writeStream``: each micro-batch is published once, however often Spark replays it.

    Spark makes a new writer for every micro-batch and another for its commit, so
    what they share comes with the messages: the query's id, which outlives restarts.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task of a micro-batch."""
        context = TaskContext.get()
        assert context is not None, "Spark runs write() in a task"
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        assert query_id is not None, "Spark tells a streaming task its query"
        assert batch_id is not None, "Spark tells a streaming task its batch"
        return self._stage(_job(query_id, int(batch_id)), query_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the micro-batch, unless it was published before."""
        from pyspark_kafkalog.log.journal import PublishedBatch

        queries = _queries(messages)
        if len(queries) != 1:
            raise KafkaLogError(f"One commit has to be of one query, not of {len(queries)}")
        (query_id,) = queries
        self._publish(_job(query_id, batchId), messages, PublishedBatch(query_id, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what was staged; never raises, for that would hide the cause.

        Tasks that failed have removed theirs. What killed ones leave goes when the batch is published.
        """
        for query_id in _queries(messages):
            self._discard(_job(query_id, batchId))


def _queries(messages: list[WriterCommitMessage | None]) -> set[str]:
    return {message.query_id for message in messages if isinstance(message, Staged) and message.query_id}


def _job(query_id: str, batch_id: int) -> str:
    return f"{query_id}-{batch_id}"
