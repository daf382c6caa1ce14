"""Apicurio Registry by its own API: a real one."""

from __future__ import annotations

import json
import uuid

import pytest

from pyspark_kafkalog.errors import SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.registries.apicurio import ApicurioRegistry
from pyspark_kafkalog.extensions.typed_values.registries.contract import ApicurioId
from pyspark_kafkalog.extensions.typed_values.registry_options import APICURIO, RegistryOptions
from tests.schema_registry import SchemaRegistryServer

pytestmark = pytest.mark.broker


CONTENT, GLOBAL = "contentId", "globalId"


def url_of(server: SchemaRegistryServer) -> str:
    """The URL of its own API."""
    return server.url.replace("/apis/ccompat/v7", "/apis/registry/v3")


def registry_of(server: SchemaRegistryServer, use_id: str = CONTENT) -> ApicurioRegistry:
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
    found = registry_of(registry)
    schema = found.by_key(content_id)
    assert (json.loads(schema.text), schema.kind, schema.schema_id) == (outer, "JSON", content_id)
    assert [(each, json.loads(text)) for each, text in schema.named_references] == [
        ("inner.json", inner),
        ("own.json", inner),
        ("middle.json", middle),
    ]
    assert found.latest(f"{name}-value") == schema
    assert found.by_key(ApicurioId(CONTENT, content_id)) is schema
    by_global = registry_of(registry, GLOBAL).latest(f"{name}-value")
    assert (by_global.text, by_global.named_references) == (schema.text, schema.named_references)
    assert by_global.schema_id is not None
    assert found.by_key(ApicurioId(GLOBAL, by_global.schema_id)) == by_global


def test_what_is_not_there(registry: SchemaRegistryServer) -> None:
    found = registry_of(registry)
    with pytest.raises(SchemaRegistryError, match="does not know contentId 999999"):
        found.by_key(999_999, wait=0.2)
    with pytest.raises(SchemaRegistryError, match=r"does not know artifact 'none-value'\. Check apicurio"):
        found.latest("none-value")
