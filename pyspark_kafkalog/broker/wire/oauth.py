"""OAuth tokens: given, made up, from a callable, or from an endpoint (Kafka's OAuthBearerLoginModule).

The endpoint gets the client credentials grant (RFC 6749, 4.4), as from Kafka's
HttpAccessTokenRetriever. The client's secret goes to that origin alone. Tokens of
an endpoint are kept until most of their lifetime is over; the other sources are
asked for each login.

Errors name options and never quote their values, since a value may be a secret
that was given to the wrong option.
"""

from __future__ import annotations

import base64
import http.client
import importlib
import json
import os
import ssl
import stat
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.options.security.oauth import ENDPOINT, HANDLER, OAuthOptions, is_token

_ATTEMPTS = 5
_USE_FOR = 0.8
"""The share of its lifetime for which a token is used (Kafka's sasl.login.refresh.window.factor)."""
_LONGEST_LIFETIME = 86_400
"""Seconds after which an endpoint is asked again whatever it said."""
_LARGEST_ANSWER = 1 << 20
"""Bytes, also of a file."""

_fetched: dict[OAuthOptions, tuple[str, float]] = {}
"""Token of each endpoint, and the time until which it is used."""


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
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
    provider = _imported(path)
    try:
        told = provider()
    except Exception as e:  # of the user's code
        raise AuthenticationError(f"{HANDLER} gave no token: {type(e).__name__}: {e}") from e
    token = told[0] if isinstance(told, tuple) and told else told
    if not isinstance(token, str) or not is_token(token):
        raise AuthenticationError(
            f"{HANDLER} returned a {type(told).__name__} that is not a token",
            hint="Expected a str of visible ASCII characters, or a tuple that begins with one.",
        )
    return token


def _imported(path: str) -> Any:
    name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is not None and not f"{name}.".startswith(f"{e.name}."):
            raise AuthenticationError(f"{HANDLER} cannot be imported: {e}") from e
        trouble = "there is no such module"
    except Exception as e:  # of the user's code
        raise AuthenticationError(f"{HANDLER} cannot be imported: {type(e).__name__}: {e}") from e
    else:
        if callable(provider := getattr(module, attribute, None)):
            return provider
        trouble = "its module has no such callable"
    raise AuthenticationError(
        f"{HANDLER} cannot be imported: {trouble}",
        hint="Give package.module:callable, importable by Spark's Python workers.",
    )


def _unsecured(options: OAuthOptions) -> str:
    now = int(time.time())
    claims: dict[str, Any] = {"iat": now, "exp": now + options.unsecured_lifetime_seconds}
    claims.update(
        (name, list(value) if isinstance(value, tuple) else value) for name, value in options.unsecured_claims
    )
    return f"{_base64(json.dumps({'alg': 'none'}))}.{_base64(json.dumps(claims))}."


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


class _NoTokenError(Exception):
    """An answer that holds no token, and why; asking again would not help."""


def _from_endpoint(options: OAuthOptions) -> tuple[str, float]:
    """A token, and the time until which to use it; that of a file may change at any time."""
    assert options.endpoint is not None
    url = urllib.parse.urlsplit(options.endpoint)
    pause = options.retry_backoff_ms / 1000
    for attempt in range(_ATTEMPTS):
        try:
            if url.scheme == "file":
                return _from_file(urllib.request.url2pathname(url.path)), 0.0
            with _opener().open(_request(options), timeout=_timeout(options)) as response:
                return _read(response.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as e:
            e.close()
            trouble = f"HTTP status {e.code}"
            if e.code in range(300, 400):
                trouble += ", a redirect, and a client's secret goes to the named origin only"
            if e.code < 500:
                break
        except http.client.HTTPException:
            trouble = "the answer is not HTTP"
        except OSError as e:
            trouble = _reason(e)
        except _NoTokenError as e:
            trouble = str(e)
            break
        if attempt < _ATTEMPTS - 1:
            time.sleep(pause)
            pause = min(pause * 2, options.retry_backoff_max_ms / 1000)
    raise AuthenticationError(
        f"No token came from {ENDPOINT}: {trouble}",
        hint="See the endpoint, and the client's id, secret and scope.",
    )


def _reason(error: OSError) -> str:
    """Without the host or the file that the texts of some errors have."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        wrong_name = reason.verify_message.startswith(("Hostname mismatch", "IP address mismatch"))
        return "its certificate names another host" if wrong_name else reason.verify_message
    return getattr(reason, "strerror", None) or type(reason).__name__


def _opener() -> urllib.request.OpenerDirector:
    """Asks the named origin and nobody else: follows no redirect, and a proxy does but pass TLS through."""
    tunnels = {scheme: proxy for scheme, proxy in urllib.request.getproxies().items() if scheme == "https"}
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(tunnels),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _from_file(path: str) -> str:
    # To open a pipe would wait for its writer.
    without_waiting = getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | without_waiting)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _NoTokenError("it is not a regular file")
        content = file.read(_LARGEST_ANSWER + 1)
    if len(content) > _LARGEST_ANSWER:
        raise _NoTokenError(f"the file has more than {_LARGEST_ANSWER} bytes")
    token = content.decode("latin-1").strip()
    if not is_token(token):
        raise _NoTokenError("the file does not hold a token alone")
    return token


def _timeout(options: OAuthOptions) -> float:
    return max(options.connect_timeout_ms, options.read_timeout_ms) / 1000


def _request(options: OAuthOptions) -> urllib.request.Request:
    assert options.endpoint is not None
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


def _read(content: bytes) -> tuple[str, float]:
    try:
        answer = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise _NoTokenError("the answer is no JSON") from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not is_token(token):
        raise _NoTokenError("the answer has no access_token")
    lifetime = answer.get("expires_in")
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool) and lifetime > 0
    return token, time.time() + _USE_FOR * (min(lifetime, _LONGEST_LIFETIME) if is_number else 0)
