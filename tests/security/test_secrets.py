"""Secret options show nowhere: not in logs at DEBUG, plans, events, progress, checkpoints or errors."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.producing import unused_topic
from tests.kafka_certificates import KEY_PASSWORD
from tests.kafka_secure import PASSWORD, USER, SecureBroker, unsecured_token
from tests.security.logins import certificate_login, oauth_login, password_login

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.soak]

HERE = Path(__file__).parent
WRONG = "wrong-pass-55aa01"
STORE_PASSWORD = "store-pass-0b1e77"
"""Of a store that is not PEM, and so refused."""


@pytest.fixture(scope="module")
def token() -> str:
    return unsecured_token()


@pytest.fixture(scope="module")
def written(secure_broker: SecureBroker, token: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all that an application wrote which had secrets among its options."""
    folder = tmp_path_factory.mktemp("talkative")
    topic = unused_topic()
    secure_broker.create_topic(topic, 2)
    mutual_tls = certificate_login(secure_broker, encrypted=True)
    plain = password_login(secure_broker, "SASL_SSL", "PLAIN")
    scram = password_login(secure_broker, "SASL_SSL", "SCRAM-SHA-512")
    unclosed = plain["kafka.sasl.jaas.config"].replace(f'{PASSWORD}"', PASSWORD)
    task = {
        "folder": str(folder),
        "topic": topic,
        "works": [
            each | {"kafka.socket.connection.setup.timeout.ms": "30000"}
            for each in (
                plain,
                mutual_tls | scram,
                oauth_login(secure_broker, "SASL_SSL", f'oauth.access.token="{token}"'),
            )
        ],
        "fails": [
            password_login(secure_broker, "SASL_SSL", "PLAIN", password=WRONG),
            mutual_tls | {"kafka.ssl.key.password": WRONG},
            plain | {"kafka.sasl.jaas.config": unclosed},
            plain | {"kafka.sasl.mechanism": plain["kafka.sasl.jaas.config"]},
            plain | {"zookeeper.connect": "127.0.0.1:1", "zookeeper.addauth": WRONG},
            oauth_login(secure_broker, "SASL_SSL", 'clientId="me"')
            | {"kafka.sasl.login.callback.handler.class": f"{WRONG}:{WRONG}".replace("-", "_")},
            plain | {"kafka.ssl.keystore.location": "k.jks", "kafka.ssl.keystore.password": STORE_PASSWORD},
        ],
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (HERE / "verbose", HERE.parents[1]))),
    }
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        done = subprocess.run(
            [sys.executable, "-m", "tests.security.talkative"],
            input=json.dumps(task).encode(),
            env=environment,
            stdout=stdout,
            stderr=stderr,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, (folder / "stderr").read_text(errors="replace")[-3000:]
    return folder


def secrets(broker: SecureBroker, token: str) -> Iterator[tuple[str, bytes]]:
    yield "password", PASSWORD.encode()
    yield "wrong password", WRONG.encode()
    yield "wrong password as an import path", WRONG.replace("-", "_").encode()
    yield "store password", STORE_PASSWORD.encode()
    yield "key password", KEY_PASSWORD.encode()
    # The signature is empty and the header the same for all: this is the claims.
    yield "token", token.split(".")[1].encode()
    yield "PLAIN in base64", base64.b64encode(f"\0{USER}\0{PASSWORD}".encode())
    for line in broker.certificates.encrypted_client_key.splitlines()[1:-1]:
        yield "key", line.encode()


def test_everything_was_logged(written: Path) -> None:
    """The loggers that might leak secrets do log at DEBUG, so that the search below covers them."""
    log = (written / "stderr").read_text(errors="replace")
    assert log.count("DEBUG root: this process logs all") > 2, "the driver, the daemon, a worker"
    assert " INFO pyspark_kafkalog" in log
    assert "DEBUG MicroBatchExecution" in log
    assert any((written / "events").iterdir())
    assert (written / "checkpoint-0" / "offsets" / "0").exists()


def test_no_secret_shows(secure_broker: SecureBroker, token: str, written: Path) -> None:
    files = [path for path in written.rglob("*") if path.is_file()]
    shown = []
    for file in files:
        content = file.read_bytes()
        for name, secret in secrets(secure_broker, token):
            place = content.find(secret)
            if place >= 0:
                shown.append((name, file.name, content[max(place - 300, 0) : place]))
    assert not shown
