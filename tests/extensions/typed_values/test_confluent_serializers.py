"""Confluent's own serializers write what is read here, and read what is written here, by a real registry."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.serialization import MessageField, SerializationContext

from pyspark_kafkalog import connect
from tests.confluent import record
from tests.schema_registry import SchemaRegistryServer, with_guids

_WHY = "Confluent's client of registries is not installed"
client_of = pytest.importorskip("confluent_kafka.schema_registry", reason=_WHY)
avro = pytest.importorskip("confluent_kafka.schema_registry.avro", reason=_WHY)
pytestmark = pytest.mark.broker
UTC = datetime.timezone.utc
INNER = record("Inner", x="int", y=["null", "string"])
ORDER = {
    **record(
        "Order",
        id="long",
        ratio="float",
        colour={"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]},
        digest={"type": "fixed", "name": "Digest", "size": 2},
        day={"type": "int", "logicalType": "date"},
        at={"type": "long", "logicalType": "timestamp-millis"},
        fine={"type": "long", "logicalType": "timestamp-micros"},
        price={"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
        ref={"type": "string", "logicalType": "uuid"},
        inner=INNER,
        maybe=["null", "Inner"],
        items={"type": "array", "items": "Inner"},
        counts={"type": "map", "values": "long"},
        either=["null", "long", "string", "Inner"],
        note=(["null", "string"], None),
    ),
    "namespace": "com.my_company.orders",
}


def order(number: int) -> dict[str, Any]:
    inner = {"x": -number, "y": None if number % 2 else "é" * number}
    return {
        "id": number << 40,
        "ratio": number / 4,
        "colour": ["RED", "GREEN"][number % 2],
        "digest": number.to_bytes(2, "big"),
        "day": datetime.date(1969, 12, 30) + datetime.timedelta(number),
        "at": datetime.datetime(2024, 5, 1, 12, 0, number, 123000, UTC),
        "fine": datetime.datetime(1901, 5, 1, 12, 0, number, 123456, UTC),
        "price": decimal.Decimal(number - 3).scaleb(-3),
        "ref": str(uuid.UUID(int=number)),
        "inner": inner,
        "maybe": None if number % 3 else inner,
        "items": [inner] * (number % 4),
        "counts": {f"k{n}": n for n in range(number % 3)},
        "either": [None, 1 << 50, "text", inner][number % 4],
        "note": None,
    }


def as_columns(value: dict[str, Any]) -> dict[str, Any]:
    """The value as the column has it: a map is a list, and each branch of a union a member."""
    either = value["either"]
    members = (either if isinstance(either, kind) else None for kind in (int, str, dict))
    struct = {f"member{number}": member for number, member in enumerate(members)}
    return {**value, "counts": [*value["counts"].items()], "either": None if either is None else struct}


@pytest.fixture
def client(registry: SchemaRegistryServer) -> Iterator[Any]:
    with client_of.SchemaRegistryClient({"url": registry.url}) as client:
        yield client


class Topic:
    """A topic of a directory, that Confluent's serializers write and read, too."""

    def __init__(self, registry: SchemaRegistryServer, root: Path) -> None:
        self.name, self.root = f"orders-{uuid.uuid4().hex[:8]}", str(root / "log")
        self.given = {"value.format": "confluent-avro", "schema.registry.url": registry.url}

    def context(
        self, field: str = MessageField.VALUE, headers: list[tuple[str, bytes]] | None = None
    ) -> SerializationContext:
        return SerializationContext(self.name, field, headers)

    def write(self, values: pa.Array | list[Any], **options: str) -> None:
        connect(self.root).write(pa.table({"value": values}), self.name, options=options)

    def read(self, columns: list[str] | None = None, **options: str) -> pa.Table:
        return connect(self.root).read(self.name, columns=columns, options=options).read_all()


@pytest.fixture
def topic(registry: SchemaRegistryServer, tmp_path: Path) -> Topic:
    return Topic(registry, tmp_path)


