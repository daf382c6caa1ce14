"""The options about audits."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.audit.options import AuditOptions
from pyspark_kafkalog.options.settings import read_options, write_options
from pyspark_kafkalog.read.counting import ReadCounting, read_counting_of
from pyspark_kafkalog.write.counting import WriteCounting, write_counting_of

PLACE = {"path": "/log"}
BROKERS = {"kafka.bootstrap.servers": "host:9092"}


def audit(**given: str) -> AuditOptions | None:
    """What a reader and a writer make of them alike."""
    options = {**PLACE, **{name.replace("__", "."): value for name, value in given.items()}}
    found = write_counting_of(write_options(options))
    for batch in True, False:
        read = read_counting_of(read_options(options, batch=batch))
        assert read == found or (type(read) is ReadCounting and type(found) is WriteCounting)
    return found if isinstance(found, AuditOptions) else None


def test_nothing_is_counted_unless_it_is_asked() -> None:
    assert audit() is None
    assert audit(auditor__bucket__ms="5") is None


def test_a_place_or_an_auditor_is_enough() -> None:
    assert audit(auditLocation=" s3://bucket/audit ") == AuditOptions(
        "counting", "s3://bucket/audit", 600_000
    )
    assert audit(AUDITOR__CLASS=" Logging ") == AuditOptions("logging", None, 600_000)
    assert audit(AUDITOR__CLASS=" Counting ", auditLocation="/a") == AuditOptions("counting", "/a", 600_000)
    assert audit(auditor__class="my.module.Auditor", auditLocation="/a", auditor__bucket__ms="1") == (
        AuditOptions("my.module:Auditor", "/a", 1)
    )


def test_linkedins_auditors_are_taken_by_their_names() -> None:
    theirs = "com.linkedin.kafka.clients.auditing"
    assert audit(auditor__class=f"{theirs}.LoggingAuditor") == AuditOptions("logging", None, 600_000)
    assert audit(auditor__class=f"{theirs}.NoOpAuditor") is None
    assert audit(auditor__class=f"{theirs}.NoOpAuditor", auditLocation="/audit") is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"auditor__class": ""}, "'auditor.class': expected an import path"),
        ({"auditor__class": "com.linkedin:Logging Auditor"}, "'auditor.class': expected an import path"),
        ({"auditLocation": " "}, "'auditLocation' is empty"),
        ({"auditor__class": "counting"}, "nothing says where the counts go.*auditor.class=logging"),
        ({"auditLocation": "/log/audit"}, "'auditLocation' is inside the log directory"),
        ({"auditTopic": "a"}, "'auditTopic' is for brokers, .*Give auditLocation"),
        ({"auditor__bucket__ms": "0"}, "'auditor.bucket.ms': expected a whole number from 1"),
    ],
)
def test_what_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        audit(**given)


def test_an_auditor_that_only_counts_needs_a_place_for_the_counts() -> None:
    here = "tests.extensions.audit.test_counting"
    only_counts = audit(auditor__class=f"{here}:ByHeader")
    assert only_counts is not None
    for look in only_counts.load, only_counts.counted_columns:
        with pytest.raises(OptionError, match="ByHeader', but nothing says where the counts go"):
            look()
    logs = audit(auditor__class="logging")
    assert logs is not None
    logs.load()


def test_a_secret_in_a_uri_is_not_shown() -> None:
    assert "secret" not in repr(audit(auditLocation="s3://key:secret@bucket"))


def test_a_topic_is_one_of_the_same_cluster_and_another_than_what_is_counted() -> None:
    given = {**BROKERS, "auditTopic": "audits", "kafka.client.id": "me", "kafka.acks": "1"}
    audit = write_counting_of(write_options({**given, "topic": "t"}))
    assert isinstance(audit, AuditOptions)
    assert audit.connection is not None
    assert (audit.topic, audit.connection.bootstrap_servers) == ("audits", ("host:9092",))
    assert audit.connection.client_id == "me"
    read = {**BROKERS, "auditTopic": "audits"}
    assert read_counting_of(read_options({**read, "subscribe": "t"}, batch=False)).is_set
    with pytest.raises(OptionError, match="'audits' can't take the counts of its own records"):
        write_options({**given, "topic": "audits"})
    with pytest.raises(OptionError, match="'audits' can't take the counts of its own records"):
        read_options({**read, "subscribe": "audits,t"}, batch=True)
    given = {name: value for name, value in read.items() if name != "subscribe"}
    with pytest.raises(OptionError, match=r"or leave it out of a pattern by topics\.exclude"):
        read_options({**given, "subscribePattern": "a.*"}, batch=True)
    read_options({**given, "subscribePattern": "a.*", "topics.exclude": "audits"}, batch=True)
    with pytest.raises(OptionError, match="Only one of 'auditLocation' and 'auditTopic'"):
        write_options({**given, "topic": "t", "auditLocation": "/a"})
