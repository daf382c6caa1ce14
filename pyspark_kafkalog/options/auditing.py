"""The options about audits: who counts messages, where the counts are kept, in which buckets of time."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options import values as option_values
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from pyspark_kafkalog.options.user_options import UserOptions

COUNTING = "counting"
"""The auditor that this package has."""


AUDIT_OPTIONS = ("auditor.class", "auditLocation", "auditor.bucket.ms")
"""The names of all of them."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """``auditor`` is :data:`COUNTING` or ``module:name``; without a ``location`` counts are only logged.

    The location is not shown, because a URI may hold a secret.
    """

    auditor: str = COUNTING
    location: str | None = None
    bucket_ms: int = 600_000

    def __repr__(self) -> str:
        return f"AuditOptions(auditor={self.auditor!r}, bucket_ms={self.bucket_ms})"


def audit_options(given: UserOptions) -> AuditOptions | None:
    """How messages are counted; None where they are not.

    :raises OptionError: for what is malformed.
    """
    bucket_ms = given.integer("auditor.bucket.ms", 1, MAX_LONG)
    location = given.trimmed("auditLocation")
    if location is None and "auditLocation" in given:
        raise OptionError("Option 'auditLocation' is empty")
    if "auditor.class" not in given:
        return None if location is None else AuditOptions(COUNTING, location, bucket_ms)
    auditor = given.trimmed("auditor.class") or ""
    if auditor.lower() != COUNTING:
        return AuditOptions(option_values.import_path("auditor.class", auditor), location, bucket_ms)
    return AuditOptions(COUNTING, location, bucket_ms)
