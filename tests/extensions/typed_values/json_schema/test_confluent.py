"""Confluent's own serializers for JSON Schema write what is read here, and read what is written here."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.serialization import MessageField, SerializationContext

from pyspark_kafkalog.codec.buffers import value_bounds
from pyspark_kafkalog.extensions.typed_values.ddl import parse_ddl
from pyspark_kafkalog.extensions.typed_values.json_schema.decoder import SchemaDecoder
from pyspark_kafkalog.extensions.typed_values.json_schema.types import json_type, shape_of
from pyspark_kafkalog.extensions.typed_values.json_schema.writing import (
    JsonSchemaEncoder,
    check_fits,
    schema_of,
)
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema, SchemaRegistry
from tests.extensions.typed_values.json_schema.test_writing import MANY, ROWS
from tests.schema_registry import SchemaRegistryServer

_WHY = "Confluent's client of registries is not installed"
client_of = pytest.importorskip("confluent_kafka.schema_registry", reason=_WHY)
by_json = pytest.importorskip("confluent_kafka.schema_registry.json_schema", reason=_WHY)
pytestmark = pytest.mark.broker
MONEY = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Money",
    "type": "object",
    "properties": {"amount": {"type": "number"}, "currency": {"enum": ["EUR", "USD"]}},
    "required": ["amount", "currency"],
}
ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"$ref": "money.json"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "extra": {},
    },
    "required": ["id"],
    "definitions": {
        "line": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}}
    },
}


@pytest.fixture
def client(registry: SchemaRegistryServer) -> Iterator[Any]:
    with client_of.SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def without_id(values: list[bytes | None]) -> tuple[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The one id that values have before them, and what is behind it."""
    (key,) = {value[:5] for value in values if value is not None}
    bodies = pa.array([value and value[5:] for value in values], pa.binary())
    return int.from_bytes(key, "big"), value_bounds(bodies)


def test_what_the_serializer_writes(client: Any, registry: SchemaRegistryServer) -> None:
    """With a reference to another subject."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    client.register_schema(f"{topic}-money", client_of.Schema(json.dumps(MONEY), "JSON"))
    reference = client_of.SchemaReference("money.json", f"{topic}-money", 1)
    write = by_json.JSONSerializer(client_of.Schema(json.dumps(ORDER), "JSON", [reference]), client)
    orders: list[dict[str, Any]] = [
        {
            "id": number << 40,
            "price": {"amount": number / 4, "currency": "EUR"},
            "note": None if number % 2 else "é" * number,
            "at": f"2024-05-01T12:00:0{number}.123456Z",
            "tags": {"k": str(number)} if number else {},
            "lines": [{"sku": "a", "n": n} for n in range(number % 3)],
            "extra": [{"x": 1}, "text", 7][number % 3],
        }
        for number in range(6)
    ]
    context = SerializationContext(topic, MessageField.VALUE)
    key, bodies = without_id([*(write(order, context) for order in orders), None])
    found = SchemaRegistry(RegistryOptions((registry.url,)))
    newest = found.latest(f"{topic}-value")
    assert (newest.schema_id, newest.kind) == (key, "JSON")
    kind = json_type(newest.text, newest.named_references)
    assert kind.type == parse_ddl(
        "id bigint, price struct<amount double, currency string>, note string, at timestamp,"
        " tags map<string, string>, lines array<struct<sku string, n bigint>>, extra string"
    )
    assert kind.notes == (("extra", "it may be anything"),)
    decoded = SchemaDecoder(kind, 0, "").decode(*bodies)
    assert not decoded.corrupt.size
    at = datetime.datetime(2024, 5, 1, 12, 0, 0, 123456, datetime.timezone.utc)
    assert decoded.array.to_pylist() == [
        *(
            {
                **order,
                "at": at + datetime.timedelta(seconds=number),
                "tags": [*order["tags"].items()],
                "extra": ['{"x":1}', "text", "7"][number % 3],
            }
            for number, order in enumerate(orders)
        ),
        None,
    ]


def test_what_the_deserializer_reads(client: Any, registry: SchemaRegistryServer) -> None:
    """It validates each value by the schema that was made of the column, in the registry."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    text, found = schema_of(MANY, "Order"), SchemaRegistry(RegistryOptions((registry.url,)))
    schema_id = found.register(f"{topic}-value", RegisteredSchema(text, "JSON")).schema_id
    assert found.find(f"{topic}-value", RegisteredSchema(text, "JSON")).schema_id == schema_id
    shape = shape_of(found.by_id(schema_id).text)
    check_fits(shape, MANY, "value")
    column = pa.array([*ROWS, None], MANY)
    prefix = b"\0" + schema_id.to_bytes(4, "big")
    written = JsonSchemaEncoder(shape, "value", prefix=prefix).encode(column).to_pylist()
    read = by_json.JSONDeserializer(None, schema_registry_client=client)
    context = SerializationContext(topic, MessageField.VALUE)
    values = [read(value, context) for value in written]
    assert values[-1] is None
    assert values[0]["price"] == -1.5
    assert values[0]["by_number"] == [{"key": 1, "value": {"z": "2024-01-01"}}, {"key": 2, "value": None}]
    _, bodies = without_id(written)
    decoded = SchemaDecoder(json_type(text), 0, "").decode(*bodies)
    assert decoded.array.equals(column)
