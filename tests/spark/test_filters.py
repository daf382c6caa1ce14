"""Filters on topic, partition, offset and timestamp: what is read where PySpark pushes them down."""

import datetime
import importlib.util
import json
import sys

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pyspark_kafkalog.spark.features import HAS_FILTERS
from pyspark_kafkalog.spark.reader import FilteringLogBatchReader
from pyspark_kafkalog.spark.source import KafkaLogDataSource
from tests.spark.conftest import in_order, needs_filter_pushdown, numbered

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


@pytest.fixture
def push_down(spark):
    spark.conf.set(PUSH_DOWN, "true")
    yield
    spark.conf.unset(PUSH_DOWN)


def append(spark, path, topic, rows, schema):
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    options = {"topic": topic, "numPartitions": 2 if topic == "t" else 1}
    frame.write.format("kafkalog").mode("append").options(**options).save(path)


@pytest.fixture(scope="module")
def path(spark, tmp_path_factory):
    """Topic t, partitions 0 and 1 of 20 records each, a second between two; topic u with five older ones."""
    path = str(tmp_path_factory.mktemp("filters") / "log")
    rows = [(str(n), p, START + datetime.timedelta(seconds=n)) for p in (0, 1) for n in range(20)]
    append(spark, path, "t", rows, "value string, partition int, timestamp timestamp")
    old = [(str(n), START - datetime.timedelta(days=1)) for n in range(5)]
    append(spark, path, "u", old, "value string, timestamp timestamp")
    return path


def places(frame):
    return [(row.topic, row.partition, row.offset) for row in in_order(frame)]


def rows_scanned(frame):
    """How many rows came out of the source, before Spark filtered them, when ``frame`` was collected."""
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return scan.metrics().get("numOutputRows").get().value()


@pytest.mark.long
@pytest.mark.parametrize(
    ("condition", "scanned"),
    [
        ("topic = 't'", 40),
        ("topic <=> 'u'", 5),
        ("topic IN ('u', 'v')", 5),
        ("topic > 't'", 5),
        ("partition = 1", 20),
        ("partition IN (1, 7)", 20),
        ("partition >= 2", 0),
        ("offset >= 18", 4),
        ("offset < 3", 9),
        ("offset = 7", 2),
        ("offset BETWEEN 4 AND 5", 5),
        ("offset IN (3, 1)", 9),
        ("offset > 10 AND partition = 0 AND topic = 't'", 9),
        ("timestamp >= TIMESTAMP '2026-01-01 00:00:15'", 10),
        ("timestamp > TIMESTAMP '2026-01-01 00:00:15.5'", 8),
        ("timestamp = TIMESTAMP '2026-01-01 00:00:15'", 10),
        ("timestamp >= TIMESTAMP '2026-01-01 00:00:15' AND offset < 17 AND partition = 1", 2),
        # These prune nothing.
        ("timestamp < TIMESTAMP '2026-01-01 00:00:02'", 45),
        ("topic LIKE 't%'", 45),
        ("offset != 3", 45),
        ("NOT offset < 3", 36),
        ("offset = 3 OR offset = 4", 45),
        ("value = '3'", 45),
    ],
)
def test_filters_keep_the_same_rows_and_read_less(spark, read, path, push_down, condition, scanned):
    pushed = read(path).filter(condition)
    rows = places(pushed)
    assert rows_scanned(pushed) == (scanned if HAS_FILTERS else 45)
    spark.conf.unset(PUSH_DOWN)
    assert places(read(path).filter(condition)) == rows


@needs_filter_pushdown
def test_partitions_that_are_ruled_out_have_no_task(read, path, push_down):
    assert read(path, minPartitions=1).rdd.getNumPartitions() == 3
    assert read(path, minPartitions=1).filter("topic = 't' AND partition = 0").rdd.getNumPartitions() == 1
    assert read(path, minPartitions=4).filter("topic = 't' AND partition = 0").rdd.getNumPartitions() == 4


@pytest.mark.long
def test_the_same_dataframe_sees_what_has_come_since(read, write, push_down):
    path = write(numbered(5))
    conditions = ("offset >= 3", "timestamp >= TIMESTAMP '2026-01-01'", "timestamp >= TIMESTAMP '2999-01-01'")
    frames = [read(path).filter(condition) for condition in conditions]
    assert [frame.count() for frame in frames] == [2, 5, 0]
    write([("a",), ("b",), ("c",)])
    write([("late", START + datetime.timedelta(days=400_000))], "value string, timestamp timestamp")
    assert [frame.count() for frame in frames] == [6, 9, 1]


def test_lost_records_are_reported_whatever_the_filters_want(read, write, push_down):
    path = write(numbered(5))
    beyond = {"subscribe": "t", "endingOffsets": json.dumps({"t": {"0": 9}})}
    for condition in ("offset = 1", "partition = 3"):
        with pytest.raises(PySparkException, match="COULD_NOT_READ_OFFSET_RANGE"):
            read(path, **beyond).filter(condition).collect()
        lax = read(path, failOnDataLoss="false", **beyond).filter(condition)
        assert len(places(lax)) == (condition == "offset = 1")


@needs_filter_pushdown
def test_a_schema_of_some_columns_is_filtered_too(spark, path, push_down):
    frame = (
        spark.read.format("kafkalog").schema("offset bigint, value binary").load(path).filter("offset = 2")
    )
    assert [bytes(row.value) for row in frame.collect()] == [b"2"] * 3
    assert rows_scanned(frame) == 3


def test_streams_do_not_mind(spark, path, push_down, tmp_path):
    frame = spark.readStream.format("kafkalog").option("startingOffsets", "earliest").load(path)
    counts = []
    query = (
        frame.filter("offset = 2")
        .writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert counts == [3]


@needs_filter_pushdown
def test_workers_without_a_daemon_know_too(monkeypatch, path):
    """Where PySpark has no daemon, its worker for this is the main module of its process."""
    options, schema = {"path": path}, StructType.fromDDL("offset bigint")
    assert not isinstance(KafkaLogDataSource(options).reader(schema), FilteringLogBatchReader)
    worker = importlib.util.find_spec("pyspark.sql.worker.data_source_pushdown_filters")
    assert worker is not None, "PySpark has given it another name"
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", worker)
    assert isinstance(KafkaLogDataSource(options).reader(schema), FilteringLogBatchReader)
