"""Apicurio Registry by its own API: a real one."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pyspark.sql import SparkSession

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import OptionError, SchemaError, SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.registries.apicurio import ApicurioRegistry
from pyspark_kafkalog.extensions.typed_values.registries.contract import ApicurioId
from pyspark_kafkalog.extensions.typed_values.registry_options import APICURIO, RegistryOptions
from tests.confluent import body, record
from tests.extensions.typed_values.protobuf.oracle import compiled
from tests.kafka_jars import apicurio_protobuf_serde_jars, apicurio_serde_jars, java
from tests.registries import FormatRegistry
from tests.schema_registry import SchemaRegistryServer
from tests.tools.cli.running import records, run

pytestmark = pytest.mark.broker


CONTENT, GLOBAL = "contentId", "globalId"


def url_of(server: SchemaRegistryServer) -> str:
    """The URL of its own API."""
    return server.url.replace("/apis/ccompat/v7", "/apis/registry/v3")


def source_of(server: SchemaRegistryServer, use_id: str = CONTENT) -> ApicurioRegistry:
    return ApicurioRegistry(RegistryOptions((url_of(server),), registry=APICURIO, use_id=use_id))


def test_schemas_by_their_ids(registry: SchemaRegistryServer) -> None:
    name = uuid.uuid4().hex[:8]
    inner = {"title": name, "type": "object", "properties": {"x": {"type": "integer"}}}
    middle = {"title": name, "properties": {"i": {"$ref": "inner.json"}}}
    outer = {"title": name, "properties": {"m": {"$ref": "middle.json"}, "i": {"$ref": "own.json"}}}
    registry.register(f"{name}-a", inner, kind="JSON")
    registry.register(f"{name}-b", middle, [("inner.json", f"{name}-a", 1)], kind="JSON")
    references = [("middle.json", f"{name}-b", 1), ("own.json", f"{name}-a", 1)]
    content_id = registry.register(f"{name}-value", outer, references, kind="JSON")
    found = source_of(registry)
    schema = found.by_key(content_id)
    assert (json.loads(schema.text), schema.kind, schema.schema_id) == (outer, "JSON", content_id)
    assert [(each, json.loads(text)) for each, text in schema.named_references] == [
        ("inner.json", inner),
        ("own.json", inner),
        ("middle.json", middle),
    ]
    assert found.latest(f"{name}-value") == schema
    assert found.by_key(ApicurioId(CONTENT, content_id)) is schema
    by_global = source_of(registry, GLOBAL).latest(f"{name}-value")
    assert (by_global.text, by_global.named_references) == (schema.text, schema.named_references)
    assert by_global.schema_id is not None
    assert found.by_key(ApicurioId(GLOBAL, by_global.schema_id)) == by_global


def test_what_is_not_there(registry: SchemaRegistryServer) -> None:
    found = source_of(registry)
    with pytest.raises(SchemaRegistryError, match="does not know contentId 999999"):
        found.by_key(999_999, wait=0.2)
    with pytest.raises(SchemaRegistryError, match=r"does not know artifact 'none-value'\. Check apicurio"):
        found.latest("none-value")


ORDER = record("Order", id="long", note="string")
BY_JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
}
ROW = {"id": 7, "note": "x"}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "log")


def of_columns(server: SchemaRegistryServer, **more: str) -> dict[str, str]:
    given = {"value.format": "apicurio-avro", "apicurio.registry.url": url_of(server)}
    return {**given, **{name.replace("__", "."): text for name, text in more.items()}}


def read(root: str, server: SchemaRegistryServer, topic: str, **more: str) -> list[dict[str, Any]]:
    rows = connect(root).read(options={"subscribe": topic, **of_columns(server, **more)})
    found: list[dict[str, Any]] = rows.read_all().to_pylist()
    return found


def test_ids_before_values_and_in_headers(registry: SchemaRegistryServer, root: str, tmp_path: Path) -> None:
    """Of 4 and 8 bytes, in one topic, and what can't be decoded; cat, export and dead letters, too."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    content_id = registry.register(f"{topic}-value", ORDER)
    by_global = source_of(registry, GLOBAL).latest(f"{topic}-value").schema_id
    assert by_global is not None
    text = body(ORDER, ROW)
    in_headers = [
        [{"key": "apicurio.value.contentId", "value": content_id.to_bytes(8, "big")}],
        [{"key": "apicurio.value.globalId", "value": by_global.to_bytes(8, "big")}],
    ]
    numbered = [b"\0" + content_id.to_bytes(width, "big") + text for width in (4, 8)]
    headers = pa.array([None, None, *in_headers, None], HEADERS)
    values = pa.array([*numbered, text, text, None], pa.binary())
    connect(root).write(pa.table({"value": values, "headers": headers}), topic)
    words = ["--value-format", "apicurio-avro", "-o", f"apicurio.registry.url={url_of(registry)}"]
    assert [row["value"] for row in records(root, topic, *words)] == [ROW] * 4 + [None]
    path = tmp_path / "orders.jsonl"
    assert run("export", root, topic, path, *words).code == 0
    assert [json.loads(line)["value"] for line in path.read_text().splitlines()] == [ROW] * 4 + [None]
    bad = [b"", b"\0" * 9, numbered[0][:-1]]
    connect(root).write(pa.table({"value": bad}), topic)
    found = read(root, registry, topic, includeSchemaId="true", includeCorrupt="true")
    assert [row["value"] for row in found][:5] == [ROW] * 4 + [None]
    ids = [content_id, content_id, content_id, by_global, None, None, None, content_id]
    assert [row["schemaId"] for row in found] == ids
    assert [row["corrupt"] and row["corrupt"]["value"] for row in found] == [None] * 5 + bad
    rows = connect(root).read(options={"subscribe": topic, **of_columns(registry, includeSchemaId="true")})
    assert rows.schema.field("schemaId").type == pa.int64()


