"""How to prove who we are to brokers, and they to us: parsed from Kafka's own setting names.

No part of these options is ever shown: not by repr, nor in an error.
Sources: Kafka's ``SaslConfigs``, ``SslConfigs``, ``JaasConfig``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class SecurityOptions:
    """Protocol, credentials and certificates. Certificates and keys are PEM: text, or the path of a file."""

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    oauth_token: str | None = None
    oauth_token_endpoint_url: str | None = None
    oauth_client_id: str | None = None
    oauth_client_secret: str | None = None
    oauth_scope: str | None = None
    kerberos_service_name: str | None = None
    kerberos_principal: str | None = None
    kerberos_keytab: str | None = None
    ca_pem: str | None = None
    ca_file: str | None = None
    certificate_pem: str | None = None
    certificate_file: str | None = None
    key_pem: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    check_hostname: bool = True
