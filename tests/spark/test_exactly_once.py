"""Exactly-once writes to brokers through Spark, read by librdkafka and by streams of both connectors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.places import cluster_id
from pyspark_kafkalog.spark.running_query import RunningQuery
from pyspark_kafkalog.spark.writer import stream_writer
from pyspark_kafkalog.stream.checkpoint import QueryLog
from tests.broker.producing import unused_topic
from tests.extensions.exactly_once.writing import is_stable, shown, stored, transaction_state
from tests.kafka import Broker
from tests.log.writing import write
from tests.stream.spark_log import QUERY, begin

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Run = Callable[..., None]


@pytest.fixture
def topic(broker: Broker) -> str:
    name = unused_topic()
    broker.create_topic(name, 3)
    return name


@pytest.fixture
def run(broker: Broker, tmp_path: Path) -> Run:
    """Run a stream with all that there is."""

    def run(rows: DataFrame, topic: str, checkpoint: str = "checkpoint", **options: object) -> None:
        named = {name.replace("__", "."): str(value) for name, value in options.items()}
        query = (
            rows.writeStream.format("kafkalog")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", topic)
            .option("delivery.guarantee", "exactly-once")
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .options(**named)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return run


def numbers(spark: SparkSession) -> DataFrame:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "100").load()
    return rows.selectExpr("CAST(value AS STRING) AS value")


def values(broker: Broker, topic: str) -> list[int]:
    return sorted(int(value) for value in shown(broker.bootstrap, topic))


def test_a_micro_batch_that_spark_runs_again(
    spark: SparkSession, broker: Broker, topic: str, run: Run, tmp_path: Path
) -> None:
    run(numbers(spark), topic)
    run(numbers(spark).repartition(7), topic)
    assert values(broker, topic) == [*range(200)]
    # As if the driver had died before it logged the commit.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    run(numbers(spark).repartition(1), topic)
    assert values(broker, topic) == [*range(300)]
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    assert transaction_state(broker, transactional_id(query_id)) == "CompleteCommit"
    assert is_stable(broker.bootstrap, topic)


def test_a_checkpoint_that_was_set_back(
    spark: SparkSession, broker: Broker, topic: str, run: Run, tmp_path: Path
) -> None:
    run(numbers(spark), topic)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    run(numbers(spark), topic)
    run(numbers(spark), topic)
    with pytest.raises(PySparkException, match="checkpoint was set back"):
        run(numbers(spark), topic, "copy")
    assert values(broker, topic) == [*range(300)]


def test_a_new_checkpoint_is_a_new_query(spark: SparkSession, broker: Broker, topic: str, run: Run) -> None:
    run(numbers(spark), topic, "one")
    run(numbers(spark), topic, "two")
    assert values(broker, topic) == sorted([*range(100)] * 2)


@pytest.mark.long
def test_consume_transform_produce(
    spark: SparkSession, broker: Broker, topic: str, run: Run, tmp_path: Path
) -> None:
    """The source's offsets are the group's in the moment in which the rows are visible."""
    out, group = unused_topic(), f"group-{topic}"
    broker.create_topic(out, 3)
    run(numbers(spark), topic, "in")

    def copy() -> DataFrame:
        return (
            spark.readStream.format("kafkalog")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("kafka.isolation.level", "read_committed")
            .option("maxOffsetsPerTrigger", 60)
            .option("checkpointLocation", str(tmp_path / "out"))
            .load()
            .selectExpr("value")
        )

    options = {"kafka.group.id": group, "commitSourceOffsets": "transaction"}
    run(copy(), out, "out", **options)
    run(numbers(spark), topic, "in")
    run(copy(), out, "out", **options)
    assert values(broker, out) == [*range(200)]
    view = spark.read.format("kafkalog").option("view", "group-offsets").option("kafka.group.id", group)
    offsets = view.option("kafka.bootstrap.servers", broker.bootstrap).load().collect()
    assert len(offsets) == 3
    assert sum(row.lag for row in offsets) <= 3, "only the last marker of each partition is left"


@pytest.mark.long
@pytest.mark.parametrize(
    ("gives_checkpoint", "match"),
    [(True, "The source is a log directory"), (False, "Nothing tells which cluster the source reads")],
)
def test_offsets_of_another_place_are_not_committed(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    run: Run,
    tmp_path: Path,
    gives_checkpoint: bool,
    match: str,
) -> None:
    """In the sink's cluster the topic of the same name has other records."""
    group = f"group-{topic}"
    write(tmp_path / "log", {TopicPartition(topic, 0): [b"1"] * 50}, num_partitions=1)
    reader = spark.readStream.format("kafkalog").option("startingOffsets", "earliest")
    if gives_checkpoint:
        reader = reader.option("checkpointLocation", str(tmp_path / "checkpoint"))
    rows = reader.load(str(tmp_path / "log")).selectExpr("value")
    with pytest.raises(PySparkException, match=match):
        run(rows, topic, **{"kafka.group.id": group, "commitSourceOffsets": "transaction"})
    assert values(broker, topic) == []
    view = spark.read.format("kafkalog").option("view", "group-offsets").option("kafka.group.id", group)
    with pytest.raises(PySparkException, match="No such consumer group"):
        view.option("kafka.bootstrap.servers", broker.bootstrap).load().count()


