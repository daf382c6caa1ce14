"""The options by which users log in to the brokers of the tests, under Kafka's own names."""

from __future__ import annotations

from pathlib import Path

from tests.kafka_certificates import KEY_PASSWORD
from tests.kafka_secure import PASSWORD, USER, SecureBroker

Options = dict[str, str]

_PACKAGE = "org.apache.kafka.common.security"


def at(broker: SecureBroker, protocol: str) -> Options:
    """The listener of a protocol, and trust in its certificate."""
    options = {
        "kafka.bootstrap.servers": broker.address(protocol),
        "kafka.security.protocol": protocol,
    }
    if protocol.endswith("SSL"):
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.certificates"] = broker.certificates.authority
    return options


def password_login(
    broker: SecureBroker, protocol: str, mechanism: str, *, user: str = USER, password: str = PASSWORD
) -> Options:
    """PLAIN or SCRAM."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    login = f'{_PACKAGE}.{module} required username="{user}" password="{password}";'
    return at(broker, protocol) | {"kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": login}


def oauth_login(broker: SecureBroker, protocol: str, login: str, **options: str) -> Options:
    """OAUTHBEARER; ``login`` are options of its login module, ``options`` with two underscores for a dot."""
    named = {f"kafka.{name.replace('__', '.')}": value for name, value in options.items()}
    module = f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required {login};"
    return (
        at(broker, protocol)
        | {"kafka.sasl.mechanism": "OAUTHBEARER", "kafka.sasl.jaas.config": module}
        | named
    )


def certificate_login(broker: SecureBroker, *, encrypted: bool = False) -> Options:
    """A client's certificate and key as PEM in the options."""
    certificates = broker.certificates
    options = at(broker, "SSL") | {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": certificates.client_chain,
        "kafka.ssl.keystore.key": certificates.client_key,
    }
    if encrypted:
        options["kafka.ssl.keystore.key"] = certificates.encrypted_client_key
        options["kafka.ssl.key.password"] = KEY_PASSWORD
    return options


def certificate_file_login(broker: SecureBroker, folder: Path) -> Options:
    """The same in files, the key encrypted."""
    trusted, keys = folder / "trusted.pem", folder / "keys.pem"
    trusted.write_text(broker.certificates.authority)
    keys.write_text(broker.certificates.client_chain + broker.certificates.encrypted_client_key)
    options = at(broker, "SSL") | {
        "kafka.ssl.truststore.location": str(trusted),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": str(keys),
        "kafka.ssl.key.password": KEY_PASSWORD,
    }
    del options["kafka.ssl.truststore.certificates"]
    return options


def without_host_name(options: Options) -> Options:
    """By a name that the broker's certificate has not, with leave to do so."""
    return by_another_name(options) | {"kafka.ssl.endpoint.identification.algorithm": ""}


def by_another_name(options: Options) -> Options:
    """By a name of loopback that is not in the broker's certificate."""
    return {
        **options,
        "kafka.bootstrap.servers": options["kafka.bootstrap.servers"].replace("127.0.0.1", "localhost"),
    }
