"""The options of a schema registry, by the names that its own clients have for them.

These are Confluent's SchemaRegistryClientConfig, Apicurio's SerdeConfig, and AWSSchemaRegistryConstants.
"""

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

CONFLUENT, GLUE, APICURIO, AZURE = "confluent", "glue", "apicurio", "azure"
"""The kinds of registries, as formats are named after them."""
REGISTRY, APICURIO_REGISTRY = "schema.registry.url", "apicurio.registry.url"
URL_OPTIONS = {CONFLUENT: REGISTRY, AZURE: REGISTRY, APICURIO: APICURIO_REGISTRY}
"""The option that says where a registry is; Glue has its own."""
_OF_GLUE = ("region", "endpoint", "registry.name", "schemaname", "compatibility")
_OF_URLS = (*REGISTRY_LOGIN, "http.read.")
_BASIC, _BEARER = "basic.auth.user.info", "bearer.auth.token"
_TRUST, _KEYS = "schema.registry.ssl.truststore.location", "schema.registry.ssl.keystore.location"
_SOURCE, _BEARER_SOURCE = "basic.auth.credentials.source", "bearer.auth.credentials.source"
_VISIBLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The options to reach a schema registry; ``urls`` are tried in turn, and have no user in them.

    ``user_info`` is ``user:password``, ``token`` a bearer token: at most one of them is given. ``use_id`` is
    Apicurio's. Glue has no URLs, but ``region`` and what follows it: without a region and an endpoint
    botocore finds them, as it finds the credentials.
    """

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: TlsOptions = field(default_factory=TlsOptions, repr=False)
    timeout_ms: int = from_option("http.read.timeout.ms")
    registry: str = CONFLUENT
    use_id: str = from_option("apicurio.registry.use-id")
    region: str | None = from_option("region")
    endpoint: str | None = from_option("endpoint")
    name: str = from_option("registry.name")
    schema_name: str | None = from_option("schemaName")
    compatibility: str = from_option("compatibility")

    @property
    def url_option(self) -> str:
        """The option that names the place, for errors."""
        return URL_OPTIONS.get(self.registry, "region")


def registry_options(user: UserOptions, kind: str = CONFLUENT) -> RegistryOptions | None:
    """The options to reach a registry of a kind; None if none is given.

    :raises OptionError: for anything malformed or contradictory; it quotes no value, as that may be a secret.
    """
    if kind == GLUE:
        user.refuse_without(f"value.format={CONFLUENT}-avro", *_OF_URLS)
        return user.fill(RegistryOptions, urls=(), tls=TlsOptions(), registry=GLUE)
    user.refuse_without(f"value.format={GLUE}-avro", *_OF_GLUE)
    if kind == APICURIO:
        user.refuse_without(f"value.format={CONFLUENT}-avro", REGISTRY)
    else:
        user.refuse_without(f"value.format={APICURIO}-avro", "apicurio.")
    option = URL_OPTIONS[kind]
    texts = [text.strip() for text in (user.value(option) or "").split(",") if text.strip()]
    if not texts:
        user.refuse_without(option, *_OF_URLS)
        return None
    urls = [_url(option, text) for text in texts]
    in_urls = {url.netloc.rpartition("@")[0] for url in urls} - {""}
    info, token = user.value(_BASIC), user.value(_BEARER)
    if in_urls:
        if len(in_urls) > 1 or info is not None:
            raise OptionError(f"Options {option!r} and {_BASIC!r} give several users", hint="Give one.")
        info = unquote(min(in_urls))
    for source, means, found, where in (
        (_SOURCE, "URL", in_urls, option),
        (_SOURCE, "USER_INFO", user.value(_BASIC), _BASIC),
        (_BEARER_SOURCE, "STATIC_TOKEN", token, _BEARER),
    ):
        if user.value(source) == means and not found:
            raise OptionError(f"Option {source!r} is {means}, but {where!r} has no login")
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
        log_once(logging.WARNING, "Options %s have no effect, because %s is http", ", ".join(tls), option)
    without_user = tuple(url._replace(netloc=url.netloc.rpartition("@")[2]).geturl() for url in urls)
    return user.fill(
        RegistryOptions,
        urls=without_user,
        user_info=info,
        token=token,
        tls=_tls(user),
        registry=kind,
    )


def _tls(user: UserOptions) -> TlsOptions:
    check_pem(user, _TRUST, _KEYS)
    return TlsOptions(
        truststore_location=user.value(_TRUST),
        keystore_location=user.value(_KEYS),
        key_password=user.value("schema.registry.ssl.key.password") or None,
    )


def _url(option: str, text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        is_url = is_url and not (url.query or url.fragment) and bool(_VISIBLE.fullmatch(text))
    except ValueError:
        is_url = False
    if not is_url:
        raise OptionError(
            f"Option {option!r}: expected a URL that begins with http:// or https://",
            hint="Write, for example, https://host:8081, and give a login as basic.auth.user.info.",
        )
    return url
