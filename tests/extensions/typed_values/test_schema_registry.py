"""Schemas from a real registry, and from one that fails in all ways that HTTP knows."""

from __future__ import annotations

import base64
import json
import signal
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme

from pyspark_kafkalog.errors import OptionError, SchemaRegistryError
from pyspark_kafkalog.extensions.typed_values import schema_registry
from pyspark_kafkalog.extensions.typed_values.registries.sources import registry_of
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions, registry_options
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema, SchemaRegistry
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions, log_once_for
from tests.http_doubles import Silent, served
from tests.kafka_process import free_ports
from tests.schema_registry import SchemaRegistryServer

SECRET = "registry-secret-77d0"
A = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}
GUID = "89791762-2336-4186-9674-299b90a802e2"


class Double(ThreadingHTTPServer):
    """Gives its answers in turn, then the last one again, by TLS if given; keeps paths and logins."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, Any]] = []
        self.requests: list[tuple[str, str | None]] = []
        self.bodies: list[bytes] = []
        self.pause = self.pause_in_answer = self.pause_in_headers = 0.0
        self.length: int | None = None
        self.url = f"http://127.0.0.1:{self.server_port}/base"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.url = self.url.replace("http://127.0.0.1", "https://localhost")

    def registry(self, **options: Any) -> SchemaRegistry:
        return SchemaRegistry(RegistryOptions((self.url,), **options))


class _Handler(Silent, BaseHTTPRequestHandler):
    server: Double

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers["Authorization"]))
        answers = self.server.answers
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        time.sleep(self.server.pause)
        answer = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self._drip(b"HTTP/1.0 200 OK\r\nX-Long: " + bytes(200), self.server.pause_in_headers)
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            if self.server.length is not None:
                self.send_header("Content-Length", str(self.server.length))
            self.end_headers()
            self._drip(answer, self.server.pause_in_answer)
            self.wfile.write(b"" if self.server.pause_in_answer else answer)
        except OSError:
            pass  # it has been given up

    def _drip(self, text: bytes, pause: float) -> None:
        for byte in range(len(text) if pause else 0):
            self.wfile.write(text[byte : byte + 1])
            time.sleep(pause)

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.do_GET()


@pytest.fixture
def double() -> Iterator[Double]:
    with served(Double()) as server:
        yield server


@pytest.mark.broker
def test_schemas_of_a_real_registry(registry: SchemaRegistryServer) -> None:
    name = uuid.uuid4().hex[:8]
    first = registry.register(f"{name}-a", A)
    middle = {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]}
    registry.register(f"{name}-b", middle, [("A", f"{name}-a", 1)])
    outer = {
        "type": "record",
        "name": "C",
        "fields": [{"name": "b", "type": "B"}, {"name": "a", "type": "A"}],
    }
    last = registry.register(f"{name}-c/value", outer, [("B", f"{name}-b", 1), ("A", f"{name}-a", 1)])
    found = SchemaRegistry(RegistryOptions((f"{registry.url}/",)))
    assert json.loads(found.by_id(first).text) == A
    assert found.by_id(first).references == ()
    schema = found.by_id(last)
    assert (json.loads(schema.text), schema.kind) == (outer, "AVRO")
    assert [json.loads(text)["name"] for text in schema.references] == ["A", "B"]
    assert [(name, json.loads(text)["name"]) for name, text in schema.named_references] == [
        ("A", "A"),
        ("B", "B"),
    ]
    newest = found.latest(f"{name}-c/value")
    assert (newest.schema_id, newest.text, newest.references) == (last, schema.text, schema.references)
    with pytest.raises(SchemaRegistryError, match=r"^The schema registry 127\.0\.0\.1:\d+ does not know"):
        found.latest(f"{name}-d")


@pytest.mark.broker
def test_schemas_are_registered_in_a_real_registry(registry: SchemaRegistryServer) -> None:
    subject, found = f"{uuid.uuid4().hex[:8]}-a/value", SchemaRegistry(RegistryOptions((registry.url,)))
    with pytest.raises(SchemaRegistryError, match="does not know this schema of subject"):
        found.find(subject, RegisteredSchema(json.dumps(A)))
    schema = found.register(subject, RegisteredSchema(json.dumps(A)))
    assert schema.schema_id is not None
    assert found.register(subject, RegisteredSchema(json.dumps(A))) == schema
    assert found.find(subject, RegisteredSchema(json.dumps(A))) == schema
    assert found.latest(subject).schema_id == schema.schema_id
    registry.set_compatibility(quote(subject, safe=""), "BACKWARD")
    other = {**A, "fields": [{"name": "x", "type": "string"}]}
    with pytest.raises(
        SchemaRegistryError, match=r"refuses this schema of subject .*: .*ncompatible"
    ) as caught:
        found.register(subject, RegisteredSchema(json.dumps(other)))
    assert "Change the columns" in str(caught.value)
    with pytest.raises(SchemaRegistryError, match="refuses"):
        found.register(subject, RegisteredSchema('{"type": "recor"}'))


@pytest.mark.parametrize(
    ("status", "said"), [(503, "gave no answer for schema id 7: HTTP status 503"), (404, "does not know")]
)
def test_a_long_wait_is_said(
    double: Double,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(schema_registry, "_QUIET", 0.2)
    double.answers = [(status, {})]
    with pytest.raises(SchemaRegistryError, match=said):
        double.registry().by_id(7, wait=0.1)
    assert not caplog.records
    with pytest.raises(SchemaRegistryError, match=said):
        double.registry().by_id(7, wait=1)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("Retrying for up to ")
    assert said in warning


@pytest.mark.parametrize("status", [409, 422])
def test_why_a_schema_is_refused(double: Double, status: int) -> None:
    double.answers = [(status, {"error_code": status, "message": "not\n  good " * 500})]
    with pytest.raises(
        SchemaRegistryError, match="refuses this schema of subject 's-value': not good not"
    ) as e:
        double.registry(token="a.b.c").register("s-value", RegisteredSchema("{}"))
    assert len(str(e.value)) < 1300
    assert double.requests == [("/base/subjects/s-value/versions", "Bearer a.b.c")]
    assert json.loads(double.bodies[0]) == {"schema": "{}"}
    for body in (b"<html>", b"[]", {"message": 7}):
        double.answers = [(status, body)]
        with pytest.raises(SchemaRegistryError, match=f"refuses this schema .*: HTTP status {status}"):
            double.registry().find("s-value", RegisteredSchema("{}"))


@pytest.mark.parametrize("answer", [{}, {"id": "7"}, {"id": -1}, {"id": 1 << 32}, {"id": True}])
def test_an_answer_without_an_id(double: Double, answer: Any) -> None:
    double.answers = [(503, b""), (200, answer)]
    with pytest.raises(SchemaRegistryError, match="gave an answer without an id"):
        double.registry().register("s-value", RegisteredSchema("{}"))
    assert len(double.bodies) == 2


def test_an_id_of_the_newest_schema_that_can_not_be_one(double: Double) -> None:
    for number in (None, "7", -1, 1 << 32, True):
        double.answers = [(200, {"schema": "1", "id": number})]
        assert double.registry().latest("s-value").schema_id is None


def test_a_schema_that_a_subject_does_not_have(double: Double) -> None:
    double.answers = [(404, {"error_code": 40403, "message": "Schema not found"})]
    with pytest.raises(SchemaRegistryError, match="does not know this schema") as caught:
        double.registry().find("s-value", RegisteredSchema("{}"))
    assert "auto.register.schemas=true to a write" in str(caught.value)


def test_what_is_no_registry_is_told_from_one_without_the_subject(double: Double) -> None:
    for answer in b"<html>", b"", {"status": 404}:
        double.answers = [(404, answer)]
        with pytest.raises(SchemaRegistryError, match="does not answer as registries do") as caught:
            double.registry().latest("s-value")
        assert "Check the path in schema.registry.url" in str(caught.value)


def test_one_that_does_not_speak_tls(double: Double) -> None:
    registry = SchemaRegistry(RegistryOptions((double.url.replace("http:", "https:"),)))
    with pytest.raises(SchemaRegistryError, match="it does not speak TLS, which https:// asks for"):
        registry.latest("s-value", wait=0)


def test_an_id_is_asked_for_once(double: Double) -> None:
    double.answers = [(200, {"schema": "1"}), (200, {"schema": "2", "schemaType": "JSON"})]
    registry = double.registry()
    assert [registry.by_id(7).text for _ in range(3)] == ["1"] * 3
    assert registry.by_guid(GUID).kind == "JSON"
    assert [path for path, _ in double.requests] == ["/base/schemas/ids/7", f"/base/schemas/guids/{GUID}"]


def test_an_id_that_appears_a_moment_later(double: Double) -> None:
    unknown = (404, {"error_code": 40403, "message": "Schema not found"})
    double.answers = [unknown, unknown, (200, {"schema": "1"})]
    assert double.registry().by_id(7, wait=10).text == "1"


def test_what_is_known(double: Double) -> None:
    double.answers = [(503, b""), (404, b""), (200, {"schema": "1"}), (503, b"")]
    registry = double.registry()
    assert not registry.knows(7)
    assert registry.knows(7)
    with pytest.raises(SchemaRegistryError, match="gave no answer for schema id 7"):
        registry.knows(7, wait=0.2)


def test_a_guid_that_the_registry_does_not_know(double: Double) -> None:
    double.answers = [(404, {"error_code": 40403, "message": "Schema not found"})]
    with pytest.raises(SchemaRegistryError, match=f"does not know schema GUID {GUID}"):
        double.registry().by_guid(GUID, wait=0.2)
    assert len(double.requests) > 1


def test_an_answer_that_ends_early(double: Double) -> None:
    """A proxy may close the connection."""
    double.answers, double.length = [(200, {"schema": "1"})], 50
    with pytest.raises(SchemaRegistryError, match="gave no answer for schema id 7: the answer ends early"):
        double.registry().by_id(7, wait=0.2)
    assert len(double.requests) > 1


def test_an_answer_without_end(double: Double) -> None:
    double.answers = [(200, b"[" * (17 << 20))]
    with pytest.raises(SchemaRegistryError, match="gave more than 16777216 bytes for schema id 7"):
        double.registry().by_id(7)


def test_references_without_end(double: Double) -> None:
    """Each of a size that is allowed, and each answer late."""
    first = {"schema": "1", "references": [{"subject": f"s{n}", "version": 1} for n in range(50)]}
    double.answers = [(200, first), (200, {"schema": " " * (5 << 20)})]
    with pytest.raises(
        SchemaRegistryError, match="has more than 16777216 characters that schema id 7 refers"
    ):
        double.registry().by_id(7)
    assert len(double.requests) < 10
    double.answers, double.pause = [(200, first), (200, {"schema": "1"})], 0.1
    began = time.monotonic()
    with pytest.raises(SchemaRegistryError, match="gave no answer for subject 's"):
        double.registry(timeout_ms=500).by_id(7, wait=0.2)
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_registry_that_has_no_time(double: Double, status: int) -> None:
    double.answers = [(status, b"later"), (200, {"schema": "1"})]
    assert double.registry().by_id(7, wait=10).text == "1"
    double.answers = [(status, b"later")]
    with pytest.raises(SchemaRegistryError, match=f"gave no answer for schema id 8: HTTP status {status}"):
        double.registry().by_id(8, wait=0.2)


def test_the_second_registry_answers(double: Double) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
        double.answers = [(200, {"schema": "1"})]
        registry = SchemaRegistry(RegistryOptions((dead, double.url)))
        assert registry.by_id(7).text == "1"
        with pytest.raises(SchemaRegistryError, match="gave no answer for schema id 7: Connection refused"):
            SchemaRegistry(RegistryOptions((dead,))).by_id(7, wait=0.2)


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a port that takes no connection: its backlog is full, so that a SYN is not answered."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filling in first, second:
            filling.setblocking(False)
            filling.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize("is_closed", [True, False])
def test_one_that_never_answered_is_told_soon_where_a_query_is_planned(silent: str, is_closed: bool) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}" if is_closed else silent
    began = time.monotonic()
    with pytest.raises(
        SchemaRegistryError,
        match=r"gave no answer for subject 's-value': .*registry\.url, and that the registry runs and can be",
    ):
        SchemaRegistry(RegistryOptions((url,))).latest("s-value")
    assert 4 < time.monotonic() - began < 15


@pytest.mark.slow
def test_one_that_is_slow_to_its_first_answer_has_its_time(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only connecting is cut short: a registry that has just begun may need longer."""
    monkeypatch.setattr(schema_registry, "FIRST_CONTACT", 0.5)
    double.answers, double.pause = [(200, {"schema": "1"})], 2.5
    assert double.registry().latest("s-value").text == "1"


