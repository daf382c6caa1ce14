"""What a query's tasks deliver, counted under names that stay when a task or a micro-batch is done again."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext

from pyspark_kafkalog.model import ALL_OFFSETS, TopicPartition
from pyspark_kafkalog.transfer.auditing import CONSUMER, AuditedTask, ReadAudit

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.options.auditing import AuditOptions
    from pyspark_kafkalog.planning.splitting import Split


def audit_of(split: Split, options: AuditOptions, plan: str | None) -> ReadAudit:
    """The audit of the task that reads ``split``.

    :param plan: names the plan of a batch, which Spark may run several times; None for a stream.
    """
    start, end = split.offsets
    share = f"{split.partition}.{start}-{end}"
    if split.within != ALL_OFFSETS:
        share += ".{}-{}".format(*split.within)
    return ReadAudit(options, _task(plan, share), split.partition.topic)


class StepAudit:
    """Counts what a step of a query hands on, which has each partition in one task. Pickled to the tasks."""

    def __init__(self, options: AuditOptions, *, streaming: bool) -> None:
        self._options = options
        self._plan = None if streaming else uuid.uuid4().hex
        self._audits: dict[TopicPartition, ReadAudit] = {}

    def delivered(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """See :meth:`ReadAudit.delivered`."""
        self._of(partition).delivered(rows)

    def dropped(self, partition: TopicPartition, reason: str, messages: int) -> None:
        """See :meth:`ReadAudit.dropped_for`."""
        self._of(partition).dropped_for(reason, messages)

    def report(self) -> None:
        """Report what was counted in this task."""
        for audit in self._audits.values():
            audit.report()

    def _of(self, partition: TopicPartition) -> ReadAudit:
        if partition not in self._audits:
            task = _task(self._plan, f"{partition}.reassembled")
            self._audits[partition] = ReadAudit(self._options, task, partition.topic)
        return self._audits[partition]


def _task(plan: str | None, share: str) -> AuditedTask:
    context = TaskContext.get()
    assert context is not None, "Spark runs this in a task"
    if plan is not None:
        run = context.getLocalProperty("spark.sql.execution.id") or f"stage{context.stageId()}"
        return AuditedTask(CONSUMER, f"{plan}-{run}", None, share)
    query_id = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    assert query_id is not None, "Spark tells a streaming task its query"
    assert number is not None, "Spark tells a streaming task its batch"
    return AuditedTask(CONSUMER, query_id, int(number), share)
