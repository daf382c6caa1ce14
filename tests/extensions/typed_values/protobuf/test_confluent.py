"""Confluent's own serializers for Protobuf write what is read here, and read what is written here."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from pyspark_kafkalog import NewTopic, connect
from pyspark_kafkalog.errors import OptionError, SchemaError
from tests.extensions.typed_values.protobuf.oracle import class_of, compiled
from tests.schema_registry import SchemaRegistryServer, with_guids

_WHY = "Confluent's client of registries is not installed"
client_of = pytest.importorskip("confluent_kafka.schema_registry", reason=_WHY)
protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf", reason=_WHY)
pytestmark = pytest.mark.broker
MONEY = 'syntax = "proto3"; package shop; message Money { string currency = 1; sint64 cents = 2; }'
ORDER = """syntax = "proto3";
package shop;
import "money.proto";
message Refund { int64 order = 1; }
message Order {
  int64 id = 1; optional string note = 2; repeated Line lines = 3; map<string, int32> counts = 4;
  Money total = 5;
  message Line { string sku = 1; double weight = 2; }
}
"""
FILES = {"money.proto": MONEY, "order.proto": ORDER}
ROWS: list[dict[str, Any]] = [
    {
        "id": 1 << 40,
        "note": "é",
        "lines": [{"sku": "a", "weight": 0.5}, {"sku": "b", "weight": None}],
        "counts": [("x", 1)],
        "total": {"currency": "EUR", "cents": -5},
    },
    {"id": 2, "note": None, "lines": [], "counts": [], "total": None},
]


class Topic:
    """A topic of a directory, whose subject has the schema of orders, and that of money for its import."""

    def __init__(self, registry: SchemaRegistryServer, root: Path) -> None:
        self.name, self.root = f"orders-{uuid.uuid4().hex[:8]}", str(root / "log")
        registry.register(f"{self.name}-money", MONEY, kind="PROTOBUF")
        references = [("money.proto", f"{self.name}-money", 1)]
        Path(self.root).mkdir()
        connect(self.root).topics.create([NewTopic(self.name)])
        self.id = registry.register(f"{self.name}-value", ORDER, references, "PROTOBUF")
        self.given = {
            "value.format": "confluent-protobuf",
            "value.message": "Order",
            "schema.registry.url": registry.url,
        }

    def read_type(self) -> pa.DataType:
        """The type of the column that a reader makes."""
        return connect(self.root).read(self.name, options=self.given).schema.field("value").type

    def context(self, headers: list[tuple[str, bytes]] | None = None) -> SerializationContext:
        return SerializationContext(self.name, MessageField.VALUE, headers)

    def write(self, values: pa.Array | list[Any], **options: str) -> None:
        connect(self.root).write(pa.table({"value": values}), self.name, options=options)

    def read(self, columns: list[str] | None = None, **options: str) -> pa.Table:
        return connect(self.root).read(self.name, columns=columns, options=options).read_all()


@pytest.fixture
def topic(registry: SchemaRegistryServer, tmp_path: Path) -> Topic:
    return Topic(registry, tmp_path)


def _descriptor(name: str, text: str) -> FileDescriptorProto:
    """The descriptor of a file, which Confluent's registry gives on request; Apicurio gives the text."""
    found = FileDescriptorSet.FromString(compiled({"money.proto": MONEY, name: text})).file
    return next(file for file in found if file.name == name)


