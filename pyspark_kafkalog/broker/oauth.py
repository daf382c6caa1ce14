"""OAuth tokens: given, made up, from a callable, or from an endpoint (Kafka's OAuthBearerLoginModule).

The endpoint gets the client credentials grant (RFC 6749, 4.4), as from Kafka's
HttpAccessTokenRetriever. Tokens of an endpoint are kept until most of their
lifetime is over; the other sources are asked for each login.
"""

from __future__ import annotations

import base64
import importlib
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.options.oauth import OAuthOptions

_ATTEMPTS = 5
_USE_FOR = 0.8
"""The share of its lifetime for which a token is used (Kafka's sasl.login.refresh.window.factor)."""
_LARGEST_ANSWER = 1 << 20

_fetched: dict[OAuthOptions, tuple[str, float]] = {}
"""Token of each endpoint, and the time until which it is used."""


class Tokens(AbstractTokenProvider):
    """The source of tokens for kafka-python's mechanism."""

    def __init__(self, options: OAuthOptions) -> None:
        self._options = options

    def token(self) -> str:
        """A token that is valid now.

        :raises AuthenticationError: if there is none; with no part of a secret in it.
        """
        options = self._options
        if options.token is not None:
            return options.token
        if options.provider is not None:
            return _from_callable(options.provider)
        if options.unsecured_claims:
            return _unsecured(options)
        token, until = _fetched.get(options, ("", 0.0))
        if time.time() >= until:
            token, until = _from_endpoint(options)
            _fetched[options] = token, until
        return token

    def extensions(self) -> dict[str, str]:
        """SASL extensions to send with the token (KIP-342)."""
        return dict(self._options.extensions)


def _from_callable(path: str) -> str:
    module, _, name = path.partition(":")
    try:
        told = getattr(importlib.import_module(module), name)()
    except Exception as e:  # of the user's code
        raise AuthenticationError(f"{path} gave no token: {type(e).__name__}: {e}") from e
    token = told[0] if isinstance(told, tuple) and told else told
    if not isinstance(token, str) or not token:
        raise AuthenticationError(
            f"{path} returned a {type(told).__name__}, not a token",
            hint="Expected a str, or a tuple that begins with one.",
        )
    return token


def _unsecured(options: OAuthOptions) -> str:
    now = int(time.time())
    claims: dict[str, Any] = {"iat": now, "exp": now + options.unsecured_lifetime_seconds}
    claims.update(
        (name, list(value) if isinstance(value, tuple) else value) for name, value in options.unsecured_claims
    )
    return f"{_base64(json.dumps({'alg': 'none'}))}.{_base64(json.dumps(claims))}."


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _from_endpoint(options: OAuthOptions) -> tuple[str, float]:
    assert options.endpoint is not None
    place = urllib.parse.urlsplit(options.endpoint)
    where = f"{place.scheme}://{place.hostname or ''}{place.path}"
    pause = options.retry_backoff_ms / 1000
    for attempt in range(_ATTEMPTS):
        try:
            with urllib.request.urlopen(_request(options), timeout=_timeout(options)) as response:
                return _read(response.read(_LARGEST_ANSWER).decode(), place.scheme == "file")
        except urllib.error.HTTPError as e:
            trouble = f"HTTP status {e.code}"
            e.close()
            if e.code < 500:
                break
        except OSError as e:
            trouble = str(getattr(e, "reason", e))
        except ValueError as e:  # JSON's, too: of what came, nothing may be shown
            trouble = str(e) if type(e) is ValueError else "the answer is no JSON"
            break
        if attempt < _ATTEMPTS - 1:
            time.sleep(pause)
            pause = min(pause * 2, options.retry_backoff_max_ms / 1000)
    raise AuthenticationError(
        f"No token came from {where}: {trouble}",
        hint="See the endpoint, and the client's id, secret and scope.",
    )


def _timeout(options: OAuthOptions) -> float:
    return max(options.connect_timeout_ms, options.read_timeout_ms) / 1000


def _request(options: OAuthOptions) -> urllib.request.Request:
    assert options.endpoint is not None
    if options.endpoint.lower().startswith("file:"):
        return urllib.request.Request(options.endpoint)
    parts = [options.client_id or "", options.client_secret or ""]
    if options.urlencode_header:
        parts = [urllib.parse.quote_plus(part) for part in parts]
    form = {"grant_type": "client_credentials"}
    if options.scope:
        form["scope"] = options.scope
    return urllib.request.Request(
        options.endpoint,
        urllib.parse.urlencode(form).encode(),
        {
            "Authorization": "Basic " + base64.b64encode(":".join(parts).encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
    )


def _read(text: str, is_file: bool) -> tuple[str, float]:
    """Token, and the time until which to use it; a file holds the bare token, and may change at any time."""
    if is_file:
        return text.strip(), 0.0
    answer = json.loads(text)
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise ValueError("the answer has no access_token")
    lifetime = answer.get("expires_in")
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool)
    return token, time.time() + _USE_FOR * (lifetime if is_number else 0)
