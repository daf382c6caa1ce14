"""A log directory with known records, and short ways to read and write one through Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from pyspark_kafkalog.spark.features import HAS_FILTERS, HAS_READ_LIMITS

needs_read_limits = pytest.mark.skipif(
    not HAS_READ_LIMITS, reason="this Spark runs one micro-batch with AvailableNow, and passes no limit"
)
needs_filter_pushdown = pytest.mark.skipif(not HAS_FILTERS, reason="this Spark pushes no filters down")

NEVER_AGAIN = "1000000 hours"
"""An interval whose next turn is far off: Spark counts from 1970, so one of an hour turns at full hours."""
Write = Callable[..., str]


@pytest.fixture
def write(spark: SparkSession, tmp_path: Path) -> Write:
    """Append ``rows``, tuples named by the DDL ``schema``, to a topic of this directory, as one task."""

    def write(
        rows: list[tuple[Any, ...]],
        schema: str = "value string",
        topic: str | None = "t",
        root: str = "log",
        **options: object,
    ) -> str:
        frame = spark.createDataFrame(rows, schema).coalesce(1)
        writer = frame.write.format("kafkalog").mode("append").options(**options)
        if topic is not None:
            writer = writer.option("topic", topic)
        path = str(tmp_path / root)
        writer.save(path)
        return path

    return write


@pytest.fixture
def read(spark: SparkSession) -> Callable[..., DataFrame]:
    """A batch DataFrame of a path, with the given options; dots in names as double underscores."""

    def read(path: str, **options: object) -> DataFrame:
        named = {name.replace("__", "."): value for name, value in options.items()}
        return spark.read.format("kafkalog").options(**named).load(path)

    return read


def in_order(frame: DataFrame) -> list[Row]:
    """The rows of ``frame`` by topic, partition and offset."""
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def numbered(count: int, start: int = 0) -> list[tuple[str]]:
    """Rows with a value each: "start", "start+1" …"""
    return [(str(number),) for number in range(start, start + count)]