def test_through_spark(spark: SparkSession, registry: SchemaRegistryServer, root: str) -> None:
    """Also where only the ids are wanted."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    number = registry.register(f"{topic}-value", ORDER)
    connect(root).write(pa.table({"value": [b"\0" + number.to_bytes(8, "big") + body(ORDER, ROW)]}), topic)
    reader = spark.read.format("kafkalog").options(**of_columns(registry), subscribe=topic)
    assert tuple(reader.load(root).select("value.*").first() or ()) == (7, "x")
    ids = reader.option("includeSchemaId", "true").load(root).select("schemaId", "schemaGuid")
    assert tuple(ids.first() or ()) == (number, None)
    assert ids.schema["schemaId"].dataType.simpleString() == "bigint"
    reader.option("includeSchemaId", "false")
    alone = reader.schema("schemaId bigint, schemaGuid string, offset bigint").load(root)
    assert tuple(alone.first() or ()) == (number, None, 0)


def test_the_schema_of_the_reader_is_asked_for_once(
    registry_of: Callable[[str], FormatRegistry], root: str
) -> None:
    """Where it is planned, whether values or headers have its id."""
    topic, found = f"orders-{uuid.uuid4().hex[:8]}", registry_of("apicurio")
    number, text = found.register(topic, ORDER, "AVRO"), body(ORDER, ROW)
    in_header = [{"key": "apicurio.value.contentId", "value": number.to_bytes(8, "big")}]
    headers = pa.array([None, in_header], HEADERS)
    connect(root).write(pa.table({"value": [found.framed(number, text)[0], text], "headers": headers}), topic)
    given = {"subscribe": topic, "value.format": "apicurio-avro", **found.options}
    assert connect(root).read(options=given).read_all()["value"].to_pylist() == [ROW] * 2
    asked = [path for path in found.relay.requests if path.endswith(f"/ids/contentIds/{number}")]
    assert len(asked) == 1


def test_global_ids_before_values(registry: SchemaRegistryServer, root: str) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    registry.register(f"{topic}-value", ORDER)
    by_global = source_of(registry, GLOBAL).latest(f"{topic}-value").schema_id
    assert by_global is not None
    value = b"\0" + by_global.to_bytes(4, "big") + body(ORDER, ROW)
    connect(root).write(pa.table({"value": [value]}), topic)
    found = read(root, registry, topic, **{"apicurio.registry.use-id": "globalId"})
    assert [row["value"] for row in found] == [ROW]


def test_a_schema_of_another_kind(registry: SchemaRegistryServer, root: str) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    number = registry.register(f"{topic}-value", BY_JSON_SCHEMA, kind="JSON")
    connect(root).write(pa.table({"value": [b"\0" + number.to_bytes(4, "big") + b"{}"]}), topic)
    with pytest.raises(SchemaError, match=rf"schema id {number}: it is a schema of type JSON, expected AVRO"):
        read(root, registry, topic, value__schema=json.dumps(ORDER))


def test_a_write_is_refused(registry: SchemaRegistryServer, root: str) -> None:
    with pytest.raises(OptionError, match=r"apicurio-avro, which can only be read.*ccompat"):
        connect(root).write(pa.table({"value": [ROW]}), "orders", options=of_columns(registry))


def _written(jars: Path, name: str, *args: str, **configs: str) -> pa.Table:
    """The record that one of Apicurio's serializers writes."""
    command = [java(), "-cp", f"{jars}/*", str(Path(__file__).with_name(f"{name}.java")), *args]
    for option, text in configs.items():
        command += [option, text]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    value, *pairs = printed.splitlines()[-1].split(" ")
    headers = [
        {"key": key, "value": base64.b64decode(text)}
        for key, text in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    return pa.table({"value": [base64.b64decode(value)], "headers": pa.array([headers], HEADERS)})


CONFIGS = pytest.mark.parametrize(
    "configs",
    [
        {},
        {"apicurio.registry.use-id": "globalId"},
        {"apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy8ByteIdHandler"},
        {"apicurio.registry.headers.enabled": "true"},
        {"apicurio.registry.headers.enabled": "true", "apicurio.registry.use-id": "globalId"},
    ],
    ids=str,
)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
@CONFIGS
@pytest.mark.parametrize("encoding", ["avro", "json"])
def test_apicurios_serializers(
    registry: SchemaRegistryServer, root: str, encoding: str, configs: dict[str, str]
) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    if encoding == "json":
        fields = {"id": {"type": "integer"}, "note": {"type": "string"}}
        registry.register(
            f"{topic}-value", {"type": "object", "title": topic, "properties": fields}, kind="JSON"
        )
    given = {"apicurio.registry.url": url_of(registry), **configs}
    table = _written(apicurio_serde_jars(), "ApicurioSerde", encoding, topic, **given)
    connect(root).write(table, topic)
    form = {"value.format": f"apicurio-{encoding}", "includeSchemaId": "true"}
    form["apicurio.registry.use-id"] = configs.get("apicurio.registry.use-id", "contentId")
    found = read(root, registry, topic, **form)
    assert [row["value"] for row in found] == [ROW]
    assert found[0]["schemaId"] is not None


SHOP = """
syntax = "proto3"; package shop;
message Refund { int64 cents = 1; } message Order { int64 id = 1; string note = 2; }
"""


def test_messages_by_their_names(registry: SchemaRegistryServer, root: str) -> None:
    """Before the body, or as Apicurio 2 has it in a header; those of another message are foreign."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    number = registry.register(f"{topic}-value", SHOP, kind="PROTOBUF")
    body, ref = b"\x08\7\x12\1x", b"\x07\x0a\x05Order"
    prefix = b"\0" + number.to_bytes(4, "big")
    by_id = {"key": "apicurio.value.contentId", "value": number.to_bytes(8, "big")}
    by_name = {"key": "apicurio.protobuf.type", "value": b"Order"}
    values = [
        prefix + ref + body,
        ref + body,
        body,
        None,
        prefix + b"\x08\x0a\x06Refund\x08\7",
        prefix + body,
    ]
    headers = pa.array([None, [by_id, by_name], [by_id, by_name], None, None, None], HEADERS)
    connect(root).write(pa.table({"value": pa.array(values, pa.binary()), "headers": headers}), topic)
    form = {"value.format": "apicurio-protobuf", "value.message": "Order", "includeCorrupt": "true"}
    found = read(root, registry, topic, **form)
    assert [row["value"] for row in found[:4]] == [ROW, ROW, ROW, None]
    assert [row["corrupt"] and row["corrupt"]["value"] for row in found] == [None] * 4 + values[4:]
    assert (
        "the value is a message shop.Refund, and is read as a message shop.Order"
        in found[4]["corrupt"]["reason"]
    )
    assert "expected the key of a schema and a message of it" in found[5]["corrupt"]["reason"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
@CONFIGS
def test_apicurios_protobuf(registry: SchemaRegistryServer, root: str, configs: dict[str, str]) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    (file,) = FileDescriptorSet.FromString(compiled({"shop.proto": SHOP})).file
    parts = [base64.b64encode(part).decode() for part in (file.SerializeToString(), b"\x08\7\x12\1x")]
    given = {"apicurio.registry.url": url_of(registry), **configs}
    jars = apicurio_protobuf_serde_jars()
    table = _written(jars, "ApicurioProtobufSerde", topic, parts[0], "Order", parts[1], **given)
    connect(root).write(table, topic)
    form = {"value.format": "apicurio-protobuf", "value.message": "Order", "includeSchemaId": "true"}
    form["apicurio.registry.use-id"] = configs.get("apicurio.registry.use-id", "contentId")
    found = read(root, registry, topic, **form)
    assert [row["value"] for row in found] == [ROW]
    assert found[0]["schemaId"] is not None
