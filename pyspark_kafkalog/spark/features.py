"""What the PySpark at hand offers, and stand-ins for what it lacks.

Every difference between the Sparks that this package runs on is handled here. Features are looked for,
versions are never compared, because vendors bring some features of later releases into earlier ones.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, DataSourceStreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing that not every Spark 4 has."""

    name: str
    found: bool
    without: str
    """What users lose without it, in a sentence."""


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False


HAS_READ_LIMITS = _has("pyspark.sql.streaming.datasource", "ReadLimit")
"""Whether Spark asks a stream with ``latestOffset(start, limit)``, and prepares it for AvailableNow."""
HAS_FILTERS = hasattr(DataSourceReader, "pushFilters")
"""Whether Spark can pass filters to a batch reader."""

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


def features() -> tuple[Feature, ...]:
    """What this PySpark offers beyond Spark 4.0. Starts no session and no JVM."""
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
            hasattr(datasource.DataSourceStreamReader, "reportLatestOffset"),
            "Spark's progress does not show the latest offsets; LagListener looks them up if it has the"
            " reader's options.",
        ),
        Feature(
            "filter pushdown",
            HAS_FILTERS,
            "Batch reads fetch all records of the chosen partitions and offsets, and Spark filters them.",
        ),
    )
