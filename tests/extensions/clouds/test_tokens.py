"""Tokens of Google and Azure: whom their SDKs ask, and what is sent to brokers."""

from __future__ import annotations

import base64
import json
import logging
import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pyspark_kafkalog.broker.wire import oauth
from pyspark_kafkalog.broker.wire.oauth import OAuthTokens
from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.options.security.oauth import OAuthOptions
from tests.extensions.clouds.metadata_services import MetadataServices, metadata_services
from tests.http_doubles import served

HOST = "demo.servicebus.windows.net"
ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default"
EMAIL = "reader@demo.iam.gserviceaccount.com"
MANAGED = "/metadata/identity/oauth2/token"
ENTRA = "/tenant-1/oauth2/v2.0/token"
TOKEN = "access-token-7c4e.with.dots"


def answer(**fields: Any) -> str:
    end = str(int(time.time()) + 3600)
    given = {"access_token": TOKEN, "expires_in": 3600, "expires_on": end, "token_type": "Bearer"}
    return json.dumps(given | fields)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing in the environment, and nothing kept from other tests."""
    for name in os.environ:
        if name.startswith(("AZURE_", "IDENTITY_", "GOOGLE_", "GCE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-gcloud"))
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    oauth._fetched.values.clear()
    yield
    oauth._fetched.values.clear()


@pytest.fixture
def services() -> Iterator[MetadataServices]:
    with metadata_services() as server:
        server.answers = {
            f"{ACCOUNT}/": json.dumps({"email": EMAIL, "scopes": []}),
            f"{ACCOUNT}/token": answer(),
            MANAGED: answer(),
        }
        yield server


@pytest.fixture
def entra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MetadataServices]:
    """Its tenant-1, by TLS, and an application in the environment that lacks its secret."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = MetadataServices()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = f"https://{server.address}"
    server.answers = {
        "/tenant-1/v2.0/.well-known/openid-configuration": json.dumps(
            {
                "authorization_endpoint": f"{url}/authorize",
                "token_endpoint": f"{url}{ENTRA}",
                "issuer": f"{url}/tenant-1/v2.0",
            }
        ),
        ENTRA: answer(),
    }
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", url)
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant-1")
    monkeypatch.setenv("AZURE_CLIENT_ID", "application-1")
    with served(server):
        yield server


def token_of(cloud: str, host: str = HOST, **options: Any) -> str:
    return OAuthTokens(OAuthOptions(cloud=cloud, **options), host).token()


def said(token: str) -> list[Any]:
    """The header, the claims and the access token in one of Google's."""
    parts = [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode() for part in token.split(".")]
    return [*map(json.loads, parts[:2]), parts[2]]


def test_googles_has_three_parts(services: MetadataServices) -> None:
    token = token_of("gcp")
    header, claims, access_token = said(token)
    assert header == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert (claims["sub"], claims["scope"]) == (EMAIL, "kafka")
    assert claims["exp"] - claims["iat"] == pytest.approx(3600, abs=2)
    assert claims["iat"] == pytest.approx(time.time(), abs=5)
    assert access_token == TOKEN
    assert "=" not in token


