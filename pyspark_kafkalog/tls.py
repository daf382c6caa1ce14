"""TLS: the user's options as Python's context."""

from __future__ import annotations

import ssl
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.tls import TlsOptions

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


def tls_context(
    tls: TlsOptions | None, names: str = "kafka.ssl", password: str = "key.password"
) -> ssl.SSLContext | None:
    """The TLS context with its certificates and keys; None without TLS.

    :param names: how the names of its options begin.
    :param password: how that of the key's password ends.
    :raises OptionError: if a certificate or key cannot be used.
    """
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.check_hostname
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # for versions that the user chose
        context.minimum_version = _VERSIONS[tls.minimum_version]
        context.maximum_version = _VERSIONS[tls.maximum_version]
    hint = f"Give PEM files that each executor can read, and {names}.{password} if the key is encrypted."
    with _loading(f"{names}.truststore", hint, tls.truststore_location):
        _trust(context, tls)
    with _loading(f"{names}.keystore", hint, tls.keystore_location):
        _identify(context, tls)
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


@contextmanager
def _loading(option: str, hint: str, location: str | None) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError) as e:
        if location is None:
            raise
        raise OptionError(
            f"Option '{option}.location': {e.strerror}",
            hint="Give the path of a PEM file that the driver and each executor can read.",
        ) from None
    except (OSError, ValueError) as e:
        reason = getattr(e, "reason", None) or getattr(e, "strerror", None) or type(e).__name__
        if reason == "NO_CERTIFICATE_OR_CRL_FOUND":
            given = f"{option}.location" if location is not None else f"{option}.certificates"
            raise OptionError(f"Option '{given}' has no certificate in PEM", hint=hint) from None
        raise OptionError(f"The values of options {option}.* cannot be used: {reason}", hint=hint) from None
