"""The AWS Glue Schema Registry: moto answers, and awslabs' serializers and deserializer write and read."""

from __future__ import annotations

import base64
import json
import logging
import shutil
import ssl
import subprocess
import sys
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet
import pytest
import trustme
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values import schema_registry
from pyspark_kafkalog.extensions.typed_values.framing import GlueFraming
from pyspark_kafkalog.extensions.typed_values.registries import glue as glue_module
from pyspark_kafkalog.extensions.typed_values.registries.glue import GlueRegistry
from pyspark_kafkalog.extensions.typed_values.registries.wire import glue_header, glue_key
from pyspark_kafkalog.extensions.typed_values.registry_options import GLUE, RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from tests.confluent import body, record
from tests.extensions.typed_values.protobuf.oracle import compiled
from tests.http_doubles import served
from tests.kafka_jars import glue_serde_jars, java
from tests.kafka_process import free_ports
from tests.registries import (
    AWS_CREDENTIALS,
    REGION,
    Fault,
    Relay,
    answer,
    closing,
    dripping,
    endless,
    glue_service,
    refusal,
)
from tests.tools.cli.running import records, run

ORDER = {**record("Order", id="long", note="string"), "namespace": "shop"}


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "log")


@pytest.fixture
def glue() -> Iterator[str]:
    """The URL of a service that has the empty registry ``shop``."""
    with glue_service() as url:
        yield url


def options(endpoint: str | None = None, name: str = "shop", region: str | None = REGION) -> RegistryOptions:
    return RegistryOptions((), registry=GLUE, region=region, name=name, endpoint=endpoint)


def test_register_and_read(glue: str) -> None:
    registry, text = GlueRegistry(options(glue)), RegisteredSchema(json.dumps(ORDER))
    with pytest.raises(SchemaRegistryError, match="does not know this schema among the versions of 'orders'"):
        registry.find("orders", text)
    first = registry.register("orders", text)
    assert first == replace(text, guid=first.guid)
    assert registry.register("orders", text) == registry.find("orders", text) == first
    fields = [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]
    wider = RegisteredSchema(json.dumps({**ORDER, "fields": fields}))
    second = registry.register("orders", wider)
    assert second.guid != first.guid
    assert registry.latest("orders") == second
    assert first.guid is not None
    assert GlueRegistry(options(glue)).by_key(first.guid) == first