def test_googles_of_a_key(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = rsa.generate_private_key(65537, 2048)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    info = {
        "type": "service_account",
        "private_key": key.private_bytes(*form).decode(),
        "client_email": "key@demo",
        "token_uri": f"http://{services.address}/key/token",
    }
    (tmp_path / "key.json").write_text(json.dumps(info))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    services.token_seconds = 600
    _, claims, access_token = said(token_of("gcp"))
    assert claims["sub"] == "key@demo"
    assert claims["exp"] - time.time() == pytest.approx(600, abs=5)
    assert access_token.startswith("token.")
    assert services.asked == ["POST /key/token"]


def test_credentials_that_name_no_account(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of workload identity federation that impersonates no service account."""
    (tmp_path / "subject").write_text("token-of-pod")
    info = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"http://{services.address}/federated/token",
        "credential_source": {"file": str(tmp_path / "subject")},
    }
    (tmp_path / "pool.json").write_text(json.dumps(info))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "pool.json"))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "demo")
    services.answers["/federated/token"] = answer()
    with pytest.raises(
        AuthenticationError, match=r"no service account\. Set GOOGLE_MANAGED_KAFKA_AUTH_PRINC"
    ):
        token_of("gcp")
    monkeypatch.setenv("GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL", "me@demo")
    assert said(token_of("gcp"))[1]["sub"] == "me@demo"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_its_times_are_of_utc(services: MetadataServices, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """google-auth's are naive; taken for local ones a token would be used for hours after its end."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert said(token_of("gcp"))[1]["exp"] - time.time() == pytest.approx(3600, abs=5)
        (kept,) = oauth._fetched.values.values()
        assert (kept.until - time.time(), kept.end - time.time()) == pytest.approx((2880, 3600), abs=5)
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


@pytest.mark.parametrize("client_id", [None, "user-assigned-1"])
def test_azures_of_the_machine(services: MetadataServices, client_id: str | None) -> None:
    assert token_of("azure", client_id=client_id) == TOKEN
    (asked,) = services.asked
    expected = {"api-version": ["2018-02-01"], "resource": [f"https://{HOST}"]}
    assert parse_qs(urlsplit(asked).query) == expected | ({"client_id": [client_id]} if client_id else {})
    (kept,) = oauth._fetched.values.values()
    assert (kept.until - time.time(), kept.end - time.time()) == pytest.approx((2880, 3600), abs=5)


def test_azures_of_app_service(services: MetadataServices, monkeypatch: pytest.MonkeyPatch) -> None:
    services.answers["/msi/token"] = answer(expires_on=str(int(time.time()) + 60))
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{services.address}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "header-of-platform")
    assert token_of("azure") == TOKEN
    (kept,) = oauth._fetched.values.values()
    assert kept.until - time.time() == pytest.approx(48, abs=2)


@pytest.mark.parametrize("way", ["AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"])
def test_azures_of_an_application(
    entra: MetadataServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    (tmp_path / "token").write_text("token-of-pod")
    monkeypatch.setenv(way, "secret-of-application" if way.endswith("SECRET") else str(tmp_path / "token"))
    assert token_of("azure") == TOKEN
    (form,) = entra.forms
    assert f"https://{HOST}/.default" in form["scope"]
    assert form["client_id"] == "application-1"
    if way.endswith("SECRET"):
        assert form["client_secret"] == "secret-of-application"
    else:
        assert form["client_assertion"] == "token-of-pod"


def test_nobody_logs_in_but_who_is_named(
    services: MetadataServices, entra: MetadataServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another application, nor the person whose programs are here."""
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "secret-of-application")
    assert token_of("azure", client_id="user-assigned-1") == TOKEN
    assert "client_id=user-assigned-1" in services.asked[-1]
    assert entra.asked == []
    assert token_of("azure", client_id="application-1") == TOKEN
    assert entra.forms


def test_the_reason_of_entra_is_told(
    entra: MetadataServices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "secret-of-application")
    entra.answers[ENTRA] = json.dumps(
        {"error": "invalid_client", "error_description": f"AADSTS7000215: Invalid client secret. {TOKEN}"}
    )
    with pytest.raises(AuthenticationError, match=r"ClientAuthenticationError \(AADSTS7000215\)") as caught:
        token_of("azure")
    shown = str(caught.value) + caplog.text
    assert not [secret for secret in (TOKEN, "secret-of-application") if secret in shown]


def test_a_secret_goes_to_no_unencrypted_host(
    services: MetadataServices, entra: MetadataServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "x")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", f"http://{services.address}")
    with pytest.raises(AuthenticationError, match=r"Azure gives no token .*ValueError"):
        token_of("azure")
    assert services.asked == []


@pytest.mark.parametrize("cloud", ["gcp", "azure"])
@pytest.mark.parametrize(
    "text",
    [
        f"<html>{TOKEN}",
        "[1]",
        answer(expires_in="soon"),
        answer(expires_in=10**400),
        answer(access_token=7),
        answer(access_token=f"{TOKEN}\nb"),
        json.dumps({"error": "invalid_request", "error_description": TOKEN}),
    ],
    ids=["a page", "a list", "a wrong time", "a long time", "a number", "two lines", "an error"],
)
def test_an_answer_without_a_token(
    services: MetadataServices, cloud: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (f"{ACCOUNT}/token", MANAGED):
        services.answers[path] = text
    with caplog.at_level(logging.DEBUG):
        if cloud == "gcp" and "\\n" in text:  # it is encoded
            assert said(token_of(cloud))[2] == f"{TOKEN}\nb"
        else:
            with pytest.raises(AuthenticationError, match="gives no token") as caught:
                token_of(cloud)
            assert TOKEN not in str(caught.value)
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("cloud", ["gcp", "azure"])
def test_no_log_of_an_sdk_shows_a_token(
    services: MetadataServices, cloud: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        token_of(cloud)
    assert not caplog.text


def test_azures_for_another_resource(services: MetadataServices) -> None:
    """As of an identity pool of Confluent Cloud."""
    scope = "api://0a1b/.default"
    for host in (HOST, "broker-2"):
        assert token_of("azure", host, scope=scope) == TOKEN
    (asked,) = services.asked
    assert parse_qs(urlsplit(asked).query)["resource"] == ["api://0a1b"]
