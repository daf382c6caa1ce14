"""``connect().read``, ``plan``, ``changes`` and ``write`` are audited, and ``kafkalog produce``."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import Kafka, audit_counts, connect
from pyspark_kafkalog.errors import (
    LogDirectoryError,
    RecordTooLargeError,
    TransactionError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.extensions.callbacks.files import metrics_rows
from tests.broker.producing import unused_topic
from tests.kafka import Broker
from tests.tools.cli.running import run

COUNT = 40


def rows(count: int = COUNT) -> pa.Table:
    return pa.table({"key": [b"%d" % number for number in range(count)], "value": [b"v"] * count})


def counts(source: dict[str, str] | Path) -> Counter[tuple[str, str]]:
    """Messages by side and kind."""
    found: Counter[tuple[str, str]] = Counter()
    options = {"path": str(source)} if isinstance(source, Path) else source
    for row in audit_counts(options).to_pylist():
        found[row["side"], row["kind"]] += row["messages"]
    return found


def test_a_write_and_a_read_count_the_same(tmp_path: Path) -> None:
    kafka = connect({"path": str(tmp_path / "log"), "auditLocation": str(tmp_path / "audit")})
    kafka.write(rows(), "t")
    assert kafka.read("t", columns=["offset"]).read_all().num_rows == COUNT
    both = {("producer", "ATTEMPT"): COUNT, ("producer", "SUCCESS"): COUNT}
    assert counts(tmp_path / "audit") == {**both, ("consumer", "SUCCESS"): COUNT}
    reader = kafka.read("t")
    reader.read_next_batch()
    reader.close()
    assert kafka.read("t", filters=[("offset", "<", 10)]).read_all().num_rows == 10
    assert counts(tmp_path / "audit")["consumer", "SUCCESS"] < 3 * COUNT


def test_a_split_that_is_read_again_counts_once(tmp_path: Path) -> None:
    kafka, audit = connect(tmp_path / "log"), {"auditLocation": str(tmp_path / "audit")}
    kafka.write(rows(), "t")
    splits = kafka.plan("t", options={**audit, "minPartitions": "4"})
    for _ in range(2):
        for split in pickle.loads(pickle.dumps(splits)):
            split.read().read_all()
    assert counts(tmp_path / "audit") == {("consumer", "SUCCESS"): COUNT}


def test_a_write_that_fails_has_failures(tmp_path: Path) -> None:
    kafka, audit = connect(tmp_path / "log"), {"auditLocation": str(tmp_path / "audit")}
    large = pa.table({"value": [b"fits", bytes(2_000_000)]})
    with pytest.raises(RecordTooLargeError):
        kafka.write(large, "t", options=audit)
    assert counts(tmp_path / "audit") == {("producer", "ATTEMPT"): 2, ("producer", "FAILURE"): 2}


def test_changes_count_what_is_committed(tmp_path: Path) -> None:
    kafka, audit = connect(tmp_path / "log"), {"auditLocation": str(tmp_path / "audit")}
    kafka.write(rows(), "t")
    for batches in range(3):
        with pytest.raises(ZeroDivisionError):
            fail_after_reading(kafka, audit)
        assert counts(tmp_path / "audit")["consumer", "SUCCESS"] == batches * COUNT
        with kafka.changes("t", group="a/b", options=audit) as changes:
            assert changes.read().read_all().num_rows == COUNT
        assert counts(tmp_path / "audit") == {("consumer", "SUCCESS"): (batches + 1) * COUNT}
        kafka.write(rows(), "t")
    queries = audit_counts({"path": str(tmp_path / "audit")}).column("query").to_pylist()
    assert {query[:4] for query in queries} == {"a/b."}


def refused_or_skipped(kafka: Kafka, topic: str, source: dict[str, str] | Path, **options: str) -> None:
    """Write two batches of a job, and some again with more rows: what is written counts, and nothing else."""

    def write(version: int, count: int) -> None:
        numbered = {"txnAppId": f"app-{topic}", "txnVersion": str(version)}
        kafka.write(rows(count), topic, options={**options, **numbered})

    write(0, 10)
    write(1, 20)
    write(1, 500)
    with pytest.raises((LogDirectoryError, TransactionError), match="txnVersion 1 or later"):
        write(0, 500)
    assert counts(source) == {("producer", "ATTEMPT"): 30, ("producer", "SUCCESS"): 30}
    write(2, 5)
    assert counts(source) == {("producer", "ATTEMPT"): 35, ("producer", "SUCCESS"): 35}


def test_a_batch_that_is_there_keeps_its_counts_and_metrics(tmp_path: Path) -> None:
    audit, metrics = tmp_path / "audit", str(tmp_path / "metrics")
    options = {"auditLocation": str(audit), "metricsLocation": metrics}
    refused_or_skipped(connect(tmp_path / "log"), "t", audit, **options)
    assert [row["records"] for row in metrics_rows(metrics)] == [10, 20, 5]


def test_an_audit_and_metrics_in_one_folder(tmp_path: Path) -> None:
    both = str(tmp_path / "both")
    options = {"auditLocation": both, "metricsLocation": both}
    connect(tmp_path / "log").write(rows(), "t", options=options)
    assert counts(tmp_path / "both") == {("producer", "ATTEMPT"): COUNT, ("producer", "SUCCESS"): COUNT}
    assert [row["records"] for row in metrics_rows(both)] == [COUNT]


def test_counts_that_are_lost_are_settled_by_the_next_run(tmp_path: Path) -> None:
    audit, metrics = tmp_path / "audit", tmp_path / "metrics"
    options = {"auditLocation": str(audit), "metricsLocation": str(metrics)}
    for _ in range(2):
        connect(tmp_path / "log").write(rows(), "t", options={**options, "txnAppId": "a", "txnVersion": "0"})
        assert counts(audit) == {("producer", "ATTEMPT"): COUNT, ("producer", "SUCCESS"): COUNT}
        assert [row["records"] for row in metrics_rows(str(metrics))] == [COUNT]
        for file in [*audit.rglob("committed"), *metrics.rglob("*.jsonl")]:
            file.unlink()


def fail_after_reading(kafka: Kafka, audit: dict[str, str]) -> None:
    """Read all changes, twice, and fail before the commit."""
    with kafka.changes("t", group="a/b", options=audit) as changes:
        for _ in range(2):
            changes.read().read_all()
        _ = 1 / 0


@pytest.mark.broker
def test_a_transaction_that_is_there_keeps_its_counts_in_a_topic(broker: Broker, tmp_path: Path) -> None:
    topic, audits = unused_topic(), unused_topic()
    broker.create_topic(topic, 2)
    broker.create_topic(audits, 2)
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    options = {"delivery.guarantee": "exactly-once", "stagingLocation": str(tmp_path), "auditTopic": audits}
    refused_or_skipped(connect(servers), topic, {**servers, "subscribe": audits}, **options)


@pytest.mark.broker
def test_a_topic_of_the_same_cluster(broker: Broker) -> None:
    topic, audits = unused_topic(), unused_topic()
    broker.create_topic(topic, 2)
    broker.create_topic(audits, 2)
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    kafka = connect({**servers, "auditTopic": audits})
    kafka.write(rows(), topic)
    kafka.read(topic).read_all()
    done = run("produce", broker.bootstrap, topic, "-o", f"auditTopic={audits}", text="a\nb\n")
    assert done.code == 0
    assert counts({**servers, "subscribe": audits}) == {
        ("producer", "ATTEMPT"): COUNT + 2,
        ("producer", "SUCCESS"): COUNT + 2,
        ("consumer", "SUCCESS"): COUNT,
    }
    keys = connect(servers).read(audits).read_all().column("key").to_pylist()
    assert {key.decode().split("/")[0] for key in keys} == {"producer", "consumer"}
    with pytest.raises(UnknownTopicOrPartitionError):
        audit_counts({**servers, "subscribe": unused_topic()})