@pytest.mark.long
def test_what_the_serializer_writes(client: Any, topic: Topic) -> None:
    write = avro.AvroSerializer(client, json.dumps(ORDER))
    orders = [order(number) for number in range(12)]
    topic.write([*(write(value, topic.context()) for value in orders), None])
    found = topic.read(**topic.given).column("value").to_pylist()
    assert found == [*map(as_columns, orders), None]


def test_what_the_serializer_writes_into_headers(registry: SchemaRegistryServer, topic: Topic) -> None:
    """GUIDs, for the key and the value; what is written so is read by its deserializer."""
    settings = {"schema.id.serializer": client_of.header_schema_id_serializer}
    orders, rows = [order(number) for number in range(5)], []
    with with_guids(registry) as url:
        with client_of.SchemaRegistryClient({"url": url}) as client:
            write_key = avro.AvroSerializer(client, '"string"', conf=settings)
            write = avro.AvroSerializer(client, json.dumps(ORDER), conf=settings)
            for value in orders:
                headers: list[tuple[str, bytes]] = [("mine", b"x")]
                rows.append(
                    {
                        "key": write_key(value["ref"], topic.context(MessageField.KEY, headers)),
                        "value": write(value, topic.context(headers=headers)),
                        "headers": [{"key": name, "value": text} for name, text in headers],
                    }
                )
                assert [name for name, _ in headers] == ["mine", "__key_schema_id", "__value_schema_id"]
        connect(topic.root).write(pa.Table.from_pylist(rows), topic.name)
        given = {**topic.given, "key.format": "confluent-avro", "schema.registry.url": url}
        found = topic.read(["key", "value", "schemaId", "schemaGuid"], **given)
        in_header = {
            f"{column}.schema.id.serializer": "HeaderSchemaIdSerializer" for column in ("key", "value")
        }
        connect(topic.root).write(found.select(["key", "value"]), topic.name, options={**given, **in_header})
        written = topic.read(["key", "value", "headers"]).to_pylist()
        with client_of.SchemaRegistryClient({"url": url}) as client:
            read_key, read = avro.AvroDeserializer(client), avro.AvroDeserializer(client)
            for row, value in zip(written[len(orders) :], orders, strict=True):
                headers = [(each["key"], each["value"]) for each in row["headers"]]
                assert read_key(row["key"], topic.context(MessageField.KEY, headers)) == value["ref"]
                assert read(row["value"], topic.context(headers=headers))["price"] == value["price"]
    assert [row["value"] for row in written] == [row["value"] for row in written[: len(orders)]] * 2
    assert found.column("value").to_pylist() == [*map(as_columns, orders)]
    assert found.column("key").to_pylist() == [value["ref"] for value in orders]
    assert found.column("schemaId").null_count == len(orders)
    assert len(set(found.column("schemaGuid").to_pylist())) == 1


def test_what_the_deserializer_reads(client: Any, topic: Topic) -> None:
    avro.AvroSerializer(client, json.dumps(ORDER))(order(0), topic.context())  # registers it
    orders = [order(number) for number in range(12)]
    write = avro.AvroSerializer(client, json.dumps(ORDER))
    expected = [write(value, topic.context()) for value in orders]
    topic.write(expected)
    column = topic.read(**topic.given).column("value")
    topic.write(column, **topic.given)
    written = topic.read().column("value").to_pylist()[len(orders) :]
    assert written == expected
    read = avro.AvroDeserializer(client)
    assert [read(value, topic.context()) for value in written] == [
        {**value, "ref": uuid.UUID(value["ref"])} for value in orders
    ]


def test_what_the_deserializer_reads_of_a_registered_column(client: Any, topic: Topic) -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    kind = pa.struct(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(12, 3)),
            ("inner", inner),
            ("items", pa.list_(inner)),
        ]
    )
    rows: list[dict[str, Any]] = [
        {**{name: order(number)[name] for name in kind.names}, "items": [None, order(number)["inner"]]}
        for number in range(5)
    ]
    rows.append(dict.fromkeys(kind.names))
    topic.write(pa.array([*rows, None], kind), **topic.given, **{"auto.register.schemas": "true"})
    read = avro.AvroDeserializer(client)
    found = [read(value, topic.context()) for value in topic.read().column("value").to_pylist()]
    assert found == [*rows, None]


