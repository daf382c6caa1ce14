"""The security protocol of brokers: Kafka's CommonClientConfigs.

No repr and no error shows a value. Pickles hold them, because tasks need them. Without a login nothing of
logins is loaded.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafkalog.options.table import BY_NAME, from_option
from pyspark_kafkalog.options.user_options import UserOptions, log_once

if TYPE_CHECKING:
    from pyspark_kafkalog.options.security.aws import AwsOptions
    from pyspark_kafkalog.options.security.oauth import OAuthOptions
    from pyspark_kafkalog.options.security.tls import TlsOptions

_OF_TLS = ("kafka.ssl.truststore.", "kafka.ssl.keystore.", "kafka.ssl.key.")


@dataclass(frozen=True, slots=True, repr=False)
class KerberosOptions:
    """The Kerberos login; without a principal, the owner of the ticket cache."""

    service_name: str
    principal: str | None = None
    keytab: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class SecurityOptions:
    """The security protocol, with a mechanism for SASL and ``tls`` for TLS."""

    protocol: str = from_option("kafka.security.protocol")
    mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    oauth: OAuthOptions | None = None
    kerberos: KerberosOptions | None = None
    aws: AwsOptions | None = None
    tls: TlsOptions | None = None

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_") and self.mechanism is not None

    def __repr__(self) -> str:
        return f"SecurityOptions(protocol={self.protocol!r}, mechanism={self.mechanism!r}, ...)"


def security_options(user: UserOptions) -> SecurityOptions:
    """The security that the options ask for.

    :raises OptionError: never showing a value that may be secret.
    """
    protocol = user.value("kafka.security.protocol")
    because = f"kafka.security.protocol is {protocol}"
    tls = None
    if protocol.endswith("SSL"):
        from pyspark_kafkalog.options.security.tls import tls_options

        tls = tls_options(user)
    else:
        warn_if_given(user, _OF_TLS, because)
    if protocol.startswith("SASL_"):
        from pyspark_kafkalog.options.security.login import with_login

        return with_login(user, SecurityOptions(protocol, tls=tls))
    warn_if_given(user, ("kafka.sasl.",), because)
    return SecurityOptions(protocol, tls=tls)


def warn_if_given(user: UserOptions, prefixes: tuple[str, ...], because: str) -> None:
    """Warn of options without effect: a user who sets them wants a safer protocol, or another login."""
    if names := [name for name in user.names(*prefixes) if name in BY_NAME]:
        log_once(logging.WARNING, "Options %s have no effect, because %s", ", ".join(names), because)
