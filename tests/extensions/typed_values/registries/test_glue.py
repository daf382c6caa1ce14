"""The AWS Glue Schema Registry: moto answers, and awslabs' serializers and deserializer write and read."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import fastavro
import pytest
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import make_server

from pyspark_kafkalog.errors import SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values.registries.glue import GlueOptions, GlueRegistry, glue_of
from pyspark_kafkalog.extensions.typed_values.registries.wire import by_glue, glue_header
from tests.confluent import body, record
from tests.extensions.typed_values.registries.test_wire import packed
from tests.kafka_jars import glue_serde_jars, java

ORDER = {**record("Order", id="long", note="string"), "namespace": "shop"}
REGION = "eu-west-1"


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a service that has the empty registry ``shop``."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    server = make_server("127.0.0.1", 0, create_backend_app("glue"), threaded=True)
    url = f"http://127.0.0.1:{server.port}"
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        client = boto3.client("glue", region_name=REGION, endpoint_url=url)
        client.create_registry(RegistryName="shop")
        yield url
        client.delete_registry(RegistryId={"RegistryName": "shop"})
        server.shutdown()
    server.server_close()


def options(glue: str, registry: str = "shop") -> GlueOptions:
    return GlueOptions(REGION, registry, glue)


def test_register_and_read(glue: str) -> None:
    registry, text = GlueRegistry(options(glue)), json.dumps(ORDER)
    with pytest.raises(SchemaRegistryError, match="does not know this schema among the versions of 'orders'"):
        registry.find("orders", text)
    first = registry.register("orders", text)
    assert (first.text, first.kind) == (text, "AVRO")
    assert registry.register("orders", text) == registry.find("orders", text) == first
    wider = json.dumps({**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]})
    second = registry.register("orders", wider)
    assert second.guid != first.guid
    assert registry.latest("orders") == second
    assert first.guid is not None
    assert GlueRegistry(options(glue)).by_key(first.guid) == first


def test_an_id_is_asked_for_once(glue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = GlueRegistry(options(glue))
    key = registry.register("orders", json.dumps(ORDER)).guid
    calls: list[str] = []
    ask = registry._call

    def counted(method: str, what: str, **given: Any) -> dict[str, Any] | None:
        calls.append(method)
        return ask(method, what, **given)

    monkeypatch.setattr(registry, "_call", counted)
    assert key is not None
    assert registry.by_key(key) is registry.by_key(key)
    assert calls == ["get_schema_version"]
    assert glue_of(options(glue)) is glue_of(options(glue))


def test_what_is_not_there(glue: str) -> None:
    registry, unknown = GlueRegistry(options(glue)), uuid.UUID(int=7)
    with pytest.raises(SchemaRegistryError, match=f"'shop' does not know schema version {unknown}"):
        registry.by_key(unknown, wait=0.2)
    with pytest.raises(SchemaRegistryError, match="does not know schema 'orders'"):
        registry.latest("orders")
    with pytest.raises(SchemaRegistryError, match="has no registry 'other'"):
        GlueRegistry(options(glue, "other")).register("orders", json.dumps(ORDER))
    with pytest.raises(SchemaRegistryError, match="refuses this schema as a version of 'orders': "):
        registry.register("orders", "{")


def test_no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without credentials, a region or an answer: no secret is said."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SchemaRegistryError, match="can't be reached: NoRegionError"):
        GlueRegistry(GlueOptions()).latest("orders")
    with pytest.raises(SchemaRegistryError, match="gave no answer for schema 'orders': NoCredentialsError"):
        GlueRegistry(GlueOptions(REGION)).latest("orders")


def java_prints(*args: str) -> list[str]:
    source = Path(__file__).with_name("GlueSerde.java")
    command = [java(), "-cp", f"{glue_serde_jars()}/*", str(source), *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
def test_awslabs_serializers(glue: str, tmp_path: Path) -> None:
    values = [base64.b64decode(line) for line in java_prints(glue)]
    framed = by_glue(*packed([*values, None]))
    assert not framed.corrupt
    registry = GlueRegistry(options(glue))
    found: list[Any] = []
    for row in range(len(values)):
        schema = registry.by_key(framed.keys[framed.numbers[row]])
        text = framed.data[framed.starts[row] : framed.starts[row] + framed.sizes[row]].tobytes()
        if schema.kind == "AVRO":
            parsed = fastavro.parse_schema(json.loads(schema.text))
            found.append(fastavro.schemaless_reader(io.BytesIO(text), parsed, None))
        else:
            assert schema.kind == "JSON"
            found.append(json.loads(text))
    expected = [*({"id": n, "note": "x" * 100 * n} for n in range(3)), {"id": 7}]
    assert found == expected * 2
    key = registry.register("mine", json.dumps(ORDER)).guid
    assert key is not None
    ours = [glue_header(key) + body(ORDER, {"id": n, "note": "é"}) for n in range(3)]
    (tmp_path / "values").write_text("\n".join(base64.b64encode(value).decode() for value in ours))
    printed = java_prints(glue, str(tmp_path / "values"))
    assert [json.loads(line) for line in printed] == [{"id": n, "note": "é"} for n in range(3)]
