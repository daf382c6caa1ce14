"""JSON with a JSON Schema, and Protobuf, by a registry: whole queries, dead letters, and the shell."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, to_json

from pyspark_kafkalog import connect, dead_letters
from pyspark_kafkalog.options.table import VALUE_FORMATS
from tests.confluent import body, record
from tests.registries import PROTO, FormatRegistry
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


ORDER = record("Order", id="long", name="string")
BY_JSON_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
}
SCHEMAS = {"avro": ORDER, "json": BY_JSON_SCHEMA, "protobuf": PROTO}
_OF_ROWS = {"avro": json.dumps(ORDER), "json": "id bigint, name string", "protobuf": PROTO}
_QUICK = {"confluent-protobuf", "glue-avro"}


def body_of(encoding: str, row: dict[str, Any]) -> bytes:
    """The bytes of a row behind its framing."""
    if encoding == "avro":
        return body(ORDER, row)
    if encoding == "json":
        return json.dumps(row).encode()
    number, name = row["id"], row["name"].encode()
    return b"\x08" + bytes([number]) + b"\x12" + bytes([len(name)]) + name


@pytest.mark.parametrize("place", ["directory", pytest.param("brokers", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "name", [each if each in _QUICK else pytest.param(each, marks=pytest.mark.long) for each in VALUE_FORMATS]
)
def test_each_format_everywhere(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    registry_of: Callable[[str], FormatRegistry],
    tmp_path: Path,
    name: str,
    place: str,
) -> None:
    """A stream with audits, a transform, dead letters and exactly once; then redrive sends these back."""
    of, _, encoding = name.rpartition("-")
    suffix = uuid.uuid4().hex[:8]
    topic, clean, dead = (f"{each}-{suffix}" for each in ("items", "clean", "dead"))
    at = str(tmp_path / "log") if place == "directory" else request.getfixturevalue("broker").bootstrap
    if place == "brokers":
        for each in topic, clean, dead:
            request.getfixturevalue("broker").create_topic(each, 1)
    where = {"path" if place == "directory" else "kafka.bootstrap.servers": at}
    audit = {"auditLocation": str(tmp_path / "audit")}
    given, found = {"value.format": name}, registry_of(of) if of else None
    if encoding == "protobuf":
        given["value.message"] = "Order"
    if found is not None:
        given |= found.options
    more = {} if found is not None and of != "azure" else {"value.schema": _OF_ROWS[encoding]}
    rows = [{"id": number, "name": f"user-{number}"} for number in range(20)]
    if of in ("apicurio", "azure"):  # which are only read
        assert found is not None
        key, message = found.register(topic, SCHEMAS[encoding], encoding.upper()), given.get("value.message")
        framed = [found.framed(key, body_of(encoding, row), message) for row in rows]
        frame = spark.createDataFrame(
            framed, "value binary, headers array<struct<key: string, value: binary>>"
        )
        writer = frame.coalesce(1).write.format("kafkalog").options(**where, **audit)
    else:
        frame = spark.range(20).selectExpr("struct(id, concat('user-', id) AS name) AS value")
        writer = frame.coalesce(1).write.format("kafkalog").options(**where, **audit, **given)
        schema = {"auto.register.schemas": "true"} if found else more
        writer = writer.options(**({} if name == "json" else schema))
    writer.option("topic", topic).mode("append").save()
    table = connect(at).read(topic, columns=["value", "headers"]).read_all().slice(0, 1)
    (good,) = table.column("value").to_pylist()
    bad = pa.array([good[:-3]], pa.binary())
    connect(at).write(table.set_column(0, "value", bad), topic)
    batch = spark.read.format("kafkalog").options(**where, **given, **more, subscribe=topic)
    batch.option("includeCorrupt", "true")
    assert batch.load().where("corrupt IS NULL AND value.id < 5").select("value.name").count() == 5
    reader = spark.readStream.format("kafkalog").options(**where, **given, **more, **audit, subscribe=topic)
    reader = reader.options(
        startingOffsets="earliest",
        includeCorrupt="true",
        transform="tests.plugins:same",
        maxOffsetsPerTrigger=12,
    )
    both = {"topic": lit(clean), "value": to_json(col("value"))}
    for _ in range(2):
        query = (
            dead_letters(reader.load(), dead, both)
            .writeStream.format("kafkalog")
            .options(**where, **{"delivery.guarantee": "exactly-once"})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        values = connect(at).read(clean, columns=["value"]).read_all().column("value").to_pylist()
        assert sorted(json.loads(value)["id"] for value in values) == [*range(20)]
        (letter,) = connect(at).read(dead, columns=["value"]).read_all().column("value").to_pylist()
        assert letter == good[:-3]
    connect(at).records.redrive(dead, first=True, execute=True)
    assert connect(at).read(topic, columns=["value"]).read_all().column("value").to_pylist()[-1] == letter
    counted = spark.read.format("kafkalog").option("view", "audit").load(audit["auditLocation"])
    sums = counted.where(col("topic") == topic).groupBy("side", "kind").sum("messages").collect()
    assert {tuple(row) for row in sums} == {
        ("producer", "ATTEMPT", 20),
        ("producer", "SUCCESS", 20),
        ("consumer", "SUCCESS", 21),
    }
    shell = ["--value-format", name]
    for option, text in {**given, **more}.items():
        shell += [] if option == "value.format" else ["-o", f"{option}={text}"]
    lines = run("cat", at, topic, *shell, "--json", "--skip-damaged").out.splitlines()
    assert [json.loads(line)["value"] for line in lines][:20] == rows
    assert "22 records" in run("export", at, topic, tmp_path / "rows.parquet", *shell, "--skip-damaged").err