def test_another_creates_the_schema_meanwhile(glue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = GlueRegistry(options(glue))
    registry.register("orders", RegisteredSchema(json.dumps(ORDER)))
    ask, is_early = registry._call, [True]

    def before(method: str, *given: Any, **more: Any) -> dict[str, Any] | None:
        if method == "register_schema_version" and is_early.pop():
            is_early.append(False)
            return None
        return ask(method, *given, **more)

    monkeypatch.setattr(registry, "_call", before)
    fields = [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]
    wider = RegisteredSchema(json.dumps({**ORDER, "fields": fields}))
    assert registry.register("orders", wider) == GlueRegistry(options(glue)).latest("orders")


def test_an_id_is_asked_for_once(glue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = GlueRegistry(options(glue))
    key = registry.register("orders", RegisteredSchema(json.dumps(ORDER))).guid
    calls: list[str] = []
    ask = registry._sent

    def counted(method: str, *given: Any) -> dict[str, Any]:
        calls.append(method)
        return ask(method, *given)

    monkeypatch.setattr(registry, "_sent", counted)
    assert key is not None
    assert registry.by_key(key) is registry.by_key(key)
    assert calls == ["get_schema_version"]


def test_what_is_not_there(glue: str) -> None:
    registry, unknown = GlueRegistry(options(glue)), uuid.UUID(int=7)
    with pytest.raises(SchemaRegistryError, match=f"'shop' does not know schema version {unknown}"):
        registry.by_key(unknown, wait=0.2)
    with pytest.raises(SchemaRegistryError, match="does not know schema 'orders'"):
        registry.latest("orders")
    with pytest.raises(SchemaRegistryError, match="has no registry 'other'"):
        GlueRegistry(options(glue, "other")).register("orders", RegisteredSchema(json.dumps(ORDER)))
    with pytest.raises(SchemaRegistryError, match="refuses this schema as a version of 'orders': "):
        registry.register("orders", RegisteredSchema("{"))


def test_no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without credentials, a region or an answer: no secret is said."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        SchemaRegistryError, match=r"can't be reached: ValueError\. Check .* endpoint"
    ) as caught:
        GlueRegistry(options("me:secret@host")).latest("orders")
    assert "secret" not in str(caught.value)
    with pytest.raises(SchemaRegistryError, match="can't be reached: NoRegionError"):
        GlueRegistry(options(region=None)).latest("orders")
    with pytest.raises(SchemaRegistryError, match="gave no answer for schema 'orders': NoCredentialsError"):
        GlueRegistry(options()).latest("orders")


TOKEN = "token/of+session=27b1"


@pytest.fixture
def relay(glue: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    with served(Relay(glue)) as server:
        yield server


LOGIN = "Check the credentials, and what they allow in Glue"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (refusal(400, "ExpiredTokenException"), f": ExpiredTokenException. {LOGIN}"),
        (refusal(400, "com.amazonaws.glue#AccessDeniedException"), f": AccessDeniedException. {LOGIN}"),
        (refusal(403, "UnrecognizedClientException"), f": UnrecognizedClientException. {LOGIN}"),
        (refusal(401, AWS_CREDENTIALS["AWS_SECRET_ACCESS_KEY"]), f": HTTP status 401. {LOGIN}"),
        (answer(302, b""), ": HTTP status 302"),
        (answer(200, b"<html>"), "gave an answer without a schema for"),
        (answer(400, b"<html>"), ": HTTP status 400"),
        (endless, "gave more than 16777216 bytes"),
    ],
    ids=["expired", "denied", "forged", "odd", "redirect", "html", "html of an error", "endless"],
)
def test_refused(relay: Relay, fault: Fault, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is asked again, followed or read without end, and no secret is said or logged."""
    caplog.set_level(logging.DEBUG)
    relay.fault = fault
    with pytest.raises(SchemaRegistryError) as caught:
        GlueRegistry(options(relay.url)).by_key(uuid.UUID(int=7))
    assert said in str(caught.value)
    assert len(relay.requests) == 1
    logged = "".join(record.getMessage() for record in caplog.records) + str(caught.value)
    for secret in (AWS_CREDENTIALS["AWS_SECRET_ACCESS_KEY"], TOKEN, "Signature="):
        assert secret not in logged


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (refusal(400, "ThrottlingException"), "ThrottlingException"),
        (refusal(400, "OperationTimeoutException"), "OperationTimeoutException"),
        (answer(503, b""), "HTTP status 503"),
        (answer(429, b""), "HTTP status 429"),
        (closing, "the answer is not HTTP"),
        (dripping, "there is no answer in time"),
    ],
    ids=["throttled", "timed out", "unavailable", "too many", "closed", "dripping"],
)
def test_asked_again(relay: Relay, fault: Fault, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a task's minute, or a planner's five seconds until it has answered; then it is an error."""
    monkeypatch.setattr(glue_module, "_SECONDS", 0.5)
    registry = GlueRegistry(options(relay.url))
    key = registry.register("orders", RegisteredSchema(json.dumps(ORDER))).guid
    assert key is not None
    relay.requests.clear()

    def twice(handler: BaseHTTPRequestHandler) -> None:
        if len(relay.requests) == 2:
            relay.fault = None
        fault(handler)

    relay.fault = twice
    assert json.loads(registry.by_key(key).text) == ORDER
    assert len(relay.requests) == 3
    relay.fault, began = fault, time.monotonic()
    with pytest.raises(SchemaRegistryError, match=f"gave no answer for schema version .*: {said}"):
        GlueRegistry(options(relay.url)).by_key(key, wait=0.3)
    monkeypatch.setattr(schema_registry, "FIRST_CONTACT", 0.3)
    with pytest.raises(SchemaRegistryError, match=f"gave no answer for schema 'orders': {said}"):
        GlueRegistry(options(relay.url)).latest("orders")
    assert time.monotonic() - began < 10


def test_the_signature_is_of_what_is_sent(relay: Relay) -> None:
    """moto checks none, so botocore signs what has arrived once more."""
    sent: list[dict[str, str]] = []

    def kept(handler: BaseHTTPRequestHandler) -> None:
        sent.append(dict(handler.headers.items()))
        answer(403, b"{}")(handler)

    relay.fault = kept
    with pytest.raises(SchemaRegistryError, match="HTTP status 403"):
        GlueRegistry(options(relay.url)).latest("orders")
    (headers,) = ({name.lower(): text for name, text in each.items()} for each in sent)
    found = headers["authorization"]
    signed = found.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert {"host", "x-amz-date", "x-amz-security-token"} <= {*signed}
    content = relay.requests[0].partition(" ")[2]
    again = AWSRequest("POST", relay.url + "/", {name: headers[name] for name in signed}, content)
    again.context["timestamp"] = headers["x-amz-date"]
    login = Credentials(*AWS_CREDENTIALS.values(), TOKEN)
    auth = SigV4Auth(login, "glue", REGION)
    signature = auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again)
    assert found.endswith(f"Signature={signature}")


