"""Schemas that Spark is given for decoded columns, in any format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession

from pyspark_kafkalog import connect
from tests.confluent import body, record

AVRO = record("A", a="int", b="string", inner=record("B", x="int", y="int"))
VALUE = {"a": 1, "b": "b", "inner": {"x": 2, "y": 3}}
FORMATS: dict[str, tuple[str, Any]] = {
    "avro": (json.dumps(AVRO), body(AVRO, VALUE)),
    "json": ("a int, b string, inner struct<x: int, y: int>", json.dumps(VALUE).encode()),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_part_of_the_schema(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root, (schema, value) = str(tmp_path / "log"), FORMATS[name]
    connect(root).write(pa.table({"value": [value]}), "t")

    def source() -> DataFrameReader:
        options = {"subscribe": "t", "value.format": name, "value.schema": schema}
        return spark.read.format("kafkalog").options(**options)

    assert source().load(root).select("value.*").first().asDict(recursive=True) == VALUE
    rows = source().schema("offset bigint, value struct<inner: struct<y: int>, a: int>").load(root)
    assert rows.first().asDict(recursive=True) == {"offset": 0, "value": {"inner": {"y": 3}, "a": 1}}
    plain = "topic string NOT NULL, partition int NOT NULL, offset bigint NOT NULL"
    rows = source().schema(f"{plain}, timestamp timestamp NOT NULL, value struct<a: int>").load(root)
    assert [field.name for field in rows.schema if not field.nullable] == [
        "topic",
        "partition",
        "offset",
        "timestamp",
    ]
    assert rows.select("topic", "partition", "offset", "value.a").first() == ("t", 0, 0, 1)
    for given, said in (
        ("key binary NOT NULL, value struct<a: int>", "Column 'key' must be nullable"),
        ("value binary", "struct.*, got binary"),
        ("value struct<c: int>", r"There is no field 'c' in value\. Give some of a, b, inner"),
        ("value struct<a: bigint>", r"Expected int for value\.a, got bigint"),
        ("value struct<a: int NOT NULL>", "must be nullable, with all that is in it"),
        ("value struct<a: int>, offset int", "Column 'offset' has type int, expected bigint"),
        ("id bigint, offset bigint", r'Decoded .* \.schema\("value struct<id: bigint, \.\.\.>"\)'),
        ("corrupt string, value struct<a: int>", r"Set the option includeCorrupt=true to have it\."),
        ("offest bigint, value struct<a: int>", r"Unknown column 'offest'\. Did you mean offset\?"),
    ):
        with pytest.raises(PySparkException, match=said):
            source().schema(given).load(root).collect()
