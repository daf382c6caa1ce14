"""What does not fit together ends in seconds, with an error that says what to look at and shows no secret."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pyspark_kafkalog.errors import AuthenticationError, BrokerError, OptionError
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_place
from tests.broker.producing import numbered
from tests.kafka_certificates import KEY_PASSWORD
from tests.kafka_secure import PASSWORD, SecureBroker, unsecured_token
from tests.security.exchange import write
from tests.security.logins import (
    Options,
    at,
    by_another_name,
    certificate_login,
    oauth_login,
    password_login,
)

pytestmark = pytest.mark.broker

WRONG = "wrong-pass-55aa01"
Login = Callable[[SecureBroker], Options]

PATIENCE = {"kafka.socket.connection.setup.timeout.ms": "1500"}
"""What looks like the wrong protocol is tried for so long."""


def elsewhere(options: Options, address: str) -> Options:
    return {**options, "kafka.bootstrap.servers": address, **PATIENCE}


def plain(address: str) -> Options:
    return {"kafka.bootstrap.servers": address, **PATIENCE}


def with_other_authority(broker: SecureBroker, options: Options) -> Options:
    return {**options, "kafka.ssl.truststore.certificates": broker.certificates.other_authority}


def without(options: Options, *names: str) -> Options:
    return {name: value for name, value in options.items() if name not in names}


REFUSED: dict[str, tuple[Login, type[Exception], str]] = {
    "a wrong password of PLAIN": (
        lambda broker: password_login(broker, "SASL_SSL", "PLAIN", password=WRONG),
        AuthenticationError,
        "PLAIN failed.*Invalid username or password.*password",
    ),
    "a wrong password of SCRAM-SHA-256": (
        lambda broker: password_login(broker, "SASL_PLAINTEXT", "SCRAM-SHA-256", password=WRONG),
        AuthenticationError,
        "SCRAM-SHA-256 failed.*invalid credentials.*password",
    ),
    "a wrong password of SCRAM-SHA-512": (
        lambda broker: password_login(broker, "SASL_SSL", "SCRAM-SHA-512", password=WRONG),
        AuthenticationError,
        "SCRAM-SHA-512 failed.*invalid credentials.*password",
    ),
    "an unknown user": (
        lambda broker: password_login(broker, "SASL_SSL", "SCRAM-SHA-512", user="mallory"),
        AuthenticationError,
        "SCRAM-SHA-512 failed.*invalid credentials",
    ),
    "an expired token": (
        lambda broker: oauth_login(
            broker, "SASL_SSL", f'oauth.access.token="{unsecured_token(seconds=-100)}"'
        ),
        AuthenticationError,
        "OAUTHBEARER failed.*invalid_token",
    ),
    "an authority that did not sign": (
        lambda broker: with_other_authority(broker, password_login(broker, "SASL_SSL", "PLAIN")),
        AuthenticationError,
        "certificate is not accepted.*kafka.ssl.truststore",
    ),
    "the system's authorities": (
        lambda broker: without(certificate_login(broker), "kafka.ssl.truststore.certificates"),
        AuthenticationError,
        "certificate is not accepted.*kafka.ssl.truststore",
    ),
    "another host name": (
        lambda broker: by_another_name(password_login(broker, "SASL_SSL", "PLAIN")),
        AuthenticationError,
        "certificate is not accepted.*localhost.*identification.algorithm",
    ),
    "no certificate of the client": (
        lambda broker: at(broker, "SSL"),
        AuthenticationError,
        "refused the TLS connection.*kafka.ssl.keystore",
    ),
    "a wrong password of the key": (
        lambda broker: certificate_login(broker, encrypted=True) | {"kafka.ssl.key.password": WRONG},
        OptionError,
        "kafka.ssl.keystore.*kafka.ssl.key.password",
    ),
    "no TLS towards TLS": (
        lambda broker: plain(broker.address("SSL")),
        BrokerError,
        "TLS.*kafka.security.protocol",
    ),
    "SASL without TLS towards TLS": (
        lambda broker: elsewhere(
            password_login(broker, "SASL_PLAINTEXT", "PLAIN"), broker.address("SASL_SSL")
        ),
        BrokerError,
        "TLS.*kafka.security.protocol",
    ),
    "TLS towards a plain listener": (
        lambda broker: elsewhere(certificate_login(broker), broker.bootstrap),
        BrokerError,
        "TLS failed.*kafka.security.protocol",
    ),
    "SASL over TLS towards SASL without": (
        lambda broker: elsewhere(
            password_login(broker, "SASL_SSL", "PLAIN"), broker.address("SASL_PLAINTEXT")
        ),
        BrokerError,
        "TLS failed.*kafka.security.protocol",
    ),
    "no SASL towards SASL": (
        lambda broker: plain(broker.address("SASL_PLAINTEXT")),
        BrokerError,
        "SASL.*kafka.security.protocol",
    ),
    "SASL towards a listener without": (
        lambda broker: elsewhere(password_login(broker, "SASL_PLAINTEXT", "PLAIN"), broker.bootstrap),
        AuthenticationError,
        "does not use SASL.*kafka.security.protocol",
    ),
}


def look_up(options: Options) -> None:
    open_place(place_options(options)).topics()


def write_a_row(options: Options) -> None:
    write(options, "t", [numbered(1)])


@pytest.mark.parametrize(("login", "error", "text"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("ask", [look_up, write_a_row], ids=["to read", "to write"])
def test_says_why(
    secure_broker: SecureBroker,
    login: Login,
    error: type[Exception],
    text: str,
    ask: Callable[[Options], None],
) -> None:
    options = login(secure_broker)
    started = time.monotonic()
    with pytest.raises(error, match=f"(?s){text}") as raised:
        ask(options)
    assert time.monotonic() - started < 25
    said = str(raised.value)
    for secret in (PASSWORD, WRONG, KEY_PASSWORD, options.get("kafka.ssl.keystore.key", "BEGIN PRIVATE")):
        assert secret not in said
