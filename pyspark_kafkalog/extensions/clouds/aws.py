"""Credentials of AWS as botocore finds them, and what they sign for MSK: the query of a URL."""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pyspark_kafkalog.broker.wire.expiring_cache import ExpiringCache
from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.extensions.clouds.sdk import ATTEMPTS, SECONDS, SdkError, sdk
from pyspark_kafkalog.options.security.aws import REGION, AwsOptions

_BROKER = re.compile(r".+\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.(?:com|com\.cn|eu)")
_CONNECT = "kafka-cluster:Connect"
_SERVICE = "kafka-cluster"
_LIFETIME = 900
"""Seconds that a signature is valid: the most that MSK takes."""
_SPARE = 300
"""Seconds before their end from which credentials of a role are not used any more, as in AWS's SDKs."""
_AGENT = "pyspark-kafkalog"
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_SETTINGS = {
    name: (name, f"AWS_{name.upper()}", default, kind)
    for name, default, kind in (
        ("metadata_service_timeout", 2, int),
        ("metadata_service_num_attempts", ATTEMPTS, int),
        ("sts_regional_endpoints", "regional", None),
    )
}
"""Settings of botocore with other defaults: names in its file and in the environment, default, type."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """The credentials to sign with."""

    access_key: str
    secret_key: str
    token: str | None = None


_credentials_cache: ExpiringCache[Credentials] = ExpiringCache()


def region_of(options: AwsOptions, host: str) -> str:
    """The region of a cluster: the user's, that in a broker's name, or the environment's.

    :raises AuthenticationError: if none of them tells.
    """
    named = _BROKER.fullmatch(host)
    in_environment = (value for name in _REGIONS if (value := os.environ.get(name, "").strip()))
    region = options.region or (named and named.group(1)) or next(in_environment, None)
    if not region:
        raise AuthenticationError(
            "The region of the cluster is not known: its brokers' names don't have it",
            hint=f"Set {REGION}, or AWS_REGION in the environment of the driver and of all workers.",
        )
    return region


def bearer_token(options: AwsOptions, host: str) -> str:
    """A token for SASL OAUTHBEARER, valid for 15 minutes: a signed URL (aws-msk-iam-sasl-signer).

    :raises AuthenticationError: without botocore, credentials or region.
    """
    region = region_of(options, host)
    url = _signed(options, f"kafka.{region}.amazonaws.com", region) + f"&User-Agent={_AGENT}"
    return base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def iam_message(options: AwsOptions, host: str) -> bytes:
    """The client's message of SASL AWS_MSK_IAM: a signed query as JSON (aws-msk-iam-auth).

    :raises AuthenticationError: without botocore, credentials or region.
    """
    query = parse_qsl(urlsplit(_signed(options, host, region_of(options, host))).query)
    message = {"version": "2020_10_22", "host": host, "user-agent": _AGENT}
    return json.dumps({**message, **{name.lower(): value for name, value in query}}).encode()


def _signed(options: AwsOptions, host: str, region: str) -> str:
    """The URL of a GET that connects to a cluster, with its signature."""
    found = credentials(replace(options, region=region))
    with sdk("aws"):
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest

        request = AWSRequest("GET", f"https://{host}/", params={"Action": _CONNECT})
        SigV4QueryAuth(found, _SERVICE, region, _LIFETIME).add_auth(request)
    return str(request.url)


def credentials(options: AwsOptions) -> Credentials:
    """The credentials to sign with. botocore renews those that it found; those of a role are cached.

    :raises AuthenticationError: if there are none, or botocore is not installed.
    """

    def ask_again() -> tuple[Credentials, float, float]:
        with sdk("aws"):
            session = _session(options, os.getpid())
        found = _found(session)
        if options.role_arn is None:
            return found, 0.0, 0.0
        found, end = _assumed(options, session)
        return found, end - _SPARE, end

    return _credentials_cache.get(options, ask_again)


def forget(options: AwsOptions, host: str) -> None:
    """Find the credentials again for the next login: a broker refused what they signed."""
    _credentials_cache.forget(replace(options, region=region_of(options, host)))
    _session.cache_clear()


@cache
def _session(options: AwsOptions, process: int) -> Any:
    """botocore's: it keeps credentials, and renews those that end. Each is used by one thread at a time.

    :param process: the id of this one: a fork would wait for locks of its parent's threads.
    """
    from botocore.config import Config
    from botocore.session import Session

    session = Session(profile=options.profile, session_vars=_SETTINGS)
    if region := options.sts_region or options.region:
        session.set_config_variable("region", region)
    retries = {"total_max_attempts": ATTEMPTS, "mode": "standard"}
    session.set_default_client_config(Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries=retries))
    return session


def _found(session: Any) -> Credentials:
    try:
        with sdk("aws"):
            found = session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
    except SdkError as e:
        raise _no_credentials(str(e)) from None
    if frozen is None or not frozen.access_key:
        raise _no_credentials("botocore finds none")
    if not hasattr(found, "refresh_needed"):
        _session.cache_clear()  # it would keep those of a file or the environment, which may change
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token or None)


def _assumed(options: AwsOptions, session: Any) -> tuple[Credentials, float]:
    """The credentials of the role, and when they end, in seconds since the epoch."""
    role = {"RoleArn": options.role_arn, "RoleSessionName": options.role_session_name or _AGENT}
    if options.role_external_id:
        role["ExternalId"] = options.role_external_id
    try:
        with sdk("aws"):
            client = session.create_client("sts")
            try:
                given = client.assume_role(**role)["Credentials"]
            finally:
                client.close()
            found = Credentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
            return found, given["Expiration"].timestamp()
    except SdkError as e:
        raise AuthenticationError(
            f"These credentials could not assume the role {options.role_arn}: {e}",
            hint="Check awsRoleArn, that the role trusts them, and that AWS's STS can be reached.",
        ) from None


def _no_credentials(reason: str) -> AuthenticationError:
    return AuthenticationError(
        f"There are no credentials of AWS here: {reason}",
        hint="Give the driver and all workers a role, AWS's environment variables, or a profile by"
        " awsProfileName. In a container the metadata of EC2 need a hop limit of 2.",
    )
