"""How ZooKeeper is reached, who logs in there, and what TLS checks.

The names are those of Kafka's brokers (KIP-515) as far as they have one. ``zookeeper.sasl.jaas.config`` has
what their JAAS file has as ``Client``, ``zookeeper.addauth`` what follows that command in ZooKeeper's shell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.jaas import LoginModule
from pyspark_kafkalog.options.security.tls import TlsOptions, is_other_store
from pyspark_kafkalog.options.table import BY_NAME, DEFAULTS, ZOOKEEPER
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.options.values import ZOOKEEPER_LOGIN, ZooKeeperAddress

_JAAS = "zookeeper.sasl.jaas.config"
_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_ADDAUTH = "zookeeper.addauth"
_TLS = "zookeeper.ssl.client.enable"
_TRUST, _KEYS = "zookeeper.ssl.truststore.location", "zookeeper.ssl.keystore.location"
_DIGEST = re.compile(r"digest\s+(?P<login>[^:\s]+:.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class ZooKeeperOptions:
    """How to reach one ZooKeeper.

    ``sasl`` are a user and a password for DIGEST-MD5, ``digest`` is ``user:password`` for the scheme digest.
    No repr shows them. Without ``tls`` connections are not encrypted.
    """

    address: ZooKeeperAddress
    sasl: tuple[str, str] | None = None
    digest: str | None = None
    tls: TlsOptions | None = None

    def __repr__(self) -> str:
        return f"ZooKeeperOptions({str(self.address)!r}, ...)"


def zookeeper_options(user: UserOptions) -> ZooKeeperOptions | None:
    """How to reach the ZooKeeper that ``zookeeper.connect`` names; None if it names none.

    :raises OptionError: for options that need another one, never showing a value that may be secret.
    """
    if ZOOKEEPER not in user:
        _refuse_any(user, ZOOKEEPER_LOGIN, ZOOKEEPER)
        return None
    return ZooKeeperOptions(user.value(ZOOKEEPER), _sasl(user), _digest(user), _tls(user))


def _refuse_any(user: UserOptions, prefixes: tuple[str, ...], needed: str) -> None:
    """Refuse options of these names that have no effect, unless they have their defaults."""
    for name in user.names(*prefixes):
        if name in BY_NAME and user.value(name) != DEFAULTS[name]:
            raise OptionError(f"Option {name!r} needs {needed!r}", hint="Give both, or leave both out.")


def _sasl(user: UserOptions) -> tuple[str, str] | None:
    module: LoginModule | None = user.value(_JAAS)
    if module is None:
        return None
    name, password = module.options.get("username"), module.options.get("password")
    if module.name != _MODULE or name is None or password is None:
        raise OptionError(
            f"Option {_JAAS!r}: expected the login module of SASL DIGEST-MD5 with a user, got another",
            hint=f'Write it as {_MODULE} required username="..." password="...";'
            " SASL GSSAPI (Kerberos) is not supported.",
        )
    return name, password


def _digest(user: UserOptions) -> str | None:
    text = user.value(_ADDAUTH)
    if text is None:
        return None
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise OptionError(
            f"Option {_ADDAUTH!r}: expected the scheme digest and a user",
            hint="Write digest user:password, as after addauth in ZooKeeper's shell.",
        )
    return match["login"]


def _tls(user: UserOptions) -> TlsOptions | None:
    if not user.value(_TLS):
        _refuse_any(user, ("zookeeper.ssl.",), f"{_TLS}=true")
        return None
    for name in _TRUST, _KEYS:
        if is_other_store(user.value(name) or ""):
            raise OptionError(
                f"Option {name!r} names a store that is not PEM",
                hint="Convert it once as docs/security.md says, and give the PEM file.",
            )
    return TlsOptions(
        truststore_location=user.value(_TRUST),
        keystore_location=user.value(_KEYS),
        key_password=user.value("zookeeper.ssl.keystore.password") or None,
        check_hostname=user.value("zookeeper.ssl.endpoint.identification.algorithm"),
    )
