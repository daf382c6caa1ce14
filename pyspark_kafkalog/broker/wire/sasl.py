"""SASL on a new connection, or on one whose session ends soon (KIP-152, KIP-368).

The mechanisms are kafka-python's; GSSAPI also needs the package ``gssapi``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.msk import SaslMechanismAwsMskIam
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from pyspark_kafkalog import extensions
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, name_of
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import AuthenticationError, KafkaLogError, OptionError
from pyspark_kafkalog.options.security.aws import AwsOptions
from pyspark_kafkalog.options.security.protocol import KerberosOptions, SecurityOptions

_HINTS = {
    "GSSAPI": "Check the Kerberos ticket of this process, and kafka.sasl.kerberos.service.name.",
    "AWS_MSK_IAM": "Check that the policy of the role or user allows kafka-cluster:Connect.",
    "OAUTHBEARER": "Check the token in kafka.sasl.jaas.config, or the endpoint and client it comes from.",
}
_MOST_ROUNDS = 16
"""The most rounds of a login, more than any mechanism needs."""
_ITERATIONS = range(4096, 1_000_001)
"""The iterations that SCRAM may ask for: from the minimum of Kafka's ScramMechanism to a second's work."""
_TICKETS = "MEMORY:pyspark-kafkalog"
"""The ticket cache of this process for Kerberos."""
_DETAIL = 200
"""The characters that an error quotes from a broker."""
_WORD = re.compile(r'[^\s"\x00-\x1f]{12,}')
"""A word that may be a token, or a part of a signature."""
_NAME_AND_PASSWORD = (
    "Check username and password in kafka.sasl.jaas.config, and that they belong to this mechanism."
)


def authenticate(call: Callable[[Any, int], Any], address: Address, security: SecurityOptions) -> int:
    """Authenticate by the mechanism of a security protocol with SASL.

    :param call: sends a request in at most the given version, and returns the response.
    :returns: milliseconds until the broker ends the session, 0 if it does not.
    :raises AuthenticationError: if the broker or the mechanism rejects the other side.
    """
    name = security.mechanism
    assert name is not None
    broker = str(address)
    answer = call(SaslHandshakeRequest(mechanism=name), 1)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationError(
            f"Expected SASL {name}, the broker offers {', '.join(answer.mechanisms)[:_DETAIL] or 'none'}",
            broker=broker,
            hint="Check kafka.sasl.mechanism.",
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            "The listener does not use SASL",
            broker=broker,
            hint="Set kafka.security.protocol to PLAINTEXT or SSL, or check the port.",
        )
    hint = _HINTS.get(name, _NAME_AND_PASSWORD)
    if answer.error_code:
        raise AuthenticationError(
            f"SASL {name} failed: {name_of(answer.error_code)}", broker=broker, hint=hint
        )

    def make() -> Any:
        if security.aws is not None:
            return _MskIam(security.aws, address.host)
        return get_sasl_mechanism(name)(host=address.host, **sasl_configs(security, address.host))

    step = partial(_step, security=security, broker=broker, hint=hint)
    mechanism = step(make)
    for number in range(_MOST_ROUNDS):
        if mechanism.is_done():
            break
        sent = step(mechanism.auth_bytes)
        answer = call(SaslAuthenticateRequest(auth_bytes=sent), 2)
        if answer.error_code:
            _forget(security, address.host)
            said = answer.error_message or name_of(answer.error_code)
            detail = _without_values(said, security, sent)[:_DETAIL]
            raise AuthenticationError(f"SASL {name} failed: {detail}", broker=broker, hint=hint)
        if name.startswith("SCRAM"):
            step(partial(_check_scram, answer.auth_bytes, number))
        step(partial(mechanism.receive, answer.auth_bytes))
    if not mechanism.is_done():
        raise AuthenticationError(f"SASL {name} did not end after {_MOST_ROUNDS} rounds", broker=broker)
    if not mechanism.is_authenticated():
        raise AuthenticationError(f"SASL {name} failed", broker=broker, hint=hint)
    return max(int(answer.session_lifetime_ms), 0)


def _forget(security: SecurityOptions, host: str) -> None:
    """Let the next login have another token or credentials than those that are kept: these were refused."""
    if security.oauth is not None:
        from pyspark_kafkalog.broker.wire.oauth import OAuthTokens

        OAuthTokens(security.oauth, host).forget()
    if security.aws is not None:
        extensions.cloud_services().forget(security.aws, host)


def _check_scram(message: bytes, number: int) -> None:
    """Refuse a server's message that kafka-python's mechanism would trust or misread (RFC 5802, 5.1).

    :param number: the message's number, from 0.
    :raises ValueError: with the reason.
    """
    attributes = dict(part.partition("=")[::2] for part in message.decode().split(","))
    if "e" in attributes:
        raise ValueError(f"the broker says {attributes['e'][:_DETAIL]!r}")
    expected = ("v",) if number else ("r", "s", "i")
    if missing := [f"{name}=" for name in expected if name not in attributes]:
        raise ValueError(f"the broker's message {number + 1} lacks {', '.join(missing)}")
    if number:
        return
    iterations = attributes["i"]
    if not (iterations.isdecimal() and len(iterations) < 10 and int(iterations) in _ITERATIONS):
        raise ValueError(
            f"expected {_ITERATIONS[0]} to {_ITERATIONS[-1]} iterations, the broker asks for"
            f" {iterations[:_DETAIL]}: fewer would let it guess the password"
        )


def _step(step: Callable[[], Any], *, security: SecurityOptions, broker: str, hint: str) -> Any:
    try:
        return step()
    except KafkaLogError:
        raise
    except Exception as e:  # mechanisms raise all kinds, gssapi's included
        detail = _without_values(str(e), security)
    raise AuthenticationError(f"SASL {security.mechanism} failed: {detail}", broker=broker, hint=hint)


def _without_values(text: str, security: SecurityOptions, sent: bytes = b"") -> str:
    """A foreign error text about a login, without the values of the options: any may be a secret.

    :param sent: what a broker was sent, which may have a token that no option has.
    """
    values = [security.username, security.password]
    if security.kerberos is not None:
        values += [security.kerberos.service_name, security.kerberos.principal, security.kerberos.keytab]
    if security.oauth is not None:
        values += [security.oauth.token, security.oauth.client_id, security.oauth.client_secret]
    if security.oauth is not None or security.aws is not None:
        values += _WORD.findall(sent.decode("latin-1"))
    for value in sorted(filter(None, values), key=len, reverse=True):
        text = text.replace(value, "...")
    return text


class _MskIam(SaslMechanismAwsMskIam):  # type: ignore[misc]
    """kafka-python's, with the credentials that the options of MSK's login name."""

    def __init__(self, options: AwsOptions, host: str) -> None:
        self._options, self._host = options, host
        self._is_done = self._is_authenticated = False

    def auth_bytes(self) -> bytes:
        return extensions.cloud_services().iam_message(self._options, self._host)


def sasl_configs(security: SecurityOptions, host: str) -> dict[str, Any]:
    """The settings for kafka-python's SASL mechanisms.

    :param host: of the broker.
    :raises OptionError: if the mechanism is GSSAPI and its package is missing.
    """
    configs: dict[str, Any] = {"sasl_mechanism": security.mechanism}
    if security.oauth is not None:
        from pyspark_kafkalog.broker.wire.oauth import OAuthTokens  # with all of HTTP

        return {**configs, "sasl_oauth_token_provider": OAuthTokens(security.oauth, host)}
    if security.kerberos is not None:
        _log_in(security.kerberos)
        return {**configs, "sasl_kerberos_service_name": security.kerberos.service_name}
    username = security.username or ""
    if (security.mechanism or "").startswith("SCRAM"):
        # RFC 5802 requires this, and kafka-python does not do it.
        username = username.replace("=", "=3D").replace(",", "=2C")
    return {**configs, "sasl_plain_username": username, "sasl_plain_password": security.password or ""}


def _log_in(kerberos: KerberosOptions) -> None:
    """Get a ticket by the keytab into this process's memory; without a keytab, kinit has made it."""
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
