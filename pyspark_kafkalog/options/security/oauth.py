"""The source of OAuth tokens: a fixed token, an endpoint, a callable, or a cloud.

The names are those of Kafka's OAuthBearerLoginCallbackHandler (KIP-768, KIP-1139);
those that begin with ``oauth.`` are from Strimzi's login callback handler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.security.assertion import AssertionOptions, assertion_options
from pyspark_kafkalog.options.security.aws import AwsOptions, aws_options
from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.options.values import import_path

_JAAS = "kafka.sasl.jaas.config"
ENDPOINT = "kafka.sasl.oauthbearer.token.endpoint.url"
HANDLER = "kafka.sasl.login.callback.handler.class"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_CLIENT = "kafka.sasl.oauthbearer.client.credentials.client"
_SCOPE = "kafka.sasl.oauthbearer.scope"
_JAVA_HANDLERS = ("OAuthBearerLoginCallbackHandler", "JaasClientOauthLoginCallbackHandler")
"""Java's classes that do the same as this package."""
PROVIDER = "kafka.sasl.oauthbearer.provider"
_SOURCES = (
    f"Give {PROVIDER} as aws, gcp or azure, or {ENDPOINT}, or {HANDLER} as package.module:callable,"
    f' or in {_JAAS} oauth.access.token="...".'
)
_OF_CLOUDS = {
    "IAMOAuthBearerLoginCallbackHandler": "aws",
    "GcpLoginCallbackHandler": "gcp",
    "KafkaOAuth2AuthenticateCallbackHandler": "azure",
}
"""Java's classes of Amazon, Google and Spring Cloud Azure."""
_OF_AZURE = ("clientId", "oauth.client.id", "scope", "oauth.scope", "azure.configured")
"""Settings of the login module with Azure; Spring sets the last one, which changes nothing."""

_OF_JAVAS_EXAMPLE = {("ssl.protocol", name) for name in ("SSL", "TLS", "TLSv1.2", "TLSv1.3")}
"""A setting for the token endpoint that Kafka's documentation shows, and so Databricks': it means TLS."""
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_EXTENSION_NAME = re.compile("[A-Za-z]+")
_EXTENSION = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True, slots=True, repr=False)
class OAuthOptions:
    """The source of tokens: exactly one of ``token``, ``provider``, ``endpoint``, ``aws`` and ``cloud``.

    ``provider`` is an import path ``module:name`` of a callable, which may take what is ``given`` of Kafka's
    options. ``endpoint`` a URL with the
    scheme https, http or file, and no user, password or escape in its authority.
    """

    token: str | None = None
    provider: str | None = None
    endpoint: str | None = None
    aws: AwsOptions | None = None
    cloud: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    assertion: AssertionOptions | None = None
    scope: str | None = None
    urlencode_header: bool = from_option("kafka.sasl.oauthbearer.header.urlencode")
    connect_timeout_ms: int = from_option("kafka.sasl.login.connect.timeout.ms")
    read_timeout_ms: int = from_option("kafka.sasl.login.read.timeout.ms")
    retry_backoff_ms: int = from_option("kafka.sasl.login.retry.backoff.ms")
    retry_backoff_max_ms: int = from_option("kafka.sasl.login.retry.backoff.max.ms")
    extensions: tuple[tuple[str, str], ...] = ()
    given: tuple[tuple[str, str], ...] = ()


def oauth_options(user: UserOptions, login: Mapping[str, str]) -> OAuthOptions:
    """The source of tokens that the options name.

    :param login: the options of the OAuthBearerLoginModule.
    :raises OptionError: unless there is exactly one source, with all that it needs.
    """
    if any(name.startswith("unsecuredLogin") for name in login):
        raise OptionError(
            f"Option {_JAAS!r} asks for an unsecured token, which is not supported", hint=_SOURCES
        )
    token = login.get("oauth.access.token", "").strip() or None
    provider = _provider(user)
    endpoint = user.value(ENDPOINT) or login.get("oauth.token.endpoint.uri", "").strip() or None
    clouds = {user.value(PROVIDER), _OF_CLOUDS.get(_class(user))} - {None}
    cloud = next(iter(clouds), None)
    sources = {f"oauth.access.token in {_JAAS}": token, HANDLER: provider, ENDPOINT: endpoint}
    found = [*(name for name, source in sources.items() if source), *sorted(filter(None, clouds))]
    if len(found) != 1:
        got = f"several: {', '.join(found)}" if found else "none"
        raise OptionError(f"SASL OAUTHBEARER: expected one source of tokens, got {got}", hint=_SOURCES)
    if token is not None and not is_token(token):
        raise OptionError(
            f"Option {_JAAS!r} has an oauth.access.token with characters other than visible ASCII"
        )
    assertion = assertion_options(user, endpoint)
    if cloud is not None:
        _check_cloud(cloud, user, login)
    if cloud == "aws":
        return OAuthOptions(aws=aws_options(user, login))
    client_id = user.value(f"{_CLIENT}.id") or login.get("clientId") or login.get("oauth.client.id")
    secret = user.value(f"{_CLIENT}.secret") or login.get("clientSecret") or login.get("oauth.client.secret")
    if endpoint is not None:
        _check_endpoint(endpoint)
        _check_allowed(endpoint, user)
        _check_client(endpoint, client_id, secret, login, assertion)
    return user.fill(
        OAuthOptions,
        token=token,
        provider=provider,
        cloud=cloud,
        endpoint=endpoint,
        client_id=client_id,
        client_secret=secret,
        assertion=assertion,
        scope=user.value(_SCOPE) or login.get("scope") or login.get("oauth.scope"),
        extensions=_extensions(login),
        given=tuple((name, user.text(name)) for name in user.names("kafka.")) if provider else (),
    )


