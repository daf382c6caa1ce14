"""JSON as Spark's own ``from_json`` reads it: rows of any value, also of hostile ones."""

from __future__ import annotations

import random
import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr, from_json
from pyspark.sql.types import StructType

from pyspark_kafkalog.extensions.typed_values.ddl import ddl
from pyspark_kafkalog.extensions.typed_values.json.decoder import Decoder
from tests.extensions.typed_values.columns import decode_column
from tests.extensions.typed_values.json import oracle
from tests.extensions.typed_values.json.cases import CASES, KIND, WITHOUT_A_ZONE
from tests.extensions.typed_values.json.fuzz import hostile, zone_of
from tests.extensions.typed_values.json.values import KINDS, made_type

_SLOW = re.compile(rb"[eE][+-]?\d{5}")
"""Exponents with which Java takes minutes to round a decimal."""
_NUMBER = re.compile(r"-?\d+\.\d+(?:E-?\d+)?")


def theirs(
    spark: SparkSession, values: list[bytes | None], kind: pa.StructType, zone: str, **options: str
) -> list[Any]:
    """What from_json gives in one query."""
    frame = spark.createDataFrame(pa.table({"value": pa.array(values, pa.binary())})).coalesce(1)
    fields = StructType.fromDDL(ddl(kind))
    row = from_json(expr("CAST(value AS STRING)"), fields, {"timeZone": zone, **options})
    column = frame.select(row.alias("row")).toArrow().column("row")
    return [row for chunk in column.chunks for row in oracle.shown(chunk)]


def ours(values: list[bytes | None], kind: pa.StructType, zone: str) -> list[Any]:
    decoded = decode_column(Decoder(kind, zone_of(zone), "_corrupt_record"), pa.array(values, pa.binary()))
    return oracle.shown(decoded.array)


def without_digits(row: Any) -> Any:
    """A row in whose texts numbers have the fewest digits: Java writes some with more before version 19."""
    if isinstance(row, dict):
        return {name: without_digits(value) for name, value in row.items()}
    if isinstance(row, list | tuple):
        return [without_digits(value) for value in row]
    return _NUMBER.sub(lambda found: repr(float(found.group())), row) if isinstance(row, str) else row


def check(values: list[bytes | None], mine: list[Any], others: list[Any]) -> None:
    assert len(mine) == len(others) == len(values)
    for value, one, other in zip(values, mine, others, strict=True):
        assert without_digits(one) == without_digits(other), (value, one, other)


@pytest.mark.long
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+05:30"])
def test_cases_are_those_of_from_json(spark: SparkSession, zone: str) -> None:
    values = [*CASES, *WITHOUT_A_ZONE]
    check(values, ours(values, KIND, zone), theirs(spark, values, KIND, zone))


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_rows_are_those_of_from_json(
    spark: SparkSession, soak: bool, chance: random.Random, number: int
) -> None:
    kinds = [(KINDS[number], 100_000 if soak else 4000)]
    kinds += [(made_type(chance), 1000) for _ in range(100 if soak else 4)]
    for kind, count in kinds:
        zone = chance.choice(["UTC", "America/New_York", "America/St_Johns", "Asia/Kolkata", "-03:00"])
        values = [value for value in hostile(chance, kind, count) if not _SLOW.search(value or b"")]
        check(values, ours(values, kind, zone), theirs(spark, values, kind, zone))
