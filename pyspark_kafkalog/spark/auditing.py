"""What a reader's tasks deliver, counted under names that stay when a task or a micro-batch is done again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import TaskContext

from pyspark_kafkalog.model import ALL_OFFSETS
from pyspark_kafkalog.transfer.auditing import CONSUMER, AuditedTask, ReadAudit

if TYPE_CHECKING:
    from pyspark_kafkalog.options.auditing import AuditOptions
    from pyspark_kafkalog.planning.splitting import Split


def audit_of(split: Split, options: AuditOptions, plan: str | None) -> ReadAudit:
    """The audit of the task that reads ``split``.

    :param plan: names the plan of a batch, which Spark may run several times; None for a stream.
    """
    context = TaskContext.get()
    assert context is not None, "Spark runs read() in a task"
    start, end = split.offsets
    share = f"{split.partition}.{start}-{end}"
    if split.within != ALL_OFFSETS:
        share += ".{}-{}".format(*split.within)
    if plan is not None:
        run = context.getLocalProperty("spark.sql.execution.id") or f"stage{context.stageId()}"
        task = AuditedTask(CONSUMER, f"{plan}-{run}", None, share)
    else:
        query_id = context.getLocalProperty("sql.streaming.queryId")
        number = context.getLocalProperty("streaming.sql.batchId")
        assert query_id is not None, "Spark tells a streaming task its query"
        assert number is not None, "Spark tells a streaming task its batch"
        task = AuditedTask(CONSUMER, query_id, int(number), share)
    return ReadAudit(options, task, split.partition.topic)
