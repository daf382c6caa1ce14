"""The options about audits."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.audit.options import AuditOptions
from pyspark_kafkalog.options.settings import read_options, write_options
from pyspark_kafkalog.spark.counting import Counting, counting_of

PLACE = {"path": "/log"}


def audit(**given: str) -> AuditOptions | None:
    """What a reader and a writer make of them alike."""
    options = {**PLACE, **{name.replace("__", "."): value for name, value in given.items()}}
    found = counting_of(write_options(options))
    for batch in True, False:
        read = counting_of(read_options(options, batch=batch))
        assert read == found or type(read) is type(found) is Counting
    return found if isinstance(found, AuditOptions) else None


def test_nothing_is_counted_unless_it_is_asked() -> None:
    assert audit() is None
    assert audit(auditor__bucket__ms="5") is None


def test_a_place_or_an_auditor_is_enough() -> None:
    assert audit(auditLocation=" s3://bucket/audit ") == AuditOptions(
        "counting", "s3://bucket/audit", 600_000
    )
    assert audit(AUDITOR__CLASS=" Counting ") == AuditOptions("counting", None, 600_000)
    assert audit(auditor__class="my.module.Auditor", auditLocation="/a", auditor__bucket__ms="1") == (
        AuditOptions("my.module:Auditor", "/a", 1)
    )


def test_linkedins_auditors_are_taken_by_their_names() -> None:
    theirs = "com.linkedin.kafka.clients.auditing"
    assert audit(auditor__class=f"{theirs}.LoggingAuditor") == AuditOptions("counting", None, 600_000)
    assert audit(auditor__class=f"{theirs}.NoOpAuditor") is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"auditor__class": ""}, "'auditor.class': expected an import path"),
        ({"auditor__class": "com.linkedin:Logging Auditor"}, "'auditor.class': expected an import path"),
        ({"auditLocation": " "}, "'auditLocation' is empty"),
        ({"auditor__bucket__ms": "0"}, "'auditor.bucket.ms': expected a whole number from 1"),
    ],
)
def test_what_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        audit(**given)


def test_a_secret_in_a_uri_is_not_shown() -> None:
    assert "secret" not in repr(audit(auditLocation="s3://key:secret@bucket"))
