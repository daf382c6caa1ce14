"""Reads of JSON by a JSON Schema, with all types that it has: those of Kafka Connect, too."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.spark.source import KafkaLogDataSource

PRICE = {
    "type": "string",
    "connect.type": "bytes",
    "title": "org.apache.kafka.connect.data.Decimal",
    "connect.parameters": {"scale": "2"},
}
ENTRY = {"type": "object", "properties": {"key": {"type": "integer"}, "value": {"type": "string"}}}
SCHEMA = {
    "type": "object",
    "properties": {
        "raw": {"type": "string", "connect.type": "bytes"},
        "price": PRICE,
        "by_number": {"type": "array", "connect.type": "map", "items": ENTRY},
        "id": {"type": "integer"},
    },
}
OPTIONS = {"value.format": "json", "value.schema": json.dumps(SCHEMA)}


@pytest.fixture
def root(tmp_path: Path) -> str:
    value = {"raw": "AP8=", "price": "fQ==", "by_number": [{"key": 1, "value": "a"}], "id": 5}
    rows = pa.table({"value": [json.dumps(value).encode(), b"?"]})
    connect(str(tmp_path)).write(rows, "items")
    return str(tmp_path)


def test_whole_and_part(root: str) -> None:
    found = connect(root).read("items", options=OPTIONS).read_all().column("value").to_pylist()
    row = {"raw": b"\0\xff", "price": Decimal("1.25"), "by_number": [(1, "a")], "id": 5}
    assert found == [row, dict.fromkeys(row)]
    kind = StructType([StructField("raw", BinaryType()), StructField("_corrupt_record", StringType())])
    reader = KafkaLogDataSource({"subscribe": "items", "path": root, **OPTIONS}).reader(
        StructType([StructField("value", kind)])
    )
    batches = [batch for split in reader.partitions() for batch in reader.read(split)]
    assert [row["value"] for row in pa.Table.from_batches(batches).to_pylist()] == [
        {"raw": b"\0\xff", "_corrupt_record": None},
        {"raw": None, "_corrupt_record": "?"},
    ]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ({"raw": StringType()}, "Expected binary for value.raw, got string"),
        ({"no": StringType()}, "no field 'no'"),
        ({"id": LongType(), "_corrupt_record": LongType()}, "must be a string"),
        (StringType(), "got string"),
    ],
)
def test_what_is_no_part(root: str, kind: Any, why: str) -> None:
    if isinstance(kind, dict):
        kind = StructType([StructField(name, part) for name, part in kind.items()])
    source = KafkaLogDataSource({"subscribe": "items", "path": root, **OPTIONS})
    with pytest.raises(OptionError, match=why):
        source.reader(StructType([StructField("value", kind)]))
