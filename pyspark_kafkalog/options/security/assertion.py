"""A signed JWT instead of a client's secret, by the names of Kafka's clients (KIP-1139, KIP-1258)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions, log_once

PREFIX = "kafka.sasl.oauthbearer.assertion."
FILE = f"{PREFIX}file"
KEY = f"{PREFIX}private.key.file"
TEMPLATE = f"{PREFIX}template.file"
_ISSUER = f"{PREFIX}claim.iss"
_RETRIEVER = "kafka.sasl.oauthbearer.jwt.retriever.class"
_ENDPOINT = "kafka.sasl.oauthbearer.token.endpoint.url"


@dataclass(frozen=True, slots=True, repr=False)
class AssertionOptions:
    """A JWT that is ready in ``file``, or is signed with the key in ``key_file``.

    ``is_grant``: it is itself the grant (RFC 7523, 2.1), else it stands for the client's secret (2.2).
    """

    is_grant: bool = False
    file: str | None = from_option(FILE)
    key_file: str | None = from_option(KEY)
    passphrase: str | None = from_option(f"{PREFIX}private.key.passphrase")
    algorithm: str = from_option(f"{PREFIX}algorithm")
    template_file: str | None = from_option(TEMPLATE)
    issuer: str | None = from_option(_ISSUER)
    subject: str | None = from_option(f"{PREFIX}claim.sub")
    audience: str | None = from_option(f"{PREFIX}claim.aud")
    valid_seconds: int = from_option(f"{PREFIX}claim.exp.seconds")
    early_seconds: int = from_option(f"{PREFIX}claim.nbf.seconds")
    has_id: bool = from_option(f"{PREFIX}claim.jti.include")


def assertion_options(user: UserOptions, endpoint: str | None) -> AssertionOptions | None:
    """The assertion for the endpoint; None if the client has a secret, or no endpoint is asked.

    :raises OptionError: for options that contradict each other, or would have no effect.
    """
    given, retriever = user.names(PREFIX), user.value(_RETRIEVER)
    is_url = endpoint is not None and not endpoint.lower().startswith("file:")
    if endpoint and retriever != "DefaultJwtRetriever" and is_url == (retriever == "FileJwtRetriever"):
        raise OptionError(f"Option {_RETRIEVER!r} does not fit {_ENDPOINT!r}", hint="Leave it out.")
    is_grant = retriever == "JwtBearerJwtRetriever"
    asserts = is_grant or FILE in given or _ISSUER in given
    if (given or is_grant) and not (asserts and is_url):
        raise OptionError(
            f"Option {(given or [_RETRIEVER])[0]!r} has no effect here",
            hint=f"Give {FILE}, or {_ISSUER} and {KEY}, with an https: URL as {_ENDPOINT}.",
        )
    if not asserts:
        return None
    options = user.fill(AssertionOptions, is_grant=is_grant)
    if options.file is None and options.key_file is None:
        raise OptionError(
            f"An assertion needs the option {FILE!r} or {KEY!r}",
            hint="The first has it, the second signs it.",
        )
    if options.file is not None and len(given) > 1:
        others = ", ".join(name for name in given if name != FILE)
        log_once(logging.WARNING, "Options %s have no effect, because %s is given", others, FILE)
    return options