@pytest.mark.slow
@pytest.mark.parametrize("asks", ["by_id", "latest after an answer"])
def test_tasks_and_one_that_has_answered_wait_for_it(
    double: Double, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    monkeypatch.setattr(schema_registry, "FIRST_CONTACT", 0.0)
    double.answers = [(200, {"schema": "1"})]
    registry = double.registry()
    if asks != "by_id":
        registry.latest("s-value")
    monkeypatch.setattr(registry, "_options", RegistryOptions((f"http://127.0.0.1:{free_ports(1)[0]}",)))
    began = time.monotonic()
    with pytest.raises(SchemaRegistryError, match="gave no answer"):
        registry.by_id(7, wait=2) if asks == "by_id" else registry.latest("s-value", wait=2)
    assert time.monotonic() - began >= 2


@pytest.mark.broker
def test_a_real_registry_that_answers_late(registry: SchemaRegistryServer) -> None:
    """It is paused for longer than a request waits."""
    number = registry.register(f"{uuid.uuid4().hex[:8]}-value", A)
    found = SchemaRegistry(RegistryOptions((registry.url,), timeout_ms=300))
    with registry.paused():
        with pytest.raises(
            SchemaRegistryError, match=f"gave no answer for schema id {number}: there is no answer in time"
        ):
            found.by_id(number, wait=0.5)
        threading.Timer(1, registry.process.send_signal, (signal.SIGCONT,)).start()  # type: ignore[union-attr]
        assert json.loads(found.by_id(number, wait=30).text) == A


def test_a_registry_that_is_slow(double: Double) -> None:
    double.answers, double.pause = [(200, {"schema": "1"})], 0.5
    with pytest.raises(SchemaRegistryError, match="gave no answer for schema id 7"):
        double.registry(timeout_ms=50).by_id(7, wait=0.1)


@pytest.mark.parametrize("what", ["pause_in_answer", "pause_in_headers"])
def test_a_registry_that_gives_a_byte_now_and_then(double: Double, what: str) -> None:
    double.answers = [(200, b" " * 200)]
    setattr(double, what, 0.05)
    began = time.monotonic()
    with pytest.raises(
        SchemaRegistryError, match="gave no answer for schema id 7: there is no answer in time"
    ):
        double.registry(timeout_ms=500).by_id(7, wait=0.2)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (401, "does not accept the login"),
        (403, "denies the request"),
        (302, "with HTTP status 302"),
        (400, "400"),
    ],
)
def test_answers_that_will_not_change(double: Double, status: int, text: str) -> None:
    double.answers = [(status, SECRET.encode())]
    with pytest.raises(SchemaRegistryError, match=text) as caught:
        double.registry(user_info=f"me:{SECRET}").by_id(7)
    assert SECRET not in str(caught.value)
    assert len(double.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"<html>", b"\xff", b"[" * 100_000, {"schema": 1}, {"id": 7}),
        *(
            {"schema": "1", "references": given}
            for given in (
                *([1], [{}], "x", [{"subject": "s", "version": "1"}]),
                *([{"subject": name, "version": 1}] for name in ("s" * 2000, "\ud800", "\x1b[2J")),
            )
        ),
        {"schema": "1", "references": [{"name": "B", "subject": "s", "version": 1}]},
    ],
)
def test_answers_that_make_no_sense(double: Double, body: Any) -> None:
    double.answers = [(200, body)]
    with pytest.raises(SchemaRegistryError, match="The schema registry"):
        double.registry().by_id(7, wait=0.2)


