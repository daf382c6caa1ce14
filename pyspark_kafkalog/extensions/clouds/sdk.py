"""The use of clouds' SDKs: loaded where a login asks for them, and without what may show a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.named_origin import OAUTH_CODES
from pyspark_kafkalog.sdk_logs import silent

SECONDS = 10.0
"""The time that an SDK waits for a connection, and for each answer."""
ATTEMPTS = 3
"""The number of an SDK's attempts, where it can be told."""
_CODE = re.compile(
    r"\b(AccessDenied|ExpiredToken(?:Exception)?|IDPCommunicationError|IDPRejectedClaim|InvalidClientTokenId"
    r"|InvalidIdentityToken|MissingAuthenticationToken|RegionDisabledException|RequestExpired"
    r"|SignatureDoesNotMatch|Throttling(?:Exception)?|ValidationError"
    rf"|AADSTS[0-9]{{5,7}}|{OAUTH_CODES})\b"
)
"""Codes of AWS's, Entra's and OAuth's errors; other words of an error might repeat a secret or a URL."""


class SdkError(Exception):
    """The error of an SDK as text: its kind, and the code that says why, if it is a known one."""


@dataclass(frozen=True, slots=True)
class _Sdk:
    package: str
    modules: tuple[str, ...]
    loggers: tuple[str, ...]


_SDKS = {
    "aws": _Sdk("botocore", ("botocore.session",), ("botocore", "urllib3")),
    "gcp": _Sdk(
        "google-auth[requests]",
        ("google.auth.transport.requests", "google.auth.compute_engine"),
        ("google", "urllib3"),
    ),
    "azure": _Sdk("azure-identity", ("azure.identity",), ("azure", "msal", "urllib3")),
}


@contextmanager
def sdk(cloud: str) -> Iterator[None]:
    """Within it this thread uses the SDK of a cloud; see :func:`.sdk_logs.silent`.

    :param cloud: aws, gcp or azure.
    :raises AuthenticationError: if it is not installed.
    :raises SdkError: if it raises anything.
    """
    used = _SDKS[cloud]
    try:
        for module in used.modules:
            import_module(module)
    except ImportError as e:
        raise AuthenticationError(
            f"Logins with {cloud} need the Python package {used.package}, which can't be imported: {e}",
            hint=f"Install pyspark-kafkalog[{cloud}] on the driver and on each executor, or run: pip install"
            f" {used.package}",
        ) from None
    try:
        with silent(*used.loggers):
            yield
    except Exception as e:
        found = _CODE.search(str(e))
        raise SdkError(f"{type(e).__name__}{f' ({found[0]})' if found else ''}") from None
