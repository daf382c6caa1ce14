"""What TLS checks and shows: Kafka's SslConfigs, in PEM only (KIP-651)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.pem import certificates, private_key
from pyspark_kafkalog.options.user_options import UserOptions

_VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_TRUST = "kafka.ssl.truststore"
_KEYS = "kafka.ssl.keystore"
_IDENTIFICATION = "kafka.ssl.endpoint.identification.algorithm"
_OTHER_STORE = re.compile(r".*\.(?:jks|jceks|bcfks|bks|p12|pfx|pkcs12|keystore|truststore)", re.IGNORECASE)
"""What stores that are not PEM are called."""

_CONVERT_TRUST = (
    "Convert it, once, with: keytool -list -rfc -keystore truststore.jks > truststore.pem"
    f" and give {_TRUST}.type=PEM and {_TRUST}.location=truststore.pem, without {_TRUST}.password."
)
_CONVERT_KEYS = (
    "Convert it, once, with: keytool -importkeystore -srckeystore keystore.jks -destkeystore keystore.p12"
    " -deststoretype PKCS12 ; openssl pkcs12 -in keystore.p12 -out keystore.pem"
    f" and give {_KEYS}.type=PEM, {_KEYS}.location=keystore.pem and the pass phrase that openssl asked for"
    f" as kafka.ssl.key.password, without {_KEYS}.password."
)


@dataclass(frozen=True, slots=True, repr=False)
class TlsOptions:
    """What TLS checks and shows; ``*_location`` are files of PEM, the rest is PEM itself.

    Without ``truststore_*`` the system's authorities are trusted, without
    ``keystore_*`` no certificate is shown. A file of ``keystore_location`` holds
    both certificate chain and key.
    """

    truststore_certificates: str | None = None
    truststore_location: str | None = None
    keystore_certificate_chain: str | None = None
    keystore_key: str | None = None
    keystore_location: str | None = None
    key_password: str | None = None
    check_hostname: bool = True
    minimum_version: str = "TLSv1.2"
    maximum_version: str = "TLSv1.3"


def tls_options(given: UserOptions) -> TlsOptions:
    """What TLS checks and shows.

    :raises OptionError: for stores that are not PEM, and for parts that don't go together.
    """
    _check_store(given, _TRUST, ("certificates",), _CONVERT_TRUST)
    _check_store(given, _KEYS, ("certificate.chain", "key"), _CONVERT_KEYS)
    if bool(given.trimmed(f"{_KEYS}.key")) != bool(given.trimmed(f"{_KEYS}.certificate.chain")):
        raise OptionError(f"Options '{_KEYS}.key' and '{_KEYS}.certificate.chain' need one another")
    lowest, highest = _versions(given)
    return TlsOptions(
        truststore_certificates=_pem(given, f"{_TRUST}.certificates"),
        truststore_location=given.trimmed(f"{_TRUST}.location"),
        keystore_certificate_chain=_pem(given, f"{_KEYS}.certificate.chain"),
        keystore_key=_pem(given, f"{_KEYS}.key"),
        keystore_location=given.trimmed(f"{_KEYS}.location"),
        key_password=given.text("kafka.ssl.key.password") or None,
        check_hostname=_checks_hostname(given),
        minimum_version=lowest,
        maximum_version=highest,
    )


def _check_store(given: UserOptions, store: str, parts: tuple[str, ...], conversion: str) -> None:
    location = given.trimmed(f"{store}.location") or ""
    kind = (given.text(f"{store}.type") or "").strip().upper()
    inline = [f"{store}.{part}" for part in parts if given.trimmed(f"{store}.{part}")]
    if kind != "PEM":
        raise OptionError(f"Option '{store}.type' is not PEM, and Java alone reads others", hint=conversion)
    if f"{store}.type" not in given and _OTHER_STORE.fullmatch(location):
        raise OptionError(f"Option '{store}.location' names a store that is not PEM", hint=conversion)
    if f"{store}.password" in given:
        raise OptionError(f"Option '{store}.password' is given, and a store in PEM has none", hint=conversion)
    if inline and location:
        raise OptionError(f"Only one of '{store}.location' and {inline[0]!r} can be given")


def _pem(given: UserOptions, name: str) -> str | None:
    text = given.trimmed(name)
    if text is None:
        return None
    return private_key(name, text) if name.endswith(".key") else certificates(name, text)


def _checks_hostname(given: UserOptions) -> bool:
    word = (given.text(_IDENTIFICATION) or "").strip().lower()
    if word not in ("https", ""):
        raise OptionError(f"Option {_IDENTIFICATION!r} must be https, or empty to check no host name")
    return word == "https"


def _versions(given: UserOptions) -> tuple[str, str]:
    name, newest = "kafka.ssl.enabled.protocols", "kafka.ssl.protocol"
    words = [word.strip() for word in (given.text(name) or "").split(",") if word.strip()]
    if not words or not set(words) <= set(_VERSIONS):
        raise OptionError(f"Option {name!r} must name some of {', '.join(_VERSIONS)}, separated by commas")
    limit = given.choice(newest, "TLS", *_VERSIONS)
    last = len(_VERSIONS) - 1 if limit == "TLS" else _VERSIONS.index(limit)
    allowed = sorted(index for index in map(_VERSIONS.index, words) if index <= last)
    if not allowed:
        raise OptionError(f"Options {name!r} and {newest!r} leave no version of TLS")
    between = set(_VERSIONS[allowed[0] : allowed[-1] + 1]) - set(words)
    if between:
        raise OptionError(
            f"Option {name!r} leaves out {', '.join(sorted(between))}: OpenSSL can offer only versions that"
            " follow one another",
            hint=f"Name it, too, or leave out {_VERSIONS[allowed[0]]}.",
        )
    return _VERSIONS[allowed[0]], _VERSIONS[allowed[-1]]
