"""The streaming query that a task works for: Spark tells it more than it tells the driver.

Its local properties have the settings of Spark SQL (SQLExecution.withSQLConfPropagated), and a description of
the micro-batch that begins with the query's name (StreamExecution.getBatchDescriptionString). So a sink finds
the checkpoint that Spark chooses if the query names none (ResolveWriteToStream).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pyspark import TaskContext

from pyspark_kafkalog.model import QueryBatch

_DESCRIPTION = re.compile(r"(?P<name>.*)\nid = (?P<id>[^\n]+)\nrunId = [^\n]+\nbatch = [^\n]+\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class QueryRun:
    """The name of a query, which Spark may run several times; ``streaming`` if it runs in micro-batches."""

    name: str
    streaming: bool

    def batch(self) -> QueryBatch:
        """The batch that this task works for. It has the same name when Spark runs the task again."""
        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        query = RunningQuery.of(context) if self.streaming else None
        if query is not None:
            return QueryBatch(query.query_id, query.batch_id)
        # Streams get here, too, in threads that foreachBatch has started: those do not know the query.
        execution = context.getLocalProperty("spark.sql.execution.id") or f"stage{context.stageId()}"
        return QueryBatch(f"{self.name}-{execution}")


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A streaming query at a micro-batch. Locations are not shown, as a URI may hold a secret.

    :param name: empty for a query without a name, None if that is not known.
    :param checkpoints: the folder of those of named queries (spark.sql.streaming.checkpointLocation).
    :param default_fs: Hadoop's default file system, None if Spark's configuration has none.
    """

    query_id: str
    batch_id: int
    name: str | None
    checkpoints: str | None = field(default=None, repr=False)
    default_fs: str | None = field(default=None, repr=False)
    run_id: str = ""
    """The id of this start of the query."""

    @classmethod
    def of(cls, context: TaskContext) -> RunningQuery | None:
        """The query of a task; None for a job of no query."""
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        if query_id is None or batch_id is None:
            return None
        described = _DESCRIPTION.match(context.getLocalProperty("spark.job.description") or "")
        return cls(
            query_id,
            int(batch_id),
            described["name"] if described is not None and described["id"] == query_id else None,
            context.getLocalProperty("spark.sql.streaming.checkpointLocation"),
            context.getLocalProperty("spark.hadoop.fs.defaultFS"),
            context.getLocalProperty("spark.jobGroup.id") or "",
        )

    @property
    def about(self) -> str:
        """The query by its name, or else its id, for lines of the log."""
        return f"query {self.name or self.query_id}"

    @property
    def default_checkpoint(self) -> str | None:
        """The checkpoint that Spark makes if the query names none; None if it is not known."""
        if not self.name or not self.checkpoints:
            return None
        return f"{self.checkpoints.rstrip('/')}/{self.name}"

    @property
    def is_never_resumed(self) -> bool:
        """Whether its checkpoint has a random name, if the query names none."""
        return self.name == ""
