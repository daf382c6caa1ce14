"""Logins to brokers: Kafka's SaslConfigs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.aws import REGION, aws_options
from pyspark_kafkalog.options.security.jaas import LoginModule
from pyspark_kafkalog.options.security.oauth import PROVIDER, oauth_options
from pyspark_kafkalog.options.security.protocol import KerberosOptions, SecurityOptions, warn_if_given
from pyspark_kafkalog.options.user_options import UserOptions, log_once

_JAAS = "kafka.sasl.jaas.config"
_MECHANISM = "kafka.sasl.mechanism"
_CLIENT_HANDLER = "kafka.sasl.client.callback.handler.class"
_SERVICE_NAME = "kafka.sasl.kerberos.service.name"
_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
    "AWS_MSK_IAM": "IAMLoginModule",
    "GSSAPI": "Krb5LoginModule",
}
"""The login module of each mechanism."""
_PACKAGES = {
    "IAMLoginModule": "software.amazon.msk.auth.iam",
    "Krb5LoginModule": "com.sun.security.auth.module",
}
"""The packages of login modules that are not Kafka's."""


def with_login(user: UserOptions, security: SecurityOptions) -> SecurityOptions:
    """The security of SASL, with the login that the options give.

    :raises OptionError: never showing a value that may be secret.
    """
    mechanism = str(user.value(_MECHANISM))
    security = replace(security, mechanism=mechanism)
    _check_client_handler(user, mechanism)
    if mechanism != "OAUTHBEARER":
        _check_tokens(user, mechanism)
    module = _login_module(user, mechanism)
    login = module.options if module else {}
    if mechanism == "OAUTHBEARER":
        oauth = oauth_options(user, login)
        if oauth.cloud or oauth.aws:
            _warn_if_unencrypted(security.protocol)
        if not oauth.aws:
            warn_if_given(user, (REGION,), f"{PROVIDER} is not aws")
        return replace(security, oauth=oauth)
    if mechanism == "AWS_MSK_IAM":
        _warn_if_unencrypted(security.protocol)
        return replace(security, aws=aws_options(user, login))
    if mechanism == "GSSAPI":
        return replace(security, kerberos=_kerberos(user, login))
    if module is None:
        raise _no_login(mechanism)
    username, password = _name_and_password(module)
    return replace(security, username=username, password=password)


def _check_tokens(user: UserOptions, mechanism: str) -> None:
    """Refuse a cloud that would not be asked, and warn of what else is only for OAUTHBEARER."""
    is_aws = mechanism == "AWS_MSK_IAM"
    if user.value(PROVIDER) not in (None, "aws" if is_aws else None):
        raise OptionError(
            f"Option {PROVIDER!r} needs the SASL mechanism OAUTHBEARER, got {mechanism}",
            hint=f"Set {_MECHANISM} to OAUTHBEARER, or leave the provider out.",
        )
    others = () if is_aws else (REGION,)
    warn_if_given(user, ("kafka.sasl.oauthbearer.", *others), f"{_MECHANISM} is {mechanism}")


def _warn_if_unencrypted(protocol: str) -> None:
    if protocol == "SASL_PLAINTEXT":
        log_once(
            logging.WARNING,
            "Logins of a cloud go to brokers unencrypted, because kafka.security.protocol is %s",
            protocol,
        )


def _check_client_handler(user: UserOptions, mechanism: str) -> None:
    """Refuse each Java class but the one for MSK, whose work this package does itself."""
    name = user.value(_CLIENT_HANDLER)
    if name is not None and (mechanism, name.rpartition(".")[2]) != (
        "AWS_MSK_IAM",
        "IAMClientCallbackHandler",
    ):
        raise OptionError(
            f"Option {_CLIENT_HANDLER!r} names a Java class, which cannot be run here", hint="Leave it out."
        )


def _login_module(user: UserOptions, mechanism: str) -> LoginModule | None:
    module: LoginModule | None = user.value(_JAAS)
    expected = _MODULES[mechanism]
    if module is None or module.is_a(expected):
        return module
    of = " or ".join(name for name, login in _MODULES.items() if module.is_a(login))
    if not of:
        raise OptionError(
            f"Option {_JAAS!r}: expected the login module {expected} of SASL {mechanism}, got another",
            hint=f"Write it with {_full(expected)}, or check {_MECHANISM}.",
        )
    if _MECHANISM in user:
        found, way = f"is {mechanism}", f", or give the login module {_full(expected)}"
    else:
        found, way = f"is not set, so {mechanism} is taken", ""
    raise OptionError(
        f"Option {_MECHANISM!r} {found}, but {_JAAS!r} has the login module of {of}",
        hint=f"Set {_MECHANISM} to {of}{way}.",
    )


def _no_login(mechanism: str) -> OptionError:
    return OptionError(
        f"SASL {mechanism} needs the option {_JAAS!r}",
        hint=f'Write it as {_full(_MODULES[mechanism])} required username="..." password="...";',
    )


def _full(module: str) -> str:
    """The name of a login module with its package."""
    return f"{_PACKAGES.get(module, 'org.apache.kafka.common.security')}.{module}"


def _name_and_password(module: LoginModule) -> tuple[str, str]:
    if module.options.get("tokenauth", "").lower() == "true":
        raise OptionError(
            f"Option {_JAAS!r} has tokenauth=true, but delegation tokens are not supported",
            hint="Give the user name and password of a SCRAM user.",
        )
    missing = [name for name in ("username", "password") if name not in module.options]
    if missing:
        raise OptionError(
            f"Option {_JAAS!r} lacks {' and '.join(missing)}",
            hint='Add username="..." password="..." before the semicolon.',
        )
    return module.options["username"], module.options["password"]


def _kerberos(user: UserOptions, login: Mapping[str, str]) -> KerberosOptions:
    names = {name for name in (user.value(_SERVICE_NAME), login.get("serviceName")) if name}
    if len(names) != 1:
        trouble = (
            "give different names for the Kerberos service" if names else "do not name the Kerberos service"
        )
        raise OptionError(
            f"Options {_SERVICE_NAME!r} and {_JAAS!r} {trouble}",
            hint=f"Set {_SERVICE_NAME}, usually to kafka"
            + ("." if _MECHANISM in user else f", or {_MECHANISM}, which is GSSAPI by default."),
        )
    return KerberosOptions(names.pop(), login.get("principal"), login.get("keyTab"))
