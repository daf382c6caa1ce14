"""Structs written as Avro and JSON through Spark, in batches, streams and transactions."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.functions import to_json

from pyspark_kafkalog import connect
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import SchemaRegistry
from tests.broker.producing import unused_topic
from tests.confluent import record
from tests.extensions.typed_values.test_schema_registry import Double
from tests.http_doubles import served
from tests.kafka import Broker
from tests.schema_registry import SchemaRegistryServer

ORDERS = """
SELECT struct(
    id, CAST(id AS int) AS small, id % 2 = 0 AS even, CAST(id / 3 AS float) AS ratio, id / 7 AS exact,
    IF(id % 3 = 0, NULL, concat('n', id)) AS name, CAST(concat('b', id) AS binary) AS raw,
    date_add(DATE '2024-01-01', CAST(id AS int)) AS day, timestamp_micros(1700000000000000 + id * 1001) AS at,
    CAST(timestamp_micros(id * 1000000000) AS timestamp_ntz) AS local,
    CAST(id * 1.001 AS decimal(20, 3)) AS price,
    IF(id % 4 = 0, NULL, named_struct('x', id, 'y', CAST(id AS string))) AS inner,
    transform(sequence(1, id % 3 + 1), i -> named_struct('n', i)) AS items,
    map_from_entries(array(named_struct('key', concat('k', id), 'value', id))) AS counts
) AS value, concat('key', id) AS key FROM range(100)
"""


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    return spark.sql(ORDERS)


@pytest.mark.long
@pytest.mark.broker
def test_what_from_avro_reads(
    spark: SparkSession, tmp_path: Path, registry: SchemaRegistryServer, orders: DataFrame
) -> None:
    topic, root = f"orders-{uuid.uuid4().hex[:8]}", str(tmp_path / "log")
    options = {"value.format": "confluent-avro", "schema.registry.url": registry.url}
    writer = orders.write.format("kafkalog").options(topic=topic, **options).mode("append")
    with pytest.raises(PySparkException, match=f"does not know subject '{topic}-value'"):
        writer.save(root)
    writer.option("auto.register.schemas", "true").save(root)
    body = (
        spark.read.format("kafkalog")
        .option("subscribe", topic)
        .load(root)
        .selectExpr("substring(value, 6) AS value")
    )
    read = spark.read.format("kafkalog").options(subscribe=topic, includeSchemaId="true")
    ours = read.options(**options).load(root)
    expected = [row.value for row in orders.orderBy("value.id").collect()]
    assert [row.value for row in ours.orderBy("value.id").collect()] == expected
    (number,) = {row.schemaId for row in ours.select("schemaId").collect()}
    schema = SchemaRegistry(RegistryOptions((registry.url,))).by_id(number).text
    theirs = body.select(from_avro("value", schema, {"mode": "FAILFAST"}).alias("value"))
    assert [row.value for row in theirs.orderBy("value.id").collect()] == expected
    orders.write.format("kafkalog").options(topic=topic, **options).mode("append").save(root)
    assert ours.count() == 200
    assert {row.schemaId for row in ours.select("schemaId").collect()} == {number}


UNIONS = {
    "nullable": (["null", "long"], "IF(id % 2 = 0, NULL, id)"),
    "nullable_last": (["long", "null"], "IF(id % 2 = 0, NULL, id)"),
    "whole": (["null", "int", "long"], "IF(id % 2 = 0, NULL, id)"),
    "real": (["float", "double", "null"], "IF(id % 2 = 0, NULL, id / 3)"),
    "one": (["null", record("One", x="long")], "IF(id % 2 = 0, NULL, named_struct('x', id))"),
    "members": (
        ["null", "int", "string", record("Part", x="long")],
        "CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN named_struct('member0', CAST(id AS int), 'member1', NULL,"
        " 'member2', NULL) WHEN 2 THEN named_struct('member0', NULL, 'member1', 'x', 'member2', NULL)"
        " ELSE named_struct('member0', NULL, 'member1', NULL, 'member2', named_struct('x', id)) END",
    ),
    "items": (
        {"type": "array", "items": ["null", "long", "boolean"]},
        "array(named_struct('member0', id, 'member1', CAST(NULL AS boolean)), NULL)",
    ),
    "map": ({"type": "map", "values": ["null", "string"]}, "map('k', IF(id % 2 = 0, NULL, 'v'))"),
}


def test_unions_are_those_of_to_avro(spark: SparkSession, tmp_path: Path) -> None:
    """Of each form that it takes."""
    schema = json.dumps(record("A", **{name: kind for name, (kind, _) in UNIONS.items()}))
    columns = ", ".join(f"{text} AS {name}" for name, (_, text) in UNIONS.items())
    frame = spark.range(8).selectExpr(f"struct({columns}) AS value")
    expected = sorted(bytes(row[0]) for row in frame.select(to_avro("value", schema)).collect())
    options = {"topic": "t", "value.format": "avro", "value.schema": schema}
    frame.write.format("kafkalog").options(**options).mode("append").save(str(tmp_path / "log"))
    found = connect(str(tmp_path / "log")).read("t").read_all().column("value").to_pylist()
    assert sorted(found) == expected


@pytest.mark.broker
def test_what_the_registry_refuses(
    spark: SparkSession, tmp_path: Path, registry: SchemaRegistryServer
) -> None:
    topic, root = f"orders-{uuid.uuid4().hex[:8]}", tmp_path / "log"
    registry.register(f"{topic}-value", record("topLevelRecord", id="int"))
    registry.set_compatibility(f"{topic}-value", "BACKWARD")
    options = {"topic": topic, "value.format": "confluent-avro", "schema.registry.url": registry.url}
    writer = spark.sql("SELECT struct('x' AS id) AS value").write.format("kafkalog").options(**options)
    with pytest.raises(PySparkException, match=r"value\.id: the schema expects int, the column is string"):
        writer.mode("append").save(str(root))
    with pytest.raises(PySparkException, match=r"refuses this schema of subject .*ncompatible"):
        writer.option("auto.register.schemas", "true").mode("append").save(str(root))
    assert not root.exists()


def test_json_is_that_of_to_json(spark: SparkSession, tmp_path: Path, orders: DataFrame) -> None:
    root = str(tmp_path / "log")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        orders.write.format("kafkalog").options(topic="t", **{"value.format": "json"}).mode("append").save(
            root
        )
        expected = sorted(row[0] for row in orders.select(to_json("value")).collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    found = spark.read.format("kafkalog").load(root).selectExpr("CAST(value AS string)").collect()
    assert sorted(row[0] for row in found) == expected


@pytest.mark.long
@pytest.mark.broker
def test_a_stream_into_a_directory(
    spark: SparkSession, tmp_path: Path, registry: SchemaRegistryServer
) -> None:
    topic, root = f"rates-{uuid.uuid4().hex[:8]}", str(tmp_path / "log")
    schema = record("Rate", value="long", more=("string", "d"))
    registry.register(f"{topic}-value", schema)
    options = {"value.format": "confluent-avro", "schema.registry.url": registry.url}
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "50").load()
    for _ in range(2):
        query = (
            rows.selectExpr("struct(value) AS value")
            .writeStream.format("kafkalog")
            .options(topic=topic, path=root, checkpointLocation=str(tmp_path / "checkpoint"), **options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    found = connect(root).read(topic, options=options).read_all().column("value").to_pylist()
    assert sorted(row["value"] for row in found) == [*range(len(found))]
    assert len(found) >= 100
    assert {row["more"] for row in found} == {"d"}


def test_a_commit_asks_no_registry(spark: SparkSession, tmp_path: Path) -> None:
    """It comes when all rows are written, and the registry may be gone by then."""
    schema, root = record("Rate", value="long"), str(tmp_path / "log")
    options = {"topic": "t", "path": root, "checkpointLocation": str(tmp_path / "checkpoint")}
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "5").load()
    with served(Double()) as double:
        double.answers = [(200, {"id": 7, "schema": json.dumps(schema)})]
        options |= {"value.format": "confluent-avro", "schema.registry.url": double.url}
        for run in (1, 2):
            query = (
                rows.selectExpr("struct(value) AS value")
                .writeStream.format("kafkalog")
                .options(**options)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            batches = len([*(tmp_path / "checkpoint" / "commits").glob("[0-9]*")])
            assert batches >= run
            assert len(double.requests) == batches
    assert connect(root).records.count("t") == 5 * batches


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_stream_to_brokers(
    spark: SparkSession, tmp_path: Path, registry: SchemaRegistryServer, broker: Broker, guarantee: str
) -> None:
    topic = unused_topic()
    broker.create_topic(topic, 3)
    options = {"value.format": "confluent-avro", "key.format": "confluent-avro"}
    options |= {"schema.registry.url": registry.url}
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "50").load()
    query = (
        rows.selectExpr("concat('k', value % 5) AS key", "struct(value, timestamp) AS value")
        .writeStream.format("kafkalog")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("delivery.guarantee", guarantee)
        .options(topic=topic, checkpointLocation=str(tmp_path / "checkpoint"), **options)
        .option("auto.register.schemas", "true")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with connect(broker.bootstrap) as kafka:
        read = {**options, "kafka.isolation.level": "read_committed"}
        found = kafka.read(topic, columns=["key", "value", "partition"], options=read).read_all().to_pylist()
    assert sorted(row["value"]["value"] for row in found) == [*range(len(found))]
    assert found
    assert {row["key"] for row in found} == {f"k{n}" for n in range(5)}
    for n in range(5):
        assert len({row["partition"] for row in found if row["key"] == f"k{n}"}) == 1


def test_variants_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """They come as structs of their parts."""
    frame = spark.sql("SELECT struct(parse_json('{\"a\": 1}') AS v) AS value")
    writer = frame.write.format("kafkalog").options(**{"topic": "t", "value.format": "json"})
    with pytest.raises(PySparkException, match=r"value\.v is of type variant"):
        writer.mode("append").save(str(tmp_path / "log"))


def test_large_type_settings(spark: SparkSession, tmp_path: Path, orders: DataFrame) -> None:
    """A setting of Spark's gives tasks other Arrow types than it promises."""
    root, name = str(tmp_path / "log"), "spark.sql.execution.arrow.useLargeVarTypes"
    schema = json.dumps(record("A", name=["null", "string"], raw="bytes"))
    options = {"value.format": "avro", "value.schema": schema}
    before = spark.conf.get(name)
    spark.conf.set(name, "true")
    try:
        frame = orders.selectExpr("struct(value.name, value.raw) AS value")
        frame.write.format("kafkalog").options(topic="t", **options).mode("append").save(root)
    finally:
        spark.conf.set(name, str(before))
    rows = connect(root).read("t", options=options).read_all().column("value").to_pylist()
    assert sorted(row["raw"] for row in rows) == sorted(f"b{n}".encode() for n in range(100))