def test_a_schema_that_two_names_refer_to(double: Double) -> None:
    """It may have been deleted softly: the registry is asked for it all the same."""
    inner, guid = {"schema": "{}"}, uuid.UUID(GUID)
    middle = {"schema": "{} ", "references": [{"name": "dir/a.json", "subject": "a", "version": 1}]}
    references = [
        {"name": name, "subject": subject, "version": 1}
        for name, subject in (("a.json", "a"), ("b.json", "b"))
    ]
    outer = {"schema": "{}  ", "schemaType": "JSON", "id": 7, "guid": GUID, "references": references}
    double.answers = [(200, answer) for answer in (outer, inner, middle)]
    found = double.registry().by_id(7)
    assert found.references == ("{}", "{} ")
    assert found.named_references == (("a.json", "{}"), ("dir/a.json", "{}"), ("b.json", "{} "))
    assert (found.kind, found.schema_id, found.guid) == ("JSON", 7, guid)
    assert [path for path, _ in double.requests] == [
        "/base/schemas/ids/7",
        "/base/subjects/a/versions/1?deleted=true",
        "/base/subjects/b/versions/1?deleted=true",
    ]


def test_the_kind_of_a_schema_is_told(double: Double) -> None:
    double.answers = [(200, {"id": 7})]
    registry = double.registry()
    assert registry.register("s", RegisteredSchema("{}", "JSON")).schema_id == 7
    assert registry.find("s", RegisteredSchema("{}")).schema_id == 7
    assert [json.loads(body) for body in double.bodies] == [
        {"schema": "{}", "schemaType": "JSON"},
        {"schema": "{}"},
    ]


