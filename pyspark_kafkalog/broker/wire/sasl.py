"""SASL on a new connection, or on one whose session ends soon (KIP-152, KIP-368).

The mechanisms are kafka-python's; GSSAPI needs the package ``gssapi`` besides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from pyspark_kafkalog.broker.wire.error_codes import name_of
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.broker.wire.tls import sasl_configs, without_values
from pyspark_kafkalog.errors import AuthenticationError, KafkaLogError
from pyspark_kafkalog.options.security.protocol import SecurityOptions

_UNSUPPORTED_MECHANISM = 33
_ILLEGAL_STATE = 34
_HINTS = {
    "GSSAPI": "See the Kerberos ticket of this process, and kafka.sasl.kerberos.service.name.",
    "OAUTHBEARER": "See the token, or the endpoint and client that it comes from, in kafka.sasl.jaas.config.",
}
_MOST_ROUNDS = 16
"""More than any mechanism takes."""
_ITERATIONS = range(4096, 1_000_001)
"""What a broker may ask for with SCRAM: from the least of Kafka's ScramMechanism to what costs a second."""
_DETAIL = 200
"""Characters that an error shows of what a broker said."""
_NAME_AND_PASSWORD = (
    "See username and password in kafka.sasl.jaas.config, and that they are of this mechanism."
)


def authenticate(call: Callable[[Any, int], Any], address: Address, security: SecurityOptions) -> int:
    """Authenticate, if the protocol is one with SASL.

    :param call: sends a request, of a version up to the given one, and returns the response.
    :returns: milliseconds until the broker ends the session, 0 if it does not.
    :raises AuthenticationError: if the broker, or the mechanism, does not accept the other side.
    """
    name = security.mechanism
    if not security.protocol.startswith("SASL_") or name is None:
        return 0
    broker = str(address)
    answer = call(SaslHandshakeRequest(mechanism=name), 1)
    if answer.error_code == _UNSUPPORTED_MECHANISM:
        raise AuthenticationError(
            f"The broker does not offer SASL {name}, but {', '.join(answer.mechanisms)[:_DETAIL] or 'none'}",
            broker=broker,
            hint="See kafka.sasl.mechanism.",
        )
    if answer.error_code == _ILLEGAL_STATE:
        raise AuthenticationError(
            "The listener does not ask for SASL",
            broker=broker,
            hint="Set kafka.security.protocol to PLAINTEXT or SSL, or see whether the port is the right one.",
        )
    hint = _HINTS.get(name, _NAME_AND_PASSWORD)
    if answer.error_code:
        raise AuthenticationError(
            f"SASL {name} fails: {name_of(answer.error_code)}", broker=broker, hint=hint
        )

    def make() -> Any:
        return get_sasl_mechanism(name)(host=address.host, **sasl_configs(security))

    step = partial(_step, security=security, broker=broker, hint=hint)
    mechanism = step(make)
    for number in range(_MOST_ROUNDS):
        if mechanism.is_done():
            break
        answer = call(SaslAuthenticateRequest(auth_bytes=step(mechanism.auth_bytes)), 2)
        if answer.error_code:
            detail = without_values(answer.error_message or name_of(answer.error_code), security)[:_DETAIL]
            raise AuthenticationError(f"SASL {name} fails: {detail}", broker=broker, hint=hint)
        if name.startswith("SCRAM"):
            step(partial(_check_scram, answer.auth_bytes, number))
        step(partial(mechanism.receive, answer.auth_bytes))
    if not mechanism.is_done():
        raise AuthenticationError(f"SASL {name} has not ended after {_MOST_ROUNDS} rounds", broker=broker)
    if not mechanism.is_authenticated():
        raise AuthenticationError(f"SASL {name} fails", broker=broker, hint=hint)
    return max(int(answer.session_lifetime_ms), 0)


def _check_scram(message: bytes, number: int) -> None:
    """Refuse a server's message that kafka-python's mechanism would believe or misread (RFC 5802, 5.1).

    :param number: of the message, from 0 on.
    :raises ValueError: with the reason.
    """
    its = dict(part.partition("=")[::2] for part in message.decode().split(","))
    if "e" in its:
        raise ValueError(f"the broker says {its['e'][:_DETAIL]!r}")
    expected = ("v",) if number else ("r", "s", "i")
    if missing := [f"{name}=" for name in expected if name not in its]:
        raise ValueError(f"the broker's message {number + 1} lacks {', '.join(missing)}")
    if number == 0 and not (its["i"].isdecimal() and len(its["i"]) < 10 and int(its["i"]) in _ITERATIONS):
        raise ValueError(
            f"the broker asks for {its['i'][:_DETAIL]} iterations, and {_ITERATIONS[0]} to {_ITERATIONS[-1]}"
            " are taken: fewer would let it guess the password"
        )


def _step(step: Callable[[], Any], *, security: SecurityOptions, broker: str, hint: str) -> Any:
    try:
        return step()
    except KafkaLogError:
        raise
    except Exception as e:  # what mechanisms raise has many kinds, of gssapi too
        detail = without_values(str(e), security)
    raise AuthenticationError(f"SASL {security.mechanism} fails: {detail}", broker=broker, hint=hint)
