"""Credentials of AWS, found as its SDKs find them, and what is signed with them for MSK.

With botocore its chain finds them. Without: the environment, web identity (EKS), the container's endpoint
(ECS, EKS Pod Identity), and the machine's role (EC2). What is signed is a URL's query (Signature Version 4).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.extensions.clouds.kept import Kept
from pyspark_kafkalog.extensions.clouds.metadata import (
    FOR_TOKENS,
    MetadataError,
    ask,
    fields_of,
    of_aws,
    token_in,
)
from pyspark_kafkalog.options.security.aws import REGION, AwsOptions

_BROKER = re.compile(r".+\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.(?:com|com\.cn|eu)")
_ALGORITHM = "AWS4-HMAC-SHA256"
_CONNECT = "kafka-cluster:Connect"
_SERVICE = "kafka-cluster"
_LIFETIME = 900
"""Seconds that a signature is valid: the most that MSK takes."""
_SPARE = 300
"""Seconds before their end from which credentials are not used any more, as in AWS's SDKs."""
_CONTAINERS = "http://169.254.170.2"
_OF_CONTAINERS = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23", "localhost", "127.0.0.1", "::1")
"""Hosts to which a container may send its token over HTTP."""
_AGENT = "pyspark-kafkalog"
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_USUAL_REGION = "us-east-1"
_DOMAINS = {
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
}
"""Of services in regions whose names begin so; of all others amazonaws.com."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """``until`` is when they end, in seconds since the epoch; 0: they are asked for again each time."""

    access_key: str
    secret_key: str
    token: str | None = None
    until: float = float("inf")


_kept: Kept[Credentials] = Kept()


def region_of(options: AwsOptions, host: str) -> str:
    """The region of a cluster: the user's, that in a broker's name, or the environment's.

    :raises AuthenticationError: if none of them tells.
    """
    named = _BROKER.fullmatch(host)
    region = options.region or (named and named.group(1)) or _environment(*_REGIONS)
    if not region:
        raise AuthenticationError(
            "The region of the cluster is not known: its brokers' names don't have it",
            hint=f"Set {REGION}, or AWS_REGION in the environment of the driver and of all workers.",
        )
    return region


def bearer_token(options: AwsOptions, host: str) -> str:
    """A token for SASL OAUTHBEARER, valid for 15 minutes: a signed URL (aws-msk-iam-sasl-signer).

    :raises AuthenticationError: without credentials or region.
    """
    region = region_of(options, host)
    signed_host = f"kafka.{region}.amazonaws.com"
    found = credentials(replace(options, region=region))
    query = signed({"Action": _CONNECT}, signed_host, _SERVICE, region, found, _LIFETIME)
    url = f"https://{signed_host}/?{_query(query)}&User-Agent={_AGENT}"
    return base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def iam_message(options: AwsOptions, host: str) -> bytes:
    """The client's message of SASL AWS_MSK_IAM: a signed query as JSON (aws-msk-iam-auth).

    :raises AuthenticationError: without credentials or region.
    """
    region = region_of(options, host)
    found = credentials(replace(options, region=region))
    query = signed({"Action": _CONNECT}, host, _SERVICE, region, found, _LIFETIME)
    message = {"version": "2020_10_22", "host": host, "user-agent": _AGENT}
    return json.dumps({**message, **{name.lower(): value for name, value in query.items()}}).encode()


def signed(
    parameters: Mapping[str, str],
    host: str,
    service: str,
    region: str,
    credentials: Credentials,
    lifetime: int,
) -> dict[str, str]:
    """The parameters of a GET of ``/`` with those that sign it.

    :param lifetime: seconds for which the signature is valid.
    """
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{region}/{service}/aws4_request"
    query = {
        **parameters,
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": now,
        "X-Amz-Expires": str(lifetime),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.token:
        query["X-Amz-Security-Token"] = credentials.token
    request = "\n".join(
        ["GET", "/", _query(query), f"host:{host}\n", "host", hashlib.sha256(b"").hexdigest()]
    )
    text = "\n".join([_ALGORITHM, now, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return {**query, "X-Amz-Signature": key.hex()}


def _query(parameters: Mapping[str, str]) -> str:
    return "&".join(
        f"{quote(name, safe='')}={quote(parameters[name], safe='')}" for name in sorted(parameters)
    )


def credentials(options: AwsOptions) -> Credentials:
    """Those that sign, kept until shortly before they end.

    :raises AuthenticationError: if there are none.
    """

    def ask_again() -> tuple[Credentials, float, float]:
        found = _found(options.profile)
        if options.role_arn is not None:
            found = _assumed(options, found)
        return found, found.until - _SPARE, found.until

    return _kept.get(options, ask_again)


def forget(options: AwsOptions, host: str) -> None:
    """Find the credentials again for the next login: a broker refused what they signed."""
    _kept.forget(replace(options, region=region_of(options, host)))
    _session.cache_clear()


def _found(profile: str | None) -> Credentials:
    try:
        session = _session(profile, os.getpid())
    except ImportError:
        if profile is not None:
            raise AuthenticationError(
                "A profile of AWS can only be read by the Python package botocore",
                hint="pip install botocore, on the driver and on each executor, or leave awsProfileName out.",
            ) from None
        return _found_without_botocore()
    try:
        found = session.get_credentials()
        frozen = None if found is None else found.get_frozen_credentials()
    except Exception as e:  # botocore's own kinds, whose texts may quote what is in files
        raise _no_credentials(type(e).__name__) from None
    if frozen is None or not frozen.access_key:
        raise _no_credentials("botocore finds none")
    if not hasattr(found, "refresh_needed"):
        _session.cache_clear()  # it would keep those of a file or the environment, which may change
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token, until=0.0)


@cache
def _session(profile: str | None, process: int) -> Any:
    """botocore's: it keeps credentials, and renews those that end.

    :param process: the id of this one: a fork would wait for locks of its parent's threads.
    """
    from botocore.session import Session

    return Session(profile=profile)


def _found_without_botocore() -> Credentials:
    """Those of the first place that is set up here: if it fails, the next would be another identity."""
    for what, find in _CHAIN.items():
        try:
            if (found := find()) is not None:
                return found
        except MetadataError as e:
            raise _no_credentials(f"{what}: {e}") from None
    raise _no_credentials("none are there")


def _of_environment() -> Credentials | None:
    access_key, secret_key = _environment("AWS_ACCESS_KEY_ID"), _environment("AWS_SECRET_ACCESS_KEY")
    if access_key and not secret_key:
        raise MetadataError("AWS_ACCESS_KEY_ID is set, but not AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        return Credentials(access_key, secret_key, _environment("AWS_SESSION_TOKEN"), until=0.0)
    if _environment("AWS_PROFILE"):
        raise MetadataError("AWS_PROFILE names a profile, which only the Python package botocore can read")
    return None


def _of_web_identity() -> Credentials | None:
    """Those that STS gives for a token that the platform puts into a file (IRSA)."""
    file, role = _environment("AWS_WEB_IDENTITY_TOKEN_FILE"), _environment("AWS_ROLE_ARN")
    if not file:
        return None
    if not role:
        raise MetadataError("AWS_WEB_IDENTITY_TOKEN_FILE is set, but not AWS_ROLE_ARN")
    form = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": role,
        "RoleSessionName": _environment("AWS_ROLE_SESSION_NAME") or _AGENT,
        "WebIdentityToken": token_in(file),
    }
    url = _sts(_environment(*_REGIONS) or _USUAL_REGION)
    return _of_sts(ask(url, {}, method="POST", data=urlencode(form).encode(), seconds=FOR_TOKENS))


def _of_container() -> Credentials | None:
    relative = _environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    url = f"{_CONTAINERS}{relative}" if relative else _environment("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in _OF_CONTAINERS:
        raise MetadataError("AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor this machine's")
    file = _environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    token = token_in(file) if file else _environment("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    return _of_json(ask(url, {"Authorization": token} if token else {}))


def _of_machine() -> Credentials | None:
    folder = "iam/security-credentials/"
    role = of_aws(folder).split("\n")[0]
    return _of_json(of_aws(folder + quote(role)))


_CHAIN: Mapping[str, Callable[[], Credentials | None]] = {
    "environment": _of_environment,
    "web identity": _of_web_identity,
    "container": _of_container,
    "machine": _of_machine,
}


def _assumed(options: AwsOptions, own: Credentials) -> Credentials:
    """Those of the role."""
    assert options.role_arn is not None
    parameters = {
        "Action": "AssumeRole",
        "Version": "2011-06-15",
        "RoleArn": options.role_arn,
        "RoleSessionName": options.role_session_name or _AGENT,
    }
    if options.role_external_id:
        parameters["ExternalId"] = options.role_external_id
    region = options.sts_region or options.region or _environment(*_REGIONS) or _USUAL_REGION
    url = _sts(region)
    query = signed(parameters, urlsplit(url).netloc, "sts", region, own, 60)
    try:
        return _of_sts(ask(f"{url}/?{_query(query)}", {}, seconds=FOR_TOKENS))
    except MetadataError as e:
        raise AuthenticationError(
            f"These credentials could not assume the role {options.role_arn}: {e}",
            hint="Check awsRoleArn, that the role trusts them, and that AWS's STS can be reached.",
        ) from None


def _sts(region: str) -> str:
    if given := _environment("AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"):
        return given.rstrip("/")
    domain = next((domain for start, domain in _DOMAINS.items() if region.startswith(start)), "amazonaws.com")
    is_fips = (_environment("AWS_USE_FIPS_ENDPOINT") or "").lower() == "true"
    # GovCloud's usual endpoints are those of FIPS.
    name = "sts-fips" if is_fips and not region.startswith("us-gov-") else "sts"
    return f"https://{name}.{region}.{domain}"


def _of_sts(answer: str) -> Credentials:
    try:
        fields = {element.tag.rpartition("}")[2]: element.text for element in ET.fromstring(answer).iter()}
    except ET.ParseError:
        raise MetadataError("the answer is not XML") from None
    return _checked(fields, token="SessionToken")


def _of_json(answer: str) -> Credentials:
    return _checked(fields_of(answer), token="Token")


def _checked(fields: Mapping[str, Any], *, token: str) -> Credentials:
    names = ("AccessKeyId", "SecretAccessKey", token, "Expiration")
    found = [fields.get(name) for name in names]
    if not all(isinstance(value, str) and value for value in found):
        raise MetadataError("the answer has no credentials")
    access_key, secret_key, session, expiration = map(str, found)
    try:
        until = datetime.fromisoformat(expiration.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise MetadataError("the answer does not say when the credentials end") from None
    return Credentials(access_key, secret_key, session, until)


def _environment(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name, "").strip())), None)


def _no_credentials(reason: str) -> AuthenticationError:
    return AuthenticationError(
        f"There are no credentials of AWS here: {reason}",
        hint="Give the driver and all workers a role, or AWS's environment variables.",
    )
