"""Doubles of the metadata services of AWS, Google and Azure, on loopback, as strict as the real ones."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from google.auth.compute_engine import _metadata as of_google

from pyspark_kafkalog.extensions.clouds import metadata
from tests.http_doubles import Silent, served

SESSION = "session-of-imds-5e1a"
CONTAINER = "token-of-container-77b2"
STS = "/"
"""The path of AWS's Security Token Service."""


class MetadataServices(ThreadingHTTPServer):
    """All three at one address, and AWS's STS.

    ``answers`` are by path; ``failures`` are statuses that come first. ``asked`` are the methods and paths of
    requests, ``forms`` what was posted, ``signatures`` of whom. Each answer takes ``delay`` seconds.
    Without an answer, tokens of so many seconds say at their end when they end.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"127.0.0.1:{self.server_port}"
        self.answers: dict[str, str] = {}
        self.failures: list[int] = []
        self.asked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.signatures: list[str] = []
        self.delay = 0.0
        self.token_seconds = 0


class _Handler(Silent, BaseHTTPRequestHandler):
    server: MetadataServices

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.forms.append({name: values[0] for name, values in form.items()})
        self.server.signatures.append(self.headers["Authorization"] or "")
        self._answer("POST")

    def do_GET(self) -> None:
        self._answer("GET")

    def _answer(self, method: str) -> None:
        self.server.asked.append(f"{method} {self.path}")
        time.sleep(self.server.delay)
        path = urlsplit(self.path).path
        status, text = 404, "not found"
        if self.server.failures:
            status, text = self.server.failures.pop(0), self.server.answers.get(path, text)
        elif path == "/latest/api/token":
            is_right = method == "PUT" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
            status, text = (200, SESSION) if is_right else (400, "bad request")
        elif not self._is_allowed(path):
            status = 401 if path.startswith("/latest") else 403
        elif path == STS:
            status, text = 200, self.server.answers.get(STS, "computeMetadata/")
        elif path in self.server.answers:
            status, text = 200, self.server.answers[path]
        elif self.server.token_seconds and path.endswith("/token"):
            end = int(time.time()) + self.server.token_seconds
            status = 200
            seconds = self.server.token_seconds
            text = json.dumps({"access_token": f"token.{end}", "expires_in": seconds, "expires_on": str(end)})
        with contextlib.suppress(OSError):  # of a client that waits no longer
            self.send_response(status)
            self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Type", f"application/{'json' if text.startswith('{') else 'text'}")
            self.end_headers()
            self.wfile.write(text.encode())

    def _is_allowed(self, path: str) -> bool:
        name, value = {
            "latest": ("X-aws-ec2-metadata-token", SESSION),
            "computeMetadata": ("Metadata-Flavor", "Google"),
            "metadata": ("Metadata", "true"),
            "container": ("Authorization", CONTAINER),
            "msi": ("X-IDENTITY-HEADER", "header-of-platform"),
        }.get(path.split("/")[1], ("Host", self.server.address))
        return self.headers[name] == value


@contextlib.contextmanager
def metadata_services() -> Iterator[MetadataServices]:
    """The doubles, where this process looks for the services."""
    with served(MetadataServices()) as server:
        url = f"http://{server.address}"
        environment = {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": url,
            "AWS_ENDPOINT_URL_STS": url,
            "GCE_METADATA_HOST": server.address,
            "GCE_METADATA_IP": server.address,
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": url,
        }
        with (
            mock.patch.dict("os.environ", environment),
            mock.patch.object(metadata, "_AZURE", url),
            mock.patch.object(of_google, "_GCE_METADATA_HOST", server.address),  # read when it was loaded
        ):
            yield server
