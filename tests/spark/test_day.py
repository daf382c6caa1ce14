"""A working day of somebody who knows ``format("kafka")``: 26 steps, each typed as that user types it.

The steps follow one another, as a day does: each goes on with topics, groups and checkpoints of those before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, window
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_kafkalog
from tests.broker.producing import unused_topic
from tests.kafka import Broker
from tests.kafka_process import run_kafka_class
from tests.tools.cli.running import lines, run

pytestmark = [pytest.mark.broker, pytest.mark.soak]

READING = "sensor STRING, at TIMESTAMP, celsius DOUBLE"
SENSORS = 3
FIRST, MORE = 600, 300
"""Records of the morning, and later ones."""
JOB = """
import sys, time
from pyspark.sql import SparkSession
import pyspark_kafkalog

brokers, topic, out, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
pyspark_kafkalog.register(spark)
stream = (
    spark.readStream.format("kafkalog")
    .option("kafka.bootstrap.servers", brokers)
    .options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="150")
    .load()
)
query = stream.selectExpr("partition", "offset").writeStream.format("parquet").option("path", out)
query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
"""
"""A job by the clock, which a later step kills."""


@dataclass
class Day:
    spark: SparkSession
    broker: Broker
    folder: Path
    topic: str

    @property
    def at(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap}

    def read(self, topic: str | None = None, **options: str) -> DataFrame:
        reader = self.spark.read.format("kafkalog").options(**self.at)
        return reader.options(subscribe=topic or self.topic, **options).load()

    def stream(self, topic: str | None = None, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("kafkalog").options(**self.at)
        return reader.options(
            **{"subscribe": topic or self.topic, "startingOffsets": "earliest", **options}
        ).load()

    def checkpoint(self, name: str) -> str:
        return str(self.folder / f"checkpoint-{name}")

    def end(self, query: StreamingQuery) -> None:
        assert query.awaitTermination(180), query.name

    def create(self, *options: str) -> str:
        topic = unused_topic()
        lines("topics", "create", self.broker.bootstrap, topic, *options)
        return topic

    def produce(self, numbers: range) -> None:
        text = "\n".join(
            json.dumps(
                {
                    "key": f"s{number % SENSORS}",
                    "value": json.dumps(
                        {
                            "sensor": f"s{number % SENSORS}",
                            "at": f"2026-03-01T10:{number // 60 % 60:02}:{number % 60:02}Z",
                            "celsius": 20 + number % 5,
                        }
                    ),
                }
            )
            for number in numbers
        )
        assert run("produce", self.broker.bootstrap, self.topic, "--json", text=text).code == 0


@pytest.fixture(scope="module")
def day(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    pyspark_kafkalog.register(spark)
    yield Day(spark, broker, tmp_path_factory.mktemp("day"), unused_topic())
    for query in spark.streams.active:
        query.stop()


def averages(day: Day) -> StreamingQuery:
    """JSON to windows to a topic, with a group that shows the lag."""
    readings = day.stream(
        **{"kafka.group.id": f"{day.topic}-etl", "checkpointLocation": day.checkpoint("etl")}
    )
    parsed = readings.select(from_json(col("value").cast("string"), READING).alias("r")).select("r.*")
    means = parsed.withWatermark("at", "1 minute").groupBy(window("at", "1 minute"), "sensor").avg("celsius")
    rows = means.selectExpr(
        "sensor AS key", "to_json(named_struct('at', window.start, 'mean', `avg(celsius)`)) AS value"
    )
    return (
        rows.writeStream.queryName("averages")
        .format("kafkalog")
        .outputMode("append")
        .options(**day.at, topic=f"{day.topic}-means", checkpointLocation=day.checkpoint("etl"))
        .trigger(availableNow=True)
        .start()
    )


def test_01_a_topic_and_records_by_the_command_line(day: Day) -> None:
    lines("topics", "create", day.broker.bootstrap, day.topic, "--partitions", "3")
    lines("topics", "create", day.broker.bootstrap, f"{day.topic}-means")
    day.produce(range(FIRST))
    assert day.read().count() == FIRST


def test_02_json_to_windows_to_a_topic(day: Day) -> None:
    day.end(averages(day))
    # The watermark is at 10:08:59; so windows up to 10:08 are complete, of ten.
    assert day.read(f"{day.topic}-means").count() == 8 * SENSORS


def test_03_a_restart_goes_on(day: Day) -> None:
    day.produce(range(FIRST, FIRST + MORE))
    day.end(averages(day))
    means = day.read(f"{day.topic}-means").selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    assert means.count() == means.distinct().count() == 13 * SENSORS


def test_04_kafkas_own_tool_shows_the_group(day: Day) -> None:
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    group = f"{day.topic}-etl"
    shown = run_kafka_class(
        tool, "--bootstrap-server", day.broker.bootstrap, "--describe", "--group", group
    ).stdout
    lags = [line.split()[5] for line in shown.splitlines() if line.startswith(group)]
    assert lags == ["0"] * 3


def test_05_the_lag_by_the_command_line(day: Day) -> None:
    day.produce(range(FIRST + MORE, FIRST + MORE + 100))
    found = run("lag", day.broker.bootstrap, "--group", f"{day.topic}-etl", "--max-lag", "99")
    assert found.code == 1
    assert "100" in found.out


def test_06_a_stream_joined_with_a_table(day: Day) -> None:
    places = day.spark.createDataFrame([("s0", "roof"), ("s1", "cellar")], "sensor STRING, place STRING")
    readings = day.stream().select(from_json(col("value").cast("string"), READING).alias("r")).select("r.*")
    query = readings.join(places, "sensor").writeStream.queryName("places").format("parquet")
    query = query.option("checkpointLocation", day.checkpoint("places")).trigger(availableNow=True)
    day.end(query.start(str(day.folder / "places")))
    assert day.spark.read.parquet(str(day.folder / "places")).count() == pytest.approx(1000 * 2 / 3, abs=1)


def test_07_a_view_in_sql(day: Day) -> None:
    day.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW readings USING kafkalog OPTIONS (`kafka.bootstrap.servers`"
        f" '{day.broker.bootstrap}', subscribe '{day.topic}')"
    )
    found = day.spark.sql(
        "SELECT CAST(key AS STRING) AS k, count(*) AS n FROM readings GROUP BY 1 ORDER BY 1"
    )
    assert [row.k for row in found.collect()] == ["s0", "s1", "s2"]


def test_08_to_pandas(day: Day) -> None:
    frame = day.read().select("partition", "offset", "timestamp").toPandas()
    assert len(frame) == 1000
    assert frame.timestamp.dtype.kind == "M"


def test_09_offsets_as_json(day: Day) -> None:
    start = json.dumps({day.topic: {"0": 1, "1": -2, "2": -2}})
    found = day.read(startingOffsets=start).groupBy("partition").count().collect()
    whole = {row["partition"]: row["count"] for row in day.read().groupBy("partition").count().collect()}
    assert {row["partition"]: row["count"] for row in found} == {**whole, 0: whole[0] - 1}


def test_10_headers(day: Day) -> None:
    topic = day.create()
    rows = day.spark.sql(
        "SELECT 'v' AS value, array(struct('trace' AS key, CAST('a1' AS BINARY) AS value)) AS headers"
    )
    rows.write.format("kafkalog").options(**day.at, topic=topic, includeHeaders="true").mode("append").save()
    (row,) = day.read(topic, includeHeaders="true").collect()
    assert row.headers[0].asDict() == {"key": "trace", "value": bytearray(b"a1")}


def test_11_a_function_for_each_micro_batch(day: Day) -> None:
    counts: list[dict[str, int]] = []
    grouped = day.stream().groupBy(col("key").cast("string").alias("k")).count()
    query = (
        grouped.writeStream.queryName("counts")
        .outputMode("complete")
        .foreachBatch(lambda batch, _: counts.append({row.k: row["count"] for row in batch.collect()}))
    )
    day.end(query.option("checkpointLocation", day.checkpoint("counts")).trigger(availableNow=True).start())
    assert sum(counts[-1].values()) == 1000


def test_12_a_table(day: Day) -> None:
    query = day.stream().selectExpr("CAST(value AS STRING) AS json").writeStream.queryName("raw")
    query = query.option("checkpointLocation", day.checkpoint("raw")).trigger(availableNow=True)
    day.end(query.toTable("raw_readings"))
    assert day.spark.table("raw_readings").count() == 1000
    day.spark.sql("DROP TABLE raw_readings")


def test_13_a_copy_into_a_directory(day: Day) -> None:
    rows = day.read(includeHeaders="true").select(
        "key", "value", "headers", "topic", "partition", "timestamp"
    )
    path = str(day.folder / "copy")
    rows.write.format("kafkalog").options(includeHeaders="true", numPartitions="3").mode("append").save(path)
    copied = day.spark.read.format("kafkalog").load(path).select("partition", "offset", "timestamp", "value")
    assert copied.exceptAll(day.read().select("partition", "offset", "timestamp", "value")).count() == 0
    assert copied.count() == 1000


def test_14_json_that_is_malformed_goes_to_another_topic(day: Day) -> None:
    topic = day.create()
    lines("topics", "create", day.broker.bootstrap, f"{topic}-dead")
    rows = day.spark.createDataFrame([('{"sensor":"s9","celsius":1}',), ("{no json",)], "value STRING")
    rows.write.format("kafkalog").options(**day.at, topic=topic).mode("append").save()
    options = {"value.format": "json", "value.schema": READING, "includeCorrupt": "true"}
    letters = pyspark_kafkalog.dead_letters(day.read(topic, **options), f"{topic}-dead")
    letters.write.format("kafkalog").options(**day.at, includeHeaders="true").mode("append").save()
    (letter,) = day.read(f"{topic}-dead").collect()
    assert bytes(letter.value) == b"{no json"


def test_15_a_group_is_reset(day: Day) -> None:
    group, at = f"{day.topic}-etl", day.broker.bootstrap
    reset = ("offsets", "reset", at, "--group", group, day.topic, "--to-earliest")
    assert run(*reset).code == 0
    unread = {"kafka.group.id": group, "startingOffsets": "committed"}
    assert day.read(**unread).count() == 100, "that was a dry run"
    assert run(*reset, "--execute").code == 0
    assert day.read(**unread).count() == 1000


def test_16_topics_by_a_pattern(day: Day) -> None:
    reader = day.spark.read.format("kafkalog").options(**day.at).option("subscribePattern", f"{day.topic}.*")
    assert {row.topic for row in reader.load().select("topic").distinct().collect()} == {
        day.topic,
        f"{day.topic}-means",
    }


def test_17_duplicates_are_dropped(day: Day) -> None:
    unique = day.stream().withWatermark("timestamp", "1 hour").dropDuplicatesWithinWatermark(["value"])
    query = unique.selectExpr("CAST(value AS STRING)").writeStream.queryName("unique").format("memory")
    day.end(query.option("checkpointLocation", day.checkpoint("unique")).trigger(availableNow=True).start())
    found = day.spark.table("unique")
    assert found.count() == found.distinct().count()


def test_18_a_listener_shows_the_lag(day: Day) -> None:
    said: list[str] = []
    listener = pyspark_kafkalog.LagListener({**day.at, "subscribe": day.topic}, echo=said.append)
    day.spark.streams.addListener(listener)
    writer = day.stream(maxOffsetsPerTrigger="300").writeStream.queryName("slow").format("noop")
    writer = writer.option("checkpointLocation", day.checkpoint("slow")).trigger(processingTime="1 second")
    query = writer.start()
    try:
        day.broker.wait_until(lambda: any(" 0 offsets behind" in line for line in said), f"only {said}", 60)
    finally:
        query.stop()
        day.spark.streams.removeListener(listener)
    assert said[0].startswith("slow batch 0: 300 rows")


def test_19_the_plan(day: Day, capsys: pytest.CaptureFixture[str]) -> None:
    day.read().where("partition = 1").explain()
    assert "kafkalog" in capsys.readouterr().out.lower()


def test_20_topics_as_rows(day: Day) -> None:
    topics = day.spark.read.format("kafkalog").options(**day.at, view="topics").load()
    assert topics.where(col("topic") == day.topic).count() == 3, "one row a partition"


def test_21_a_driver_is_killed(day: Day) -> None:
    out, checkpoint = str(day.folder / "job"), day.checkpoint("job")
    command = [sys.executable, "-c", JOB, day.broker.bootstrap, day.topic, out, checkpoint]
    commits = Path(checkpoint) / "commits"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as job:
        while not (commits.is_dir() and any(file.name.isdigit() for file in commits.iterdir())):
            assert job.poll() is None
            time.sleep(0.01)
        os.killpg(job.pid, signal.SIGKILL)
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    found = day.spark.read.parquet(out)
    assert found.count() == found.distinct().count() == 1000


def test_22_a_query_is_stopped_within_a_micro_batch(day: Day) -> None:
    began: list[float] = []

    def slow(batch: DataFrame, _: int) -> None:
        began.append(batch.count())
        time.sleep(60)

    query: Any = day.stream().writeStream.queryName("stopped").foreachBatch(slow)
    query = query.option("checkpointLocation", day.checkpoint("stopped")).start()
    day.broker.wait_until(lambda: bool(began), "No micro-batch began", 60)
    query.stop()
    assert not query.isActive
    assert query.exception() is None


def test_23_the_checkpoint_of_another_query_is_refused(day: Day) -> None:
    stream = day.stream(f"{day.topic}-means", checkpointLocation=day.checkpoint("etl"))
    query = stream.writeStream.queryName("wrong").format("noop")
    with pytest.raises(Exception, match="Give the reader the checkpointLocation that its query has"):
        query.option("checkpointLocation", day.checkpoint("wrong")).trigger(
            availableNow=True
        ).start().awaitTermination(120)


def test_24_a_value_of_five_megabytes(day: Day) -> None:
    scan = day.spark.createDataFrame([("x" * 5_000_000,)], "value STRING")
    writer = scan.write.format("kafkalog").options(**day.at, topic=day.topic).mode("append")
    with pytest.raises(Exception, match=r"large\.message\.enabled"):
        writer.save()


def test_25_a_time_while_a_partition_is_idle(day: Day) -> None:
    topic = day.create("--partitions", "2")
    assert run("produce", day.broker.bootstrap, topic, "--partition", "1", text="v").code == 0
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy"):
        day.read(topic, startingTimestamp="-1h").count()
    options = {"startingTimestamp": "-1h", "startingOffsetsByTimestampStrategy": "latest"}
    assert day.read(topic, **options).count() == 1


def test_26_records_without_spark(day: Day) -> None:
    with pyspark_kafkalog.connect({**day.at, "subscribe": day.topic}) as place:
        assert place.read().read_all().num_rows == 1000