def test_references(client: Any, topic: Topic) -> None:
    """A schema in two others, of which one names the other."""
    inner = client.register_schema(f"{topic.name}-inner", client_of.Schema(json.dumps(INNER), "AVRO"))
    assert inner > 0
    of_inner = client_of.SchemaReference("Inner", f"{topic.name}-inner", 1)
    middle = record("Middle", inner="Inner")
    client.register_schema(f"{topic.name}-middle", client_of.Schema(json.dumps(middle), "AVRO", [of_inner]))
    outer = record("Outer", middle="Middle", items={"type": "array", "items": "Inner"})
    references = [of_inner, client_of.SchemaReference("Middle", f"{topic.name}-middle", 1)]
    write = avro.AvroSerializer(client, client_of.Schema(json.dumps(outer), "AVRO", references))
    values = [{"middle": {"inner": order(n)["inner"]}, "items": [order(n)["inner"]] * n} for n in range(4)]
    written = [write(value, topic.context()) for value in values]
    topic.write(written)
    column = topic.read(**topic.given).column("value")
    assert column.to_pylist() == values
    topic.write(column, **topic.given)
    assert topic.read().column("value").to_pylist() == written * 2
    read = avro.AvroDeserializer(client)
    assert [read(value, topic.context()) for value in written] == values


def test_several_versions(client: Any, topic: Topic) -> None:
    """A field that came, one that went, one with another name, and a promotion."""
    versions = [
        record("Item", id="int", name="string"),
        record("Item", id="int", name="string", more=("string", "none")),
        record("Item", id="long", more=("string", "none")),
    ]
    renamed = record("Item", id="long", rest=("string", "none"))
    renamed["fields"][1]["aliases"] = ["more"]
    versions.append(renamed)
    values = []
    for number, schema in enumerate(versions):
        write = avro.AvroSerializer(client, json.dumps(schema))
        row = {"id": number, "name": f"n{number}", "more": f"m{number}", "rest": f"r{number}"}
        names = [field["name"] for field in schema["fields"]]
        values.append(write({name: row[name] for name in names}, topic.context()))
    topic.write(values)
    read = avro.AvroDeserializer(client, json.dumps(renamed))
    expected = [read(value, topic.context()) for value in values]
    assert [row["rest"] for row in expected] == ["none", "m1", "m2", "r3"]
    assert topic.read(**topic.given).column("value").to_pylist() == expected


def test_keys_of_bytes_and_text(client: Any, topic: Topic) -> None:
    """Bytes have no length: they are all that follows. The deserializer takes no bytes at all for
    too short."""
    for kind, values in (("bytes", [b"\0ab", b""]), ("string", ["", "é"]), ("long", [0, -1 << 40])):
        name = f"{topic.name}-{kind}"
        write, context = avro.AvroSerializer(client, json.dumps(kind)), SerializationContext(name, "key")
        written = [write(value, context) for value in values]
        options = {"key.format": "confluent-avro", "schema.registry.url": topic.given["schema.registry.url"]}
        table = pa.table({"key": written, "value": [b"v", b"v"]})
        connect(topic.root).write(table, name)
        column = connect(topic.root).read(name, columns=["key"], options=options).read_all().column("key")
        assert column.to_pylist() == values
        connect(topic.root).write(pa.table({"key": column, "value": [b"v", b"v"]}), name, options=options)
        again = connect(topic.root).read(name, columns=["key"]).read_all().column("key").to_pylist()[2:]
        assert again == written
        read = avro.AvroDeserializer(client)
        assert [read(value, context) for value in again if len(value) > 5] == [v for v in values if v != b""]
