"""The stream reader: the driver plans with it, and copies of it read in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.garbage import loading
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from pyspark_kafkalog.spark.features import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark_kafkalog.spark.reader import LogInputPartition, LogReader
from pyspark_kafkalog.spark.running_query import RunningQuery
from pyspark_kafkalog.spark.worker import with_short_errors
from pyspark_kafkalog.stream.checkpoint import QueryLog, check_same_query

if TYPE_CHECKING:
    from pyspark_kafkalog.spark.micro_batches import MicroBatches

_log = logging.getLogger("pyspark_kafkalog")

_told: dict[str, tuple[str, str]] = {}
"""The run and its cluster that tasks of this process have stored last, by checkpoint."""


@with_short_errors
class LogStreamReader(LogReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``. Offsets are those of Spark's Kafka source, ``{"topic":{"0":10}}``."""

    _streaming = True

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_micro_batches"}

    @cached_property
    def _micro_batches(self) -> MicroBatches:
        with loading():
            from pyspark_kafkalog.spark.micro_batches import MicroBatches
        return MicroBatches(self)

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        """See :attr:`.micro_batches.MicroBatches.initial`."""
        return self._micro_batches.initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Never "all available", so that this limit shows ``Trigger.Once``."""
        return ReadMaxRows(self.options.limits.max_offsets or MAX_LONG)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """See :meth:`.micro_batches.MicroBatches.latest_offset`."""
        all_available = None if limit is None else isinstance(limit, ReadAllAvailable)
        return self._micro_batches.latest_offset(start, all_available=all_available)

    def commit(self, end: dict[str, Any]) -> None:
        """See :meth:`.micro_batches.MicroBatches.commit`."""
        self._micro_batches.commit(end)

    def stop(self) -> None:
        """See :meth:`.micro_batches.MicroBatches.stop`."""
        if (planned := self.__dict__.get("_micro_batches")) is not None:
            planned.stop()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """See :attr:`.micro_batches.MicroBatches.latest`."""
        return self._micro_batches.latest

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """See :meth:`.micro_batches.MicroBatches.prepare_for_available_now`."""
        self._micro_batches.prepare_for_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See :meth:`.micro_batches.MicroBatches.partitions`."""
        return self._micro_batches.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task. Only here does Spark tell which query it is.

        :raises KafkaLogError: if the checkpoint that the reader was given is another query's.
        """
        context = TaskContext.get()
        if isinstance(partition, LogInputPartition) and partition.query_id and context is not None:
            query = RunningQuery.of(context)
            if query is not None:
                check_same_query(partition.query_id, query.query_id)
                if partition.cluster is not None and query.run_id:
                    self._tell_sink(query.run_id, partition.cluster)
        yield from super().read(partition)

    def _tell_sink(self, run_id: str, cluster_id: str) -> None:
        """Store for the query's sink which cluster its run reads. A sink that needs it refuses without it, so
        a worker that does not see the checkpoint goes on.
        """
        location = self.options.checkpoint_location
        assert location is not None, "its query is known"
        if _told.get(location) != (run_id, cluster_id):
            _told[location] = run_id, cluster_id
            try:
                log = QueryLog(location)
                log.query_id()  # is it here, too?
                log.store_cluster(run_id, cluster_id)
            except Exception as e:
                _log.info("Could not store for the query's sink which cluster it reads: %s", e)


@with_short_errors
class RefusingStreamReader(DataSourceStreamReader):
    """Raises why there is no reader, at the first question that Spark asks.

    PySpark stops the reader even if it has none because ``streamReader`` raised an error, and then reports
    its own UnboundLocalError instead (``python_streaming_source_runner``).
    """

    def __init__(self, error: KafkaLogError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Refused."""
        raise self._error

    def latestOffset(self, *given: Any) -> dict[str, Any]:  # noqa: N802
        """Refused."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Refused."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Refused."""
        raise self._error
