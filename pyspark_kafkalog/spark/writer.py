"""Batch and stream writers: tasks write rows to a sink, and the driver commits or aborts them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.garbage import freeze_modules, loading
from pyspark_kafkalog.model import Plan, QueryBatch, TaskAttempt
from pyspark_kafkalog.model.topics import check_writable
from pyspark_kafkalog.options.columns import IN_SPARK, check_written_columns
from pyspark_kafkalog.options.contracts import delivery_of, transforms_of
from pyspark_kafkalog.options.settings import WriteOptions, write_options
from pyspark_kafkalog.places import cluster_id, open_sink
from pyspark_kafkalog.saying import name_work
from pyspark_kafkalog.spark.features import StreamArrowWriter, arrow_schema
from pyspark_kafkalog.spark.own_topics import OwnTopics
from pyspark_kafkalog.spark.running_query import RunningQuery
from pyspark_kafkalog.spark.worker import with_short_errors, without_delay
from pyspark_kafkalog.write.completing import TaskNews, complete
from pyspark_kafkalog.write.counting import write_counting_of
from pyspark_kafkalog.write.listening import listening_of
from pyspark_kafkalog.write.splitting import splitting_of
from pyspark_kafkalog.write.values import written_values_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_kafkalog.write.values import EncodedColumn

    _Shaping: TypeAlias = tuple[pa.Schema, tuple[EncodedColumn, ...]]
    """The columns of the rows, and what encodes some of what the transform makes of them."""

_log = logging.getLogger("pyspark_kafkalog")


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> LogBatchWriter:
    """The writer of ``df.write``, for the place that the options name.

    :raises OptionError: for invalid options or columns, and for any mode except append.
    """
    if overwrite:
        raise OptionError(
            "mode('overwrite') is not supported: a log can only be appended to", hint="Use mode('append')."
        )
    settings, shaping = _checked(options, schema)
    if delivery_of(settings).source_group is not None:
        raise OptionError("Option 'commitSourceOffsets' is for streaming queries only", hint="Leave it out.")
    return LogBatchWriter(settings, shaping)


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, commits: bool = False
) -> LogStreamWriter:
    """The writer of ``df.writeStream``, which Spark creates for every micro-batch.

    :param commits: whether it only commits or aborts what another one has planned, and asks no registry.
    :raises OptionError: for invalid options or columns.
    """
    settings, shaping = _checked(options, schema, commits=commits)
    if settings.batch is not None:
        raise OptionError(
            "Option 'txnAppId' is not valid in streaming queries",
            hint="Leave it out: the checkpoint names the micro-batches.",
        )
    delivery_of(settings).check_stream()
    return LogStreamWriter(settings, shaping=shaping)


def _checked(
    options: Mapping[str, str], schema: StructType, *, commits: bool = False
) -> tuple[WriteOptions, _Shaping | None]:
    """The checked options, and the change of rows, if there is one; plug-ins are loaded.

    :param commits: whether tasks have written already: then no registry is asked for what encodes columns,
        and a callback that can't be loaded does not end the commit.
    """
    settings, shaping = write_options(options), None
    encoded = () if commits else None
    if not transforms_of(settings).is_set and not written_values_of(settings).encoded:
        check_written_columns({f.name: f.dataType.simpleString() for f in schema}, topic=settings.topic)
    else:
        with loading():
            from pyspark_kafkalog.write.columns import Shaped
        given = _in_arrow(schema)
        shaping = given, Shaped(settings, given, encoded, ways=IN_SPARK).encoded
        settings = settings.for_tasks
    with loading():
        splitting_of(settings).load()
        if settings.partitioner is not None and not commits:
            from pyspark_kafkalog.write.routing import load_partitioner

            load_partitioner(settings.partitioner)
        if not commits:
            write_counting_of(settings).load()
            listening_of(settings).load()
    freeze_modules()
    return settings, shaping


def _in_arrow(schema: StructType) -> pa.Schema:
    """The schema of rows.

    :raises OptionError: for a column of a type that has no form in Arrow.
    """
    for field in schema:
        try:
            arrow_schema(type(schema)([field]))
        except (PySparkException, ValueError, TypeError):
            raise OptionError(
                f"Column {field.name!r} is of type {field.dataType.simpleString()}, which can't be written",
                hint="Convert what Arrow has no form for, for example with CAST(... AS string).",
            ) from None
    return arrow_schema(schema)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The message of a task to the driver: its batch, what the commit needs to know, and its query."""

    batch: QueryBatch
    news: TaskNews
    query: RunningQuery | None = None


