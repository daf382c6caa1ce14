"""Tokens of Google and Azure: what is asked for, by whom, and what is sent to brokers."""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pyspark_kafkalog.broker.wire import oauth
from pyspark_kafkalog.broker.wire.oauth import Tokens
from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.options.security.oauth import OAuthOptions
from tests.extensions.clouds.metadata_services import MetadataServices, metadata_services

HOST = "demo.servicebus.windows.net"
ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default"
MANAGED = "/metadata/identity/oauth2/token"
ENTRA = "/tenant-1/oauth2/v2.0/token"
TOKEN = "access-token-7c4e.with.dots"


def answer(**fields: Any) -> str:
    return json.dumps({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer", **fields})


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing in the environment, and nothing kept from other tests."""
    for name in os.environ:
        if name.startswith(("AZURE_", "IDENTITY_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "google.auth", None)
    oauth._fetched.values.clear()
    yield
    oauth._fetched.values.clear()


@pytest.fixture
def services() -> Iterator[MetadataServices]:
    with metadata_services() as server:
        server.answers = {
            f"{ACCOUNT}/token": answer(),
            f"{ACCOUNT}/email": "reader@demo.iam.gserviceaccount.com",
            MANAGED: answer(expires_in="3599", expires_on="1"),
            ENTRA: answer(),
        }
        yield server


def token_of(cloud: str, host: str = HOST, **options: Any) -> str:
    return Tokens(OAuthOptions(cloud=cloud, **options), host).token()


def test_googles_has_three_parts(services: MetadataServices) -> None:
    parts = token_of("gcp").split(".")
    header, claims, access_token = (
        base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode() for part in parts
    )
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    said = json.loads(claims)
    assert said["sub"] == "reader@demo.iam.gserviceaccount.com"
    assert said["exp"] - said["iat"] == pytest.approx(3600, abs=2)
    assert said["iat"] == pytest.approx(time.time(), abs=5)
    assert access_token == TOKEN
    assert not any("=" in part for part in parts)


def _library(
    monkeypatch: pytest.MonkeyPatch,
    expiry: datetime | None,
    account: str | None = "key@demo.iam.gserviceaccount.com",
) -> None:
    """A google-auth with an account, and the transport that needs the package requests."""

    class Request:
        def __init__(self, session: object = None) -> None:
            pass

    class Account:
        service_account_email = account

        def __init__(self) -> None:
            self.expiry = expiry

        def refresh(self, request: Request) -> None:
            assert isinstance(request, Request)
            self.token = "token-of-key"

    library = ModuleType("google.auth")
    library.default = lambda scopes: (Account(), None)  # type: ignore[attr-defined]
    transport = ModuleType("google.auth.transport.requests")
    transport.Request = Request  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "google", SimpleNamespace(auth=library))
    monkeypatch.setitem(sys.modules, "google.auth", library)
    monkeypatch.setitem(sys.modules, "google.auth.transport", ModuleType("google.auth.transport"))
    monkeypatch.setitem(sys.modules, "google.auth.transport.requests", transport)


def _said(token: str) -> Any:
    claims = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))


def test_googles_by_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    _library(monkeypatch, None)
    token = token_of("gcp")
    assert _said(token)["sub"] == "key@demo.iam.gserviceaccount.com"
    assert base64.urlsafe_b64decode(token.split(".")[2] + "==") == b"token-of-key"


def test_credentials_that_name_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of workload identity federation that impersonates no service account."""
    _library(monkeypatch, None, account=None)
    with pytest.raises(AuthenticationError, match="no service account; set GOOGLE_MANAGED_KAFKA_AUTH_PRINC"):
        token_of("gcp")
    monkeypatch.setenv("GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL", "me@demo")
    assert _said(token_of("gcp"))["sub"] == "me@demo"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_its_times_are_of_utc(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """google-auth's are naive; taken for local ones a token would be used for hours after its end."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        _library(monkeypatch, datetime.now(timezone.utc).replace(tzinfo=None) + timedelta(hours=1))
        assert _said(token_of("gcp"))["exp"] - time.time() == pytest.approx(3600, abs=5)
        (kept,) = oauth._fetched.values.values()
        assert (kept.until - time.time(), kept.end - time.time()) == pytest.approx((2880, 3600), abs=5)
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


def test_a_key_of_google_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/key.json")
    with pytest.raises(AuthenticationError, match="can only be read by google-auth"):
        token_of("gcp")


def test_a_certificate_of_azure_is_not_passed_over(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_CERTIFICATE_PATH", "/key.pem")
    with pytest.raises(AuthenticationError, match="certificates are not supported"):
        token_of("azure")
    assert services.asked == []


def test_azures_of_the_managed_identity(services: MetadataServices) -> None:
    assert token_of("azure") == TOKEN
    (asked,) = services.asked
    query = parse_qs(urlsplit(asked).query)
    assert query == {"api-version": ["2018-02-01"], "resource": [f"https://{HOST}"]}
    assert token_of("azure", client_id="user-assigned-1") == TOKEN
    assert "client_id=user-assigned-1" in services.asked[-1]


def test_azures_of_app_service(services: MetadataServices, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says only when the token ends."""
    services.answers["/msi/token"] = json.dumps(
        {"access_token": TOKEN, "expires_on": str(int(time.time()) + 60)}
    )
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{services.address}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "header-of-platform")
    assert token_of("azure") == TOKEN
    (kept,) = oauth._fetched.values.values()
    assert kept.until - time.time() == pytest.approx(48, abs=2)


@pytest.mark.parametrize("way", ["AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"])
def test_azures_of_an_application(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    (tmp_path / "token").write_text("token-of-pod\n")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", f"http://{services.address}/")
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant-1")
    monkeypatch.setenv("AZURE_CLIENT_ID", "application-1")
    monkeypatch.setenv(way, "secret-of-application" if way.endswith("SECRET") else str(tmp_path / "token"))
    assert token_of("azure") == TOKEN
    (form,) = services.forms
    assert form["scope"] == [f"https://{HOST}/.default"]
    assert form["client_id"] == ["application-1"]
    if way.endswith("SECRET"):
        assert form["client_secret"] == ["secret-of-application"]
    else:
        assert form["client_assertion"] == ["token-of-pod"]
        assert form["client_assertion_type"] == ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"]


def test_the_reason_of_entra_is_told(services: MetadataServices, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.setenv(f"AZURE_{name}", "tenant-1")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", f"http://{services.address}/")
    services.failures = [400]
    services.answers[ENTRA] = json.dumps({"error": "invalid_client", "error_description": TOKEN})
    with pytest.raises(AuthenticationError, match=r"HTTP status 400 \(invalid_client\)") as caught:
        token_of("azure")
    assert TOKEN not in str(caught.value)


def test_a_secret_goes_to_no_unencrypted_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.setenv(f"AZURE_{name}", "x")
    for host in ("http://login.example.org", "http://127.0.0.1.example.org", "ftp://x"):
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", host)
        with pytest.raises(AuthenticationError, match="does not begin with https:"):
            token_of("azure")


@pytest.mark.parametrize("cloud", ["gcp", "azure"])
def test_a_token_is_kept_for_most_of_its_life(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch, cloud: str
) -> None:
    asked = [services.asked[:] for _ in range(3) if token_of(cloud)]
    assert asked[0] == asked[2]
    token_of(cloud, "other.servicebus.windows.net")
    assert (len(services.asked) > len(asked[0])) == (cloud == "azure")
    now, count = time.time(), len(services.asked)
    monkeypatch.setattr(time, "time", lambda: now + 2900)
    token_of(cloud)
    assert len(services.asked) > count


@pytest.mark.parametrize("cloud", ["gcp", "azure"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<html>", "the answer is not JSON"),
        ("[" * 10_000, "the answer is not JSON"),
        ("[1]", "no token that says when it ends"),
        (answer(expires_in="soon"), "no token that says when it ends"),
        (answer(expires_in="9" * 5000), "no token that says when it ends"),
        (answer(expires_in=10**400), "no token that says when it ends"),
        (answer(access_token="a\nb"), "no token that says when it ends"),
        (answer(access_token=7), "no token that says when it ends"),
    ],
)
def test_an_answer_without_a_token(
    services: MetadataServices, cloud: str, text: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (f"{ACCOUNT}/token", MANAGED):
        services.answers[path] = text
    with caplog.at_level(logging.DEBUG), pytest.raises(AuthenticationError, match=why) as caught:
        token_of(cloud)
    assert TOKEN not in str(caught.value) + caplog.text


@pytest.mark.parametrize("cloud", ["gcp", "azure"])
@pytest.mark.parametrize("failures", [[400], [403], [404], [503] * 3])
def test_a_service_that_refuses(services: MetadataServices, cloud: str, failures: list[int]) -> None:
    services.failures = [*failures]
    with pytest.raises(AuthenticationError, match=f"gives no token.*HTTP status {failures[0]}"):
        token_of(cloud)


@pytest.mark.parametrize("cloud", ["gcp", "azure"])
def test_a_service_that_is_throttled_is_asked_again(services: MetadataServices, cloud: str) -> None:
    services.failures = [429, 410]
    assert token_of(cloud)


def test_a_tenant_that_is_none_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.setenv(f"AZURE_{name}", "tenant 1\n")
    with pytest.raises(AuthenticationError, match="the address, or what is sent") as caught:
        token_of("azure")
    assert "tenant 1" not in str(caught.value)


def test_azures_for_another_resource(services: MetadataServices) -> None:
    """As of an identity pool of Confluent Cloud."""
    scope = "api://0a1b/.default"
    for host in (HOST, "broker-2"):
        assert token_of("azure", host, scope=scope) == TOKEN
    (asked,) = services.asked
    assert parse_qs(urlsplit(asked).query)["resource"] == ["api://0a1b"]