@pytest.fixture
def client(registry: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = sys.modules[protobuf.ProtobufDeserializer.__module__]
    monkeypatch.setattr(module, "_str_to_proto", _descriptor)
    with client_of.SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@cache
def _class_of(name: str) -> Any:
    return class_of(compiled(FILES), name)


def order(row: dict[str, Any]) -> Any:
    """The message of a row."""
    message: Any = _class_of("shop.Order")()
    message.id = row["id"]
    if row["note"] is not None:
        message.note = row["note"]
    for line in row["lines"]:
        message.lines.add(sku=line["sku"], weight=line["weight"] or 0)
    message.counts.update(dict(row["counts"]))
    if row["total"] is not None:
        message.total.currency, message.total.cents = row["total"]["currency"], row["total"]["cents"]
    return message


def framed(topic: Topic, message: Any, indexes: bytes = b"\2\2") -> bytes:
    return b"\0" + topic.id.to_bytes(4, "big") + indexes + bytes(message.SerializeToString())


def test_what_the_deserializer_reads(client: Any, topic: Topic) -> None:
    kind = topic.read_type()
    topic.write(pa.array([*ROWS, None], kind), **topic.given)
    written = topic.read().column("value").to_pylist()
    read = protobuf.ProtobufDeserializer(_class_of("shop.Order"), {}, client)
    found = [read(value, topic.context()) for value in written]
    assert found == [*map(order, ROWS), None]
    assert written == [*(framed(topic, message) for message in found[:-1]), None]
    assert topic.read(**topic.given).column("value").to_pylist() == [*ROWS, None]


def test_messages_of_a_schema(topic: Topic) -> None:
    """A value of another message than the reader's ends the query; indexes that lead nowhere are corrupt."""
    refund: Any = _class_of("shop.Refund")(order=7)
    topic.write(
        [framed(topic, refund, b"\0"), framed(topic, refund, b"\2\0"), framed(topic, refund, b"\2\x0e")]
    )
    found = topic.read(["value", "schemaId"], **{**topic.given, "value.message": "shop.Refund"})
    assert found.column("value").to_pylist() == [{"order": 7}, {"order": 7}, {"order": None}]
    assert found.column("schemaId").to_pylist() == [topic.id] * 3
    with pytest.raises(SchemaError, match=r"schema id \d+: the value is a message shop.Refund"):
        topic.read(**topic.given)
    with pytest.raises(OptionError, match="has no message 'Orders'"):
        topic.read(**{**topic.given, "value.message": "Orders"})


def test_what_the_serializer_writes(client: Any, topic: Topic) -> None:
    """It registers descriptors, in base64, of its own names for the imports."""
    kind = _class_of("shop.Order")
    write = protobuf.ProtobufSerializer(kind, client, {"auto.register.schemas": True})
    name = f"{topic.name}-2"
    context = SerializationContext(name, MessageField.VALUE, None)
    values = [write(order(row), context) for row in ROWS]
    connect(topic.root).write(pa.table({"value": values}), name)
    found = connect(topic.root).read(name, options=topic.given).read_all()
    assert found.column("value").to_pylist() == ROWS


def test_a_schema_that_is_made_of_a_column(client: Any, topic: Topic) -> None:
    column = pa.array([{"id": 5, "inner": {"text": "x"}}, None])
    name = f"{topic.name}-3"
    given = {**topic.given, "value.message": "shop.made.Item"}
    options = {**given, "auto.register.schemas": "true"}
    connect(topic.root).write(pa.table({"value": column}), name, options=options)
    text = client.get_latest_version(f"{name}-value").schema.schema_str
    assert "package shop.made;" in text
    written = connect(topic.root).read(name).read_all().column("value").to_pylist()
    read = protobuf.ProtobufDeserializer(
        class_of(compiled({"item.proto": text}), "shop.made.Item"), {}, client
    )
    found = read(written[0], SerializationContext(name, MessageField.VALUE, None))
    assert (found.id, found.inner.text, written[1]) == (5, "x", None)
    assert (
        connect(topic.root).read(name, options=given).read_all().column("value").to_pylist()
        == column.to_pylist()
    )


def test_keys_in_headers(registry: SchemaRegistryServer, client: Any, topic: Topic) -> None:
    """The indexes are behind the GUID."""
    with with_guids(registry) as url:
        given = {**topic.given, "schema.registry.url": url}
        in_header = {**given, "value.schema.id.serializer": "HeaderSchemaIdSerializer"}
        topic.write(pa.array(ROWS, topic.read_type()), **in_header)
        (row, _) = topic.read(["value", "headers"]).to_pylist()
        (header,) = row["headers"]
        assert row["value"] == order(ROWS[0]).SerializeToString()
        assert header == {
            "key": "__value_schema_id",
            "value": b"\1" + uuid.UUID(int=topic.id).bytes + b"\2\2",
        }
        found = topic.read(["value", "schemaGuid"], **given)
        with client_of.SchemaRegistryClient({"url": url}) as of_guids:
            read = protobuf.ProtobufDeserializer(_class_of("shop.Order"), {}, of_guids)
            headers = [(header["key"], header["value"])]
            assert read(row["value"], topic.context(headers)) == order(ROWS[0])
    assert found.column("value").to_pylist() == ROWS
    assert found.column("schemaGuid").to_pylist() == [str(uuid.UUID(int=topic.id))] * 2


def test_the_subject_of_a_message(client: Any, topic: Topic) -> None:
    """With RecordNameStrategy it is the message's full name."""
    name = f"shop{uuid.uuid4().hex[:8]}.Item"
    given = {**topic.given, "value.message": name, "value.subject.name.strategy": "RecordNameStrategy"}
    topic.write(pa.array([{"id": 5}]), **given, **{"auto.register.schemas": "true"})
    text = client.get_latest_version(name).schema.schema_str
    found = topic.read(**given, **{"value.schema": text})
    assert found.column("value").to_pylist() == [{"id": 5}]
