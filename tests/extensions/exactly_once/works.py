"""A batch of query ``query`` as a commit sees it, without rows."""

from __future__ import annotations

from pyspark_kafkalog.extensions.exactly_once.folders import Folders
from pyspark_kafkalog.extensions.exactly_once.work import Work
from pyspark_kafkalog.model import Plan, QueryBatch


def work_of(
    batch_id: int, plan: str | None = "", *, before: str = "", is_job: bool = False, required: bool = True
) -> Work:
    """:param plan: the digest of its plan; ``before`` is that of the batch before."""
    batch = QueryBatch("query", batch_id)
    return Work(batch, [], Folders("", ""), Plan(plan, before=before), is_job, required)