def _check_cloud(cloud: str, user: UserOptions, login: Mapping[str, str]) -> None:
    """Refuse what a cloud's login does not obey: another identity would log in than the one that is given."""
    is_azure = cloud == "azure"
    hint = f"Leave it out, or give {ENDPOINT} in place of the cloud."
    if is_azure:
        hint += " Entra's is https://login.microsoftonline.com/TENANT/oauth2/v2.0/token."
    for name in (f"{_CLIENT}.secret",) if is_azure else (f"{_CLIENT}.id", f"{_CLIENT}.secret", _SCOPE):
        if name in user:
            raise OptionError(f"Option {name!r} has no effect with the tokens of {cloud}", hint=hint)
    # Those of AWS are checked with its login module.
    known = _OF_AZURE if is_azure else ()
    if cloud != "aws" and not all(name in known or name.startswith("extension_") for name in login):
        takes = "clientId, scope and extension_NAME" if is_azure else "extension_NAME"
        raise OptionError(
            f"Option {_JAAS!r} has a setting that has no effect with the tokens of {cloud}",
            hint=f"It may have {takes}. {hint}",
        )


def _class(user: UserOptions) -> str:
    """The name of the user's class of Java's, without its package."""
    return str(user.value(HANDLER)).rpartition(".")[2]


def is_token(text: str) -> bool:
    """Whether the text has visible ASCII characters only; RFC 6750 allows even fewer in tokens."""
    return _VISIBLE.fullmatch(text) is not None


def _provider(user: UserOptions) -> str | None:
    name = user.value(HANDLER)
    if name is None or _class(user) in (*_JAVA_HANDLERS, *_OF_CLOUDS):
        return None
    if ":" not in name:
        raise OptionError(
            f"Option {HANDLER!r} names a Java class, which cannot be run here",
            hint="Give the import path package.module:callable of a Python callable that returns a token,"
            f" or {PROVIDER} as aws, gcp or azure.",
        )
    return import_path(HANDLER, name)


def _check_endpoint(endpoint: str) -> None:
    try:
        url = urlsplit(endpoint)
        is_file = url.scheme == "file"
        is_url = bool(url.path if is_file else url.hostname and url.port != 0) and _VISIBLE.fullmatch(
            endpoint
        )
    except ValueError:
        is_url = None
    if not is_url or url.scheme not in ("https", "http", "file"):
        raise OptionError(f"Option {ENDPOINT!r}: expected a URL that begins with https: or file:")
    # An escape may hide an @, which the HTTP client would decode.
    if "@" in url.netloc or "%" in url.netloc:
        raise OptionError(
            f"Option {ENDPOINT!r} has a user, a password or an escape before its path",
            hint=f"Give the client as {_CLIENT}.id and {_CLIENT}.secret.",
        )
    if is_file and (url.netloc not in ("", "localhost") or url.query or url.fragment):
        raise OptionError(
            f"Option {ENDPOINT!r}: expected only a path after file:", hint="Write file:///path."
        )


def _check_allowed(endpoint: str, user: UserOptions) -> None:
    """Hold the endpoint to those that the user allows by name, as Java's clients do (ConfigurationUtils)."""
    allowed = user.value(_ALLOWED) or ()
    if allowed and endpoint not in allowed:
        raise OptionError(f"Option {ENDPOINT!r} is not one of the URLs of the option {_ALLOWED!r}")
    if not allowed and endpoint.lower().startswith("http:"):
        raise OptionError(
            f"Option {ENDPOINT!r} begins with http:, which would send the client's secret unencrypted",
            hint=f"Give an https: URL, or name this one in {_ALLOWED} as well.",
        )


def _check_client(
    endpoint: str,
    client_id: str | None,
    secret: str | None,
    login: Mapping[str, str],
    assertion: AssertionOptions | None,
) -> None:
    if not (endpoint.lower().startswith("file:") or assertion or (client_id and secret)):
        raise OptionError(
            f"Option {ENDPOINT!r} needs a client's id and secret",
            hint=f"Give clientId and clientSecret in {_JAAS}, or {_CLIENT}.id and {_CLIENT}.secret.",
        )
    if any(name.startswith("ssl.") and (name, login[name]) not in _OF_JAVAS_EXAMPLE for name in login):
        raise OptionError(
            f"Option {_JAAS!r} has ssl. settings for the token endpoint, which are not supported",
            hint="The endpoint is checked against the system's authorities. Add yours with SSL_CERT_FILE.",
        )


def _extensions(login: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    extensions = {}
    for option, value in login.items():
        prefix, mark, name = option.partition("_")
        if mark and prefix == "extension":
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION.fullmatch(value):
                raise OptionError(
                    f"Option {_JAAS!r} has a SASL extension that RFC 7628 does not allow",
                    hint="A name has only letters and is not auth. A value is ASCII and not empty.",
                )
            extensions[name] = value
    return tuple(extensions.items())
