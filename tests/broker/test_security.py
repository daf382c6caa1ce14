"""Security options as passed to TLS and the SASL mechanisms, and connections that outlive sessions."""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest

from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.sasl import sasl_configs
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import BrokerConnectionError, BrokerError, OptionError
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.options.security.protocol import KerberosOptions, SecurityOptions
from pyspark_kafkalog.options.security.tls import TlsOptions
from pyspark_kafkalog.tls import tls_context
from tests.broker.fake_broker import FakeBroker
from tests.kafka import Broker, Listener
from tests.kafka_certificates import Certificates
from tests.kafka_process import free_ports
from tests.kafka_secure import PASSWORD, USER, SecureBroker

CERTIFICATES = Certificates()
WRONG = "wrong-pass-5e0c"


@pytest.mark.long
@pytest.mark.broker
def test_large_answers_through_tls(secure_broker: SecureBroker) -> None:
    """More than a TLS record, and several requests in flight."""
    for number in range(5):
        secure_broker.make_topic(f"wide-{number}-{'x' * 100}", 100)
    tls = TlsOptions(truststore_certificates=secure_broker.certificates.authority)
    security = SecurityOptions("SASL_SSL", "PLAIN", USER, PASSWORD, tls=tls)
    options = ConnectionOptions(("unused:1",), security=security)
    address = Address.parse(secure_broker.address("SASL_SSL"))
    connection = Connection.open(address, options, tls=tls_context(tls))
    for _ in range(20):
        connection.send(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    for _ in range(20):
        assert sum(len(topic.partitions) for topic in connection.receive().topics) >= 500
    body = MetadataRequest(topics=[], allow_auto_topic_creation=False).encode(version=12)
    connection.send_body(MetadataRequest, 12, [bytes(body[:1]), memoryview(bytes(body[1:]))])
    assert connection.receive().topics == []
    connection.close()


@pytest.mark.long
@pytest.mark.broker
def test_a_session_is_renewed_before_it_ends(tmp_path: Path) -> None:
    """Brokers close a connection at the first request after its session has ended (KIP-368)."""
    (port,) = free_ports(1)
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    broker = Broker(
        tmp_path / "broker",
        {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 4_000,
        },
        listeners=[Listener("SASL_PLAINTEXT", "SASL_PLAINTEXT", port)],
    )
    broker.start()
    try:
        security = SecurityOptions("SASL_PLAINTEXT", "PLAIN", USER, PASSWORD)
        options = ConnectionOptions(("unused:1",), security=security)
        connection = Connection.open(Address("127.0.0.1", port), options)
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        deadline = time.monotonic() + 10
        sent = answered = 0
        while time.monotonic() < deadline:  # always with two in flight
            connection.send(request)
            sent += 1
            if connection.in_flight > 2:
                assert connection.receive().topics == []
                answered += 1
            time.sleep(0.01)
        for _ in range(connection.in_flight):
            connection.receive()
            answered += 1
        assert sent == answered
        connection.close()
    finally:
        broker.stop(kill=True)


def test_the_key_is_on_disk_for_no_longer_than_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Path, int]] = []
    real = ssl.SSLContext.load_cert_chain

    def load(self: ssl.SSLContext, certfile: str, *args: Any, **kwargs: Any) -> None:
        seen.append((Path(certfile), Path(certfile).stat().st_mode & 0o777))
        real(self, certfile, *args, **kwargs)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    chain, key = CERTIFICATES.client_chain, CERTIFICATES.client_key
    context = tls_context(TlsOptions(keystore_certificate_chain=chain, keystore_key=key))
    assert context is not None
    ((file, mode),) = seen
    assert mode == 0o600
    assert file.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"keystore_key": CERTIFICATES.encrypted_client_key},
        {"keystore_key": CERTIFICATES.encrypted_client_key, "key_password": WRONG},
        {"keystore_key": Certificates().client_key},
        {"keystore_location": "/no/such/file"},
        {"truststore_location": "/no/such/file"},
    ],
)
def test_certificates_and_keys_that_cannot_be_used(change: dict[str, str]) -> None:
    tls = TlsOptions(
        keystore_certificate_chain=CERTIFICATES.client_chain, keystore_key=CERTIFICATES.client_key
    )
    says = r"kafka\.ssl\.keystore\.\* cannot be used"
    if option := next((name for name in change if name.endswith("location")), None):
        says = rf"Option 'kafka\.ssl\.{option.replace('_', '.')}': No such file or directory"
    with pytest.raises(OptionError, match=says) as caught:
        tls_context(replace(tls, **change))
    for secret in (WRONG, CERTIFICATES.client_key.splitlines()[1]):
        assert secret not in str(caught.value)
    assert caught.value.__cause__ is None


def test_versions_of_tls() -> None:
    context = tls_context(TlsOptions(minimum_version="TLSv1", maximum_version="TLSv1.2"))
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert tls_context(None) is None


@pytest.mark.skipif(ssl.OPENSSL_VERSION_INFO < (3,), reason="older ones have other security levels")
def test_versions_of_tls_that_this_machine_does_not_offer() -> None:
    tls = TlsOptions(minimum_version="TLSv1", maximum_version="TLSv1")
    broker = FakeBroker(lambda received: None)
    with pytest.raises(BrokerError, match=r"name TLSv1\.2 or TLSv1\.3") as caught:
        Connection.open(Address.parse(broker.address), ConnectionOptions(("b:1",)), tls=tls_context(tls))
    assert not isinstance(caught.value, BrokerConnectionError)
    broker.close()


def test_names_with_the_signs_of_scram_are_escaped() -> None:
    security = SecurityOptions("SASL_SSL", "SCRAM-SHA-256", "a=b,c", "p=,")
    assert sasl_configs(security, "host")["sasl_plain_username"] == "a=3Db=2Cc"
    assert sasl_configs(security, "host")["sasl_plain_password"] == "p=,"
    assert sasl_configs(replace(security, mechanism="PLAIN"), "host")["sasl_plain_username"] == "a=b,c"


KERBEROS = SecurityOptions(
    "SASL_SSL", "GSSAPI", kerberos=KerberosOptions("kafka", "me@REALM", "/etc/my.keytab")
)


def test_kerberos_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(OptionError, match="needs the Python package gssapi, on the driver"):
        sasl_configs(KERBEROS, "host")


def test_kerberos_logs_in_from_a_keytab(monkeypatch: pytest.MonkeyPatch) -> None:
    logins: list[dict[str, Any]] = []
    make_name: Callable[..., tuple[Any, ...]] = lambda *args: args  # noqa: E731
    monkeypatch.setitem(
        sys.modules,
        "gssapi",
        SimpleNamespace(
            Name=make_name,
            NameType=SimpleNamespace(kerberos_principal="principal"),
            Credentials=lambda **kwargs: logins.append(kwargs),
        ),
    )
    monkeypatch.setenv("KRB5CCNAME", "before")
    assert sasl_configs(KERBEROS, "host") == {
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }
    store = {"client_keytab": "/etc/my.keytab", "ccache": "MEMORY:pyspark-kafkalog"}
    assert logins == [{"name": ("me@REALM", "principal"), "usage": "initiate", "store": store}]
    sasl_configs(SecurityOptions("SASL_SSL", "GSSAPI", kerberos=KerberosOptions("kafka")), "host")
    assert len(logins) == 1
