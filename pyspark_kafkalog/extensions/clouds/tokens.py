"""Bearer tokens of Google and Azure for SASL OAUTHBEARER, as their SDKs find who logs in.

Google's are those of its Java handler (GcpLoginCallbackHandler): a header, claims and the access token.
Azure's are Entra's.
"""

from __future__ import annotations

import base64
import json
import os
import time
from datetime import timezone
from typing import Any

from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.extensions.clouds.sdk import ATTEMPTS, SECONDS, SdkError, sdk
from pyspark_kafkalog.options.security.oauth import is_token

_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_PRINCIPAL = "GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL"
"""The principal of credentials that name no account, as in Google's server for clients without Java."""
_LONGEST = 86_400
"""Seconds after which a token is asked for again, whatever it says."""
_OF_PEOPLE = ("shared_token_cache", "visual_studio_code", "cli", "powershell", "developer_cli", "broker")
"""Credentials of Azure's chain that know no client's id: they are of who works at this machine."""


def token_of_gcp() -> tuple[str, float]:
    """A token of the account that google-auth finds (Application Default Credentials), and when it ends, in
    seconds since the epoch.

    :raises AuthenticationError: if there is none, or google-auth is not installed.
    """
    try:
        with sdk("gcp"):
            import google.auth

            request = _request()
            found, _ = google.auth.default(scopes=[_GOOGLE_SCOPE], request=request)
        with sdk("gcp"):
            found.refresh(request)
            access_token = _encoded(found.token)
    except SdkError as e:
        raise AuthenticationError(
            f"Google gives no token: {e}",
            hint="Give the driver and all workers a service account, or GOOGLE_APPLICATION_CREDENTIALS.",
        ) from None
    now = time.time()
    # Its times are of UTC, without saying so.
    until = now if found.expiry is None else found.expiry.replace(tzinfo=timezone.utc).timestamp()
    account = getattr(found, "service_account_email", None) or os.environ.get(_PRINCIPAL)
    if not account:
        raise AuthenticationError(
            "google-auth finds credentials that name no service account",
            hint=f"Set {_PRINCIPAL} in the environment of the driver and of all workers.",
        )
    header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    claims = {"exp": int(until), "iat": int(now), "scope": "kafka", "sub": str(account)}
    token = f"{_encoded(json.dumps(header))}.{_encoded(json.dumps(claims))}.{access_token}"
    return token, min(until, now + _LONGEST)


def _request() -> Any:
    """Asks for google-auth, which would wait two minutes for an answer."""
    from google.auth.transport.requests import Request

    class Impatient(Request):  # type: ignore[misc]
        def __call__(self, *args: Any, timeout: float = SECONDS, **settings: Any) -> Any:
            return super().__call__(*args, timeout=timeout, **settings)

    return Impatient()


def _encoded(part: str) -> str:
    return base64.urlsafe_b64encode(part.encode()).decode().rstrip("=")


def token_of_azure(resource: str, client_id: str | None) -> tuple[str, float]:
    """A token for a resource such as https://NAMESPACE.servicebus.windows.net, and when it ends, in seconds
    since the epoch. azure-identity finds who logs in (DefaultAzureCredential).

    :param client_id: of the application or of the managed identity, which alone may log in then.
    :raises AuthenticationError: if there is none, or azure-identity is not installed.
    """
    limits = {"connection_timeout": SECONDS, "read_timeout": SECONDS, "retry_total": ATTEMPTS - 1}
    try:
        with sdk("azure"):
            from azure.identity import DefaultAzureCredential

            # Discovery would ask the public cloud about the authority in the environment, which is trusted.
            found = DefaultAzureCredential(disable_instance_discovery=True, **limits, **_named(client_id))
        with sdk("azure"), found:
            given = found.get_token(f"{resource}/.default")
            reason = None if is_token(given.token) else "the answer is not a token"
    except SdkError as e:
        reason = str(e)
    if reason is not None:
        raise AuthenticationError(
            f"Azure gives no token for {resource}: {reason}",
            hint="Give the driver and all workers a managed identity, or the environment variables of an"
            " application: AZURE_TENANT_ID, AZURE_CLIENT_ID, and AZURE_CLIENT_SECRET or"
            " AZURE_FEDERATED_TOKEN_FILE.",
        )
    return given.token, min(given.expires_on, time.time() + _LONGEST)


def _named(client_id: str | None) -> dict[str, Any]:
    """Settings of Azure's chain with which only who is named can log in."""
    if client_id is None:
        return {}
    others = list(_OF_PEOPLE)
    if os.environ.get("AZURE_CLIENT_ID") != client_id:
        others.append("environment")
    return {"managed_identity_client_id": client_id} | {f"exclude_{one}_credential": True for one in others}
