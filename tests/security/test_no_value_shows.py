"""No value of an option that says who logs in is quoted, whatever it is, in no error, cause or log line.

Options are swapped, and what stands in the wrong one may be a password.
"""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.extensions.clouds import aws
from pyspark_kafkalog.options.client_settings import (
    REFUSED_READING,
    REFUSED_WRITING,
    STORE_PASSWORDS,
    WITHOUT_EFFECT,
)
from pyspark_kafkalog.options.settings import PlaceOptions, place_options, read_options, write_options
from pyspark_kafkalog.options.table import BY_NAME, Where
from pyspark_kafkalog.options.user_options import log_once_for
from pyspark_kafkalog.options.values import ZOOKEEPER_LOGIN
from pyspark_kafkalog.places import open_place
from tests.broker.fake_broker import API_VERSIONS, METADATA, FakeBroker, Received, encoded, serving

pytestmark = pytest.mark.slow

HUSH = "Hush7"
PACKAGE = "org.apache.kafka.common.security"
PLAIN, SCRAM, OAUTH = (
    f"{PACKAGE}.{name}LoginModule required"
    for name in ("plain.Plain", "scram.Scram", "oauthbearer.OAuthBearer")
)
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule required"
JAAS, MECHANISM, PROTOCOL = "kafka.sasl.jaas.config", "kafka.sasl.mechanism", "kafka.security.protocol"
ENDPOINT = "kafka.sasl.oauthbearer.token.endpoint.url"
HANDLER = "kafka.sasl.login.callback.handler.class"
CLIENT = {
    f"kafka.sasl.oauthbearer.client.credentials.client.{name}": f"{HUSH}{name}" for name in ("id", "secret")
}
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36

NAMES = sorted(
    name
    for name in {
        *(option.name for option in BY_NAME.values() if option.where is Where.BROKERS),
        *WITHOUT_EFFECT,
        *REFUSED_READING,
        *REFUSED_WRITING,
        *STORE_PASSWORDS,
    }
    if "sasl." in name or name.startswith(("kafka.ssl.", "kafka.security.", *ZOOKEEPER_LOGIN))
)

VALUES = (
    HUSH,
    f"{HUSH},TLSv1.2",
    f"{HUSH}.module:{HUSH}",
    f"os:{HUSH}",
    f"{__name__}:{HUSH}",
    f'{PLAIN} username="u" password="{HUSH}";',
    f'{PLAIN} username="u" password="{HUSH}',
    f"https://{HUSH}.invalid/{HUSH}",
    f"http://127.0.0.1:1/{HUSH}",
    f"https://u:{HUSH}@127.0.0.1:1/",
    f"file:///tmp/{HUSH}",
    f"/tmp/{HUSH}.pem",
    f"{HUSH}.jks",
    f"-----BEGIN PRIVATE KEY-----{HUSH}-----END PRIVATE KEY-----",
    f"-----BEGIN CERTIFICATE-----{HUSH}AAA-----END CERTIFICATE-----",
)

