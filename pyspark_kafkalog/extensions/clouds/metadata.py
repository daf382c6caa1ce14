"""The metadata services of AWS, Google and Azure, on addresses that only a machine there can reach.

They tell the zone of this machine; logins ask them through the clouds' SDKs. They are asked only where the
user has named the cloud. The environment may give other addresses, as for the SDKs:
AWS_EC2_METADATA_SERVICE_ENDPOINT and GCE_METADATA_HOST.
"""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping

from pyspark_kafkalog.named_origin import is_temporary, opener, reason_of, status_of

_TIMEOUT = 2.0
"""Seconds: the services are on the machine itself."""
_ATTEMPTS = 3
_PAUSE = 0.2
"""Seconds before the second attempt, and twice that before the third."""
_LARGEST_ANSWER = 1 << 16
_AZURE = "http://169.254.169.254"
_AWS = {"ipv4": "http://169.254.169.254", "ipv6": "http://[fd00:ec2::254]"}


class MetadataError(Exception):
    """The failure of a metadata service to answer."""


def of_aws(path: str) -> str:
    """The answer of EC2's service at ``path`` below ``latest/meta-data`` (IMDSv2).

    :raises MetadataError: if it does not.
    """
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise MetadataError("AWS_EC2_METADATA_DISABLED is true")
    mode = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "").lower()
    usual = _AWS.get(mode, _AWS["ipv4"])
    base = (os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or usual).rstrip("/")
    session = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = ask(f"{base}/latest/api/token", session, method="PUT")
    return ask(f"{base}/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": token})


def of_gcp(path: str) -> str:
    """The answer of Google's service at ``path`` below ``computeMetadata/v1``.

    :raises MetadataError: if it does not.
    """
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    return ask(f"http://{host}/computeMetadata/v1/{path}", {"Metadata-Flavor": "Google"})


def of_azure(path: str) -> str:
    """The answer of Azure's service at ``path`` below ``metadata``.

    :raises MetadataError: if it does not.
    """
    return ask(f"{_AZURE}/metadata/{path}", {"Metadata": "true"})


def ask(url: str, headers: Mapping[str, str], *, method: str = "GET") -> str:
    """The answer, up to 64 KiB, without white space around it. Redirects are not followed.

    :raises MetadataError: saying why there is none, without the URL.
    """
    reason = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE * attempt)
        try:
            request = urllib.request.Request(url, headers=dict(headers), method=method)
            with opener(time.monotonic() + _TIMEOUT).open(request, timeout=_TIMEOUT) as response:
                return _text(response.read(_LARGEST_ANSWER + 1))
        except urllib.error.HTTPError as e:
            reason = status_of(e)
            if not is_temporary(e.code):
                break
        except (http.client.InvalidURL, ValueError):  # whose texts may quote a header or the URL
            reason = "the address, or what is sent to it, has a wrong form"
            break
        except (OSError, http.client.HTTPException) as e:
            reason = reason_of(e)
            if method == "PUT" and isinstance(e, TimeoutError):
                reason += ", as in a container if the hop limit of the machine's metadata is 1"
    raise MetadataError(reason)


def _text(answer: bytes) -> str:
    if len(answer) > _LARGEST_ANSWER:
        raise MetadataError(f"the answer has more than {_LARGEST_ANSWER} bytes")
    try:
        return answer.decode().strip()
    except UnicodeDecodeError:
        raise MetadataError("the answer is not text") from None
