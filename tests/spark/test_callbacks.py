"""Callbacks and metrics of ``df.write`` and ``df.writeStream``: heard in workers, summed on the driver."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_kafkalog import BatchEvent, WriteCallback, by_value
from tests.broker.producing import stored, unused_topic, values_of
from tests.extensions.callbacks.hearing import noting, stories
from tests.kafka import Broker

MODULE = "tests.extensions.callbacks.hearing"


def stored_metrics(spark: SparkSession, folder: Path) -> list[Any]:
    frame = spark.read.format("kafkalog").option("view", "metrics").load(str(folder))
    return frame.orderBy("batch", "task").collect()


@pytest.mark.broker
def test_a_batch_to_brokers(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, metrics = unused_topic(), tmp_path / "metrics"
    broker.create_topic(topic, 2)
    frame = spark.range(900).selectExpr("CAST(id AS STRING) AS key", "repeat('x', 50) AS value")
    writer = frame.repartition(3).write.format("kafkalog").mode("append").option("topic", topic)
    writer.option("kafka.bootstrap.servers", broker.bootstrap).option("kafka.batch.size", "2000")
    writer.option("callback.class", noting(tmp_path / "heard")).option("metricsLocation", str(metrics))
    writer.save()
    *tasks, commit = stories(tmp_path / "heard")
    assert [task.share["task"] for task in tasks] == [0, 1, 2]
    assert len({(task.share["query"], task.share["batch"]) for task in (*tasks, commit)}) == 1
    (total,) = commit.of("on_commit")
    closed = [task.of("close")[0] for task in tasks]
    for name in "records", "batches", "bytes", "uncompressed_bytes", "requests", "acknowledgements":
        assert total[name] == sum(each[name] for each in closed) > 0
    logs = [stored(broker.partition_folder(topic, partition)) for partition in range(2)]
    assert total["records"] == sum(int(log.count.sum()) for log in logs) == 900
    assert total["batches"] == sum(len(log) for log in logs)
    assert total["bytes"] == sum(int(log.size.sum()) for log in logs)
    found = stored_metrics(spark, metrics)
    assert [(row.task, row.attempt, row.batch) for row in found] == [(0, 0, None), (1, 0, None), (2, 0, None)]
    assert sum(row.records for row in found) == 900
    assert all(row.latencyMaxMs >= row.latencyAvgMs > 0 for row in found)
    assert {row.compressionRatio for row in found} == {1.0}


def test_a_stream_to_a_directory(spark: SparkSession, tmp_path: Path, write: Any) -> None:
    """Each micro-batch is told with its query and number; one that runs again replaces its metrics."""
    source = write([(str(number),) for number in range(7)])
    metrics, log = tmp_path / "metrics", tmp_path / "copy"
    for rows in 7, 3:
        if rows == 3:
            write([(str(number),) for number in range(3)])
        reader = spark.readStream.format("kafkalog").options(subscribe="t", startingOffsets="earliest")
        query = (
            reader.load(source)
            .select("value")
            .writeStream.format("kafkalog")
            .options(topic="t", path=str(log), checkpointLocation=str(tmp_path / "checkpoint"))
            .option("callback.class", noting(tmp_path / "heard"))
            .option("metricsLocation", str(metrics))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    commits = [story for story in stories(tmp_path / "heard") if story.share["task"] is None]
    heard = [
        (commit.share["query"], commit.share["batch"], commit.of("on_commit")[0]["records"])
        for commit in commits
    ]
    assert heard == [(query.id, 0, 7), (query.id, 1, 3)]
    starts = [at["base_offset"] for commit in commits for at in commit.of("on_acknowledgement")]
    assert starts == [0, 7]
    found = stored_metrics(spark, metrics)
    sums = {batch: sum(row.records for row in found if row.batch == batch) for batch in (0, 1)}
    assert sums == {0: 7, 1: 3}
    assert {row.query for row in found} == {query.id}


@pytest.mark.broker
def test_a_failing_callback_runs_no_task_again(
    spark: SparkSession, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = unused_topic()
    broker.create_topic(topic)

    class Failing(WriteCallback):
        def on_acknowledgement(self, batch: BatchEvent) -> None:
            raise ValueError("not this batch")

        def on_commit(self, metrics: Any) -> None:
            raise ValueError("not this commit")

    rows = spark.range(100).repartition(2).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("kafkalog").mode("append").option("topic", topic)
    writer.option("kafka.bootstrap.servers", broker.bootstrap)
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        writer.option("callback.class", by_value(Failing)).save()
    assert sorted(values_of(broker.bootstrap, topic)) == sorted(b"%d" % number for number in range(100))


@pytest.mark.parametrize("name", ["Misspelt", "Nothing"])
def test_what_can_not_be_called_is_refused_before_any_task(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    writer = spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("kafkalog")
    writer.options(topic="t").option("callback.class", f"{MODULE}:{name}").mode("append")
    with pytest.raises(PySparkException, match=f"The callback '{MODULE}:{name}'"):
        writer.save(str(tmp_path / "log"))
    assert not (tmp_path / "log").exists()


def test_no_metrics_are_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    assert stored_metrics(spark, tmp_path) == []
