"""Batch and stream writers over one base, for log directories and for brokers.

For a directory tasks stage, and the driver's commit publishes. For brokers
tasks produce, at least once as Spark's own sink does, and the commit reports.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.log.lock import check_unlocked
from pyspark_kafkalog.options.columns import check_written_columns
from pyspark_kafkalog.options.settings import WriteOptions, write_options
from pyspark_kafkalog.spark.garbage import freeze_modules, loading

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_kafkalog.audit.counting import WriteAudit
    from pyspark_kafkalog.codec.encode import EncodeSettings
    from pyspark_kafkalog.log.write.staging import StagedFile
    from pyspark_kafkalog.model import TopicPartition
    from pyspark_kafkalog.writing.routing import Router
    from pyspark_kafkalog.writing.rows import RecordBatchSink

_log = logging.getLogger("pyspark_kafkalog")
Finished = TypeVar("Finished")


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DirectoryBatchWriter | BrokerBatchWriter:
    """The writer of ``df.write``, for the place that the options name.

    :raises OptionError: for wrong options or columns, and for any mode but append.
    """
    if overwrite:
        raise OptionError(
            "mode('overwrite') is not supported: a log is only appended to", hint="Use mode('append')."
        )
    settings = _checked(options, schema)
    return DirectoryBatchWriter(settings) if settings.brokers is None else BrokerBatchWriter(settings)


def stream_writer(
    options: Mapping[str, str], schema: StructType
) -> DirectoryStreamWriter | BrokerStreamWriter:
    """The writer of ``df.writeStream``, which Spark makes anew for every micro-batch.

    :raises OptionError: for wrong options or columns.
    """
    settings = _checked(options, schema)
    return DirectoryStreamWriter(settings) if settings.brokers is None else BrokerStreamWriter(settings)


def _checked(options: Mapping[str, str], schema: StructType) -> WriteOptions:
    settings = write_options(options)
    check_written_columns({f.name: f.dataType.simpleString() for f in schema}, topic=settings.topic)
    freeze_modules()
    return settings


class _Writer:
    """What all writers share. Made on the driver and pickled to the tasks, so it imports and opens little."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def _router(
        self, partition_count: Callable[[str], int], has_partition: Callable[[TopicPartition], bool]
    ) -> Router:
        from pyspark_kafkalog.writing.routing import Router, load_partitioner

        return Router(
            topic=self._options.topic,
            partition_count=partition_count,
            has_partition=has_partition,
            partitioner=load_partitioner(self._options.partitioner),
            batch_size=self._options.batch_size,
            distribution=self._options.distribution,
            first=_task().taskAttemptId(),
        )

    def _write(
        self,
        rows: Iterator[pa.RecordBatch],
        partition_count: Callable[[str], int],
        sink: RecordBatchSink,
        finish: Callable[[], Finished],
        batch: _Batch,
        has_partition: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> Finished:
        """Put all rows of a task into the sink, and finish it; both are audited."""
        from pyspark_kafkalog.writing.rows import make_splitter, write_rows

        router = self._router(partition_count, has_partition)
        splitter = make_splitter(self._options.splitter)
        with self._audit(batch) as audit:
            write_rows(rows, router, sink, splitter=splitter, audit=audit)
            return finish()

    def _audit(self, batch: _Batch) -> AbstractContextManager[WriteAudit | None]:
        if self._options.audit is None:
            return nullcontext()
        from pyspark_kafkalog.audit.counting import PRODUCER, AuditedTask, WriteAudit

        task = AuditedTask(PRODUCER, *batch, f"{_task().partitionId():05d}")
        return WriteAudit(
            self._options.audit,
            task,
            attempt=_task().attemptNumber(),
            awaits_commit=self._options.brokers is None,
        )

    def _complete_audit(self, batch: _Batch, tasks: int) -> None:
        """Tell the audit that what so many tasks have told it of the batch has become visible.

        Never raises: that would be no reason to write it all again.
        """
        if self._options.audit is None:
            return
        try:
            from pyspark_kafkalog.audit.counting import PRODUCER, AuditedTask, committed

            committed(self._options.audit, AuditedTask(PRODUCER, *batch, ""), tasks)
        except Exception:
            _log.warning("%s is written, but its audit is not complete", batch.job, exc_info=True)

    def _encode_settings(self) -> EncodeSettings:
        from pyspark_kafkalog.codec.encode import EncodeSettings

        return EncodeSettings(
            compression=self._options.compression,
            batch_size=self._options.batch_size,
            max_message_bytes=self._options.max_message_bytes,
        )


class _Batch(NamedTuple):
    """Whose rows are written: a query's micro-batch, or a job, which has no number."""

    query: str
    number: int | None = None

    @property
    def job(self) -> str:
        """Its name among what is staged."""
        return self.query if self.number is None else f"{self.query}-{self.number}"


def _micro_batch() -> _Batch:
    context = _task()
    query_id = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    assert query_id is not None, "Spark tells a streaming task its query"
    assert number is not None, "Spark tells a streaming task its batch"
    return _Batch(query_id, int(number))


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark runs write() in a task"
    return context


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task staged, if anything; ``query_id`` is None in a batch job."""

    file: StagedFile | None
    query_id: str | None


@lru_cache(maxsize=1)
def _existing_topics(root: str, stage: int) -> Mapping[str, tuple[int, ...]]:
    """The topics of a log directory and their partitions. All tasks of a stage see what the first one saw."""
    with loading():
        from pyspark_kafkalog.log.read.directory import LogDirectory

    return LogDirectory.open(root).topics() if os.path.isdir(root) else {}


class _DirectoryWriter(_Writer):
    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options)
        check_unlocked(options.root)

    def _stage(self, batch: _Batch, rows: Iterator[pa.RecordBatch]) -> Staged:
        with loading():
            from pyspark_kafkalog.log.write.staging import Staging

        options, context = self._options, _task()
        existing = _existing_topics(options.root, context.stageId())
        task = f"{context.partitionId():05d}.{context.attemptNumber()}"
        with Staging(options.root, batch.job, task, self._encode_settings()) as staging:
            staged = self._write(
                rows,
                lambda topic: len(existing.get(topic, ())) or options.num_partitions,
                staging,
                staging.finish,
                batch,
            )
        freeze_modules()
        return Staged(staged, None if batch.number is None else batch.query)

    def _publish(self, batch: _Batch, messages: list[WriterCommitMessage | None]) -> None:
        with loading():
            from pyspark_kafkalog.log.write.journal import PublishedBatch
            from pyspark_kafkalog.log.write.publish import LogSettings, publish

        staged = [message for message in messages if isinstance(message, Staged)]
        if len(staged) != len(messages):
            raise KafkaLogError(f"Only {len(staged)} of {len(messages)} tasks reported: nothing is published")
        options = self._options
        publish(
            options.root,
            [message.file for message in staged if message.file is not None],
            job=batch.job,
            settings=LogSettings(
                segment_bytes=options.segment_bytes,
                segment_ms=options.segment_ms,
                index_interval_bytes=options.index_interval_bytes,
                log_append_time=options.log_append_time,
            ),
            num_partitions=options.num_partitions,
            batch=None if batch.number is None else PublishedBatch(batch.query, batch.number),
        )
        self._complete_audit(batch, len(messages))
        freeze_modules()

    def _discard(self, batch: _Batch) -> None:
        from pyspark_kafkalog.log.write.sweeping import abort

        abort(self._options.root, batch.job)


class DirectoryBatchWriter(_DirectoryWriter, DataSourceArrowWriter):
    """``df.write`` to a directory: all rows become visible at once, or none."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options)
        self._job = _Batch(uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        return self._stage(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks staged."""
        self._publish(self._job, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged; never raises, for that would hide the cause."""
        self._discard(self._job)


class DirectoryStreamWriter(_DirectoryWriter, DataSourceStreamArrowWriter):
    """``df.writeStream`` to a directory: a micro-batch is published once, however often Spark replays it.

    Spark makes a new writer for every micro-batch and another for its commit, so
    what they share comes with the messages: the query's id, which outlives restarts.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task of a micro-batch."""
        return self._stage(_micro_batch(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the micro-batch, unless it was published before."""
        queries = _queries(messages)
        if len(queries) != 1:
            raise KafkaLogError(f"One commit has to be of one query, not of {len(queries)}")
        (query_id,) = queries
        self._publish(_Batch(query_id, batchId), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what was staged; never raises, for that would hide the cause.

        Tasks that failed have removed theirs. What killed ones leave goes when the batch is published.
        """
        for query_id in _queries(messages):
            self._discard(_Batch(query_id, batchId))


def _queries(messages: list[WriterCommitMessage | None]) -> set[str]:
    return {
        message.query_id
        for message in messages
        if isinstance(message, (Staged, Produced)) and message.query_id
    }


class Written(NamedTuple):
    """What one task wrote to one partition. Offsets are -1 where no broker told any."""

    topic: str
    partition: int
    records: int
    batches: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True)
class Produced(WriterCommitMessage):
    """What one task wrote. In plain values: to unpickle it loads no library.

    ``query_id`` is None in a batch job.
    """

    written: tuple[Written, ...]
    query_id: str | None = None


class _BrokerWriter(_Writer):
    """At least once: what a task has produced stands, whatever becomes of its job."""

    def _produce(self, batch: _Batch, rows: Iterator[pa.RecordBatch]) -> Produced:
        """Produce the rows of one task, and wait until they are acknowledged."""
        with loading():
            from pyspark_kafkalog.broker.cluster.cluster import cluster_of
            from pyspark_kafkalog.broker.cluster.pool import note_reached
            from pyspark_kafkalog.broker.produce.sink import ProduceSink

        options = self._options
        assert options.brokers is not None, "This writer is for brokers"
        assert options.produce is not None, "This writer is for brokers"
        if batch.number:  # the micro-batches before it were written
            note_reached(options.brokers)
        with ProduceSink(cluster_of(options.brokers), options.produce, self._encode_settings()) as sink:
            results = self._write(rows, sink.partition_count, sink, sink.finish, batch, sink.has_partition)
        freeze_modules()
        return Produced(
            tuple(
                Written(*partition, result.records, result.batches, result.first_offset, result.last_offset)
                for partition, result in sorted(results.items())
            ),
            None if batch.number is None else batch.query,
        )

    def _report(self, messages: list[WriterCommitMessage | None], of: str) -> None:
        by_topic: defaultdict[str, list[Written]] = defaultdict(list)
        for message in messages:
            if isinstance(message, Produced):
                for written in message.written:
                    by_topic[written.topic].append(written)
        for topic, parts in sorted(by_topic.items()):
            _log.info(
                "%s wrote %d records in %d record batches to %d partitions of topic %s",
                of,
                sum(part.records for part in parts),
                sum(part.batches for part in parts),
                len({part.partition for part in parts}),
                topic,
            )


class BrokerBatchWriter(_BrokerWriter, DataSourceArrowWriter):
    """``df.write`` to brokers."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options)
        self._job = _Batch(uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Produced:
        """Produce the rows of one task."""
        return self._produce(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was written."""
        self._report(messages, "A batch")
        self._complete_audit(self._job, len(messages))
        freeze_modules()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back."""


class BrokerStreamWriter(_BrokerWriter, DataSourceStreamArrowWriter):
    """``df.writeStream`` to brokers. A micro-batch that Spark replays is written again."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Produced:
        """Produce the rows of one task of a micro-batch."""
        return self._produce(_micro_batch(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log what was written."""
        self._report(messages, f"Micro-batch {batchId}")
        for query_id in _queries(messages):
            self._complete_audit(_Batch(query_id, batchId), len(messages))
        freeze_modules()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back."""