class _Writer:
    """The base of batch and stream writers. Pickled from the driver to the tasks, so it holds little."""

    def __init__(
        self, options: WriteOptions, batch: QueryBatch | None = None, shaping: _Shaping | None = None
    ) -> None:
        self._options = options
        self._shaping = shaping
        self._sink = open_sink(options, batch)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        without_delay()

    @property
    def _about(self) -> str:
        """The topic of all rows, for lines of the log; empty where each row has one."""
        return f"topic {self._options.topic}" if self._options.topic else ""

    def _write(
        self,
        batch: QueryBatch,
        rows: Iterator[pa.RecordBatch],
        check_topic: Callable[[str], object] = check_writable,
    ) -> Written:
        """Write all rows of a task to the sink and finish it, counting them if that is asked for.

        :param check_topic: refuses a topic by an error.
        """
        with loading():
            from pyspark_kafkalog.write.routing import Router
            from pyspark_kafkalog.write.rows import slices_to_encode, write_rows

        options, context = self._options, _task()
        query = RunningQuery.of(context)
        name_work(self._about if query is None else query.about)
        if self._shaping is not None:
            from pyspark_kafkalog.write.columns import Shaped

            rows = map(Shaped(options, *self._shaping), slices_to_encode(rows))
        attempt = TaskAttempt(context.stageId(), context.partitionId(), context.attemptNumber())
        listening, awaits_commit = listening_of(options), self._sink.needs_commit
        with (
            listening.of_task(batch, attempt, awaits_commit=awaits_commit) as listener,
            self._sink.open(batch, attempt, listener) as sink,
        ):
            router = Router.to_sink(sink, options, first=context.taskAttemptId(), check_topic=check_topic)
            splitter = splitting_of(options).splitter()
            counting = write_counting_of(options)
            with counting.of_task(batch, attempt, awaits_commit=awaits_commit) as count:
                doubtful = write_rows(rows, router, sink, splitter=splitter, count=count)
                finished = sink.finish()
        freeze_modules()
        news = TaskNews(finished, listening.heard(listener), counting.counted(count), doubtful)
        return Written(batch, news, query)

    def _commit(
        self,
        batch: QueryBatch,
        messages: list[WriterCommitMessage | None],
        plan: Plan,
    ) -> None:
        """Commit what all tasks have written."""
        written = _written(messages)
        query = next((one.query for one in written if one.query is not None), None)
        name_work(self._about if query is None else query.about)
        missing = len(messages) - len(written)
        if missing and self._sink.needs_commit:
            raise KafkaLogError(
                f"{missing} of {len(messages)} tasks sent no commit message, so nothing was published"
            )
        news = [message.news for message in written]
        complete(self._options, self._sink, batch, news, plan, tasks=len(messages))
        freeze_modules()


