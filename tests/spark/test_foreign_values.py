"""Values that the reader's schema can't read, in whole queries: errors with offsets, or rows with reasons."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from pyspark_kafkalog import connect, dead_letters
from tests.confluent import body, record
from tests.registries import PROTO, FormatRegistry

pytestmark = pytest.mark.broker
ORDER = record("Order", id="long", name="string")
OTHER = record("Order", id={"type": "array", "items": "long"}, name="string")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_PLACE = 300
"""The offset of the foreign value, within a batch of others."""


def foreign_values(
    found: FormatRegistry, encoding: str, topic: str
) -> tuple[list[tuple[bytes, Any]], tuple[bytes, Any], dict[str, tuple[bytes, Any]]]:
    """Some values, the first of them once more but damaged, and foreign ones by what is said of them."""
    if encoding == "avro":
        key = found.register(topic, ORDER, "AVRO")
        good = [found.framed(key, body(ORDER, {"id": number, "name": f"n{number}"})) for number in range(5)]
        other = found.register(topic, OTHER, "AVRO", newest=False)
        foreign = {"id: the reader's": found.framed(other, body(OTHER, {"id": [1], "name": ""}))}
        damaged = found.framed(key, body(ORDER, {"id": 0, "name": "n0"})[:-1])
    else:
        key = found.register(topic, PROTO, "PROTOBUF")
        good = [
            found.framed(key, bytes([8, number, 18, 2]) + f"n{number}".encode(), "Order")
            for number in range(5)
        ]
        text = "the value is a message Refund, and is read as a message Order"
        foreign = {text: found.framed(key, b"\x08\1", "Refund")}
        damaged = found.framed(key, b"\x08\0\x12\2n", "Order")
    if found.name != "azure":  # whose header says that it is Avro
        of_json = found.register(
            topic, {"title": topic, "type": "object", "properties": {}}, "JSON", newest=False
        )
        message = "Order" if encoding == "protobuf" else None
        foreign["it is a schema of type JSON"] = found.framed(of_json, b"{}", message)
    return good, damaged, foreign


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *("confluent-avro", "glue-avro", "apicurio-avro", "azure-avro"),
        *("confluent-protobuf", "glue-protobuf", "apicurio-protobuf"),
    ],
)
def test_foreign_values(
    spark: SparkSession, registry_of: Callable[[str], FormatRegistry], tmp_path: Path, name: str
) -> None:
    """In the middle of a batch, and where only a part of the columns, rows or offsets is read."""
    root, topic = str(tmp_path / "log"), f"orders-{uuid.uuid4().hex[:8]}"
    of, _, encoding = name.partition("-")
    found = registry_of(of)
    good, damaged, foreign = foreign_values(found, encoding, topic)
    given = {"value.format": name, **found.options}
    if of == "azure":
        given["value.schema"] = json.dumps(ORDER)
    for reason, bad in {**foreign, "ends too early": damaged}.items():
        values, headers = zip(*([*good] * (_PLACE // 5)), bad, *([*good] * 20), strict=True)
        part = f"{topic}-{uuid.uuid4().hex[:4]}"
        connect(root).write(pa.table({"value": values, "headers": pa.array(headers, _HEADERS)}), part)
        schema = given if "value.schema" in given else {**given, "value.schema": _schema(encoding)}
        batch = spark.read.format("kafkalog").options(**schema, subscribe=part)
        if bad is damaged:
            batch = batch.option("mode", "FAILFAST")
        by_offsets = batch.option("startingOffsets", json.dumps({part: {"0": _PLACE - 7}}))
        for frame in (
            batch.load(root).select("value.name"),
            batch.load(root).select("value.name", "topic").where("value.id > 2"),
            batch.load(root).where(f"offset > {_PLACE - 3}").selectExpr("value.id + 1"),
            by_offsets.option("minPartitions", "3").load(root).select("value.id"),
        ):
            with pytest.raises(PySparkException) as caught:
                frame.collect()
            text = str(caught.value)
            assert all(each in text for each in (f"partition {part}-0", f"offset {_PLACE})", reason)), text
            advice = "mode=PERMISSIVE" if bad is damaged else "set includeCorrupt=true"
            assert advice in text, text
        kept = spark.read.format("kafkalog").options(**schema, subscribe=part, includeCorrupt="true")
        rows = kept.load(root)
        (row,) = (
            rows.where(col("corrupt").isNotNull())
            .select("offset", "corrupt.*", col("value.id").alias("id"))
            .collect()
        )
        assert (row[0], row.partition, bytes(row.value), row.id) == (_PLACE, 0, bad[0], None)
        assert reason in row.reason
        assert rows.where("value.id IS NOT NULL").select("value.name").distinct().count() == 5
        dead_letters(rows, "dead").write.format("kafkalog").mode("append").save(root)
        (letter,) = connect(root).read("dead", columns=["value"]).read_all()["value"].to_pylist()[-1:]
        assert letter == bad[0]
        stream = spark.readStream.format("kafkalog").options(**schema, subscribe=part)
        stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "70")
        if bad is damaged:
            stream = stream.option("mode", "FAILFAST")
        query = (
            stream.load(root)
            .select("value.name")
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / part))
            .trigger(availableNow=True)
            .start()
        )
        with pytest.raises(PySparkException, match=rf"partition {part}-0, offset {_PLACE}\)"):
            query.awaitTermination()


def _schema(encoding: str) -> str:
    return json.dumps(ORDER) if encoding == "avro" else PROTO


@pytest.mark.long
@pytest.mark.parametrize("of", ["confluent", "glue", "apicurio"])
def test_versions_that_come_while_a_stream_runs(
    spark: SparkSession, registry_of: Callable[[str], FormatRegistry], tmp_path: Path, of: str
) -> None:
    """A compatible one is read as before; another ends the query at its record; with reasons it goes on."""
    root, topic, found = str(tmp_path / "log"), f"orders-{uuid.uuid4().hex[:8]}", registry_of(of)
    wider = record("Order", id="int", name="string", more=("string", ""))

    def write(schema: Any, rows: list[dict[str, Any]]) -> None:
        key = found.register(topic, schema, "AVRO")
        values = [found.framed(key, body(schema, row))[0] for row in rows]
        connect(root).write(pa.table({"value": values}), topic)

    write(ORDER, [{"id": 1, "name": "a"}])
    given = {"value.format": f"{of}-avro", **found.options, "subscribe": topic, "startingOffsets": "earliest"}
    name = f"q{topic[-8:]}"

    def started(**more: str) -> Any:
        frame = (
            spark.readStream.format("kafkalog")
            .options(**given, **more)
            .load(root)
            .select("offset", "value.*")
        )
        sink = frame.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        return sink.queryName(name).option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = started()
    query.processAllAvailable()
    write(wider, [{"id": 2, "name": "b", "more": "x"}])
    query.processAllAvailable()
    write(OTHER, [{"id": [3], "name": "c"}])
    with pytest.raises(PySparkException, match=rf"id: the reader's.*\(partition {topic}-0, offset 2\)"):
        query.processAllAvailable()
    query.stop()
    write(ORDER, [{"id": 4, "name": "d"}])
    query = started(includeCorrupt="true", **{"value.schema": json.dumps(ORDER)})
    query.processAllAvailable()
    query.stop()
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("offset").collect()
    assert [tuple(row)[:3] for row in rows] == [(0, 1, "a"), (1, 2, "b"), (2, None, None), (3, 4, "d")]