LOGINS: dict[str, dict[str, str]] = {
    "PLAIN": {MECHANISM: "PLAIN", JAAS: f'{PLAIN} username="{HUSH}" password="{HUSH}";'},
    "SCRAM": {MECHANISM: "SCRAM-SHA-256", JAAS: f'{SCRAM} username="{HUSH}" password="{HUSH}";'},
    "token": {MECHANISM: "OAUTHBEARER", JAAS: f'{OAUTH} oauth.access.token="{HUSH}";'},
    "endpoint": {MECHANISM: "OAUTHBEARER", ENDPOINT: f"https://127.0.0.1:1/{HUSH}", **CLIENT},
    "file": {MECHANISM: "OAUTHBEARER", ENDPOINT: f"file:///tmp/{HUSH}"},
    "callable": {MECHANISM: "OAUTHBEARER", HANDLER: f"{HUSH}:{HUSH}"},
    "kerberos": {MECHANISM: "GSSAPI", "kafka.sasl.kerberos.service.name": HUSH},
    "zookeeper": {
        "zookeeper.connect": "127.0.0.1:1",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.sasl.jaas.config": f'{DIGEST} username="{HUSH}" password="{HUSH}";',
        "zookeeper.addauth": f"digest {HUSH}:{HUSH}",
    },
    "keys": {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": f"/tmp/{HUSH}.pem"},
}

QUICK = {
    "kafka.request.timeout.ms": "50",
    "kafka.socket.connection.setup.timeout.ms": "20",
    "kafka.sasl.login.retry.backoff.ms": "0",
    "kafka.sasl.login.retry.backoff.max.ms": "0",
    "kafka.retry.backoff.ms": "50",
    "kafka.reconnect.backoff.ms": "50",
    "kafka.sasl.login.connect.timeout.ms": "500",
}


def echoing(received: Received) -> bytes | None:
    """Offers every mechanism, and refuses each login with what came, which a broker may well repeat."""
    if received.api_key == SASL_HANDSHAKE:
        response = SaslHandshakeResponse(
            error_code=0, mechanisms=["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"]
        )
        return encoded(received, response)
    if received.api_key == SASL_AUTHENTICATE:
        said = received.frame[received.frame.find(b"\0", 12) :].decode("latin-1")
        response = SaslAuthenticateResponse(
            error_code=58, error_message=f"Refused: {said}", auth_bytes=b"", session_lifetime_ms=0
        )
        return encoded(received, response)
    return None


@pytest.fixture(scope="module")
def server() -> Iterator[FakeBroker]:
    versions = {API_VERSIONS: (0, 3), METADATA: (0, 12), SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}
    with serving(echoing, versions) as broker:
        yield broker


_connected: set[PlaceOptions] = set()


def connect(options: PlaceOptions) -> None:
    """As a worker does; once for what several options come to, and of SASL and TLS each by itself."""
    assert options.brokers is not None
    if options.brokers.security.protocol != "SASL_SSL" and options not in _connected:
        _connected.add(options)
        open_place(options).topics()


def told_of(options: dict[str, str]) -> list[str]:
    """All that the driver, and then a worker, say of these options."""
    log_once_for.cache_clear()
    shown = []
    for use in (
        lambda: read_options({**options, "subscribe": "t"}, batch=True),
        lambda: write_options({**options, "topic": "t"}),
        lambda: connect(place_options(options)),
    ):
        try:
            result = use()
            shown += [repr(result), str(result)]
        except KafkaLogError as e:
            shown += [*traceback.format_exception(e), repr(e), str(e.hint)]
    return shown


@pytest.mark.parametrize("name", NAMES)
def test_of_any_option(name: str, server: FakeBroker, caplog: pytest.LogCaptureFixture, soak: bool) -> None:
    """With all logins and values; each login with both protocols only in the soak."""
    caplog.set_level(logging.DEBUG)
    shown, tried = [], 0
    for number, login in enumerate(LOGINS.values(), NAMES.index(name)):
        protocols = ["SASL_PLAINTEXT", "SASL_SSL"] if MECHANISM in login else ["SSL", "PLAINTEXT"]
        for protocol in protocols if soak else [protocols[number % 2]]:
            options = {"kafka.bootstrap.servers": server.address, PROTOCOL: protocol, **QUICK, **login}
            for value in VALUES:
                shown += told_of({**options, name: value})
                tried += 1
    assert tried == (2 if soak else 1) * len(LOGINS) * len(VALUES)
    texts = [*shown, *(f"{line.getMessage()} {line.exc_text}" for line in caplog.records)]
    hidden = (HUSH, base64.b64encode(HUSH.encode()).decode()[:6])
    assert not {text for text in texts if any(word in text for word in hidden)}


@pytest.mark.parametrize("mechanism", ["AWS_MSK_IAM", "OAUTHBEARER"])
def test_of_what_a_cloud_gives(
    mechanism: str, server: FakeBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials that no option has, in what a broker repeats."""
    caplog.set_level(logging.DEBUG, "pyspark_kafkalog")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", f"{HUSH}-of-the-{name}")
    signatures: list[str] = []
    sign = aws._signed

    def signed(*given: Any) -> str:
        signatures.append((url := sign(*given)).rpartition("X-Amz-Signature=")[2])
        return url

    monkeypatch.setattr(aws, "_signed", signed)
    login = {PROTOCOL: "SASL_PLAINTEXT", MECHANISM: mechanism, "kafka.sasl.aws.region": "us-east-1"}
    if mechanism == "OAUTHBEARER":
        login["kafka.sasl.oauthbearer.provider"] = "aws"
    told = "".join(told_of({"kafka.bootstrap.servers": server.address, **login})) + caplog.text
    assert "Refused" in told
    assert signatures
    assert not [word for word in (HUSH, *signatures, "aHR0cHM6") if word in told]


@pytest.mark.parametrize(
    "name",
    ["kafka.bootstrap.servers", "kafka.client.dns.lookup", "kafka.acks", "failOnDataLoss", "partitioner"],
)
def test_of_a_login_in_another_option(name: str) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", name: f'{PLAIN} username="u" password="{HUSH}";'}
    said = []
    for use in (
        lambda: read_options({**options, "subscribe": "t"}, batch=True),
        lambda: write_options({**options, "topic": "t"}),
    ):
        try:
            use()
        except KafkaLogError as e:
            said += traceback.format_exception(e)
    assert said, "one of them refuses it"
    assert HUSH not in "".join(said)


def test_every_option_is_tried() -> None:
    families = ("kafka.sasl.", "kafka.ssl.", "kafka.security.", *ZOOKEEPER_LOGIN)
    assert {option.name for option in BY_NAME.values() if option.name.startswith(families)} <= set(NAMES)
    assert len(NAMES) > 60
