"""Turns the user's security options into Python's TLS context and kafka-python's SASL settings."""

from __future__ import annotations

import os
import ssl
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

from pyspark_kafkalog.broker.wire.oauth import Tokens
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.protocol import KerberosOptions, SecurityOptions
from pyspark_kafkalog.options.security.tls import TlsOptions

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_TICKETS = "MEMORY:pyspark-kafkalog"


def tls_context(security: SecurityOptions) -> ssl.SSLContext | None:
    """The TLS context with its certificates and keys; None for a protocol without TLS.

    :raises OptionError: if a certificate or key cannot be used.
    """
    tls = security.tls
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.check_hostname
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # for versions that the user chose
        context.minimum_version = _VERSIONS[tls.minimum_version]
        context.maximum_version = _VERSIONS[tls.maximum_version]
    _load("kafka.ssl.truststore", lambda: _trust(context, tls))
    _load("kafka.ssl.keystore", lambda: _identify(context, tls))
    return context


def _trust(context: ssl.SSLContext, tls: TlsOptions) -> None:
    if tls.truststore_certificates is None and tls.truststore_location is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cafile=tls.truststore_location, cadata=tls.truststore_certificates)


def _identify(context: ssl.SSLContext, tls: TlsOptions) -> None:
    # Without a password OpenSSL would ask for one on the terminal.
    password = tls.key_password or ""
    if tls.keystore_location is not None:
        context.load_cert_chain(tls.keystore_location, password=password)
    elif tls.keystore_certificate_chain is not None and tls.keystore_key is not None:
        # Python takes chain and key only from a file; this one is private, and deleted at once.
        with tempfile.NamedTemporaryFile("w", prefix="kafkalog-", suffix=".pem") as file:
            file.write(tls.keystore_certificate_chain + tls.keystore_key)
            file.flush()
            context.load_cert_chain(file.name, password=password)


def _load(option: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ValueError) as e:
        reason = getattr(e, "reason", None) or getattr(e, "strerror", None) or type(e).__name__
        raise OptionError(
            f"The values of options {option}.* cannot be used: {reason}",
            hint="Give PEM files that each executor can read, and kafka.ssl.key.password if the key is"
            " encrypted.",
        ) from None


def without_values(text: str, security: SecurityOptions) -> str:
    """A foreign error text about a login, without the values of the options: any may be a secret."""
    values = [security.username, security.password]
    if security.kerberos is not None:
        values += [security.kerberos.service_name, security.kerberos.principal, security.kerberos.keytab]
    if security.oauth is not None:
        values += [security.oauth.token, security.oauth.client_id, security.oauth.client_secret]
    for value in sorted(filter(None, values), key=len, reverse=True):
        text = text.replace(value, "...")
    return text


def sasl_configs(security: SecurityOptions) -> dict[str, Any]:
    """The settings for kafka-python's SASL mechanisms.

    :raises OptionError: if the mechanism is GSSAPI and its package is missing.
    """
    configs: dict[str, Any] = {"sasl_mechanism": security.mechanism}
    if security.oauth is not None:
        return {**configs, "sasl_oauth_token_provider": Tokens(security.oauth)}
    if security.kerberos is not None:
        _log_in(security.kerberos)
        return {**configs, "sasl_kerberos_service_name": security.kerberos.service_name}
    username = security.username or ""
    if (security.mechanism or "").startswith("SCRAM"):
        # RFC 5802 requires this, and kafka-python does not do it.
        username = username.replace("=", "=3D").replace(",", "=2C")
    return {**configs, "sasl_plain_username": username, "sasl_plain_password": security.password or ""}


def _log_in(kerberos: KerberosOptions) -> None:
    """With a keytab, get a ticket into this process's memory; without one, kinit has made it."""
    try:
        import gssapi
    except (ImportError, OSError):
        raise OptionError(
            "SASL GSSAPI needs the Python package gssapi, on the driver and on each executor",
            hint="pip install gssapi; it needs the system's Kerberos libraries.",
        ) from None
    if kerberos.keytab is not None:
        name = None
        if kerberos.principal is not None:
            name = gssapi.Name(kerberos.principal, gssapi.NameType.kerberos_principal)
        store = {"client_keytab": kerberos.keytab, "ccache": _TICKETS}
        gssapi.Credentials(name=name, usage="initiate", store=store)
        os.environ["KRB5CCNAME"] = _TICKETS
