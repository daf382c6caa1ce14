"""The options of a schema registry: the names of Confluent's SchemaRegistryClientConfig."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.tls import TlsOptions, check_pem
from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions, log_once
from pyspark_kafkalog.options.values import REGISTRY_LOGIN

REGISTRY = "schema.registry.url"
_BASIC, _BEARER = "basic.auth.user.info", "bearer.auth.token"
_TRUST, _KEYS = "schema.registry.ssl.truststore.location", "schema.registry.ssl.keystore.location"
_SOURCE, _BEARER_SOURCE = "basic.auth.credentials.source", "bearer.auth.credentials.source"
_VISIBLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The options to reach a schema registry; ``urls`` are tried in turn, and have no user in them.

    ``user_info`` is ``user:password``, ``token`` a bearer token: at most one of them is given.
    """

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: TlsOptions = field(default_factory=TlsOptions, repr=False)
    timeout_ms: int = from_option("http.read.timeout.ms")


def registry_options(user: UserOptions) -> RegistryOptions | None:
    """The options to reach the registry; None if none is given.

    :raises OptionError: for anything malformed or contradictory; it quotes no value, as that may be a secret.
    """
    texts = [text.strip() for text in (user.value(REGISTRY) or "").split(",") if text.strip()]
    if not texts:
        user.refuse_without(REGISTRY, *REGISTRY_LOGIN, "http.read.")
        return None
    urls = [_url(text) for text in texts]
    in_urls = {url.netloc.rpartition("@")[0] for url in urls} - {""}
    info, token = user.value(_BASIC), user.value(_BEARER)
    if in_urls:
        if len(in_urls) > 1 or info is not None:
            raise OptionError(f"Options {REGISTRY!r} and {_BASIC!r} give several users", hint="Give one.")
        info = unquote(min(in_urls))
    for option, means, found, where in (
        (_SOURCE, "URL", in_urls, REGISTRY),
        (_SOURCE, "USER_INFO", user.value(_BASIC), _BASIC),
        (_BEARER_SOURCE, "STATIC_TOKEN", token, _BEARER),
    ):
        if user.value(option) == means and not found:
            raise OptionError(f"Option {option!r} is {means}, but {where!r} has no login")
    if info is not None and ":" not in info:
        raise OptionError(
            f"Option {_BASIC!r}: expected user:password, got no colon",
            hint="Write the user, a colon and the password.",
        )
    if info is not None and token is not None:
        raise OptionError(f"Only one of {_BASIC!r} and {_BEARER!r} can be given", hint="Leave one out.")
    if token is not None and not _VISIBLE.fullmatch(token):
        raise OptionError(f"Option {_BEARER!r} has characters other than visible ASCII")
    tls = user.names("schema.registry.ssl.")
    if tls and not any(url.scheme == "https" for url in urls):
        log_once(logging.WARNING, "Options %s have no effect, because %s is http", ", ".join(tls), REGISTRY)
    without_user = tuple(url._replace(netloc=url.netloc.rpartition("@")[2]).geturl() for url in urls)
    return user.fill(
        RegistryOptions,
        urls=without_user,
        user_info=info,
        token=token,
        tls=_tls(user),
    )


def _tls(user: UserOptions) -> TlsOptions:
    check_pem(user, _TRUST, _KEYS)
    return TlsOptions(
        truststore_location=user.value(_TRUST),
        keystore_location=user.value(_KEYS),
        key_password=user.value("schema.registry.ssl.key.password") or None,
    )


def _url(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        is_url = is_url and not (url.query or url.fragment) and bool(_VISIBLE.fullmatch(text))
    except ValueError:
        is_url = False
    if not is_url:
        raise OptionError(
            f"Option {REGISTRY!r}: expected a URL that begins with http:// or https://",
            hint="Write, for example, https://host:8081, and give a login as basic.auth.user.info.",
        )
    return url
