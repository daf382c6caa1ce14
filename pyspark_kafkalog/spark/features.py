"""The features of the PySpark at hand, and stand-ins for those that it lacks.

Every difference between the Sparks that this package runs on is handled here. Features are looked for,
versions are never compared, because vendors bring some features of later releases into earlier ones.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


__all__ = [
    "FILTER_OPERATORS",
    "HAS_LATEST_OFFSETS",
    "HAS_READ_LIMITS",
    "UNIX_SOCKETS",
    "Feature",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "StreamArrowWriter",
    "StreamCalls",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "features",
    "find_added_files",
    "nullable",
    "spark_schema",
]


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that not every Spark 4 has."""

    name: str
    found: bool
    without: str
    """The loss of users without the feature, in a sentence."""


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False


HAS_READ_LIMITS = _has("pyspark.sql.streaming.datasource", "ReadLimit")
"""Whether Spark asks a stream with ``latestOffset(start, limit)``, and prepares it for AvailableNow."""
HAS_LATEST_OFFSETS = hasattr(DataSourceStreamReader, "reportLatestOffset")
"""Whether Spark's progress shows the latest offsets; else it repeats the end of the micro-batch there."""
HAS_FILTERS = hasattr(DataSourceReader, "pushFilters")
"""Whether Spark can pass filters to a batch reader."""

UNIX_SOCKETS: dict[str, Any] = {"spark.python.unix.domain.socket.enabled": "true"} if HAS_READ_LIMITS else {}
"""Settings by which Python stages wait 40 ms less than over TCP, where they are known to work.

Spark 4.1 has them, too, but streams have hung there. Nothing in PySpark's API shows whether they do: limits,
which came with the first release on which they don't, stand for that.
"""

if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    @dataclass
    class ReadLimit:
        """Stands in for Spark's, which never passes one."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """Stands in for Spark's."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """Stands in for Spark's."""

        max_rows: int

    class SupportsTriggerAvailableNow:
        """Stands in for Spark's, which never asks for it."""


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """The base of stream writers that take Arrow: Spark 4.0 gives it to any ``DataSourceArrowWriter``."""


_OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
}
FILTER_OPERATORS: dict[type[Any], str] = {
    getattr(datasource, name): operator for name, operator in _OPERATORS.items() if hasattr(datasource, name)
}
"""The operators of comparisons, by Spark's classes of filters; empty where Spark has none."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """``schema`` as an Arrow schema, with timestamps in UTC, as Spark's JVM expects them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def spark_schema(schema: pa.Schema) -> StructType:
    """``schema`` as Spark's, all of it nullable; without a zone a time is a ``timestamp_ntz``.

    :raises PySparkException: for a type that Spark does not have.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    return nullable(from_arrow_schema(schema, prefer_timestamp_ntz=True))


def find_added_files() -> None:
    """Let Spark's planner of a stream import what ``addPyFile`` has added, as its other processes do.

    It looks in the folder ``streaming_job`` (PythonStreamingSourceRunner), which lies in that of the added
    files, and in which Spark puts nothing.
    """
    for entry in list(sys.path):
        files, name, file = entry.partition(f"{os.sep}streaming_job")
        if name and file[:1] in ("", os.sep) and files + file not in sys.path:
            sys.path.insert(sys.path.index(entry) + 1, files + file)
            importlib.invalidate_caches()


def nullable(columns: StructType) -> StructType:
    """The columns of a schema, all nullable."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    def of(kind: DataType) -> DataType:
        if isinstance(kind, StructType):
            return StructType([StructField(f.name, of(f.dataType), True, f.metadata) for f in kind])
        if isinstance(kind, ArrayType):
            return ArrayType(of(kind.elementType))
        if isinstance(kind, MapType):
            return MapType(of(kind.keyType), of(kind.valueType))
        return kind

    found = of(columns)
    assert isinstance(found, StructType)
    return found


class StreamCalls:
    """The calls of a run, and what they tell where Spark calls ``latestOffset()`` without arguments.

    Spark does not say then where the next micro-batch begins, nor what the trigger is. After a restart
    it first calls ``partitions(x, x)``, with the last end that it has logged. AvailableNow and Once then
    either repeat the logged micro-batch, if it is not complete, or call ``latestOffset()`` once; and end
    (Spark's SingleBatchExecutor). Other triggers do the same and go on. So the first call must not be
    limited, or records would stay unread, unless a micro-batch was planned before in the same run.
    """

    def __init__(self) -> None:
        self.begin: dict[str, Any] | None = None
        """The start of the next micro-batch; None for a new query."""
        self.may_be_the_last = True
        """Whether Spark may never call ``latestOffset()`` again."""

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Note that Spark has called ``partitions(start, end)``."""
        self.begin = end
        self.may_be_the_last &= start == end

    def look_up(self) -> None:
        """Note that Spark has called ``latestOffset()``."""
        self.may_be_the_last = False


def features() -> tuple[Feature, ...]:
    """The features of this PySpark beyond Spark 4.0. Starts no session and no JVM."""
    return (
        Feature(
            "limits per trigger",
            HAS_READ_LIMITS,
            "Trigger.AvailableNow reads everything in one micro-batch, and the first micro-batch of every"
            " other run has no limit: maxOffsetsPerTrigger, maxBytesPerTrigger and minOffsetsPerTrigger"
            " apply from the second on.",
        ),
        Feature(
            "latest offsets in progress",
            HAS_LATEST_OFFSETS,
            "Spark's progress shows the end of the micro-batch as the latest offset. LagListener looks up the"
            " latest offsets if it has the reader's options, and shows no lag without them.",
        ),
        Feature(
            "filter pushdown",
            HAS_FILTERS,
            "Batch reads fetch all records of the chosen partitions and offsets, and Spark filters them.",
        ),
    )
