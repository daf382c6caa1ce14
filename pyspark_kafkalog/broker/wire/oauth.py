"""OAuth tokens: fixed, from a callable, an endpoint or a cloud (Kafka's OAuthBearerLoginModule).

The endpoint receives a client credentials grant (RFC 6749, 4.4), or an assertion as the
grant or instead of the client's secret (RFC 7523), like those of Kafka's JWT retrievers.
They go only to that origin. An endpoint's tokens are kept for most of their lifetime; the
other sources are read again for each login.

Errors name options and never quote their values: a value may be a secret given to
the wrong option.
"""

from __future__ import annotations

import base64
import http.client
import inspect
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from pyspark_kafkalog import extensions
from pyspark_kafkalog.broker.wire.assertion import assertion
from pyspark_kafkalog.broker.wire.expiring_cache import ExpiringCache
from pyspark_kafkalog.broker.wire.token_files import content_of
from pyspark_kafkalog.errors import AuthenticationError, OptionError
from pyspark_kafkalog.named_origin import is_temporary, opener, reason_of, status_of
from pyspark_kafkalog.options.security.oauth import ENDPOINT, HANDLER, OAuthOptions, is_token
from pyspark_kafkalog.plugins import imported, raised

_ATTEMPTS = 5
_USE_FOR = 0.8
"""The share of its lifetime during which a token is used (Kafka's sasl.login.refresh.window.factor)."""
_LONGEST_LIFETIME = 86_400
"""Seconds after which an endpoint is asked again, whatever lifetime it gave."""
_LARGEST_ANSWER = 1 << 20
"""Bytes of an answer."""
_DIGITS = re.compile("[0-9]{1,12}")
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

_fetched: ExpiringCache[str] = ExpiringCache()
"""The token of each endpoint and cloud, of Azure that of each resource."""


class OAuthTokens(AbstractTokenProvider):  # type: ignore[misc]
    """The source of tokens for kafka-python's mechanism, on a connection to ``host``."""

    def __init__(self, options: OAuthOptions, host: str) -> None:
        self._options = options
        self._host = host

    def token(self) -> str:
        """A token that is valid now.

        :raises AuthenticationError: if there is none; the error contains no part of a secret.
        """
        options = self._options
        if options.token is not None:
            return options.token
        if options.provider is not None:
            return _from_callable(options.provider, dict(options.given))
        if options.aws is not None:
            return extensions.cloud_services().bearer_token(options.aws, self._host)
        if options.cloud is None:
            return _fetched.get(self._source(), partial(_from_endpoint, options))
        return _fetched.get(self._source(), partial(_from_cloud, options, self._resource()))

    def forget(self) -> None:
        """Ask for a token again for the next login: a broker refused this one."""
        if self._options.aws is None:
            _fetched.forget(self._source())
        else:
            extensions.cloud_services().forget(self._options.aws, self._host)

    def _source(self) -> Hashable:
        return self._options, self._resource() if self._options.cloud == "azure" else ""

    def _resource(self) -> str:
        """The resource of Azure's token: by default the Event Hubs namespace that is the broker's name."""
        return (self._options.scope or f"https://{self._host}").removesuffix("/.default")

    def extensions(self) -> dict[str, str]:
        """SASL extensions to send with the token (KIP-342)."""
        return dict(self._options.extensions)


def _from_callable(path: str, given: dict[str, str]) -> str:
    try:
        provider = imported(HANDLER, path, form="package.module:callable")
    except OptionError as e:
        raise AuthenticationError(e.message, hint=e.hint) from e
    try:
        result = provider(given) if _takes_one(provider) else provider()
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # from the user's code
        raise AuthenticationError(f"{HANDLER} {raised(e)}") from e
    token = result[0] if isinstance(result, tuple) and result else result
    if not isinstance(token, str) or not is_token(token):
        raise AuthenticationError(
            f"{HANDLER} returned a {type(result).__name__} that is not a token",
            hint="Expected a str of visible ASCII characters, or a tuple that begins with one.",
        )
    return token


