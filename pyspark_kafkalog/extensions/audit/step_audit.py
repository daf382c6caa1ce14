"""Counts what a step of a query hands on, under names that stay the same when a task is run again."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.spark.running_query import QueryRun

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from pyspark_kafkalog.extensions.audit.options import AuditOptions
    from pyspark_kafkalog.extensions.audit.task_audit import ReadAudit
    from pyspark_kafkalog.model import TopicPartition


class StepAudit:
    """Counts what a step of a query hands on. Each partition is in one task. Pickled to the tasks.

    :param columns: those of the rows.
    :raises OptionError: if the auditor can't be imported, or needs others.
    """

    def __init__(self, options: AuditOptions, columns: Collection[str], *, streaming: bool) -> None:
        missing = [name for name in options.counted_columns() if name not in columns]
        if missing:
            raise OptionError(
                f"The auditor needs the column {missing[0]!r}, which the rows do not have",
                hint="Read it, headers by includeHeaders=true, or leave it out of the auditor's columns.",
            )
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
        from pyspark_kafkalog.extensions.audit.auditor import CONSUMER, AuditedTask
        from pyspark_kafkalog.extensions.audit.task_audit import ReadAudit

        if partition not in self._audits:
            task = AuditedTask(CONSUMER, *self._run.batch(), f"{partition}.reassembled")
            self._audits[partition] = ReadAudit(self._options, task, partition)
        return self._audits[partition]
