"""Our tokens and requests beside those of Google's and Azure's own libraries."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.identity import ManagedIdentityCredential
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pyspark_kafkalog.extensions.clouds.tokens import token_of_azure, token_of_gcp
from tests.extensions.clouds.metadata_services import MetadataServices, metadata_services

ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default"
RESOURCE = "https://demo.servicebus.windows.net"


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataServices]:
    for name in os.environ:
        if name.startswith(("AZURE_", "IDENTITY_", "GOOGLE_", "GCE_")):
            monkeypatch.delenv(name)
    for name in [*sys.modules]:
        if name.startswith("google.auth"):  # it keeps the address with which it was loaded
            monkeypatch.delitem(sys.modules, name)
    with metadata_services() as server:
        yield server


def said(token: str) -> list[Any]:
    header, claims, access_token = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
    return [json.loads(header), json.loads(claims), access_token]


def test_googles_machine_is_that_of_its_library(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = {"email": "reader@demo", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
    services.answers = {
        "/": "computeMetadata/",
        "/computeMetadata/v1/project/project-id": "demo",
        f"{ACCOUNT}/": json.dumps(account),
        f"{ACCOUNT}/email": account["email"],
        f"{ACCOUNT}/token": json.dumps(
            {"access_token": "ya29.x", "expires_in": 3600, "token_type": "Bearer"}
        ),
    }
    monkeypatch.setenv("GCE_METADATA_IP", services.address)
    theirs, their_end = token_of_gcp()
    assert services.asked[0] == "GET /", "its library looks whether it is there"
    monkeypatch.setitem(sys.modules, "google.auth", None)
    ours, our_end = token_of_gcp()
    header, claims, access_token = said(ours)
    their_header, their_claims, their_access_token = said(theirs)
    assert (header, access_token) == (their_header, their_access_token)
    assert claims == pytest.approx(their_claims, abs=5)
    assert our_end == pytest.approx(their_end, abs=5)


def test_its_library_reads_keys(
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
    _, claims, access_token = said(token_of_gcp()[0])
    assert claims["sub"] == "key@demo"
    assert claims["exp"] - time.time() == pytest.approx(600, abs=5)
    assert access_token.startswith(b"token.")


@pytest.mark.parametrize("client_id", [None, "user-assigned-1"])
@pytest.mark.parametrize("path", ["/metadata/identity/oauth2/token", "/msi/token"])
def test_azures_identity_is_asked_as_by_its_library(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch, path: str, client_id: str | None
) -> None:
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", f"http://{services.address}")
    if path.startswith("/msi"):
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{services.address}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header-of-platform")
    answer = {"access_token": "t-1", "expires_in": "3600", "expires_on": str(int(time.time()) + 3600)}
    services.answers[path] = json.dumps(answer)
    theirs = ManagedIdentityCredential(client_id=client_id).get_token(f"{RESOURCE}/.default")
    token, end = token_of_azure(RESOURCE, client_id)
    assert token == theirs.token
    assert end == pytest.approx(theirs.expires_on, abs=5)
    asked, their_asked = ([urlsplit(one).path, parse_qs(urlsplit(one).query)] for one in services.asked)
    assert asked == their_asked
