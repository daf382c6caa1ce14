"""The options of an audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.options.values import COUNTING
from pyspark_kafkalog.spark.counting import Counting, QueryRun

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.audit.counting import ReadAudit, WriteAudit
    from pyspark_kafkalog.model import QueryBatch, TaskAttempt
    from pyspark_kafkalog.read.splits import Split


@dataclass(frozen=True, slots=True)
class AuditOptions(Counting):
    """``auditor`` is COUNTING or ``module:name``; without a ``location`` counts are only logged.

    The location is not shown, because a URI may hold a secret.
    """

    auditor: str = COUNTING
    location: str | None = field(default=None, repr=False)
    bucket_ms: int = from_option("auditor.bucket.ms")

    def of_split(self, split: Split, run: QueryRun) -> ReadAudit:
        """See :meth:`.counting.Counting.of_split`."""
        from pyspark_kafkalog.extensions.audit.task_audits import audit_of

        return audit_of(split, self, run)

    def of_task(self, batch: QueryBatch, attempt: TaskAttempt, *, awaits_commit: bool) -> WriteAudit:
        """See :meth:`.counting.Counting.of_task`."""
        from pyspark_kafkalog.extensions.audit.counting import PRODUCER, AuditedTask, WriteAudit

        task = AuditedTask(PRODUCER, *batch, f"{attempt.task:05d}")
        return WriteAudit(self, task, attempt=attempt.attempt, awaits_commit=awaits_commit)

    def committed(self, batch: QueryBatch, tasks: int) -> None:
        """See :meth:`.counting.Counting.committed`."""
        from pyspark_kafkalog.extensions.audit import counting

        counting.committed(self, counting.AuditedTask(counting.PRODUCER, *batch, ""), tasks)


def audit_options(user: UserOptions) -> AuditOptions | None:
    """The options for the counting of messages; None if they are not counted.

    :raises OptionError: for malformed values.
    """
    auditor, location = user.value("auditor.class"), user.value("auditLocation")
    audit = AuditOptions(auditor or COUNTING, location, user.value("auditor.bucket.ms"))
    return audit if auditor is not None or location is not None else None