def test_logins(double: Double) -> None:
    double.answers = [(200, {"schema": "1"})]
    double.registry(user_info=f"me:{SECRET}").by_id(7)
    double.registry(token="a.b.c").by_id(7)
    double.registry().by_id(7)
    basic = base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert [login for _, login in double.requests] == [f"Basic {basic}", "Bearer a.b.c", None]


def pem(path: Path, *parts: trustme.Blob) -> str:
    path.write_bytes(b"".join(part.bytes() for part in parts))
    return str(path)


def test_tls(tmp_path: Path) -> None:
    """The registry's certificate is checked, and gets the client's; an answer has its time here, too."""
    authority, other = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    own = authority.issue_cert("client@example.com")
    trust = {"schema__registry__ssl__truststore__location": pem(tmp_path / "ca.pem", authority.cert_pem)}
    keys = pem(tmp_path / "keys.pem", own.private_key_pem, *own.cert_chain_pems)
    login = {"bearer__auth__token": SECRET}
    given = {**trust, "schema__registry__ssl__keystore__location": keys, **login}
    with served(Double(context)) as double:
        double.answers = [(200, {"schema": "1"})]
        options = read(schema__registry__url=double.url, **given)
        assert options is not None
        assert SchemaRegistry(options).by_id(7, wait=0).text == "1"
        assert double.requests == [("/base/schemas/ids/7", f"Bearer {SECRET}")]
        by_address = double.url.replace("localhost", "127.0.0.1")
        stranger = {"schema__registry__ssl__truststore__location": pem(tmp_path / "b.pem", other.cert_pem)}
        for url, changes, said in (
            (double.url, {**given, **stranger}, "unable to get local issuer certificate|self-signed"),
            (by_address, given, "its certificate names another host"),
            (double.url, {**trust, **login}, "gave no answer for schema id 7"),
        ):
            options = read(schema__registry__url=url, **changes)
            assert options is not None
            with pytest.raises(SchemaRegistryError, match=said) as caught:
                SchemaRegistry(options).by_id(7, wait=0)
            assert SECRET not in str(caught.value)
        assert len(double.requests) == 1
        double.pause_in_headers, began = 0.05, time.monotonic()
        options = read(schema__registry__url=double.url, http__read__timeout__ms="500", **given)
        assert options is not None
        with pytest.raises(
            SchemaRegistryError, match="gave no answer for schema id 8: there is no answer in time"
        ):
            SchemaRegistry(options).by_id(8, wait=0)
        assert time.monotonic() - began < 5


