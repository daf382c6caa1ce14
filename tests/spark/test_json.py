"""JSON as columns through Spark: a query moves from ``from_json`` by deleting a line."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.functions import expr, from_json
from pyspark.sql.types import StructType

from pyspark_kafkalog import NewTopic, connect
from pyspark_kafkalog.extensions.typed_values.ddl import ddl
from tests.extensions.typed_values.json import oracle
from tests.extensions.typed_values.json.fuzz import hostile
from tests.extensions.typed_values.json.values import KINDS
from tests.spark.test_json_oracle import check


def rows(frame: DataFrame) -> list[Any]:
    column = frame.orderBy("offset").toArrow().column("value")
    return [row for chunk in column.chunks for row in oracle.shown(chunk)]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_what_from_json_gives(spark: SparkSession, tmp_path: Path, chance: random.Random, zone: str) -> None:
    root, kind = str(tmp_path / "log"), KINDS[0]
    values = hostile(chance, kind, 500)
    connect(root).write(pa.table({"value": pa.array(values, pa.binary())}), "t")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        source = spark.read.format("kafkalog").option("subscribe", "t")
        row = from_json(expr("CAST(value AS STRING)"), StructType.fromDDL(ddl(kind)))
        theirs = source.load(root).select("offset", row.alias("value"))
        source = spark.read.format("kafkalog").option("subscribe", "t").option("value.format", "json")
        ours = source.schema(f"value {ddl(kind)}, offset bigint").load(root)
        assert ours.select("value").schema == theirs.select("value").schema
        check(values, rows(ours), rows(theirs))
        # Fields that are not wanted count where they are malformed: nothing of the row is left then.
        fields = "note string, id bigint"
        row = from_json(expr("CAST(value AS STRING)"), StructType.fromDDL(fields))
        theirs = spark.read.format("kafkalog").option("subscribe", "t").load(root)
        fewer = source.schema(f"offset bigint, value struct<{fields}>").load(root)
        assert rows(fewer) == rows(theirs.select("offset", row.alias("value")))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.long
def test_queries_of_corrupt_rows(spark: SparkSession, tmp_path: Path) -> None:
    """As with from_json, but that the optimizer makes that decode only what a query uses."""
    root, fields = str(tmp_path / "log"), "id bigint, name string, _corrupt_record string"
    values = [b'{"id":1,"name":"a"}', None, b"", b'{"id":"x","name":"b"}', b'{"id":4', b"[]"]
    connect(root).write(pa.table({"value": pa.array(values, pa.binary())}), "t")
    source = spark.read.format("kafkalog").option("subscribe", "t")
    theirs = source.load(root).withColumn("value", from_json(expr("CAST(value AS STRING)"), fields))
    ours = source.options(**{"value.format": "json", "value.schema": fields}).load(root)
    option = "spark.sql.optimizer.enableJsonExpressionOptimization"
    before = spark.conf.get(option)
    spark.conf.set(option, "false")
    try:
        for query in (
            "value._corrupt_record IS NOT NULL",
            "value._corrupt_record IS NULL",
            "value IS NULL",
            "value.id IS NULL AND offset > 2",
            "value.name = 'b'",
            "value.id > 0",
        ):
            mine, others = (
                frame.where(query).select("offset", "value.name").orderBy("offset").collect()
                for frame in (ours, theirs)
            )
            assert mine == others, query
            assert mine
    finally:
        spark.conf.set(option, before)


def test_a_schema_that_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    connect(root).write(pa.table({"value": [b'{"a":1,"b":"b"}']}), "t")

    def source(**options: str) -> DataFrameReader:
        return spark.read.format("kafkalog").options(**{"subscribe": "t", "value.format": "json", **options})

    with pytest.raises(PySparkException, match="needs to know the fields"):
        source().load(root)
    for schema, said in (
        ("value binary", "JSON is read as a struct, got binary"),
        ("value struct<a: binary>", "can't be read as binary, the type of 'a'"),
        ("value struct<a: interval day>", "the type of 'a'"),
    ):
        with pytest.raises(PySparkException, match=said):
            source().schema(schema).load(root).collect()
    with pytest.raises(PySparkException, match=r"partition t-0, offset 0"):
        source(mode="FAILFAST").schema("value struct<b: int>").load(root).collect()


def test_a_stream_with_large_messages(spark: SparkSession, tmp_path: Path) -> None:
    root, name = str(tmp_path / "log"), f"json_{uuid.uuid4().hex[:8]}"
    (tmp_path / "log").mkdir()
    connect(root).topics.create([NewTopic("t")])
    large = {"large.message.enabled": "true"}
    frame = (
        spark.readStream.format("kafkalog")
        .options(**{"subscribe": "t", "startingOffsets": "earliest", "value.format": "json", **large})
        .schema("value struct<id: int, text: string>, offset bigint")
        .load(root)
        .selectExpr("value.id", "length(value.text) AS size")
    )
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for number in range(3):
            text = b"x" * (number * 1_500_000)
            values = pa.array([b'{"id":%d,"text":"%s"}' % (number, text), b"?"], pa.binary())
            connect(root).write(pa.table({"value": values}), "t", options=large)
            query.processAllAvailable()
        found = sorted((row.id, row.size) for row in spark.table(name).collect() if row.id is not None)
        assert found == [(0, 0), (1, 1_500_000), (2, 3_000_000)]
        assert spark.table(name).count() == 6
    finally:
        query.stop()
