"""A real S3 server on loopback, S3Proxy on a folder; and a proxy that counts requests and slows them down.

Its jars come from where Kafka's do: Java and pip's PySpark are enough.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from pyspark_kafkalog.tools.try_out.local_broker import write_properties
from tests.kafka_jars import java, s3proxy_jars
from tests.kafka_process import free_ports, listens, tail

IDENTITY, SECRET = "an-identity", "a-secret"
BUCKET = "bucket"
_CHUNK = 1 << 18


class ObjectStore:
    """The buckets are the folders in ``folder / "data"``; use :func:`object_store`."""

    def __init__(self, folder: Path) -> None:
        self.bucket = folder / "data" / BUCKET
        self.bucket.mkdir(parents=True)
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self.output = folder / "s3proxy.log"
        quiet = folder / "logback.xml"
        quiet.write_text('<configuration><root level="WARN"/></configuration>')
        properties = {
            "s3proxy.endpoint": f"http://{self.address}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": IDENTITY,
            "s3proxy.credential": SECRET,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": self.bucket.parent,
        }
        file = write_properties(folder / "s3proxy.properties", properties)
        options = ["-XX:+UseSerialGC", "-Xmx512m", f"-Dlogback.configurationFile={quiet}"]
        classes = ["-cp", f"{s3proxy_jars()}/*", "org.gaul.s3proxy.Main"]
        self.command = [java(), *options, *classes, "--properties", str(file)]

    def put(self, log_directory: Path, name: str) -> None:
        """Copy a folder into the bucket, as a tool for backups would."""
        shutil.copytree(log_directory, self.bucket / name)

    def uri(self, name: str, address: str | None = None) -> str:
        """The URI of a folder in the bucket, at the server or at a proxy before it."""
        at = quote(address or self.address, safe="")
        return f"s3://{IDENTITY}:{SECRET}@{BUCKET}/{name}?scheme=http&region=us-east-1&endpoint_override={at}"


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """A running server, with its files in ``folder``."""
    store = ObjectStore(folder)
    with store.output.open("wb") as output:
        process = subprocess.Popen(store.command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while not listens(store.address):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"S3Proxy does not serve:\n{tail(store.output)}")
                time.sleep(0.05)
            yield store
        finally:
            process.kill()
            process.wait()


class HttpProxy:
    """Passes HTTP requests without bodies on to a server, and its answers back; use it as a context manager.

    Each request waits for ``latency`` seconds. ``requests`` counts them by method.
    """

    def __init__(self, server: str, latency: float = 0.0) -> None:
        self.latency = latency
        self.requests: Counter[str] = Counter()
        host, port = server.split(":")
        self._server = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> HttpProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def total(self) -> int:
        return self.requests.total()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=_pass, args=(server, client), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        held = b""
        with contextlib.suppress(OSError):
            while data := client.recv(_CHUNK):
                held += data
                while (end := held.find(b"\r\n\r\n")) >= 0:
                    request, held = held[: end + 4], held[end + 4 :]
                    self.requests[request.split(b" ", 1)[0].decode()] += 1
                    time.sleep(self.latency)
                    server.sendall(request)
        _close(client, server)


def _pass(source: socket.socket, target: socket.socket) -> None:
    room = memoryview(bytearray(_CHUNK))
    with contextlib.suppress(OSError):
        while count := source.recv_into(room):
            target.sendall(room[:count])
    _close(source, target)


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
