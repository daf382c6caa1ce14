"""Counts what tasks deliver, under names that stay the same when a task or micro-batch is run again."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext

from pyspark_kafkalog.model import ALL_OFFSETS, QueryBatch, TopicPartition
from pyspark_kafkalog.spark.counting import QueryRun
from pyspark_kafkalog.spark.running_query import RunningQuery

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.extensions.audit.counting import ReadAudit
    from pyspark_kafkalog.extensions.audit.options import AuditOptions
    from pyspark_kafkalog.read.splits import Split


def audit_of(split: Split, options: AuditOptions, run: QueryRun) -> ReadAudit:
    """The audit of a task that reads ``split``."""
    start, end = split.offsets
    share = f"{split.partition}.{start}-{end}"
    if split.within != ALL_OFFSETS:
        share += ".{}-{}".format(*split.within)
    return _read_audit(options, run, share, split.partition)


class StepAudit:
    """Counts what a step of a query hands on. Each partition is in one task. Pickled to the tasks."""

    def __init__(self, options: AuditOptions, *, streaming: bool) -> None:
        self._options = options
        self._run = QueryRun(uuid.uuid4().hex, streaming)
        self._audits: dict[TopicPartition, ReadAudit] = {}

    def delivered(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """See :meth:`ReadAudit.delivered`."""
        self._of(partition).delivered(rows)

    def dropped(self, partition: TopicPartition, reason: str, messages: int) -> None:
        """See :meth:`ReadAudit.dropped_for`."""
        self._of(partition).dropped_for(reason, messages)

    def report(self) -> None:
        """Report the counts of this task."""
        for audit in self._audits.values():
            audit.report()

    def _of(self, partition: TopicPartition) -> ReadAudit:
        if partition not in self._audits:
            share = f"{partition}.reassembled"
            self._audits[partition] = _read_audit(self._options, self._run, share, partition)
        return self._audits[partition]


def _read_audit(options: AuditOptions, run: QueryRun, share: str, partition: TopicPartition) -> ReadAudit:
    from pyspark_kafkalog.extensions.audit.counting import CONSUMER, AuditedTask, ReadAudit

    task = AuditedTask(CONSUMER, *_batch_of_task(run), share)
    return ReadAudit(options, task, partition.topic)


def _batch_of_task(run: QueryRun) -> QueryBatch:
    context = TaskContext.get()
    assert context is not None, "Spark runs this in a task"
    query = RunningQuery.of(context) if run.streaming else None
    if query is not None:
        return QueryBatch(query.query_id, query.batch_id)
    # Streams get here, too, in threads that foreachBatch has started: those do not know the query.
    execution = context.getLocalProperty("spark.sql.execution.id") or f"stage{context.stageId()}"
    return QueryBatch(f"{run.name}-{execution}")
