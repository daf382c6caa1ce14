"""The registries of formats on loopback, and values as the serializers of each write them.

Confluent's API and Apicurio's own are those of a real registry, AWS Glue is moto's, Azure's is what its REST
API says. Before each is a :class:`Relay`, which counts requests, and may answer in place of it.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import make_server

from tests.http_doubles import Silent, answered, served
from tests.schema_registry import SchemaRegistryServer

REGION, SHOP = "eu-west-1", "shop"
AWS_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "secret-of-tests-5e0c"}
"""Those of the tests' environment; moto takes any."""
Headers = list[tuple[str, bytes]] | None
Fault = Callable[[BaseHTTPRequestHandler], None]


def refusal(status: int, code: str, message: str = AWS_CREDENTIALS["AWS_SECRET_ACCESS_KEY"]) -> Fault:
    """An answer as Glue's are, with a secret in its words."""
    return answer(status, json.dumps({"__type": code, "message": message}).encode())


def answer(status: int, content: bytes) -> Fault:
    def fault(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Location", "http://127.0.0.1:1/elsewhere")
        handler.end_headers()
        handler.wfile.write(content)

    return fault


def endless(handler: BaseHTTPRequestHandler) -> None:
    answer(200, b"{")(handler)
    for _ in range(1 << 10):
        handler.wfile.write(b" " * (1 << 20))


def dripping(handler: BaseHTTPRequestHandler) -> None:
    answer(200, b"{")(handler)
    for _ in range(100):
        time.sleep(0.05)
        handler.wfile.write(b" ")


def closing(handler: BaseHTTPRequestHandler) -> None:
    """No answer."""


class Relay(ThreadingHTTPServer):
    """Passes requests on to ``url``, and keeps their paths and bodies.

    :ivar fault: answers in place of the registry, until it is None.
    """

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relaying)
        self.target = url
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: list[str] = []
        self.fault: Fault | None = None


class _Relaying(Silent, BaseHTTPRequestHandler):
    server: Relay

    def do_GET(self) -> None:
        size = self.headers["Content-Length"]
        given = None if size is None else self.rfile.read(int(size))
        self.server.requests.append(self.path if given is None else f"{self.path} {given.decode()}")
        if self.server.fault is not None:
            with suppress(OSError):  # it has been given up
                self.server.fault(self)
            return
        kept = ("Content-Type", "X-Amz-Target", "Authorization", "Accept")
        headers = {name: text for name in kept if (text := self.headers[name])}
        request = urllib.request.Request(self.server.target + self.path, given, headers, method=self.command)
        status, answer = answered(request)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815


@contextmanager
def glue_service() -> Iterator[str]:
    """The URL of Glue with the empty registry ``shop``; credentials are in the environment meanwhile."""
    before = {name: os.environ.get(name) for name in AWS_CREDENTIALS}
    os.environ.update(AWS_CREDENTIALS)
    server = make_server("127.0.0.1", 0, create_backend_app("glue"), threaded=True)
    url = f"http://127.0.0.1:{server.port}"
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        client = boto3.client("glue", region_name=REGION, endpoint_url=url)
        client.create_registry(RegistryName=SHOP)
        try:
            yield url
        finally:
            client.delete_registry(RegistryId={"RegistryName": SHOP})
            server.shutdown()
            server.server_close()
            for name, text in before.items():
                os.environ.pop(name) if text is None else os.environ.update({name: text})


class _Azure(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _OfAzure)
        self.schemas: dict[str, str] = {}


class _OfAzure(Silent, BaseHTTPRequestHandler):
    server: _Azure

    def do_GET(self) -> None:
        name = self.path.removeprefix("/$schemaGroups/$schemas/").partition("?")[0]
        text = self.server.schemas.get(name)
        self.send_response(404 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())


class FormatRegistry(ABC):
    """A registry: the formats of its serializers are ``NAME-avro`` and so on.

    :ivar options: those of reads and writes.
    :ivar unknown: a key that it does not know.
    """

    name: str
    unknown: Any
    options: dict[str, str]

    def __init__(self, relay: Relay) -> None:
        self.relay = relay

    @abstractmethod
    def register(self, topic: str, schema: Any, kind: str, *, newest: bool = True) -> Any:
        """Add a schema to a topic's, or to those of another; gives its key."""

    @abstractmethod
    def framed(self, key: Any, body: bytes, message: str | None = None) -> tuple[bytes, Headers]:
        """A value and its headers. Of Protobuf, ``message`` is one of :data:`PROTO`."""


