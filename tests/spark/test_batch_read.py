"""spark.read.format("kafkalog"): the options of Spark's own Kafka source, on a directory."""

import datetime
import json
import shutil
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pyspark_kafkalog import DefaultSource, saying
from pyspark_kafkalog.spark import reader as reader_module
from tests.spark.conftest import in_order, numbered

UTC = datetime.timezone.utc


def values(frame):
    return [row.value.decode() for row in in_order(frame)]


def test_columns_are_those_of_sparks_kafka_source(write, read):
    path = write([("1",)])
    plain = StructType.fromDDL(
        "key binary, value binary, topic string, partition int, offset bigint,"
        " timestamp timestamp, timestampType int"
    )
    assert read(path).schema == plain
    with_headers = read(path, includeHeaders="true").schema
    assert with_headers[:-1] == plain
    assert with_headers["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert all(field.nullable for field in with_headers)


def test_columns_are_the_same_where_sessions_call_another_type_timestamp(spark, write, read):
    path = write([("1",)])
    columns, views = read(path).schema, read(path, view="topics").schema
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        assert read(path).schema == columns
        assert read(path, view="topics").schema == views
        assert values(read(path)) == ["1"]
        with pytest.raises(PySparkException, match="Read it as timestamp_ltz"):
            spark.read.format("kafkalog").schema("timestamp timestamp").load(path).collect()
        assert spark.read.format("kafkalog").schema("timestamp timestamp_ltz").load(path).count() == 1
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_a_row_has_all_columns(write, read):
    time = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000)
    schema = "key string, value string, timestamp timestamp, headers array<struct<key:string,value:binary>>"
    path = write([("k", "v", time, [("a", b"1"), ("a", None)]), (None, None, time, None)], schema)
    first, second = in_order(read(path, includeHeaders="true"))
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"v")
    assert (first.topic, first.partition, first.offset, first.timestampType) == ("t", 0, 0, 0)
    assert first.timestamp == time
    assert [(h.key, h.value) for h in first.headers] == [("a", b"1"), ("a", None)]
    assert (second.key, second.value, second.headers, second.offset) == (None, None, None, 1)


def test_what_spark_runs_again_reads_the_same_records_with_planned_ends(write, read):
    """As after the loss of an executor: other tasks may have used what the first run of a task has read."""
    path = write(numbered(3))
    frame = read(path, endingOffsets="planned")
    assert values(frame) == ["0", "1", "2"]
    write(numbered(3, 3))
    assert values(frame) == ["0", "1", "2"], "Spark keeps the plan"
    assert read(path, endingOffsets="planned").count() == 6


def test_a_directory_that_is_an_older_copy_is_not_read_short(write, read, tmp_path):
    path = write(numbered(3))
    shutil.copytree(path, tmp_path / "older")
    write(numbered(3, 3))
    frame = read(path)
    assert len(values(frame)) == 6
    shutil.rmtree(path)
    (tmp_path / "older").rename(path)
    with pytest.raises(PySparkException, match=r"ends at 3, before offset 6, .* same log on every machine"):
        frame.collect()


def test_a_schema_of_some_columns_builds_only_those(spark, write):
    path = write(numbered(3))
    frame = spark.read.format("kafkalog").schema("value binary, offset bigint").load(path)
    assert sorted((row.offset, bytes(row.value)) for row in frame.collect()) == [
        (0, b"0"),
        (1, b"1"),
        (2, b"2"),
    ]


@pytest.mark.parametrize("schema", ["value string", "value binary, size int"])
def test_a_schema_with_other_columns_is_refused(spark, write, schema):
    path = write(numbered(1))
    with pytest.raises(PySparkException, match=r"'(value|size)'"):
        spark.read.format("kafkalog").schema(schema).load(path).collect()


@pytest.mark.long
def test_internal_topics_are_chosen_by_name_alone(write, read):
    path = write(numbered(2), topic="orders", numPartitions=2)
    write(numbered(2, 10), topic="orders-old")
    write(numbered(2, 20), topic="internal", numPartitions=1)
    (Path(path) / "internal-0").rename(Path(path) / "__consumer_offsets-0")
    assert {row.topic for row in read(path).collect()} == {"orders", "orders-old"}
    assert values(read(path, subscribe="__consumer_offsets")) == ["20", "21"]
    assert {row.topic for row in read(path, subscribePattern="old$|_offsets").collect()} == {"orders-old"}


@pytest.mark.long
def test_several_roots_and_one_partition_folder(write, read, tmp_path):
    first = write(numbered(2), topic="a", root="one")
    second = write(numbered(2, 5), topic="b", root="two")
    assert values(read(json.dumps([first, second]))) == ["0", "1", "5", "6"]
    assert values(read(f"{second}/b-0")) == ["5", "6"]
    shutil.copytree(f"{first}/a-0", f"{second}/a-0")
    with pytest.raises(PySparkException, match=r"two log roots, \S*one and \S*two \(partition a-0\)"):
        read(f"{first},{second}").collect()


def test_a_zip_archive_is_read_through_fsspec(write, read, tmp_path):
    path = write(numbered(5))
    archive = shutil.make_archive(str(tmp_path / "backup"), "zip", path)
    assert values(read(f"zip://::file://{archive}")) == list("01234")


def test_unknown_options_are_refused_and_near_names_suggested(write, read):
    path = write(numbered(1))
    with pytest.raises(PySparkException, match=r"Unknown option 'startingOffset'.*startingOffsets"):
        read(path, startingOffset="earliest")
    with pytest.raises(PySparkException, match="latest for batch"):
        read(path, subscribe="t", startingOffsets="latest").collect()


def test_sql_reads_a_directory(spark, write):
    path = write(numbered(2))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW lines USING kafkalog OPTIONS (path '{path}')")
    assert spark.sql("SELECT count(*) AS n FROM lines").first().n == 2


def test_a_batch_read_says_that_it_commits_nothing(write, caplog):
    """Once for each query that has a group, and what does commit."""
    options, schema = {"path": write([("1",)])}, StructType.fromDDL("value binary")
    assert DefaultSource(options).reader(schema).partitions()
    assert not caplog.messages
    assert DefaultSource({**options, "kafka.group.id": "etl"}).reader(schema).partitions()
    assert caplog.messages == [
        "A batch read commits nothing to group etl: its lag stays as it is. A stream with"
        " .trigger(availableNow=True) commits what it has read, and kafkalog offsets reset sets the group by"
        " hand"
    ]


def test_planning_that_takes_long_is_said(write, monkeypatch, capsys):
    def slowly(*_):
        time.sleep(0.5)
        return []

    source = DefaultSource({"path": write([("1",)])})
    monkeypatch.setattr(saying, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(reader_module, "plan_batch", slowly)
    assert source.reader(StructType.fromDDL("value binary")).partitions() == []
    assert capsys.readouterr().err == "kafkalog: Looking up partitions and offsets …\n"
