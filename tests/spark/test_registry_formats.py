"""JSON with a JSON Schema, and Protobuf, by a registry: whole queries, dead letters, and the shell."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

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