MESSAGES = "Order", "Refund"
PROTO = """
syntax = "proto3";
message Order { optional int64 id = 1; string name = 2; }
message Refund { int64 cents = 1; }
"""


class _Confluent(FormatRegistry):
    name, unknown = "confluent", 999_999

    def __init__(self, relay: Relay, server: SchemaRegistryServer) -> None:
        super().__init__(relay)
        self._server = server
        self.options = {"schema.registry.url": f"{relay.url}/apis/ccompat/v7"}

    def register(self, topic: str, schema: Any, kind: str, *, newest: bool = True) -> int:
        subject = f"{topic}-value" if newest else f"{topic}-{kind}-{uuid.uuid4().hex[:6]}"
        found = self._server.register(subject, schema, kind=kind)
        self._server.set_compatibility(subject, "NONE")
        return found

    def framed(self, key: Any, body: bytes, message: str | None = None) -> tuple[bytes, Headers]:
        indexes = {None: b"", "Order": b"\0", "Refund": b"\2\2"}[message]
        return b"\0" + key.to_bytes(4, "big") + indexes + body, None


class _Apicurio(_Confluent):
    name = "apicurio"

    def __init__(self, relay: Relay, server: SchemaRegistryServer) -> None:
        super().__init__(relay, server)
        self.options = {"apicurio.registry.url": f"{relay.url}/apis/registry/v3"}

    def framed(self, key: Any, body: bytes, message: str | None = None) -> tuple[bytes, Headers]:
        name = b"" if message is None else b"\x0a" + bytes([len(message)]) + message.encode()
        ref = bytes([len(name)]) + name if name else b""
        return b"\0" + key.to_bytes(4, "big") + ref + body, None


class _Glue(FormatRegistry):
    name, unknown = "glue", uuid.UUID(int=7)

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay)
        self.options = {"endpoint": relay.url, "region": REGION, "registry.name": SHOP}
        self._client = boto3.client("glue", region_name=REGION, endpoint_url=relay.target)

    def register(self, topic: str, schema: Any, kind: str, *, newest: bool = True) -> uuid.UUID:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        name = topic if newest else f"{topic}-{uuid.uuid4().hex[:6]}"
        of = {"RegistryName": SHOP, "SchemaName": name}
        try:
            answer = self._client.register_schema_version(SchemaId=of, SchemaDefinition=text)
        except self._client.exceptions.EntityNotFoundException:
            answer = self._client.create_schema(
                RegistryId={"RegistryName": SHOP},
                SchemaName=name,
                DataFormat=kind,
                Compatibility="NONE",
                SchemaDefinition=text,
            )
        return uuid.UUID(answer["SchemaVersionId"])

    def framed(self, key: Any, body: bytes, message: str | None = None) -> tuple[bytes, Headers]:
        number = b"" if message is None else bytes([MESSAGES.index(message)])
        return b"\3\0" + key.bytes + number + body, None


class _AzureRegistry(FormatRegistry):
    name, unknown = "azure", uuid.UUID(int=7)

    def __init__(self, relay: Relay, server: _Azure) -> None:
        super().__init__(relay)
        self.options = {"schema.registry.url": relay.url, "bearer.auth.token": "token-of-tests-91bd"}
        self._server = server

    def register(self, topic: str, schema: Any, kind: str, *, newest: bool = True) -> uuid.UUID:
        key = uuid.uuid4()
        self._server.schemas[key.hex] = json.dumps(schema)
        return key

    def framed(self, key: Any, body: bytes, message: str | None = None) -> tuple[bytes, Headers]:
        return body, [("content-type", b"avro/binary+" + key.hex.encode())]


@contextmanager
def format_registry(name: str, server: Callable[[], SchemaRegistryServer]) -> Iterator[FormatRegistry]:
    """The registry of a name.

    :param server: gives the real one, where that is needed.
    """
    with ExitStack() as stack:
        if name in ("confluent", "apicurio"):
            real = server()
            relay = stack.enter_context(served(Relay(real.url.removesuffix("/apis/ccompat/v7"))))
            yield (_Confluent if name == "confluent" else _Apicurio)(relay, real)
        elif name == "glue":
            yield _Glue(stack.enter_context(served(Relay(stack.enter_context(glue_service())))))
        else:
            azure = stack.enter_context(served(_Azure()))
            relay = stack.enter_context(served(Relay(f"http://127.0.0.1:{azure.server_port}")))
            yield _AzureRegistry(relay, azure)