def test_a_service_that_is_down(glue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "FIRST_CONTACT", 0.3)
    with pytest.raises(SchemaRegistryError, match=r"'orders': Connection refused\. Check the options region"):
        GlueRegistry(options(f"http://127.0.0.1:{free_ports(1)[0]}")).latest("orders")


def test_its_certificate(glue: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The authorities are botocore's: of AWS_CA_BUNDLE, or its own."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with Relay(glue) as relay:
        relay.socket = context.wrap_socket(relay.socket, server_side=True)
        with served(relay):
            url = f"https://localhost:{relay.server_port}"
            monkeypatch.setattr(schema_registry, "FIRST_CONTACT", 0.3)
            with pytest.raises(
                SchemaRegistryError, match=r"self-signed certificate|unable to get local issuer"
            ):
                GlueRegistry(options(url)).latest("orders")
            authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
            monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "authority.pem"))
            with pytest.raises(SchemaRegistryError, match="does not know schema 'orders'"):
                GlueRegistry(options(url)).latest("orders")


def of_columns(glue: str, **more: str) -> dict[str, str]:
    """The options of a read or a write."""
    given = {"value.format": "glue-avro", "endpoint": glue, "region": REGION, "registry.name": "shop"}
    return {**given, **{name.replace("__", "."): text for name, text in more.items()}}


def read(root: str, glue: str, topic: str = "orders", **more: str) -> list[dict[str, Any]]:
    rows = connect(root).read(options={"subscribe": topic, **of_columns(glue, **more)})
    found: list[dict[str, Any]] = rows.read_all().to_pylist()
    return found


ROWS = [{"id": 1, "note": "é"}, {"id": 2, "note": ""}, None]
KIND = pa.struct([("id", pa.int64()), ("note", pa.string())])


@pytest.mark.parametrize("encoding", ["avro", "json", "protobuf"])
def test_what_is_written_is_read(glue: str, root: str, encoding: str) -> None:
    form = {"value__format": f"glue-{encoding}"}
    table = pa.table({"value": pa.array(ROWS, KIND)})
    with pytest.raises(SchemaRegistryError, match="does not know schema 'orders'"):
        connect(root).write(table, "orders", options=of_columns(glue, **form))
    connect(root).write(table, "orders", options=of_columns(glue, **form, auto__register__schemas="true"))
    found = read(root, glue, **form, includeSchemaId="true")
    assert [row["value"] for row in found] == ROWS
    key = GlueRegistry(options(glue)).latest("orders").guid
    assert [row["schemaGuid"] for row in found] == [str(key), str(key), None]
    assert [row["schemaId"] for row in found] == [None] * 3
    assert glue_key(connect(root).read("orders").read_all()["value"][0].as_py()[:18]) == key
    connect(root).write(table, "orders", options=of_columns(glue, **form, transform="tests.plugins:same"))
    assert [row["value"] for row in read(root, glue, **form, transform="tests.plugins:same")] == ROWS * 2


def test_the_name_and_the_compatibility_of_a_schema(glue: str, root: str) -> None:
    table = pa.table({"key": pa.array(ROWS[:2], KIND), "value": pa.array(ROWS[:2], KIND)})
    named = {"schemaName": "any", "key__format": "glue-avro"}
    given = of_columns(glue, **named, auto__register__schemas="true", compatibility="full")
    connect(root).write(table, "orders", options=given)
    client = boto3.client("glue", region_name=REGION, endpoint_url=glue)
    made = client.get_schema(SchemaId={"RegistryName": "shop", "SchemaName": "any"})
    assert made["Compatibility"] == "FULL"
    assert [(row["key"], row["value"]) for row in read(root, glue, **named)] == [
        (row, row) for row in ROWS[:2]
    ]


