"""What was written and what was read, counted on both sides: they agree unless something is lost."""

from __future__ import annotations

import datetime
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import AuditedRecord, AuditListener, CountingAuditor, by_value
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.extensions.large_messages.reassemble import reassemble
from tests.broker.producing import unused_topic
from tests.kafka import Broker

SCHEMA = "key binary, value binary, timestamp timestamp"
ON = {"large.message.enabled": "true", "max.message.segment.bytes": "1000"}
BUCKET_MS = 1000


def messages(count: int, first: int = 0) -> list[tuple[Any, ...]]:
    """Rows in several buckets of time, every third large; all large ones have keys."""
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    return [
        (
            b"key" if number % 3 == 0 or number % 2 else None,
            random.Random(number).randbytes(5000) if number % 3 == 0 else [b"small", b"", None][number % 3],
            start + datetime.timedelta(milliseconds=250 * number),
        )
        for number in range(first, first + count)
    ]


def sums(audit: DataFrame, side: str, kind: str = "SUCCESS") -> dict[Any, tuple[int, int]]:
    """(topic, start of the bucket) -> messages and bytes."""
    chosen = audit.where(f"side = '{side}' AND kind = '{kind}'")
    grouped = chosen.groupBy("topic", "bucketStart").agg({"messages": "sum", "bytes": "sum"})
    return {row[:2]: (row["sum(messages)"], row["sum(bytes)"]) for row in grouped.collect()}


@pytest.fixture
def audit(spark: SparkSession, tmp_path: Path) -> Callable[[], DataFrame]:
    """The counts so far."""
    return lambda: spark.read.format("kafkalog").option("view", "audit").load(str(tmp_path / "audit"))


@pytest.fixture
def auditing(tmp_path: Path) -> dict[str, str]:
    return {"auditLocation": str(tmp_path / "audit"), "auditor.bucket.ms": str(BUCKET_MS)}


def stream(spark: SparkSession, source: Path, sink: Path, checkpoint: Path, **options: str) -> None:
    """From Parquet files, one to a micro-batch, to a topic of a directory."""
    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
        .writeStream.format("kafkalog")
        .options(topic="t", numPartitions="2", checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start(str(sink))
    )
    query.awaitTermination()