def test_one_registry_for_the_same_options() -> None:
    options = RegistryOptions(("http://a",))
    assert registry_of(options) is registry_of(RegistryOptions(("http://a",)))


def read(**options: str) -> RegistryOptions | None:
    names = {name.replace("__", "."): value for name, value in options.items()}
    return registry_options(UserOptions(names, Use.READ))


def test_options() -> None:
    assert read() is None
    assert read(schema__registry__url="https://a:8081/x, http://b") == RegistryOptions(
        ("https://a:8081/x", "http://b")
    )
    found = read(schema__registry__url=f"https://me:{SECRET}%40@a")
    assert found == RegistryOptions(("https://a",), user_info=f"me:{SECRET}@")
    assert SECRET not in repr(found)


def test_options_of_tls_without_it(caplog: pytest.LogCaptureFixture) -> None:
    """As with those of brokers, somebody who sets them wants TLS."""
    options = {"schema__registry__ssl__truststore__location": f"/{uuid.uuid4()}.pem"}
    assert read(schema__registry__url="http://a,https://b", **options) is not None
    assert not caplog.records
    log_once_for.cache_clear()
    assert read(schema__registry__url="http://a", **options) is not None
    (said,) = [line.getMessage() for line in caplog.records]
    assert said == (
        "Options schema.registry.ssl.truststore.location have no effect, because schema.registry.url is http"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"basic__auth__user__info": f"a:{SECRET}"}, "'basic.auth.user.info' needs 'schema.registry.url'"),
        ({"schema__registry__url": f"host:{SECRET}"}, "expected a URL that begins with http"),
        ({"schema__registry__url": f"https://h/?token={SECRET}"}, "expected a URL that begins with http"),
        ({"schema__registry__url": "https://h", "basic__auth__user__info": SECRET}, "expected user:password"),
        (
            {"schema__registry__url": f"https://a:{SECRET}@h", "basic__auth__user__info": "b:c"},
            "give several users",
        ),
        (
            {
                "schema__registry__url": "https://h",
                "basic__auth__user__info": f"a:{SECRET}",
                "bearer__auth__token": SECRET,
            },
            "Only one of",
        ),
        ({"schema__registry__url": "https://h", "bearer__auth__token": f"{SECRET} x"}, "visible ASCII"),
        (
            {"schema__registry__url": "https://h", "basic__auth__credentials__source": "URL"},
            "'basic.auth.credentials.source' is URL, but 'schema.registry.url' has no login",
        ),
        (
            {"schema__registry__url": "https://h", "basic__auth__credentials__source": "USER_INFO"},
            "has no login",
        ),
        (
            {"schema__registry__url": "https://h", "schema__registry__ssl__truststore__location": "/a.jks"},
            "PEM",
        ),
    ],
)
def test_options_that_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text) as caught:
        read(**options)
    assert SECRET not in str(caught.value)
