"""Roles of AWS are assumed where moto answers as STS does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import make_server

from pyspark_kafkalog.extensions.clouds.aws import Credentials, credentials
from pyspark_kafkalog.options.security.aws import AwsOptions
from tests.extensions.clouds.test_aws import KEYS, nowhere

__all__ = ["nowhere"]

ROLE = "arn:aws:iam::123456789012:role/reader"


@pytest.fixture
def sts(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, create_backend_app("sts"), threaded=True)
    url = f"http://127.0.0.1:{server.port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        yield url
        server.shutdown()
    server.server_close()


def who(found: Credentials, sts: str) -> str:
    """Whose credentials STS says that they are."""
    client = boto3.client(
        "sts",
        region_name="eu-west-1",
        endpoint_url=sts,
        aws_access_key_id=found.access_key,
        aws_secret_access_key=found.secret_key,
        aws_session_token=found.token,
    )
    return str(client.get_caller_identity()["Arn"])


def test_a_role_is_assumed(sts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    options = AwsOptions(role_arn=ROLE, role_session_name="job-7", sts_region="eu-west-1")
    assert who(credentials(options), sts) == "arn:aws:sts::123456789012:assumed-role/reader/job-7"


def test_a_pod_has_a_role_by_its_token(sts: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token-of-pod")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_ROLE_SESSION_NAME", "pod-1")
    found = credentials(AwsOptions(region="eu-west-1"))
    assert who(found, sts) == "arn:aws:sts::123456789012:assumed-role/reader/pod-1"
