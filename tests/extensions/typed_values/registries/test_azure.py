"""Azure's registry, as its REST API 2022-10 answers: there is none to run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from pyspark_kafkalog.errors import SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.registries.azure import AzureRegistry
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from tests.extensions.typed_values.test_schema_registry import GUID, SECRET, A, Double
from tests.http_doubles import served

KEY = uuid.UUID(GUID)


@pytest.fixture
def double() -> Iterator[Double]:
    with served(Double()) as server:
        yield server


def test_a_schema_by_its_id(double: Double) -> None:
    """It is asked for once, with the user's token."""
    double.answers = [(503, b""), (200, A)]
    found = AzureRegistry(RegistryOptions((double.url,), token="mine"))
    schema = found.by_key(KEY)
    assert (json.loads(schema.text), schema.kind, schema.guid) == (A, "AVRO", KEY)
    assert found.by_key(KEY) is schema
    path = f"/base/$schemaGroups/$schemas/{KEY.hex}?api-version=2022-10"
    assert double.requests == [(path, "Bearer mine")] * 2


@pytest.mark.parametrize(
    ("status", "text"), [(401, "does not accept the login"), (404, f"does not know schema {KEY.hex}")]
)
def test_refused(double: Double, status: int, text: str) -> None:
    double.answers = [(status, {"error": {"code": SECRET}})]
    with pytest.raises(SchemaRegistryError, match=text) as caught:
        AzureRegistry(RegistryOptions((double.url,), token=SECRET)).by_key(KEY, wait=0.2)
    assert SECRET not in str(caught.value)
