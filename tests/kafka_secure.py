"""A broker that authenticates clients: SASL with and without TLS, and TLS with client certificates."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path

from tests.kafka import Broker, Listener
from tests.kafka_certificates import Certificates
from tests.kafka_process import free_ports

USER = "alice"
PASSWORD = "pass-of-alice-93b1c7"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PACKAGE = "org.apache.kafka.common.security"


class SecureBroker(Broker):
    """A broker whose listeners SASL_SSL and SASL_PLAINTEXT accept ``USER`` by all of ``MECHANISMS``.

    SSL requires a client certificate of the authority. The plain
    listener, for the tests themselves, requires nothing.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        self.certificates = Certificates()
        folder.mkdir(parents=True)
        protocols = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")
        ports = free_ports(len(protocols))
        listeners = [Listener(name, name, port) for name, port in zip(protocols, ports, strict=True)]
        self._addresses = {listener.name: listener.address for listener in listeners}
        own = self.certificates.write_broker(folder) | {
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.ssl.ssl.client.auth": "required",
        }
        for listener in ("sasl_ssl", "sasl_plaintext"):
            for mechanism in MECHANISMS:
                name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
                own[name] = _broker_login(mechanism)
        scram = [f"SCRAM-SHA-{bits}=[name={USER},password={PASSWORD}]" for bits in (256, 512)]
        options = [option for each in scram for option in ("--add-scram", each)]
        super().__init__(folder, own | dict(settings or {}), listeners=listeners, format_options=options)

    def address(self, protocol: str) -> str:
        """The address for clients of a security protocol."""
        return self._addresses[protocol]


def _broker_login(mechanism: str) -> str:
    """The broker's side of a mechanism; SCRAM keeps its users in the metadata log."""
    if mechanism == "PLAIN":
        return f'{_PACKAGE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    if mechanism == "OAUTHBEARER":
        login = 'required unsecuredLoginStringClaim_sub="broker";'
        return f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule {login}"
    return f"{_PACKAGE}.scram.ScramLoginModule required;"


def unsecured_token(subject: str = USER, seconds: int = 3600) -> str:
    """A token without a signature (RFC 7515, appendix A.5), valid from now on."""
    now = int(time.time())
    claims = {"sub": subject, "iat": now - 5, "exp": now + seconds}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
