"""Bearer tokens of Google and Azure for SASL OAUTHBEARER, from the metadata of this machine or its platform.

Google's are those of its Java handler (GcpLoginCallbackHandler): a header, claims and the access token.
Azure's are Entra's.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from datetime import timezone
from urllib.parse import urlencode, urlsplit

from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.extensions.clouds.metadata import (
    FOR_TOKENS,
    MetadataError,
    ask,
    fields_of,
    of_azure,
    of_gcp,
    token_in,
)
from pyspark_kafkalog.options.security.oauth import is_token

_ACCOUNT = "instance/service-accounts/default"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_PRINCIPAL = "GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL"
"""Who logs in with credentials that name no account, as in Google's server for clients without Java."""
_ENTRA = "https://login.microsoftonline.com"
_LONGEST = 86_400
"""Seconds after which a token is asked for again, whatever it says."""
_SECONDS = re.compile("[0-9]{1,12}")
_BEARER = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def token_of_gcp() -> tuple[str, float]:
    """A token of the service account, and when it ends, in seconds since the epoch.

    google-auth finds the account, where that package is installed; else it is the machine's.

    :raises AuthenticationError: if there is none.
    """
    try:
        access_token, account, until = _google_auth() or _of_google_machine()
    except MetadataError as e:
        raise AuthenticationError(
            f"Google gives no token: {e}",
            hint="Give the driver and all workers a service account. A key in a file needs the Python"
            " packages google-auth and requests there.",
        ) from None
    header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    claims = {"exp": int(until), "iat": int(time.time()), "scope": "kafka", "sub": account}
    return ".".join(map(_encoded, (json.dumps(header), json.dumps(claims), access_token))), until


def _encoded(part: str) -> str:
    return base64.urlsafe_b64encode(part.encode()).decode().rstrip("=")


def _google_auth() -> tuple[str, str, float] | None:
    """Token, account and end by google-auth, if it is there."""
    try:
        import google.auth
        from google.auth.transport.requests import Request
    except ImportError:
        if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            raise MetadataError(
                "GOOGLE_APPLICATION_CREDENTIALS can only be read by google-auth, which needs requests"
            ) from None
        return None
    try:
        found, _ = google.auth.default(scopes=[_GOOGLE_SCOPE])
        found.refresh(Request())
    except Exception as e:  # its own kinds, whose texts may quote what is in files
        raise MetadataError(f"google-auth: {type(e).__name__}") from None
    # Its times are of UTC, without saying so.
    until = time.time() if found.expiry is None else found.expiry.replace(tzinfo=timezone.utc).timestamp()
    account = getattr(found, "service_account_email", None) or os.environ.get(_PRINCIPAL)
    if not account:
        raise MetadataError(f"google-auth finds credentials that name no service account; set {_PRINCIPAL}")
    return found.token, str(account), until


def _of_google_machine() -> tuple[str, str, float]:
    token, until = _granted(of_gcp(f"{_ACCOUNT}/token", FOR_TOKENS))
    return token, of_gcp(f"{_ACCOUNT}/email"), until


def token_of_azure(resource: str, client_id: str | None) -> tuple[str, float]:
    """A token for a resource such as https://NAMESPACE.servicebus.windows.net, and when it ends, in seconds
    since the epoch.

    As by Azure's SDKs the environment says who logs in: an application with its secret or with the token of
    its pod (workload identity), else the managed identity of the platform or the machine.

    :param client_id: of the application or of the managed identity; None: the environment's.
    :raises AuthenticationError: if there is none.
    """
    client_id = client_id or os.environ.get("AZURE_CLIENT_ID") or None
    try:
        return _of_entra(client_id, resource) or _of_managed_identity(client_id, resource)
    except MetadataError as e:
        raise AuthenticationError(
            f"Azure gives no token for {resource}: {e}",
            hint="Give the driver and all workers a managed identity, or the environment variables of an"
            " application: AZURE_TENANT_ID, AZURE_CLIENT_ID, and AZURE_CLIENT_SECRET or"
            " AZURE_FEDERATED_TOKEN_FILE.",
        ) from None


def _of_entra(client_id: str | None, resource: str) -> tuple[str, float] | None:
    tenant, secret = os.environ.get("AZURE_TENANT_ID"), os.environ.get("AZURE_CLIENT_SECRET")
    file = os.environ.get("AZURE_FEDERATED_TOKEN_FILE")
    if not (tenant and client_id and (secret or file)):
        if os.environ.get("AZURE_CLIENT_CERTIFICATE_PATH"):
            raise MetadataError("AZURE_CLIENT_CERTIFICATE_PATH is set, but certificates are not supported")
        return None
    form = {"grant_type": "client_credentials", "client_id": client_id, "scope": f"{resource}/.default"}
    if secret:
        form["client_secret"] = secret
    else:
        form |= {"client_assertion_type": _BEARER, "client_assertion": token_in(str(file))}
    authority = (os.environ.get("AZURE_AUTHORITY_HOST") or _ENTRA).rstrip("/")
    if urlsplit(authority).scheme != "https" and urlsplit(authority).hostname != "127.0.0.1":
        raise MetadataError("AZURE_AUTHORITY_HOST does not begin with https:")
    url = f"{authority}/{tenant}/oauth2/v2.0/token"
    return _granted(ask(url, {}, method="POST", data=urlencode(form).encode(), seconds=FOR_TOKENS))


def _of_managed_identity(client_id: str | None, resource: str) -> tuple[str, float]:
    query = {"resource": resource} | ({"client_id": client_id} if client_id else {})
    endpoint, header = os.environ.get("IDENTITY_ENDPOINT"), os.environ.get("IDENTITY_HEADER")
    if endpoint and header:  # App Service, Container Apps, Functions
        given = urlencode({"api-version": "2019-08-01", **query})
        return _granted(ask(f"{endpoint}?{given}", {"X-IDENTITY-HEADER": header}, seconds=FOR_TOKENS))
    given = urlencode({"api-version": "2018-02-01", **query})
    return _granted(of_azure(f"identity/oauth2/token?{given}", FOR_TOKENS))


def _granted(answer: str) -> tuple[str, float]:
    """The token in an answer of OAuth, and when it ends; App Service does not say it in seconds from now."""
    fields = fields_of(answer)
    token, now = fields.get("access_token"), time.time()
    given, begin = ("expires_in", now) if "expires_in" in fields else ("expires_on", 0.0)
    seconds = str(fields.get(given))
    if not isinstance(token, str) or not is_token(token) or not _SECONDS.fullmatch(seconds):
        raise MetadataError("the answer has no token that says when it ends")
    return token, min(begin + int(seconds), now + _LONGEST)
