"""The data source that Spark sees: its name, its schema and four factories.

There is no I/O, except for a schema that has to be asked for in a registry.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.saying import name_work
from pyspark_kafkalog.spark.worker import started_module, with_short_errors, without_delay

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pyspark_kafkalog.read.values import DecodedColumn

_FILTERING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
"""Runs only if ``spark.sql.python.filterPushdown.enabled`` is true."""
_COMMITTING_WORKER = "pyspark.sql.worker.python_streaming_sink_runner"
"""Commits micro-batches."""


@with_short_errors
class KafkaLogDataSource(DataSource):
    """``format("kafkalog")``: Kafka's records as rows, without JARs.

    Options have the names, values and defaults of Spark's own ``kafka`` source
    and sink; :mod:`pyspark_kafkalog.options.table` lists them. If the user's schema
    names only some of the columns, the reader builds only those.

    Readers and writers are imported on first use, because Spark creates an
    instance of this class in many short-lived Python workers.
    """

    parallelism: ClassVar[int] = 0
    """The session's cores, if :func:`.registration.register` has seen more than 8 of them; else 0."""

    _decoded: tuple[DecodedColumn, ...] | None = None
    """The decoders of columns, with the readers' schemas of when Spark asked for :meth:`schema`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._begin()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        without_delay()
        self._begin()

    def _begin(self) -> None:
        """Name the topics that are read or written, as this process may have worked for another query."""
        topics = self.options.get("subscribe") or self.options.get("topic") or ""
        name_work(f"topic{'s' if ',' in topics else ''} {topics}" if topics else "")

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kafkalog"

    def schema(self) -> str | StructType:
        """The columns of Spark's Kafka source, with ``headers`` if asked for; or a transform's, or a view's.

        :raises OptionError: for options that are wrong in both a batch and a stream.
        :raises SchemaRegistryError: if a registry has no schema for a column, or does not answer.
        """
        from pyspark_kafkalog import extensions
        from pyspark_kafkalog.options.contracts import transforms_of
        from pyspark_kafkalog.options.settings import common_read_options
        from pyspark_kafkalog.read.values import values_of

        view = extensions.view(self.options)
        if view is None:
            options = common_read_options(self.options)
            values = values_of(options)
            if transforms_of(options).is_set or values.decoded:
                from pyspark_kafkalog.spark.shaping import shaped_columns

                self._decoded = values.columns_of(options)
                return shaped_columns(options, self._decoded)
        columns = options.record_fields if view is None else view.columns
        # What "timestamp" means, spark.sql.timestampType says.
        return ", ".join(
            f"{name} {'timestamp_ltz' if kind == 'timestamp' else kind}" for name, kind in columns.items()
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader; in Spark's worker for filter pushdown, the one that takes filters."""
        from pyspark_kafkalog import extensions

        view = extensions.view(self.options)
        if view is not None:
            return view.reader(self.options, schema)
        from pyspark_kafkalog.spark.reader import FilteringLogBatchReader, LogBatchReader

        kind = FilteringLogBatchReader if _is_worker(_FILTERING_WORKER) else LogBatchReader
        return kind(self.options, schema, self._decoded, self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The micro-batch reader."""
        from pyspark_kafkalog.spark.features import find_added_files
        from pyspark_kafkalog.spark.stream_reader import LogStreamReader, RefusingStreamReader

        find_added_files()
        try:
            return LogStreamReader(self.options, schema, self._decoded, self.parallelism)
        except KafkaLogError as e:
            return RefusingStreamReader(e)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The batch writer; ``mode("append")`` only."""
        from pyspark_kafkalog.spark.writer import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The micro-batch writer. In complete mode it appends every result table, as Spark's sink does."""
        from pyspark_kafkalog.spark.writer import stream_writer

        return stream_writer(self.options, schema, commits=_is_worker(_COMMITTING_WORKER))


DefaultSource = KafkaLogDataSource
"""The name by which PySpark looks for a source in a package."""


def _is_worker(module: str) -> bool:
    """Whether this is PySpark's worker of this module, forked by its daemon or started directly."""
    return module in sys.modules or started_module() == module
