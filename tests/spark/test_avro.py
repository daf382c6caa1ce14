"""Avro as columns through Spark: what from_avro gives, without its JAR, and schemas that change."""

from __future__ import annotations

import decimal
import json
import random
import urllib.error
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro

from pyspark_kafkalog import connect
from tests.confluent import MANY, body, prefixed, record
from tests.schema_registry import SchemaRegistryServer

OF_ALL = record(
    "Outer",
    **MANY,
    day={"type": "int", "logicalType": "date"},
    at={"type": "long", "logicalType": "timestamp-micros"},
    at_ms={"type": "long", "logicalType": "timestamp-millis"},
    local={"type": "long", "logicalType": "local-timestamp-micros"},
    time={"type": "int", "logicalType": "time-millis"},
    counts={"type": "map", "values": "long"},
    either=["int", "long"],
    any=["null", "int", "string"],
)


def value_of_all(chance: random.Random) -> dict[str, Any]:
    def inner() -> dict[str, Any]:
        return {"x": chance.randrange(-5, 5), "y": chance.choice([None, "", "é"])}

    return {
        "flag": chance.random() < 0.5,
        "number": chance.randrange(-(2**31), 2**31),
        "big": chance.randrange(-(2**63), 2**63),
        "ratio": chance.choice([0.5, -1.25, float("inf")]),
        "exact": chance.uniform(-1e9, 1e9),
        "text": chance.choice(["", "a", "ünïcode", "x" * 300]),
        "raw": chance.randbytes(chance.randrange(5)),
        "colour": chance.choice(["RED", "GREEN"]),
        "digest": chance.randbytes(4),
        "day": chance.randrange(-5000, 30000),
        "at": chance.randrange(0, 10**15),
        "at_ms": chance.randrange(0, 10**12),
        "local": chance.randrange(0, 10**15),
        "time": chance.randrange(86_400_000),
        "price": decimal.Decimal(chance.randrange(-(10**11), 10**11)).scaleb(-3),
        "inner": inner(),
        "maybe": chance.choice([None, inner()]),
        "items": [inner() for _ in range(chance.randrange(3))],
        "counts": {f"k{n}": n for n in range(chance.randrange(3))},
        "either": chance.choice([1, 2**40]),
        "any": chance.choice([None, 7, "s"]),
    }


@pytest.mark.long
def test_what_from_avro_gives(spark: SparkSession, tmp_path: Path, chance: random.Random) -> None:
    values: list[bytes | None] = []
    for _ in range(200):
        value = body(OF_ALL, value_of_all(chance))
        values.append(chance.choice([value, value, value[: chance.randrange(len(value))]]))
    values.append(None)
    root, schema = str(tmp_path / "log"), json.dumps(OF_ALL)
    connect(root).write(pa.table({"value": pa.array(values, pa.binary())}), "t")
    source = spark.read.format("kafkalog").option("subscribe", "t")
    theirs = source.load(root).select(
        "offset", from_avro("value", schema, {"mode": "PERMISSIVE"}).alias("value")
    )
    ours = (
        source.options(**{"value.format": "avro", "value.schema": schema})
        .load(root)
        .select("offset", "value")
    )
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    found, expected = (frame.orderBy("offset").collect() for frame in (ours, theirs))
    assert len(found) == len(values)
    for mine, other in zip(found, expected, strict=True):
        assert mine == other, mine.offset


VERSIONS = {
    "BACKWARD": record("Order", id="int", note=(["null", "string"], None), more=("string", "")),
    "BACKWARD_TRANSITIVE": record("Order", id="int"),
    "FORWARD": record("Order", extra="long", id="int"),
    "FORWARD_TRANSITIVE": record("Order", extra="long", added="string", id="int"),
    "FULL": record("Order", id="int", extra=("long", 1), added=("string", "")),
    "FULL_TRANSITIVE": record(
        "Order", note=(["null", "string"], None), extra=("long", 1), added=("string", ""), id="int"
    ),
}
"""What each mode of compatibility takes after those before it."""


