"""The certificates that TLS verifies and presents: Kafka's SslConfigs, in PEM only (KIP-651)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.table import DEFAULTS, from_option
from pyspark_kafkalog.options.user_options import UserOptions

_VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_TRUST = "kafka.ssl.truststore"
_KEYS = "kafka.ssl.keystore"
_OTHER_STORE = re.compile(r".*\.(?:jks|jceks|bcfks|bks|p12|pfx|pkcs12|keystore|truststore)", re.IGNORECASE)
"""Names of stores that are not PEM."""

_CONVERT_TRUST = (
    "Convert it once with: keytool -list -rfc -keystore truststore.jks > truststore.pem"
    f" and give {_TRUST}.type=PEM and {_TRUST}.location=truststore.pem, without {_TRUST}.password."
)
_CONVERT_KEYS = (
    "Convert it once with: keytool -importkeystore -srckeystore keystore.jks -destkeystore keystore.p12"
    " -deststoretype PKCS12 ; openssl pkcs12 -in keystore.p12 -out keystore.pem"
    f" and give {_KEYS}.type=PEM, {_KEYS}.location=keystore.pem and the pass phrase that openssl asked for"
    f" as kafka.ssl.key.password, without {_KEYS}.password."
)


@dataclass(frozen=True, slots=True, repr=False)
class TlsOptions:
    """The certificates that TLS verifies and presents; ``*_location`` are PEM files, the others PEM text.

    Without ``truststore_*`` the system's authorities are trusted; without
    ``keystore_*`` no certificate is presented. The file ``keystore_location`` holds
    both certificate chain and key.
    """

    truststore_certificates: str | None = from_option(f"{_TRUST}.certificates")
    truststore_location: str | None = from_option(f"{_TRUST}.location")
    keystore_certificate_chain: str | None = from_option(f"{_KEYS}.certificate.chain")
    keystore_key: str | None = from_option(f"{_KEYS}.key")
    keystore_location: str | None = from_option(f"{_KEYS}.location")
    key_password: str | None = None
    check_hostname: bool = from_option("kafka.ssl.endpoint.identification.algorithm")
    minimum_version: str = DEFAULTS["kafka.ssl.enabled.protocols"][0]
    maximum_version: str = from_option("kafka.ssl.protocol")


def tls_options(user: UserOptions) -> TlsOptions:
    """The certificates that TLS verifies and presents, by the user's options.

    :raises OptionError: for stores that are not PEM, and for inconsistent options.
    """
    _check_store(user, _TRUST, ("certificates",), _CONVERT_TRUST)
    _check_store(user, _KEYS, ("certificate.chain", "key"), _CONVERT_KEYS)
    if bool(user.value(f"{_KEYS}.key")) != bool(user.value(f"{_KEYS}.certificate.chain")):
        raise OptionError(f"Options '{_KEYS}.key' and '{_KEYS}.certificate.chain' must be given together")
    lowest, highest = _versions(user)
    return user.fill(
        TlsOptions,
        key_password=user.value("kafka.ssl.key.password") or None,
        minimum_version=lowest,
        maximum_version=highest,
    )


def check_pem(user: UserOptions, *names: str) -> None:
    """Refuse stores whose files have the name of a type other than PEM.

    :param names: the options that give them.
    :raises OptionError: naming the option.
    """
    for name in names:
        if _OTHER_STORE.fullmatch(user.value(name) or ""):
            raise OptionError(
                f"Option {name!r} names a store that is not PEM",
                hint="Convert it once as docs/security.md says, and give the PEM file.",
            )


def _check_store(user: UserOptions, store: str, parts: tuple[str, ...], conversion: str) -> None:
    location = user.value(f"{store}.location") or ""
    inline = [f"{store}.{part}" for part in parts if (user.text(f"{store}.{part}") or "").strip()]
    if user.value(f"{store}.type").upper() != "PEM":
        raise OptionError(f"Option '{store}.type': expected PEM, the only type read here", hint=conversion)
    if f"{store}.type" not in user and _OTHER_STORE.fullmatch(location):
        raise OptionError(f"Option '{store}.location' names a store that is not PEM", hint=conversion)
    if f"{store}.password" in user:
        raise OptionError(f"Option '{store}.password' is given, but a PEM store has none", hint=conversion)
    if inline and location:
        raise OptionError(
            f"Only one of '{store}.location' and {inline[0]!r} can be given", hint="Leave one out."
        )


def _versions(user: UserOptions) -> tuple[str, str]:
    name, newest = "kafka.ssl.enabled.protocols", "kafka.ssl.protocol"
    words, limit = user.value(name), user.value(newest)
    last = len(_VERSIONS) - 1 if limit == "TLS" else _VERSIONS.index(limit)
    allowed = sorted(index for index in map(_VERSIONS.index, words) if index <= last)
    if not allowed:
        raise OptionError(
            f"Options {name!r} and {newest!r} leave no version of TLS",
            hint="Enable an older version, or allow a newer one.",
        )
    between = set(_VERSIONS[allowed[0] : allowed[-1] + 1]) - set(words)
    if between:
        raise OptionError(
            f"Option {name!r} leaves out {', '.join(sorted(between))}: OpenSSL can offer only versions that"
            " follow one another",
            hint=f"Name these as well, or leave out {_VERSIONS[allowed[0]]}.",
        )
    return _VERSIONS[allowed[0]], _VERSIONS[allowed[-1]]
