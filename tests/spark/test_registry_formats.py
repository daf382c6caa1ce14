"""JSON with a JSON Schema, and Protobuf, by a registry: whole queries, dead letters, and the shell."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, to_json

from pyspark_kafkalog import connect, dead_letters
from tests.schema_registry import SchemaRegistryServer
from tests.tools.cli.running import run

pytestmark = pytest.mark.broker
_ROW = (
    "struct(id, concat('user-', id) AS name, struct(timestamp_micros(1700000000000000 + id) AS at) AS seen,"
    " array(int(id), 2) AS tags, if(id % 2 = 0, null, id / 2) AS ratio) AS value"
)


@pytest.fixture(params=["confluent-json", "confluent-protobuf"])
def options(request: pytest.FixtureRequest, registry: SchemaRegistryServer) -> dict[str, str]:
    return {"value.format": request.param, "schema.registry.url": registry.url}


def test_a_column_is_read_as_it_was_written(
    spark: SparkSession, tmp_path: Path, options: dict[str, str]
) -> None:
    topic, root = f"items-{uuid.uuid4().hex[:8]}", str(tmp_path / "log")
    rows = spark.range(200).selectExpr(_ROW)
    writer = rows.write.format("kafkalog").options(
        topic=topic, **options, **{"auto.register.schemas": "true"}
    )
    writer.mode("append").save(root)
    given = {"subscribe": topic, **options}
    frame = spark.read.format("kafkalog").options(**given, includeSchemaId="true").load(root)
    assert sorted(frame.select("value.*").collect()) == sorted(rows.select("value.*").collect())
    assert frame.where("value.id < 3").select("value.name").count() == 3
    assert frame.select("schemaId").distinct().count() == 1
    stream = spark.readStream.format("kafkalog").options(**given, startingOffsets="earliest").load(root)
    query = (
        stream.select("value.seen.at", "value.tags")
        .writeStream.format("memory")
        .queryName(f"q{topic[-8:]}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.table(f"q{topic[-8:]}").count() == 200


def test_what_can_not_be_decoded(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    """It is a whole dead letter, and an error of the shell."""
    topic, root = f"items-{uuid.uuid4().hex[:8]}", str(tmp_path / "log")
    writer = spark.range(1).selectExpr(_ROW).write.format("kafkalog").mode("append").options(topic=topic)
    writer.options(**options, **{"auto.register.schemas": "true"}).save(root)
    (good,) = connect(root).read(topic, columns=["value"]).read_all().column("value").to_pylist()
    spark.createDataFrame([(bytearray(good[:-2]),)], "value binary").write.format("kafkalog").mode(
        "append"
    ).options(topic=topic).save(root)
    frame = (
        spark.read.format("kafkalog").options(subscribe=topic, includeCorrupt="true", **options).load(root)
    )
    (letter,) = dead_letters(frame.where(col("corrupt").isNotNull()), topic="dead").collect()
    assert (letter.topic, bytes(letter.value)) == ("dead", good[:-2])
    flags = [word for name in ("schema.registry.url",) for word in ("-o", f"{name}={options[name]}")]
    shell = ["cat", root, topic, "--value-format", options["value.format"], *flags, "--json"]
    failed = run(*shell)
    assert (failed.code, "can't be decoded" in failed.err) == (3, True)
    lines = run(*shell, "--skip-damaged").out.splitlines()
    assert json.loads(lines[0])["value"]["name"] == "user-0"
    assert len(lines) == 2


FORMATS = {
    "json": {},
    "avro": {
        "value.schema": json.dumps(
            {
                "type": "record",
                "name": "Item",
                "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
            }
        )
    },
    "protobuf": {
        "value.schema": 'syntax = "proto3"; message Item { optional int64 id = 1; string name = 2; }'
    },
    "confluent-avro": {"auto.register.schemas": "true"},
    "confluent-json": {"auto.register.schemas": "true"},
    "confluent-protobuf": {"auto.register.schemas": "true"},
}


_QUICK = {"json", "confluent-protobuf"}


@pytest.mark.parametrize(
    "name", [each if each in _QUICK else pytest.param(each, marks=pytest.mark.long) for each in FORMATS]
)
def test_each_format_everywhere(
    spark: SparkSession, registry: SchemaRegistryServer, tmp_path: Path, name: str
) -> None:
    """A stream with audits, a transform, dead letters and exactly once; then redrive sends these back."""
    topic, root, audit = f"items-{uuid.uuid4().hex[:8]}", str(tmp_path / "log"), str(tmp_path / "audit")
    given = {"value.format": name, "auditLocation": audit}
    if "-" in name:
        given["schema.registry.url"] = registry.url
    rows = spark.range(20).selectExpr("struct(id, concat('user-', id) AS name) AS value").coalesce(1)
    writer = rows.write.format("kafkalog").mode("append")
    writer.options(**given, **FORMATS[name]).option("topic", topic).save(root)
    (good,) = connect(root).read(topic, columns=["value"]).read_all().column("value").to_pylist()[:1]
    connect(root).write(pa.table({"value": [good[:-3]]}), topic)
    schema = FORMATS[name].get("value.schema", "id bigint, name string" if name == "json" else None)
    more = {} if schema is None else {"value.schema": schema}
    reader = spark.readStream.format("kafkalog").options(**given, **more, subscribe=topic)
    reader = reader.options(
        startingOffsets="earliest",
        includeCorrupt="true",
        transform="tests.plugins:same",
        maxOffsetsPerTrigger=12,
    )
    both = {"topic": lit("clean"), "value": to_json(col("value"))}
    for _ in range(2):
        query = (
            dead_letters(reader.load(root), "dead", both)
            .writeStream.format("kafkalog")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", root)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        clean = connect(root).read("clean", columns=["value"]).read_all().column("value").to_pylist()
        assert sorted(json.loads(value)["id"] for value in clean) == [*range(20)]
        (letter,) = connect(root).read("dead", columns=["value"]).read_all().column("value").to_pylist()
        assert letter == good[:-3]
    connect(root).records.redrive("dead", first=True, execute=True)
    assert connect(root).read(topic, columns=["value"]).read_all().column("value").to_pylist()[-1] == letter
    counted = spark.read.format("kafkalog").option("view", "audit").load(audit)
    sums = counted.where(col("topic") == topic).groupBy("side", "kind").sum("messages").collect()
    assert {tuple(row) for row in sums} == {
        ("producer", "ATTEMPT", 20),
        ("producer", "SUCCESS", 20),
        ("consumer", "SUCCESS", 21),
    }
