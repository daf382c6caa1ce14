"""Assertions of a client at a token endpoint, as Kafka's own clients make them (KIP-1139)."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA256

from pyspark_kafkalog.broker.wire import oauth
from pyspark_kafkalog.broker.wire.oauth import OAuthTokens
from pyspark_kafkalog.errors import AuthenticationError, OptionError
from pyspark_kafkalog.options.security.oauth import OAuthOptions
from pyspark_kafkalog.options.settings import place_options
from tests.http_doubles import Silent, served
from tests.kafka_jars import java, kafka_jars

PREFIX = "sasl.oauthbearer.assertion"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
GRANT = {RETRIEVER: f"{PACKAGE}.JwtBearerJwtRetriever"}
PASSPHRASE = "passphrase-of-key-4d"
KEYS = {"RS256": rsa.generate_private_key(65537, 2048), "ES256": ec.generate_private_key(ec.SECP256R1())}


class Endpoint(HTTPServer):
    """Keeps what it is asked, and always gives the same token, for no time."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/token"
        self.forms: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []


class _Handler(Silent, BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.forms.append(dict(parse_qsl(body, strict_parsing=True)))
        compared = ("Accept", "Cache-Control", "Content-Type", "Authorization")
        self.server.headers.append({name: self.headers[name] for name in compared if self.headers[name]})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"access_token":"t","expires_in":0}')


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with served(Endpoint()) as server:
        yield server


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Keys, a template and a JWT that is ready."""
    made = {
        "template": json.dumps({"header": {"kid": "k-1"}, "payload": {"iss": "of-template", "roles": ["a"]}}),
        "ready": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.c2ln\n",
    }
    hidden = serialization.BestAvailableEncryption(PASSPHRASE.encode())
    for name, key in KEYS.items():
        for kind, encryption in (("", serialization.NoEncryption()), ("hidden", hidden)):
            made[name + kind] = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            ).decode()
    made["bare"] = "".join(made["RS256"].splitlines()[1:-1])
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in made}


def asserted(url: str, **given: str) -> OAuthOptions:
    options = {
        "bootstrap.servers": "host:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        ENDPOINT: url,
        **given,
    }
    allowed = {"org.apache.kafka.sasl.oauthbearer.allowed.urls": url}
    place = place_options({**{f"kafka.{name}": value for name, value in options.items()}, **allowed})
    assert place.brokers is not None
    assert place.brokers.security.oauth is not None
    return place.brokers.security.oauth


def decoded(jwt: str, *, algorithm: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims, once the signature is checked."""
    signed, _, signature = jwt.rpartition(".")
    header, claims, raw = (
        base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in (*signed.split("."), signature)
    )
    public = KEYS[algorithm].public_key()
    if isinstance(public, rsa.RSAPublicKey):
        public.verify(raw, signed.encode(), padding.PKCS1v15(), SHA256())
    else:
        numbers = (int.from_bytes(half, "big") for half in (raw[:32], raw[32:]))
        public.verify(utils.encode_dss_signature(*numbers), signed.encode(), ec.ECDSA(SHA256()))
    return json.loads(header), json.loads(claims)


def cases(files: dict[str, str]) -> dict[str, dict[str, str]]:
    """Settings of Kafka's clients, with the algorithm that signs first in their names."""
    claims = {f"{PREFIX}.claim.{name}": f"the-{name}" for name in ("iss", "sub", "aud")}
    key = {f"{PREFIX}.private.key.file": files["RS256"], **claims}
    of_client = {"sasl.oauthbearer.client.credentials.client.id": "me", "sasl.oauthbearer.scope": "a b"}
    return {
        "RS256 as grant": {**GRANT, **key, "sasl.oauthbearer.scope": "a b"},
        "RS256 as client": {**key, **of_client, f"{PREFIX}.claim.exp.seconds": "77"},
        "ES256 as grant": {
            **GRANT,
            f"{PREFIX}.algorithm": "ES256",
            f"{PREFIX}.private.key.file": files["ES256"],
            f"{PREFIX}.template.file": files["template"],
            f"{PREFIX}.claim.iss": "overwritten",
            f"{PREFIX}.claim.nbf.seconds": "5",
        },
        "RS256 bare": {**GRANT, **key, f"{PREFIX}.private.key.file": files["bare"]},
        "ready as grant": {**GRANT, f"{PREFIX}.file": files["ready"]},
        "ready as client": {**of_client, f"{PREFIX}.file": files["ready"]},
    }


