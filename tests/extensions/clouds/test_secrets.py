"""Logins of clouds show nowhere: not in logs at DEBUG, plans, events, progress, checkpoints or errors."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog import by_value
from tests.broker.producing import unused_topic
from tests.extensions.clouds.cloud_broker import SECRET, CloudBroker
from tests.extensions.clouds.metadata_services import STS, metadata_services
from tests.kafka_service import running

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.soak]

ROOT = Path(__file__).parents[3]
CANARY = "Canary7f31"
"""What each secret begins with."""
END = 4_000_000_000
ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OPTION = "kafka.sasl.oauthbearer."
HANDLER = "kafka.sasl.login.callback.handler.class"


def short_lived(token: str) -> str:
    given = {"access_token": f"{CANARY}{token}.{END}", "expires_in": 3600}
    return json.dumps({**given, "expires_on": str(int(time.time()) + 3600)})


def callables() -> dict[str, str]:
    """One that gives a token, one whose token is refused, and one that fails; workers can import none."""
    good, bad = f"{CANARY}given.{END}", f"{CANARY}ended.1000"

    def gives() -> str:
        return good

    def is_late() -> str:
        return bad

    def fails() -> str:
        assert good
        raise RuntimeError("not now")

    return {function.__name__: by_value(function) for function in (gives, is_late, fails)}


def logins(broker: CloudBroker, url: str) -> dict[str, Any]:
    """Those that work, and those that fail."""
    common = {
        "kafka.bootstrap.servers": broker.address,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.socket.connection.setup.timeout.ms": "30000",
    }
    endpoint = {f"{OPTION}token.endpoint.url": url, "org.apache.kafka.sasl.oauthbearer.allowed.urls": url}
    client = f'clientId="me" clientSecret="{CANARY}client"'
    role = f'awsRoleArn="arn:aws:iam::123456789012:role/x" awsRoleExternalId="{CANARY}external"'
    key = {"private.key.file": f"/nowhere/{CANARY}", "private.key.passphrase": CANARY, "claim.iss": "me"}
    functions = callables()
    works = [
        *({f"{OPTION}provider": cloud} for cloud in ("aws", "gcp", "azure")),
        {HANDLER: functions["gives"]},
    ]
    fails = [
        {HANDLER: functions["is_late"]},
        {HANDLER: functions["fails"]},
        {f"{OPTION}provider": "azure", "kafka.sasl.jaas.config": f"{OAUTH} required {client};"},
        {f"{OPTION}provider": "aws", "kafka.sasl.jaas.config": f"{OAUTH} required {role};"},
        {**endpoint, "kafka.sasl.jaas.config": f"{OAUTH} required {client};"},
        {**endpoint, **{f"{OPTION}assertion.{name}": value for name, value in key.items()}},
    ]
    return {"works": [common | each for each in works], "fails": [common | each for each in fails]}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all that an application wrote that logged in to clouds."""
    folder, topic = tmp_path_factory.mktemp("talkative"), unused_topic()
    with (
        running(CloudBroker(tmp_path_factory.mktemp("cloud") / "broker")) as broker,
        metadata_services() as services,
    ):
        broker.create_topic(topic, 2)
        services.answers = {
            "/computeMetadata/v1/project/project-id": "demo",
            f"{ACCOUNT}/": json.dumps({"email": "reader@demo", "scopes": []}),
            f"{ACCOUNT}/token": short_lived("google"),
            "/msi/token": short_lived("azure"),
            STS: f"<Error><Code>AccessDenied</Code>{CANARY}sts</Error>",
        }
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "tests/security/verbose"), str(ROOT))),
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_SESSION_TOKEN": f"{CANARY}session",
            "AWS_REGION": "eu-west-1",
            "GCE_METADATA_IP": services.address,
            "IDENTITY_ENDPOINT": f"http://{services.address}/msi/token",
            "IDENTITY_HEADER": "header-of-platform",
        }
        task = {"folder": str(folder), "topic": topic, **logins(broker, f"http://{services.address}/oauth")}
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            done = subprocess.run(
                [sys.executable, "-m", "tests.security.talkative"],
                input=json.dumps(task).encode(),
                env=environment,
                stdout=stdout,
                stderr=stderr,
                timeout=900,
                check=False,
            )
    assert done.returncode == 0, (folder / "stderr").read_text(errors="replace")[-3000:]
    return folder


def test_everything_was_logged(written: Path) -> None:
    log = (written / "stderr").read_text(errors="replace")
    assert log.count("DEBUG root: this process logs all") > 2, "the driver, the daemon, a worker"
    assert any((written / "events").iterdir())
    assert (written / "checkpoint-3" / "offsets" / "0").exists()


def test_no_secret_shows(written: Path) -> None:
    # Base64 shows a text in three ways, by where in it the text begins.
    encoded = [base64.b64encode(b"x" * skip + CANARY.encode())[4:-4] for skip in range(3)]
    secrets = [CANARY.encode(), SECRET.encode(), b"header-of-platform", *encoded]
    shown = [
        (secret, file.name)
        for file in written.rglob("*")
        if file.is_file()
        for secret in secrets
        if secret in file.read_bytes()
    ]
    assert not shown