def _from_cloud(options: OAuthOptions, resource: str) -> tuple[str, float, float]:
    """A token, the time until which to use it, and its end."""
    clouds = extensions.cloud_services()
    is_gcp = options.cloud == "gcp"
    token, end = clouds.token_of_gcp() if is_gcp else clouds.token_of_azure(resource, options.client_id)
    return token, time.time() + _USE_FOR * (end - time.time()), end


def _takes_one(provider: Callable[..., Any]) -> bool:
    """Whether it must be given something, or can be; one that tells nothing of itself is given nothing."""
    try:
        signature = inspect.signature(provider)
        signature.bind({})
    except (TypeError, ValueError):
        return False
    return True


class _NoTokenError(Exception):
    """An answer without a token, and why; asking again would not help."""


def _from_endpoint(options: OAuthOptions) -> tuple[str, float, float]:
    """A token, the time until which to use it, and its end; a file's token may change at any time."""
    assert options.endpoint is not None
    url = urllib.parse.urlsplit(options.endpoint)
    if url.scheme == "file":
        return _from_file(urllib.request.url2pathname(url.path)), 0.0, 0.0
    pause = options.retry_backoff_ms / 1000
    for attempt in range(_ATTEMPTS):
        try:
            timeout = _timeout(options)
            by = time.monotonic() + 2 * timeout  # to connect, and to answer
            with opener(by).open(_request(options), timeout=timeout) as response:
                return _read(response.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as e:
            reason = status_of(e)
            if e.code in range(300, 400):
                reason += ", a redirect, but the client's secret goes to the named origin only"
            if not is_temporary(e.code):
                break
        except (OSError, http.client.HTTPException) as e:
            reason = reason_of(e)
        except _NoTokenError as e:
            reason = str(e)
            break
        if attempt < _ATTEMPTS - 1:
            time.sleep(pause)
            pause = min(pause * 2, options.retry_backoff_max_ms / 1000)
    raise _no_token(reason)


def _no_token(reason: str) -> AuthenticationError:
    return AuthenticationError(
        f"{ENDPOINT} gave no token: {reason}",
        hint="Check the endpoint, and the client's id, secret or assertion, and scope.",
    )


def _from_file(path: str) -> str:
    try:
        token = content_of(path).decode("latin-1")
    except ValueError as e:
        raise _no_token(str(e)) from None
    if not is_token(token):
        raise _no_token("expected a file with nothing but a token")
    return token


def _timeout(options: OAuthOptions) -> float:
    return max(options.connect_timeout_ms, options.read_timeout_ms) / 1000


def _request(options: OAuthOptions) -> urllib.request.Request:
    assert options.endpoint is not None
    form = {"grant_type": "client_credentials"}
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
        "Cache-Control": "no-cache",
    }
    if options.assertion is None:
        parts = [options.client_id or "", options.client_secret or ""]
        if options.urlencode_header:
            parts = [urllib.parse.quote_plus(part) for part in parts]
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(parts).encode()).decode()
    elif options.assertion.is_grant:
        form = {"grant_type": _JWT_BEARER, "assertion": assertion(options.assertion)}
    else:
        form |= {"client_assertion_type": _CLIENT_ASSERTION, "client_assertion": assertion(options.assertion)}
        if options.client_id:
            form["client_id"] = options.client_id
    if options.scope:
        form["scope"] = options.scope
    return urllib.request.Request(options.endpoint, urllib.parse.urlencode(form).encode(), headers)


def _read(content: bytes) -> tuple[str, float, float]:
    try:
        answer = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise _NoTokenError("expected an answer in JSON") from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not is_token(token):
        raise _NoTokenError("the answer has no access_token")
    lifetime = answer.get("expires_in")
    if isinstance(lifetime, str) and _DIGITS.fullmatch(lifetime):  # as Azure's older endpoints say it
        lifetime = int(lifetime)
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool) and lifetime > 0
    seconds = min(lifetime, _LONGEST_LIFETIME) if is_number else 0
    return token, time.time() + _USE_FOR * seconds, time.time() + seconds