def test_the_sink_compares_clusters(broker: Broker, tmp_path: Path) -> None:
    log = QueryLog(str(begin(tmp_path / "checkpoint")))
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "topic": "t",
        "delivery.guarantee": "exactly-once",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    writer = stream_writer(options, StructType([StructField("value", BinaryType())]))
    assert writer._options.brokers is not None
    own, run = cluster_id(writer._options.brokers), RunningQuery(QUERY, 0, None, run_id="a")
    assert own is not None
    log.store_cluster("a", own)
    writer._check_source(options["checkpointLocation"], run)
    log.store_cluster("a", "another")
    with pytest.raises(
        KafkaLogError, match=rf"reads cluster another, .* that of the sink, {own} .*Let the reader commit"
    ):
        writer._check_source(options["checkpointLocation"], run)


@pytest.mark.long
@pytest.mark.parametrize("is_planned", [False, True])
def test_a_source_that_moves_and_loses_its_checkpoint_is_not_believed(
    spark: SparkSession, broker: Broker, topic: str, run: Run, tmp_path: Path, is_planned: bool
) -> None:
    """What an earlier run has noted says nothing of this one, even of the micro-batch that it had planned."""
    out, group, checkpoint = unused_topic(), f"group-{topic}", tmp_path / "checkpoint"
    broker.create_topic(out, 3)
    options = {"kafka.group.id": group, "commitSourceOffsets": "transaction"}
    reader = spark.readStream.format("kafkalog").option("subscribe", topic)
    here = reader.option("kafka.bootstrap.servers", broker.bootstrap).option("startingOffsets", "earliest")
    here = here.option("checkpointLocation", str(checkpoint))
    run(numbers(spark), topic, "in")
    run(here.load().selectExpr("value"), out, **options)
    assert values(broker, out) == [*range(100)]
    if is_planned:
        (checkpoint / "commits" / "0").unlink()
        (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    elsewhere = {TopicPartition(topic, number): [b"1000"] * 200 for number in range(3)}
    write(tmp_path / "log", elsewhere, num_partitions=3)
    there = (
        spark.readStream.format("kafkalog").option("subscribe", topic).option("startingOffsets", "earliest")
    )
    with pytest.raises(PySparkException, match=r"Nothing tells which cluster the source reads in this run"):
        run(there.load(str(tmp_path / "log")).selectExpr("value"), out, **options)
    assert values(broker, out) == [*range(100)]


@pytest.mark.long
def test_micro_batches_without_rows_of_the_source(
    spark: SparkSession, broker: Broker, topic: str, run: Run, tmp_path: Path
) -> None:
    """The first of a query that starts at the end has none, nor has one that only a watermark has made."""
    out, checkpoint = unused_topic(), tmp_path / "checkpoint"
    broker.create_topic(out, 1)
    options = {"kafka.group.id": f"group-{topic}", "commitSourceOffsets": "transaction"}
    reader = spark.readStream.format("kafkalog").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap).option("startingOffsets", "latest")
    counts = (
        reader.option("checkpointLocation", str(checkpoint))
        .load()
        .withWatermark("timestamp", "0 seconds")
        .groupBy(window("timestamp", "1 millisecond"))
        .count()
        .selectExpr("CAST(count AS STRING) AS value")
    )
    run(counts, out, **options)
    run(numbers(spark), topic, "in")
    run(counts, out, **options)
    newest = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())
    ends = [QueryLog(str(checkpoint)).ends_of(batch) for batch in range(newest + 1)]
    assert ends[-1] == ends[-2], "a micro-batch without rows is the last one"
    (checkpoint / "commits" / str(newest)).unlink()
    (checkpoint / "commits" / f".{newest}.crc").unlink(missing_ok=True)
    run(counts, out, **options)
    view = spark.read.format("kafkalog").option("view", "group-offsets")
    view = view.option("kafka.group.id", options["kafka.group.id"])
    offsets = view.option("kafka.bootstrap.servers", broker.bootstrap).load().collect()
    assert {(row.partition, row.offset) for row in offsets} == {
        (p.partition, at) for p, at in ends[-1].items()
    }