def test_requests_are_those_of_kafkas_clients(
    endpoint: Endpoint, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for number, settings in enumerate(cases(files).values()):
        file = tmp_path / f"{number}.properties"
        lines = {"bootstrap.servers": "h:1", ENDPOINT: endpoint.url, **settings}
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        written.append(str(file))
    source = str(Path(__file__).with_name("RetrieveTokens.java"))
    allowed = {"urls": endpoint.url, "files": ",".join(files.values())}
    allow = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{kind}={what}" for kind, what in allowed.items()]
    command = [java(), "-Xmx256m", *allow, "-cp", f"{kafka_jars()}/*", source, *written]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert printed.stdout.split() == ["t"] * len(written), printed.stderr
    theirs, their_headers = endpoint.forms[:], endpoint.headers[:]
    for number, (name, settings) in enumerate(cases(files).items()):
        form, algorithm = theirs[number], name.split()[0]
        field = "assertion" if "assertion" in form else "client_assertion"
        expected: Any = form.pop(field)
        if algorithm in KEYS:
            expected = decoded(expected, algorithm=algorithm)
            monkeypatch.setattr(time, "time", lambda now=expected[1]["iat"]: now + 0.5)
        assert OAuthTokens(asserted(endpoint.url, **settings), "host").token() == "t"
        ours = endpoint.forms[-1]
        made: Any = ours.pop(field)
        assert (decoded(made, algorithm=algorithm) if algorithm in KEYS else made) == expected, name
        assert ours == form, name
        assert endpoint.headers[-1] == their_headers[number], name


def test_each_assertion_may_have_an_id(endpoint: Endpoint, files: dict[str, str]) -> None:
    settings = {**cases(files)["RS256 as grant"], f"{PREFIX}.claim.jti.include": "true"}
    for _ in range(2):
        OAuthTokens(asserted(endpoint.url, **settings), "host").token()
    first, second = (decoded(form["assertion"], algorithm="RS256")[1]["jti"] for form in endpoint.forms)
    assert first != second


def test_a_key_with_a_passphrase(endpoint: Endpoint, files: dict[str, str]) -> None:
    """Of a kind that not every Java can read."""
    key = {
        f"{PREFIX}.private.key.file": files["RS256hidden"],
        f"{PREFIX}.private.key.passphrase": PASSPHRASE,
    }
    OAuthTokens(asserted(endpoint.url, **{**cases(files)["RS256 as grant"], **key}), "host").token()
    assert decoded(endpoint.forms[0]["assertion"], algorithm="RS256")


def test_a_ready_one_is_read_each_time(endpoint: Endpoint, files: dict[str, str]) -> None:
    options = asserted(endpoint.url, **GRANT, **{f"{PREFIX}.file": files["ready"]})
    for text in ("x.y.z", "u.v.w"):
        Path(files["ready"]).write_text(text)
        OAuthTokens(options, "host").token()
    assert [form["assertion"] for form in endpoint.forms] == ["x.y.z", "u.v.w"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"private.key.file": "/nowhere/key"}, "private.key.file' can't be used: No such file"),
        ({"private.key.file": "/dev/null"}, "private.key.file' can't be used: expected a regular file"),
        ({"private.key.file": "ready"}, "expected a private key in PEM"),
        ({"private.key.file": "RS256hidden"}, "expected a private key in PEM, and its passphrase"),
        ({"private.key.passphrase": PASSPHRASE}, "expected a private key in PEM, and its passphrase"),
        ({"private.key.file": "ES256"}, "expected an RSA key for RS256"),
        ({"algorithm": "ES256"}, "expected a key on the curve P-256 for ES256"),
        ({"template.file": "ready"}, "expected JSON with the objects header and payload"),
    ],
)
def test_what_can_not_be_signed(
    endpoint: Endpoint, files: dict[str, str], changes: dict[str, str], why: str
) -> None:
    settings = dict(cases(files)["RS256 as grant"])
    for name, value in changes.items():
        settings[f"{PREFIX}.{name}"] = files.get(value, value)
    if changes.get("algorithm"):
        settings[f"{PREFIX}.algorithm"] = "ES256"
    with pytest.raises(AuthenticationError, match=why) as caught:
        OAuthTokens(asserted(endpoint.url, **settings), "host").token()
    assert "-----" not in str(caught.value)
    assert PASSPHRASE not in str(caught.value)
    assert endpoint.forms == []


def test_the_package_that_signs_is_named(
    endpoint: Endpoint, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(AuthenticationError, match=r"cryptography, on the driver .*pip install cryptography"):
        OAuthTokens(asserted(endpoint.url, **cases(files)["RS256 as grant"]), "host").token()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({f"{PREFIX}.claim.sub": "me"}, "claim.sub' has no effect here"),
        ({f"{PREFIX}.claim.iss": "me"}, "needs the option .*assertion.file' or .*private.key.file'"),
        (GRANT, "needs the option"),
        ({**GRANT, ENDPOINT: "file:/token"}, "retriever.class' does not fit"),
        ({f"{PREFIX}.file": "/f", ENDPOINT: "file:/token"}, "assertion.file' has no effect here"),
        ({RETRIEVER: "FileJwtRetriever"}, "does not fit"),
        ({RETRIEVER: "com.example.Retriever"}, "expected a class of Kafka's"),
        ({f"{PREFIX}.algorithm": "none", f"{PREFIX}.file": "/f"}, "algorithm': expected one of RS256, ES256"),
    ],
)
def test_what_does_not_fit(settings: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        asserted("https://idp/token", **settings)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    oauth._fetched.values.clear()
    yield
    oauth._fetched.values.clear()