def test_what_can_not_be_decoded(glue: str, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters have the bytes as they were; a batch that grows beyond the bound is read in parts."""
    key = GlueRegistry(options(glue)).register("orders", RegisteredSchema(json.dumps(ORDER))).guid
    assert key is not None
    small, large = ({"id": n, "note": "x" * 300 * n} for n in (1, 2))

    def packed(text: bytes) -> bytes:
        return b"\3\5" + key.bytes + zlib.compress(text)

    cut = packed(body(ORDER, small))[:-1]
    bad = [b"\3\5" + key.bytes + b"no zlib", glue_header(key) + b"\2", b"", packed(bytes(1001)), cut]
    values = [packed(body(ORDER, small)), *bad, *[packed(body(ORDER, large))] * 50]
    connect(root).write(pa.table({"value": values}), "orders")
    monkeypatch.setattr(GlueFraming.__init__, "__defaults__", (1000,))
    found = read(root, glue, includeCorrupt="true")
    assert [row["offset"] for row in found] == list(range(len(values)))
    assert [row["value"] for row in found if row["corrupt"] is None] == [small, *[large] * 50]
    assert [row["corrupt"]["value"] for row in found if row["corrupt"]] == bad
    reasons = [row["corrupt"]["reason"] for row in found if row["corrupt"]]
    parts = (
        "body is damaged",
        "value ends too early",
        "expected the key",
        "more than 1000 bytes",
        "body ends too early",
    )
    assert all(part in reason for part, reason in zip(parts, reasons, strict=True))
    for encoding in "json", "protobuf":
        schema = {"json": "id bigint", "protobuf": SHOP}[encoding]
        form = {"value__format": f"glue-{encoding}", "value__schema": schema}
        found = read(root, glue, **form, includeCorrupt="true")
        assert all("its compressed body" in found[row]["corrupt"]["reason"] for row in (1, 4, 5)), encoding


def test_in_a_shell(glue: str, root: str, tmp_path: Path) -> None:
    given = of_columns(glue, auto__register__schemas="true")
    connect(root).write(pa.table({"value": pa.array(ROWS, KIND)}), "orders", options=given)
    words = ["--value-format", "glue-avro"]
    for name, text in of_columns(glue).items():
        words += [] if name == "value.format" else ["-o", f"{name}={text}"]
    assert [row["value"] for row in records(root, "orders", *words)] == ROWS
    path = tmp_path / "orders.parquet"
    assert run("export", root, "orders", path, *words).code == 0
    assert pyarrow.parquet.read_table(path).column("value").to_pylist() == ROWS


def test_without_botocore(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(root).write(pa.table({"value": [b"x"]}), "orders")
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(SchemaRegistryError, match=r"pip install 'pyspark-kafkalog\[aws\]'"):
        read(root, "http://127.0.0.1:1", registry__name="another")


def java_prints(*args: str) -> list[str]:
    source = Path(__file__).with_name("GlueSerde.java")
    command = [java(), "-cp", f"{glue_serde_jars()}/*", str(source), *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
def test_awslabs_serializers(glue: str, root: str, tmp_path: Path) -> None:
    """Four values without compression, then with it: the last of each is JSON."""
    values = [base64.b64decode(line) for line in java_prints(glue)]
    connect(root).write(pa.table({"value": [*values[:3], *values[4:7], None]}), "orders")
    connect(root).write(pa.table({"value": [values[3], values[7]]}), "events")
    expected = [{"id": n, "note": "x" * 100 * n} for n in range(3)]
    assert [row["value"] for row in read(root, glue)] == [*expected, *expected, None]
    events = read(root, glue, "events", value__format="glue-json")
    assert [row["value"] for row in events] == [{"id": 7}] * 2
    for encoding in "avro", "json":
        form = of_columns(glue, value__format=f"glue-{encoding}", auto__register__schemas="true")
        connect(root).write(pa.table({"value": pa.array(ROWS[:2], KIND)}), encoding, options=form)
        ours = connect(root).read(encoding).read_all()["value"].to_pylist()
        path = tmp_path / encoding
        path.write_text("\n".join(base64.b64encode(value).decode() for value in ours))
        assert [json.loads(line) for line in java_prints(glue, str(path))] == ROWS[:2]


SHOP = """
syntax = "proto3"; package shop;
message Order { map<string, int64> counts = 3; int64 id = 1; string note = 2; Buyer buyer = 4;
  message Buyer { string name = 1; message Address { string town = 1; } } }
message Amount { int64 cents = 1; }
"""
BY_NAME = ("Amount", "Order", "Order.Buyer", "Order.Buyer.Address", "Order.CountsEntry")


def test_messages_are_numbered_by_their_names(glue: str, root: str) -> None:
    """Those within others and entries of maps, too: compressed or not, and behind the 18 bytes."""
    key = GlueRegistry(options(glue)).register("orders", RegisteredSchema(SHOP, "PROTOBUF")).guid
    assert key is not None
    body = b"\x0a\x03Ann"
    packed = b"\3\5" + key.bytes
    values = [glue_header(key) + b"\2" + body, packed + zlib.compress(b"\2" + body), glue_header(key) + b"\2"]
    bad = [glue_header(key) + b"\1\x08\7", glue_header(key) + b"\5" + body, glue_header(key), b"\2" + body]
    connect(root).write(pa.table({"value": [*values, None, *bad]}), "orders")
    form = {"value__format": "glue-protobuf", "value__message": "Buyer", "includeSchemaId": "true"}
    found = read(root, glue, **form, includeCorrupt="true")
    assert [row["value"] for row in found[:4]] == [{"name": "Ann"}, {"name": "Ann"}, {"name": None}, None]
    assert [row["schemaGuid"] for row in found] == [*[str(key)] * 3, None, str(key), str(key), None, None]
    reasons = [row["corrupt"]["reason"] for row in found[4:]]
    assert "the value is a message shop.Order, and is read as a message shop.Order.Buyer" in reasons[0]
    assert all("expected the key of a schema and a message of it" in each for each in reasons[1:])
    assert [row["corrupt"]["value"] for row in found[4:]] == bad
    buyers = pa.array([{"town": "Rome"}], pa.struct([("town", pa.string())]))
    given = of_columns(glue, value__format="glue-protobuf", value__message="Address")
    connect(root).write(pa.table({"value": buyers}), "orders", options=given)
    written = connect(root).read("orders").read_all()["value"].to_pylist()[-1]
    assert written == glue_header(key) + bytes([BY_NAME.index("Order.Buyer.Address")]) + b"\x0a\4Rome"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
def test_awslabs_protobuf(glue: str, root: str, tmp_path: Path) -> None:
    """Messages and those within others by awslabs' serializer, and ours by their deserializer."""
    descriptors = FileDescriptorSet.FromString(compiled({"shop.proto": SHOP}))
    (file,) = [base64.b64encode(each.SerializeToString()).decode() for each in descriptors.file]
    body = b"\x08\7\x12\1x\x1a\5\x0a\1a\x10\2\x22\5\x0a\3Ann"
    values = []
    for name, each in (("Order", body), ("Order/Buyer", b"\x0a\3Ann"), ("Amount", b"\x08\7")):
        values += java_prints(glue, file, name, base64.b64encode(each).decode())
    connect(root).write(pa.table({"value": [base64.b64decode(value) for value in values]}), "orders")
    form = {"value__format": "glue-protobuf", "includeCorrupt": "true"}
    order = {"counts": [{"key": "a", "value": 2}], "id": 7, "note": "x", "buyer": {"name": "Ann"}}
    for number, (name, row) in enumerate(
        (("Order", order), ("Order.Buyer", {"name": "Ann"}), ("Amount", {"cents": 7}))
    ):
        found = read(root, glue, **form, value__message=f"shop.{name}")
        good = [each["offset"] for each in found if each["corrupt"] is None]
        assert good == [2 * number, 2 * number + 1], name
        assert [found[each]["value"] for each in good] == [row] * 2
    columns = pa.table({"value": pa.array([{"name": "Bob"}], pa.struct([("name", pa.string())]))})
    given = of_columns(glue, value__format="glue-protobuf", value__message="Buyer")
    connect(root).write(columns, "orders", options=given)
    path = tmp_path / "ours"
    path.write_text(base64.b64encode(connect(root).read("orders").read_all()["value"][-1].as_py()).decode())
    (printed,) = java_prints(glue, str(path))
    name, text = printed.split(" ")
    assert (name, base64.b64decode(text)) == ("Buyer", b"\x0a\3Bob")