@pytest.mark.long
def test_a_read_committed_stream_does_not_stall_or_count_markers_as_loss(
    spark: SparkSession, broker: Broker, topic: str, run: Run, tmp_path: Path, soak: bool
) -> None:
    for _ in range(3):
        run(numbers(spark), topic)
    assert stored(broker.bootstrap, topic) > 300
    for kind in ("kafkalog", "kafka") if soak else ("kafkalog",):
        reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", broker.bootstrap)
        frame = (
            reader.option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("kafka.isolation.level", "read_committed")
            .option("maxOffsetsPerTrigger", 50)
            .load()
        )
        query = (
            frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS value")
            .writeStream.format("memory")
            .queryName(f"seen_{kind}")
            .option("checkpointLocation", str(tmp_path / kind))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert sorted(row.value for row in spark.table(f"seen_{kind}").collect()) == [*range(300)]


@pytest.mark.soak
def test_audit_counts_a_replayed_batch_once(
    spark: SparkSession, broker: Broker, topic: str, run: Run, tmp_path: Path
) -> None:
    location = str(tmp_path / "audit")
    run(numbers(spark), topic, auditLocation=location)
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    run(numbers(spark).repartition(3), topic, auditLocation=location)
    counts = spark.read.format("kafkalog").option("view", "audit").load(location).where("kind = 'SUCCESS'")
    assert sum(row.messages for row in counts.collect()) == len(values(broker, topic)) == 200


class TestBatchJobs:
    def test_a_named_batch_is_written_once(
        self, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
    ) -> None:
        def write(version: int, count: int) -> None:
            rows = spark.range(count).selectExpr("CAST(id AS STRING) AS value")
            writer = rows.write.format("kafkalog").option("kafka.bootstrap.servers", broker.bootstrap)
            writer.options(
                **{
                    "topic": topic,
                    "delivery.guarantee": "exactly-once",
                    "txnAppId": f"nightly {topic}",
                    "txnVersion": str(version),
                    "stagingLocation": str(tmp_path / "staging"),
                }
            ).mode("append").save()

        write(1, 10)
        write(1, 10)
        write(2, 5)
        assert len(values(broker, topic)) == 15

    def test_a_job_that_fails_shows_nothing(self, spark: SparkSession, broker: Broker, topic: str) -> None:
        rows = spark.range(0, 1000, 1, 4).selectExpr(
            "IF(id = 999, raise_error('no'), CAST(id AS STRING)) AS value"
        )
        writer = rows.write.format("kafkalog").option("kafka.bootstrap.servers", broker.bootstrap)
        writer = writer.option("topic", topic).option("delivery.guarantee", "exactly-once").mode("append")
        with pytest.raises(PySparkException, match="no"):
            writer.save()
        assert stored(broker.bootstrap, topic) == 0
        spark.range(10).selectExpr("CAST(id AS STRING) AS value").write.format("kafkalog").options(
            **{
                "kafka.bootstrap.servers": broker.bootstrap,
                "topic": topic,
                "delivery.guarantee": "exactly-once",
            }
        ).mode("append").save()
        assert values(broker, topic) == [*range(10)]

    def test_a_directory_knows_the_same_names(self, spark: SparkSession, tmp_path: Path) -> None:
        for _ in range(2):
            spark.range(10).selectExpr("CAST(id AS STRING) AS value").write.format("kafkalog").options(
                topic="t", txnAppId="app", txnVersion="4", **{"delivery.guarantee": "exactly-once"}
            ).mode("append").save(str(tmp_path))
        assert spark.read.format("kafkalog").load(str(tmp_path)).count() == 10


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"txnAppId": "a", "txnVersion": "1"}, "'txnAppId' is not valid in streaming queries"),
        ({"kafka.acks": "1"}, "exactly-once needs kafka.acks=all"),
        ({"commitSourceOffsets": "transaction"}, "'commitSourceOffsets' needs 'kafka.group.id'"),
    ],
)
def test_options_that_are_refused(
    spark: SparkSession, topic: str, run: Run, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(PySparkException, match=match):
        run(numbers(spark), topic, **options)


def test_a_stream_must_say_where_its_checkpoint_is(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    writer = numbers(spark).writeStream.format("kafkalog").option("delivery.guarantee", "exactly-once")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        with pytest.raises(PySparkException, match="needs 'checkpointLocation' or 'stagingLocation'"):
            writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


def test_offsets_of_a_batch_are_not_committed(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    writer = spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("kafkalog").mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic)
    with pytest.raises(PySparkException, match="'commitSourceOffsets' is for streaming queries only"):
        writer.options(
            **{
                "delivery.guarantee": "exactly-once",
                "commitSourceOffsets": "transaction",
                "kafka.group.id": "g",
                "checkpointLocation": str(tmp_path),
            }
        ).save()
