"""Certificates for a broker and a client, generated in each run of the tests."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

KEY_PASSWORD = "key-pass-7d41f0"


class Certificates:
    """An authority and what it signed: a broker's certificate for 127.0.0.1 only, and a client's."""

    def __init__(self) -> None:
        self._authority = trustme.CA()
        self._broker = self._authority.issue_cert("127.0.0.1")
        self._client = self._authority.issue_cert("client@kafkalog.test", common_name="client")

    @property
    def authority(self) -> str:
        """The certificate of the authority."""
        return self._authority.cert_pem.bytes().decode()

    @cached_property
    def other_authority(self) -> str:
        """The certificate of another authority, which signed neither."""
        return trustme.CA().cert_pem.bytes().decode()

    @property
    def client_chain(self) -> str:
        return "".join(pem.bytes().decode() for pem in self._client.cert_chain_pems)

    @property
    def client_key(self) -> str:
        return _pkcs8(self._client)

    @property
    def encrypted_client_key(self) -> str:
        """The client's key, encrypted with :data:`KEY_PASSWORD`."""
        return _pkcs8(self._client, KEY_PASSWORD)

    def write_broker(self, folder: Path) -> dict[str, object]:
        """Write the broker's files into ``folder``, and return the settings that name them."""
        keys, trusted = folder / "broker-keys.pem", folder / "broker-trusted.pem"
        chain = "".join(pem.bytes().decode() for pem in self._broker.cert_chain_pems)
        keys.write_text(_pkcs8(self._broker) + chain)
        trusted.write_text(self.authority)
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keys,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": trusted,
        }


def _pkcs8(leaf: trustme.LeafCert, password: str | None = None) -> str:
    """A private key in the only form that Kafka reads (KIP-651)."""
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    encryption = (
        serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    return pem.decode()
