"""Every directory that a real broker wrote, read through Spark, against what a real consumer returned."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.codec.decoding import differences
from tests.fixtures_dir import CASES, Case, case

EACH_OF_SO_MANY = 4
"""Which cases ``ci/test`` reads through Spark; the soak reads the others. ``tests/log`` reads all."""


def each_of(fixtures: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "fixture",
        [
            pytest.param(fixture, id=fixture.name, marks=pytest.mark.soak if number % EACH_OF_SO_MANY else ())
            for number, fixture in enumerate(fixtures)
        ],
    )


each_isolation = pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])


def read(spark: SparkSession, fixture: Case, isolation: str, **options: str) -> list[dict[str, Any]]:
    """All rows of a case with their headers, by topic, partition and offset."""
    reader = (
        spark.read.format("kafkalog")
        .option("subscribe", ",".join(fixture.entry["topics"]))
        .option("kafka.isolation.level", isolation)
        .option("includeHeaders", "true")
    )
    if fixture.name == "v2-times":
        reader = reader.schema(
            "key binary, value binary, topic string, partition int, offset bigint, timestampType int,"
            " headers array<struct<key:string,value:binary>>"
        )
    frame = reader.options(**options).load(str(fixture.directory))
    return in_order(frame.toArrow().to_pylist())


def expected(fixture: Case, isolation: str) -> list[dict[str, Any]]:
    return in_order(fixture.committed if isolation == "read_committed" else fixture.records)


def in_order(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(records, key=lambda record: (record["topic"], record["partition"], record["offset"]))


@each_of([fixture for fixture in CASES if not fixture.damaged])
@each_isolation
def test_rows_are_those_of_the_consumer(spark: SparkSession, fixture: Case, isolation: str) -> None:
    assert not differences(expected(fixture, isolation), read(spark, fixture, isolation))


@each_of([fixture for fixture in CASES if fixture.damaged])
@each_isolation
def test_damaged_logs_end_as_the_broker_left_them_or_are_refused(
    spark: SparkSession, fixture: Case, isolation: str
) -> None:
    """And with failOnDataLoss=false no row is lost that the broker's recovery kept."""
    kept = expected(fixture, isolation)
    refused = rows = None
    try:
        rows = read(spark, fixture, isolation)
    except PySparkException as e:
        refused = str(e)
    if refused is None:
        assert not differences(kept, rows)
    else:
        partition = fixture.partitions[0]
        place = f"(partition {partition}, offset \\d+, file {fixture.directory}/{partition}/"
        assert re.search(place.replace("(", "\\("), refused)
    tolerant = read(spark, fixture, isolation, failOnDataLoss="false")
    assert not differences(kept, tolerant[: len(kept)])


def test_a_timestamp_beyond_sparks_range_is_named_if_it_is_asked_for(spark: SparkSession) -> None:
    fixture = case("v2-times")
    frame = spark.read.format("kafkalog").load(str(fixture.directory))
    with pytest.raises(PySparkException, match="KAFKA_MALFORMED_RECORD_TIMESTAMP"):
        frame.collect()
