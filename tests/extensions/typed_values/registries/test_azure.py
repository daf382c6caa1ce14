"""Azure's registry, as its REST API 2022-10 answers: there is none to run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import OptionError, SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.registries.azure import AzureRegistry
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from tests.confluent import body
from tests.extensions.typed_values.test_schema_registry import GUID, SECRET, A, Double
from tests.http_doubles import served
from tests.tools.cli.running import records, run

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


def test_values_with_ids_in_headers(double: Double, tmp_path: Path) -> None:
    """With ``includeSchemaId``, dead letters, ``cat`` and ``export``: the value is the body alone."""
    root, double.answers = str(tmp_path / "log"), [(200, A)]
    of_value = [{"key": "content-type", "value": b"avro/binary+" + KEY.hex.encode()}]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    good = pa.table({"value": [body(A, {"x": 7})], "headers": pa.array([of_value], kind)})
    connect(root).write(good, "orders")
    form = {"value.format": "azure-avro", "value.schema": json.dumps(A)}
    given = {**form, "schema.registry.url": double.url, "bearer.auth.token": SECRET}
    words = ["--value-format", "azure-avro"]
    for name, text in given.items():
        words += [] if name == "value.format" else ["-o", f"{name}={text}"]
    assert [row["value"] for row in records(root, "orders", *words)] == [{"x": 7}]
    assert run("export", root, "orders", tmp_path / "orders.jsonl", *words).code == 0
    bad = pa.table({"value": [b"", body(A, {"x": 7})], "headers": pa.array([of_value, None], kind)})
    connect(root).write(bad, "orders")
    more = {"subscribe": "orders", "includeSchemaId": "true", "includeCorrupt": "true"}
    found = connect(root).read(options={**given, **more}).read_all().to_pylist()
    assert [row["value"] for row in found] == [{"x": 7}, {"x": None}, {"x": None}]
    assert [row["schemaGuid"] for row in found] == [GUID, GUID, None]
    assert [row["schemaId"] for row in found] == [None] * 3
    assert [row["corrupt"] is None for row in found] == [True, False, False]
    assert {login for _, login in double.requests} == {f"Bearer {SECRET}"}
    with pytest.raises(OptionError, match="azure-avro, which can only be read"):
        connect(root).write(pa.table({"value": [{"x": 7}]}), "orders", options=given)