def replay_last(checkpoint: Path) -> None:
    """Let the next run do the last micro-batch again."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.long
def test_both_sides_of_streams_agree_and_replays_do_not_double(
    spark: SparkSession,
    tmp_path: Path,
    audit: Callable[[], DataFrame],
    auditing: dict[str, str],
) -> None:
    for part in range(2):
        frame = spark.createDataFrame(messages(20, 20 * part), SCHEMA).coalesce(1)
        frame.write.mode("append").parquet(str(tmp_path / "source"))
    log, writing, reading = tmp_path / "log", tmp_path / "writing", tmp_path / "reading"
    delivered = tmp_path / "delivered"

    def read() -> None:
        query = (
            spark.readStream.format("kafkalog")
            .options(startingOffsets="earliest", **auditing, **{"large.message.enabled": "true"})
            .load(str(log))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(reading))
            .trigger(availableNow=True)
            .start(str(delivered))
        )
        query.awaitTermination()

    lines: list[str] = []
    listener = AuditListener(auditing["auditLocation"], echo=lines.append)
    second = "Thu Jan 01 00:00:01 UTC 2026 - Thu Jan 01 00:00:02 UTC 2026"
    line_start = f"[{second}] : (t,1767225601,SUCCESS), (4 messages, "
    spark.streams.addListener(listener)
    try:
        stream(spark, tmp_path / "source", log, writing, **ON, **auditing)
        read()
        wait_for(lambda: sum(line_start in line for line in lines) == 2)
    finally:
        spark.streams.removeListener(listener)
    assert {line.partition(" ")[0] for line in lines if line_start in line} == {"producer", "consumer"}
    written = sums(audit(), "producer")
    assert sum(count for count, _ in written.values()) == 40
    assert len(written) == 10, "buckets"
    assert written == sums(audit(), "consumer") == sums(audit(), "producer", "ATTEMPT")
    replay_last(writing)
    replay_last(reading)
    stream(spark, tmp_path / "source", log, writing, **ON, **auditing)
    read()
    assert written == sums(audit(), "producer") == sums(audit(), "consumer")
    assert {row.batch for row in audit().where("side = 'producer'").collect()} == {0, 1}


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def without_last_batch(log: Path, copy: Path) -> Path:
    """A copy of a directory that lacks the last record batch of a partition."""
    shutil.copytree(log, copy)
    (segment,) = (copy / "t-0").glob("*.log")
    data = np.fromfile(segment, np.uint8)
    segment.write_bytes(data[: int(walk(data).position[-1])].tobytes())
    return copy


def test_a_lost_record_makes_them_disagree(
    write: Callable[..., str],
    read: Callable[..., DataFrame],
    tmp_path: Path,
    audit: Callable[[], DataFrame],
    auditing: dict[str, str],
) -> None:
    path = write(messages(30), SCHEMA, **{**ON, **auditing, "batch.size": "100"})
    options = {
        name.replace(".", "__"): value
        for name, value in {**auditing, "large.message.enabled": "true"}.items()
    }
    read(path, **options).collect()
    written = sums(audit(), "producer")
    assert written == sums(audit(), "consumer")
    shutil.rmtree(tmp_path / "audit" / "consumer")
    lost = without_last_batch(Path(path), tmp_path / "lost")
    read(str(lost), **options).collect()
    found = sums(audit(), "consumer")
    (place,) = (place for place in written if written[place] != found.get(place))
    assert written[place][0] - found[place][0] == 1


def test_a_split_message_without_a_key_counts_its_generated_key_on_the_consumers_side_only(
    write: Callable[..., str],
    read: Callable[..., DataFrame],
    audit: Callable[[], DataFrame],
    auditing: dict[str, str],
) -> None:
    path = write([(None, bytes(5000))], "key binary, value binary", **ON, **auditing)
    read(path, auditLocation=auditing["auditLocation"], large__message__enabled="true").collect()
    ((_, written),) = sums(audit(), "producer").values()
    ((_, found),) = sums(audit(), "consumer").values()
    assert (written, found) == (5000, 5016)


def test_each_run_of_a_batch_is_a_query_of_its_own_and_columns_that_are_not_read_are_not_counted(
    write: Callable[..., str],
    spark: SparkSession,
    audit: Callable[[], DataFrame],
    auditing: dict[str, str],
) -> None:
    path = write(messages(7), SCHEMA)
    frame = spark.read.format("kafkalog").options(**auditing).schema("key binary").load(path)
    for _ in range(2):
        assert len(frame.collect()) == 7
    rows = audit().collect()
    assert [(row.kind, row.bucketStart, row.messages, row.bytes) for row in rows] == [
        ("SUCCESS", None, 7, 15)
    ] * 2
    assert len({row.query for row in rows}) == 2


def test_a_job_that_fails_has_failures_and_no_success(
    write: Callable[..., str], audit: Callable[[], DataFrame], auditing: dict[str, str]
) -> None:
    with pytest.raises(PySparkException, match="RecordTooLarge"):
        write(
            [(b"k", b"fits", None), (b"k", bytes(2000), None)],
            SCHEMA,
            **{**auditing, "max.message.bytes": 1000},
        )
    assert {row.kind: (row.messages, row.bytes) for row in audit().collect()} == {
        "ATTEMPT": (2, 2006),
        "FAILURE": (2, 2006),
    }


def test_messages_that_are_dropped_are_counted_by_reason(
    write: Callable[..., str],
    read: Callable[..., DataFrame],
    tmp_path: Path,
    audit: Callable[[], DataFrame],
    auditing: dict[str, str],
) -> None:
    path = write([(b"k", bytes(5000))], "key binary, value binary", **{**ON, "batch.size": "100"})
    lost = without_last_batch(Path(path), tmp_path / "lost")
    write([(str(number),) for number in range(20)], root="lost")
    options = {"message__assembler__expiration__offset__gap": 5, "large__message__enabled": "true"}
    read(str(lost), auditLocation=auditing["auditLocation"], **options).collect()
    found = {row.kind: row.messages for row in audit().collect()}
    assert found.pop("SUCCESS") == 20
    (kind,) = found
    assert kind.startswith("DROPPED-")
    assert found[kind] == 1


@pytest.mark.soak
@pytest.mark.parametrize("streaming", [False, True])
def test_both_sides_agree_where_a_step_reassembles(
    spark: SparkSession,
    write: Callable[..., str],
    tmp_path: Path,
    audit: Callable[[], DataFrame],
    auditing: dict[str, str],
    streaming: bool,
) -> None:
    path = write(messages(30), SCHEMA, numPartitions=2, **ON, **auditing)
    source = spark.readStream if streaming else spark.read
    records = source.format("kafkalog").options(startingOffsets="earliest", includeHeaders="true").load(path)
    whole = reassemble(records, auditing)
    if streaming:
        sink = whole.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start().awaitTermination()
    else:
        assert len(whole.collect()) == 30
    assert sums(audit(), "producer") == sums(audit(), "consumer")


class ByHeader(CountingAuditor):
    """Counts by the first byte of a value, which a read without this column has to read for it."""

    columns = ("value",)

    def audit_key(self, record: AuditedRecord) -> str | None:
        return None if record.value is None else f"{record.topic}-{record.value[:1].decode('latin-1')}"


def test_an_auditor_sees_columns_that_the_query_does_not_read(
    write: Callable[..., str], spark: SparkSession, audit: Callable[[], DataFrame], auditing: dict[str, str]
) -> None:
    by_first = {**auditing, "auditor.class": by_value(ByHeader)}
    path = write([("a1",), ("b",), ("a2",), (None,)], "value string", **by_first)
    reader = spark.read.format("kafkalog").options(**by_first).schema("offset bigint")
    assert reader.load(path).columns == ["offset"]
    assert sorted(row.offset for row in reader.load(path).collect()) == [0, 1, 2, 3]
    for side in "producer", "consumer":
        rows = audit().where(f"side = '{side}' AND kind = 'SUCCESS'").collect()
        found = {row.auditKey: (row.messages, row.bytes) for row in rows}
        topic = rows[0].topic
        assert found == {f"{topic}-a": (2, 4), f"{topic}-b": (1, 1), None: (1, 0)}, side


def test_what_is_no_auditor_is_refused_where_the_query_is_planned(
    write: Callable[..., str], spark: SparkSession, tmp_path: Path
) -> None:
    wrong = {"auditor.class": "tests.spark.test_audit:messages"}
    with pytest.raises(PySparkException, match="is not an auditor"):
        write([("a",)], "value string", **wrong)
    with pytest.raises(PySparkException, match="is not an auditor"):
        spark.read.format("kafkalog").options(subscribe="t", **wrong).load(str(tmp_path)).collect()


@pytest.mark.broker
def test_both_sides_agree_on_brokers_and_a_topic_has_the_counts_of_a_folder(
    spark: SparkSession, broker: Broker, audit: Callable[[], DataFrame], auditing: dict[str, str]
) -> None:
    reports = unused_topic()
    broker.create_topic(reports, 2)
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    in_topic = {"auditTopic": reports, "auditor.bucket.ms": str(BUCKET_MS)}
    frame = spark.createDataFrame(messages(50), SCHEMA).repartition(3)
    for counting in auditing, in_topic:
        topic = unused_topic()
        broker.create_topic(topic, 3)
        options = {**servers, **ON, **counting, "topic": topic}
        frame.write.format("kafkalog").options(**options).mode("append").save()
        reader = spark.read.format("kafkalog").options(**servers, **counting, subscribe=topic)
        assert reader.option("large.message.enabled", "true").load().count() == 50
    counts = spark.read.format("kafkalog").options(**servers, view="audit", subscribe=reports).load()

    def by_bucket(found: DataFrame, side: str, kind: str = "SUCCESS") -> dict[Any, tuple[int, int]]:
        return {bucket: sizes for (_, bucket), sizes in sums(found, side, kind).items()}

    for side, kind in ("producer", "ATTEMPT"), ("producer", "SUCCESS"), ("consumer", "SUCCESS"):
        assert by_bucket(counts, side, kind) == by_bucket(audit(), side, kind)
    assert sums(counts, "producer") == sums(counts, "consumer")
    assert sum(count for count, _ in sums(counts, "producer").values()) == 50
    assert counts.schema == audit().schema


@pytest.mark.broker
def test_a_topic_for_counts_that_is_not_there_is_refused_before_any_row(
    spark: SparkSession, broker: Broker
) -> None:
    topic = unused_topic()
    broker.create_topic(topic)
    writer = spark.range(3).selectExpr("CAST(id AS STRING) AS value").write.format("kafkalog")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "auditTopic": "no such topic"}
    with pytest.raises(PySparkException, match="Illegal topic name"):
        writer.options(**options).mode("append").save()
    reader = spark.read.format("kafkalog").option("kafka.bootstrap.servers", broker.bootstrap)
    assert reader.option("subscribe", topic).load().count() == 0


@pytest.mark.long
@pytest.mark.broker
def test_a_replayed_micro_batch_counts_once_in_a_topic(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, reports = unused_topic(), unused_topic()
    broker.create_topic(topic, 2)
    broker.create_topic(reports, 2)
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    spark.createDataFrame(messages(40), SCHEMA).coalesce(1).write.parquet(str(tmp_path / "source"))

    def write(tasks: int) -> None:
        rows = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "source")).repartition(tasks)
        query = rows.writeStream.format("kafkalog").options(topic=topic, auditTopic=reports, **servers)
        query = query.option("delivery.guarantee", "exactly-once").trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()

    write(3)
    replay_last(tmp_path / "c")
    write(2)
    counts = spark.read.format("kafkalog").options(**servers, view="audit", subscribe=reports).load()
    found = {row.kind: row["sum(messages)"] for row in counts.groupBy("kind").sum("messages").collect()}
    assert found == {"ATTEMPT": 40, "SUCCESS": 40}
