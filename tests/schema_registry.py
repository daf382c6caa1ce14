"""A real schema registry on loopback: Apicurio Registry, which serves Confluent's API from memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.http_doubles import Silent, answered, served
from tests.kafka_jars import apicurio_registry, java
from tests.kafka_process import free_ports, listens, tail


class SchemaRegistryServer:
    """A running registry; use :func:`schema_registry`. Subjects of tests have names of their own."""

    def __init__(self, port: int, output: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self.output = output
        self.process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It accepts connections and answers nothing."""
        assert self.process is not None, "it runs"
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # a thread of it may still answer until then
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def register(
        self, subject: str, schema: Any, references: Sequence[tuple[str, str, int]] = (), kind: str = "AVRO"
    ) -> int:
        """Add a schema; returns its id. References are (name, subject, version)."""
        body = {
            "schema": schema if isinstance(schema, str) else json.dumps(schema),
            "schemaType": kind,
            "references": [
                dict(zip(("name", "subject", "version"), each, strict=True)) for each in references
            ],
        }
        request = urllib.request.Request(
            f"{self.url}/subjects/{quote(subject, safe='')}/versions",
            json.dumps(body).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(json.load(response)["id"])

    def set_compatibility(self, subject: str, level: str) -> None:
        """Such as ``NONE``, so that any schema may be added."""
        request = urllib.request.Request(
            f"{self.url}/config/{subject}",
            json.dumps({"compatibility": level}).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=30).close()


@contextmanager
def schema_registry(folder: Path) -> Iterator[SchemaRegistryServer]:
    """A running registry that logs into ``folder``."""
    (runner,) = apicurio_registry().glob("*-runner.jar")
    (port,) = free_ports(1)
    folder.mkdir(parents=True, exist_ok=True)
    server = SchemaRegistryServer(port, folder / "registry.log")
    command = [java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx384m"]
    command += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-jar", str(runner)]
    with server.output.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=runner.parent
        )
    try:
        deadline = time.monotonic() + 120
        while not _serves(server, f"127.0.0.1:{port}"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"The registry did not start:\n{tail(server.output)}")
            time.sleep(0.1)
        server.process = process
        yield server
    finally:
        process.kill()
        process.wait()


@contextmanager
def with_guids(registry: SchemaRegistryServer) -> Iterator[str]:
    """The URL of the same registry with GUIDs, as Confluent's has them since 8.0, and Apicurio has not."""

    class Handler(Silent, BaseHTTPRequestHandler):
        def do_GET(self, body: bytes | None = None) -> None:
            path = self.path
            if path.startswith("/schemas/guids/"):
                number = uuid.UUID(path.removeprefix("/schemas/guids/").partition("?")[0]).int
                path = f"/schemas/ids/{number}"
            request = urllib.request.Request(registry.url + path, body)
            if body is not None:
                request.add_header("Content-Type", self.headers["Content-Type"])
            status, answer = answered(request)
            if status == 200 and "id" in (found := json.loads(answer)):
                answer = json.dumps({**found, "guid": str(uuid.UUID(int=found["id"]))}).encode()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def do_POST(self) -> None:
            self.do_GET(self.rfile.read(int(self.headers["Content-Length"])))

    with served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def _serves(server: SchemaRegistryServer, address: str) -> bool:
    if not listens(address):
        return False
    try:
        urllib.request.urlopen(f"{server.url}/subjects", timeout=5).close()
    except (OSError, urllib.error.HTTPError):
        return False
    return True