@pytest.mark.broker
def test_a_stream_goes_on_with_new_schemas(
    spark: SparkSession, tmp_path: Path, registry: SchemaRegistryServer
) -> None:
    """A version by each mode; then one that no mode takes."""
    topic, root = f"orders-{uuid.uuid4().hex[:8]}", str(tmp_path / "log")
    subject = f"{topic}-value"
    first = record("Order", id="int", note=(["null", "string"], None))
    number = registry.register(subject, first)
    values = [prefixed(number, first, {"id": 0, "note": "n0"})]
    connect(root).write(pa.table({"value": values}), topic)
    given = {"value.format": "confluent-avro", "schema.registry.url": registry.url}
    frame = (
        spark.readStream.format("kafkalog")
        .options(subscribe=topic, startingOffsets="earliest", **given)
        .load(root)
        .selectExpr("value.id AS id", "value.note AS note")
    )
    name = f"orders_{uuid.uuid4().hex[:8]}"
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    other = record("Order", id="string")
    try:
        query.processAllAvailable()
        for version, (mode, schema) in enumerate(VERSIONS.items(), 1):
            registry.set_compatibility(subject, mode)
            with pytest.raises(urllib.error.HTTPError, match="409"):
                registry.register(subject, other)
            schema_id = registry.register(subject, schema)
            value = {"id": version, "note": f"n{version}", "more": "m", "extra": 5, "added": "a"}
            names = {field["name"] for field in schema["fields"]}
            row = {key: each for key, each in value.items() if key in names}
            connect(root).write(pa.table({"value": [prefixed(schema_id, schema, row)]}), topic)
            query.processAllAvailable()
        rows = sorted(tuple(row) for row in spark.table(name).collect())
        assert rows == [(0, "n0"), (1, "n1"), (2, None), (3, None), (4, None), (5, None), (6, "n6")]
        registry.set_compatibility(subject, "NONE")
        other_id = registry.register(subject, other)
        connect(root).write(pa.table({"value": [prefixed(other_id, other, {"id": "x"})]}), topic)
        differ = f"schema id {other_id}: id: the reader's schema expects int, the writer's has string"
        with pytest.raises(PySparkException, match=rf"{differ} \(partition {topic}-0, offset 7\)"):
            query.processAllAvailable()
    finally:
        query.stop()
    both = json.dumps(record("Order", id=["int", "string"]))
    found = connect(root).read(topic, options={**given, "value.schema": both}).read_all()
    assert found.column("value").to_pylist()[6:] == [
        {"id": {"member0": 6, "member1": None}},
        {"id": {"member0": None, "member1": "x"}},
    ]


@pytest.mark.broker
def test_ids_of_schemas(spark: SparkSession, tmp_path: Path, registry: SchemaRegistryServer) -> None:
    topic, root = f"ids-{uuid.uuid4().hex[:8]}", str(tmp_path / "log")
    first, second = record("A", a="int"), record("A", a="int", b=("int", 0))
    ids = [registry.register(f"{topic}-value", schema) for schema in (first, second)]
    values = [prefixed(ids[0], first, {"a": 1}), prefixed(ids[1], second, {"a": 2, "b": 3}), None]
    connect(root).write(pa.table({"value": pa.array(values, pa.binary())}), topic)
    options = {"subscribe": topic, "value.format": "confluent-avro", "schema.registry.url": registry.url}
    source = spark.read.format("kafkalog").options(**options)
    assert "schemaId" not in source.load(root).columns
    frame = source.option("includeSchemaId", "true").load(root)
    assert frame.schema["schemaId"].simpleString() == "schemaId:int"
    assert [row.schemaId for row in frame.orderBy("offset").collect()] == [*ids, None]
    named = source.schema("schemaId int, value struct<a: int>").load(root)
    assert sorted(map(tuple, named.where("schemaId is not null").collect())) == [
        (ids[0], (1,)),
        (ids[1], (2,)),
    ]
    with pytest.raises(PySparkException, match="'schemaId' has type bigint, expected int"):
        source.schema("schemaId bigint").load(root).collect()
    name = f"ids_{uuid.uuid4().hex[:8]}"
    stream = (
        spark.readStream.format("kafkalog")
        .options(**options, startingOffsets="earliest", includeSchemaId="true")
        .load(root)
        .select("schemaId")
    )
    query = stream.writeStream.format("memory").queryName(name).start()
    try:
        query.processAllAvailable()
        assert sorted(row.schemaId or 0 for row in spark.table(name).collect()) == [0, *sorted(ids)]
    finally:
        query.stop()
