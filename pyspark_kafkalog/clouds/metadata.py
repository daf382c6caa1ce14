"""The metadata services of AWS, Google and Azure, on addresses that only a machine there can reach.

They are asked only where the user has named the cloud. The environment may give other addresses, as for the
clouds' own SDKs: AWS_EC2_METADATA_SERVICE_ENDPOINT and GCE_METADATA_HOST.
"""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping

from pyspark_kafkalog.named_origin import opener, reason_of

_TIMEOUT = 2.0
"""Seconds: the services are on the machine itself."""
_ATTEMPTS = 3
_LARGEST_ANSWER = 1 << 16
_AZURE = "http://169.254.169.254"


class MetadataError(Exception):
    """What a metadata service did instead of answering."""


def of_aws(path: str) -> str:
    """What EC2's service says at ``path`` below ``latest/meta-data`` (IMDSv2).

    :raises MetadataError: if it does not.
    """
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
    session = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = ask(f"{base}/latest/api/token", session, method="PUT")
    return ask(f"{base}/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": token})


def of_gcp(path: str) -> str:
    """What Google's service says at ``path`` below ``computeMetadata/v1``.

    :raises MetadataError: if it does not.
    """
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    return ask(f"http://{host}/computeMetadata/v1/{path}", {"Metadata-Flavor": "Google"})


def of_azure(path: str) -> str:
    """What Azure's service says at ``path`` below ``metadata``.

    :raises MetadataError: if it does not.
    """
    return ask(f"{_AZURE}/metadata/{path}", {"Metadata": "true"})


def ask(url: str, headers: Mapping[str, str], *, method: str = "GET", data: bytes | None = None) -> str:
    """The answer, up to 64 KiB, without white space around it. Redirects are not followed.

    :raises MetadataError: saying why there is none, without the URL, which may hold a secret.
    """
    request = urllib.request.Request(url, data, dict(headers), method=method)
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            with opener(time.monotonic() + _TIMEOUT).open(request, timeout=_TIMEOUT) as response:
                answer: bytes = response.read(_LARGEST_ANSWER)
            return answer.decode().strip()
        except urllib.error.HTTPError as e:
            e.close()
            reason = f"HTTP status {e.code}"
            if e.code < 500 and e.code != 429:
                break
        except http.client.HTTPException:
            reason = "the answer is not HTTP"
        except (OSError, ValueError) as e:
            reason = reason_of(e) if isinstance(e, OSError) else "the answer is not text"
    raise MetadataError(reason)
