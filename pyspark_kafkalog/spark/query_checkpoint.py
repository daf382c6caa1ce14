"""``QueryCheckpoint``: gives the checkpoint of a streaming query to its reader and to its writer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, overload

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.arguments import check_rows
from pyspark_kafkalog.spark.session import check_session
from pyspark_kafkalog.spark.source import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

_DEFAULT = "spark.sql.streaming.checkpointLocation"
_OPTION = "checkpointLocation"


_EXAMPLE = 'checkpoint.writeStream(rows).format("console").start(), with a DataFrame as rows'
_OF_WRITERS = frozenset(
    {"clusterBy", "foreach", "foreachBatch", "format", "option", "options", "outputMode", "partitionBy"}
    | {"queryName", "start", "table", "toTable", "trigger"}
)
"""Attributes of a ``DataStreamWriter``."""


class _WriteStream:
    """The bound method ``writeStream``, which says how it is called if it is used as Spark's property."""

    def __init__(self, method: Callable[..., DataStreamWriter], checkpoint: QueryCheckpoint) -> None:
        self._method, self._checkpoint = method, checkpoint

    def __call__(self, rows: DataFrame) -> DataStreamWriter:
        return self._method(self._checkpoint, rows)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _OF_WRITERS:
            raise OptionError(
                f"The writeStream of a checkpoint is called with the rows before .{name}",
                hint=f"Write {_EXAMPLE}.",
            )
        raise AttributeError(name)


class _CalledWithRows:
    """Makes a method one that, used without a call, says the line to write."""

    def __init__(self, method: Callable[..., DataStreamWriter]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, checkpoint: None, owner: type) -> Callable[..., DataStreamWriter]: ...

    @overload
    def __get__(self, checkpoint: QueryCheckpoint, owner: type) -> _WriteStream: ...

    def __get__(
        self, checkpoint: QueryCheckpoint | None, owner: type
    ) -> _WriteStream | Callable[..., DataStreamWriter]:
        return self._method if checkpoint is None else _WriteStream(self._method, checkpoint)


class QueryCheckpoint:
    """The checkpoint of a streaming query, for both of its ends: Spark does not tell it to a Python source.

    ::

        checkpoint = QueryCheckpoint(spark, "/checkpoints/orders")
        orders = checkpoint.readStream.options(**brokers, subscribe="orders").load()
        query = checkpoint.writeStream(orders).format("console").start()

    :param location: path or URI of the checkpoint. Default: the folder of ``query_name`` below
        ``spark.sql.streaming.checkpointLocation``, as in Spark.
    :param query_name: the name of the query; may be left out with a location.
    :raises OptionError: if neither says where the checkpoint is, or ``spark`` isn't a session.
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str | os.PathLike[str] | None = None,
        *,
        query_name: str | None = None,
    ) -> None:
        check_session(spark)
        self._spark, self.query_name = spark, query_name
        if not (location is None or isinstance(location, str | os.PathLike)):
            raise OptionError(f"Expected a path or a URI of a checkpoint, got {type(location).__name__}")
        self.location = _default(spark, query_name) if location is None else os.fsdecode(location)
        if not self.location.strip():
            raise OptionError("The location of a checkpoint is empty", hint="Give a path or a URI.")

    @property
    def readStream(self) -> DataStreamReader:  # noqa: N802 - as Spark's
        """``spark.readStream`` with this format and checkpoint. All sources of a query may begin with it."""
        return self._spark.readStream.format(DefaultSource.name()).option(_OPTION, self.location)

    @_CalledWithRows
    def writeStream(self, rows: DataFrame) -> DataStreamWriter:  # noqa: N802 - as Spark's
        """``rows.writeStream`` with this checkpoint and name, for any format, table or function."""
        check_rows(rows, _EXAMPLE)
        writer = rows.writeStream.option(_OPTION, self.location)
        return writer if self.query_name is None else writer.queryName(self.query_name)


def _default(spark: SparkSession, query_name: str | None) -> str:
    """The checkpoint that Spark chooses for a query with a name (ResolveWriteToStream)."""
    checkpoints = spark.conf.get(_DEFAULT, None)
    if not query_name or not checkpoints:
        missing = f"the session has no {_DEFAULT}" if query_name else "no location and no query_name is given"
        raise OptionError(
            f"Where is the checkpoint of the query? Nothing says it: {missing}",
            hint='Give it: QueryCheckpoint(spark, "/checkpoints/orders").',
        )
    if query_name.startswith("/"):
        raise OptionError(
            f"The checkpoint of query {query_name!r} is not below {_DEFAULT}: for Spark that is a path",
            hint="Give the path, too, or another name.",
        )
    return f"{checkpoints.rstrip('/')}/{query_name}"