@with_short_errors
class LogBatchWriter(_Writer, DataSourceArrowWriter):
    """``df.write``."""

    def __init__(self, options: WriteOptions, shaping: _Shaping | None = None) -> None:
        self._batch = options.batch or QueryBatch(uuid.uuid4().hex)
        super().__init__(options, self._batch, shaping)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return self._write(self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what all tasks have written."""
        self._commit(self._batch, messages, self._plan(messages))

    def _plan(self, messages: list[WriterCommitMessage | None]) -> Plan:
        """The plan in the checkpoint of the micro-batch that ``foreachBatch`` writes, if it is known."""
        query = next((message.query for message in _written(messages)), None)
        if query is None or self._batch.batch_id != query.batch_id:
            return Plan()  # a number that the job has given
        given = self._options.checkpoint_location
        location = given or query.default_checkpoint
        if location is None:
            return Plan()
        try:
            return _plan(location, query)
        except KafkaLogError:
            if given is not None:
                raise
            return Plan()  # the query names its checkpoint itself, and only Spark knows it

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Undo what was written, as far as possible; never raises, as that would hide the cause."""
        self._sink.abort(self._batch, [message.news.finished for message in _written(messages)])


@with_short_errors
class LogStreamWriter(_Writer, StreamArrowWriter):
    """``df.writeStream``.

    Spark creates a new writer for every micro-batch and another for its commit, so the
    query's id, which survives restarts, comes with the messages.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task of a micro-batch."""
        query = RunningQuery.of(_task())
        assert query is not None, "Spark sets the query's id and the batch's in a streaming task"
        own = OwnTopics(self._options, query)
        return self._write(QueryBatch(query.query_id, query.batch_id), iterator, own.check)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit what all tasks of the micro-batch have written."""
        queries = _queries(messages)
        if len(queries) != 1:
            raise KafkaLogError(f"Expected commit messages of one query, got {len(queries)}")
        batch = QueryBatch(queries.pop(), batchId)
        self._commit(batch, messages, self._plan(batch, _written(messages)[0].query))

    def _plan(self, batch: QueryBatch, query: RunningQuery | None) -> Plan:
        """The plan of the micro-batch in the checkpoint, for a sink that shows each once.

        :raises KafkaLogError: if that can't be known, unless the user lets it pass.
        """
        if not self._sink.needs_commit:
            return Plan()
        assert query is not None, "Spark names the query in a streaming task"
        given = self._options.checkpoint_location
        if given is None and query.is_never_resumed:
            return Plan()
        group = delivery_of(self._options).source_group
        try:
            plan = _plan(
                given or query.default_checkpoint,
                query,
                group=group,
                keeps=self._options.brokers is not None and given is not None,
            )
            if plan.group is not None:
                assert given is not None, "commitSourceOffsets needs it"
                self._check_source(given, query)
            return plan
        except KafkaLogError as e:
            if self._options.fail_on_missing_marker or group is not None:
                raise
            _log.warning("%s: whether it was written before can't be known: %s", batch, e)
            return Plan(None)

    def _check_source(self, checkpoint_location: str, query: RunningQuery) -> None:
        """See that the source reads the sink's cluster, whose group gets its offsets.

        :raises KafkaLogError: if it does not, or nothing tells.
        """
        from pyspark_kafkalog.stream.checkpoint import BY_READER, QueryLog

        assert self._options.brokers is not None, "transactions are those of brokers"
        read = QueryLog(checkpoint_location, query.default_fs).source_cluster(query.run_id)
        written = cluster_id(self._options.brokers)
        if read != written:
            raise KafkaLogError(
                f"The source reads cluster {read}, whose offsets mean nothing in that of the sink,"
                f" {written} (commitSourceOffsets=transaction)",
                hint=BY_READER,
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Undo what was written, as far as possible; never raises, as that would hide the cause.

        Killed tasks send no message; what they left is removed when the batch is committed.
        """
        for query_id in _queries(messages):
            batch = QueryBatch(query_id, batchId)
            self._sink.abort(
                batch, [each.news.finished for each in _written(messages) if each.batch == batch]
            )


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark runs write() in a task"
    return context


def _queries(messages: list[WriterCommitMessage | None]) -> set[str]:
    return {message.batch.query_id for message in _written(messages)}


def _written(messages: list[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def _plan(
    location: str | None, query: RunningQuery, *, group: str | None = None, keeps: bool = False
) -> Plan:
    """The plan of a micro-batch in a checkpoint, flushed: Spark can't plan it again once it is visible.

    :param group: that gets the offsets of the micro-batch's source.
    :param keeps: whether the sink keeps files of its own there, for which tasks have looked already.
    :raises KafkaLogError: if the checkpoint is not the query's, or is not known.
    """
    from pyspark_kafkalog.stream.checkpoint import QueryLog, check_untold
    from pyspark_kafkalog.stream.committing import as_they_are

    if location is None:
        raise KafkaLogError(
            "Nothing tells where the query's checkpoint is",
            hint="Give it as the option checkpointLocation of writeStream.",
        )
    if keeps:
        check_untold(location, query.default_fs)
    log, number = QueryLog(location, query.default_fs), query.batch_id
    plan = log.plan_of(QueryBatch(query.query_id, number))
    log.flush(number)
    if group is None or (plan.before and log.ends_of(number) == log.ends_of(number - 1)):
        return plan  # without a group, or without rows
    before = as_they_are(log.ends_of(number - 1)) if plan.before else {}
    return plan._replace(group=group, offsets=as_they_are(log.ends_of(number)), offsets_before=before)
