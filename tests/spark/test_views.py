"""option("view", ...): the partitions, the groups and their offsets as DataFrames."""

import datetime
import uuid

import pytest
from kafka import KafkaProducer
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.extensions.views.views import VIEWS
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.spark.conftest import numbered


@pytest.mark.parametrize("view", VIEWS)
def test_columns(spark, write, view):
    path = write(numbered(1))
    schema = spark.read.format("kafkalog").option("view", view).load(path).schema
    assert schema == StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in VIEWS[view].items()))


def test_topics_of_a_directory(write, read):
    path = write(numbered(3), topic="orders")
    write(numbered(2), topic="other", numPartitions=2)
    frame = read(path, view="topics", subscribe="orders")
    (row,) = frame.collect()
    assert (row.topic, row.partition, row.logStartOffset, row.highWatermark, row.lastStableOffset) == (
        "orders",
        0,
        0,
        3,
        3,
    )
    assert (len(row.topicId), row.segments) == (22, 1)
    assert row.storedBytes > 61
    assert row.earliestTimestamp <= row.latestTimestamp
    write(numbered(1), topic="orders")
    assert frame.first().highWatermark == 4, "a plan that is run again looks again"
    assert read(path, view="topics").count() == 3
    assert read(path, view="topics").where("partition = 1").select("topic", "highWatermark").count() == 1


def test_segments_of_a_directory(spark, write, read):
    path = write(numbered(900), **{"segment.bytes": 2000, "batch.size": 500})
    rows = read(path, view="segments", subscribe="t").orderBy("baseOffset").collect()
    assert len(rows) > 3
    assert [row.active for row in rows] == [False] * (len(rows) - 1) + [True]
    assert {row.indexState for row in rows} == {"ok"}
    assert rows[1].segment == f"{rows[1].baseOffset:020d}.log"
    assert rows[1].file == f"{path}/t-0/{rows[1].segment}"
    assert sum(row.storedBytes for row in rows) == read(path, view="topics").first().storedBytes
    assert all(row.earliestTimestamp <= row.latestTimestamp for row in rows)
    segments = spark.read.format("kafkalog").option("view", "segments")
    with pytest.raises(PySparkException, match="view=segments reads a folder, not brokers"):
        segments.option("kafka.bootstrap.servers", "host:9092").load().collect()


@pytest.mark.long
def test_batches_of_a_directory(spark, write, read):
    named = {"compression.type": "gzip", "segment.bytes": 2000, "batch.size": 500}
    path = write(numbered(300), **named)
    frame = read(path, view="batches")
    segments = [row.segment for row in read(path, view="segments").collect()]
    assert frame.rdd.getNumPartitions() == len(segments)
    rows = frame.orderBy("baseOffset").collect()
    assert {row.segment for row in rows} == set(segments)
    assert sum(row.records for row in rows) == 300
    assert [row.baseOffset for row in rows[1:]] == [row.lastOffset + 1 for row in rows[:-1]]
    assert {(row.compression, row.magic, row.valid, row.transactional) for row in rows} == {
        ("gzip", 2, True, False)
    }
    assert all(row.storedBytes > 61 for row in rows)
    write(numbered(1), **named)
    assert frame.where("lastOffset = 300").count() == 1, "a plan that is run again looks again"
    spark.sql(f"CREATE TEMPORARY VIEW stored USING kafkalog OPTIONS (path '{path}', view 'batches')")
    (row,) = spark.sql("SELECT sum(records) AS records, min(valid) AS valid FROM stored").collect()
    assert (row.records, row.valid) == (301, True)
    few = spark.read.format("kafkalog").option("view", "batches").schema("storedBytes bigint, valid boolean")
    (total,) = few.option("checkCrcs", "false").load(path).groupBy("valid").sum("storedBytes").collect()
    assert (total[0], total[1]) == (None, read(path, view="topics").first().storedBytes)


def test_a_schema_may_name_some_columns(spark, write):
    path = write(numbered(3))
    named = (
        spark.read.format("kafkalog").option("view", "topics").schema("highWatermark bigint, topic string")
    )
    assert [tuple(row) for row in named.load(path).collect()] == [(3, "t")]
    for wrong, said in (
        ("value binary", "Unknown column 'value'"),
        ("topic string NOT NULL", "'topic' must be nullable"),
    ):
        with pytest.raises(PySparkException, match=said):
            spark.read.format("kafkalog").option("view", "topics").schema(wrong).load(path).collect()


def test_views_stand_filters_that_are_pushed(spark, write, read):
    path = write(numbered(3), numPartitions=2)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert read(path, view="topics").where("partition = 1").count() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_what_is_refused(spark, write, read):
    path = write(numbered(1))
    with pytest.raises(PySparkException, match="'endingOffsets' does not apply to view=topics"):
        read(path, view="topics", endingOffsets="latest").collect()
    stream = spark.readStream.format("kafkalog").option("view", "topics")
    with pytest.raises(PySparkException, match="'view' is not valid in streaming queries"):
        stream.load(path).writeStream.format("noop").start().processAllAvailable()


def test_groups_of_a_directory(write, read):
    path = write(numbered(10))
    groups = DirectoryGroups.open([path])
    committed = CommittedOffset(
        4, 0, "note", commit_timestamp=int(datetime.datetime.now().timestamp() * 1000)
    )
    groups.commit("g", {TopicPartition("t", 0): committed})
    groups.commit(
        "h", {TopicPartition("t", 0): CommittedOffset(10), TopicPartition("gone", 1): CommittedOffset(1)}
    )
    (row,) = read(path, view="group-offsets", kafka__group__id="g").collect()
    assert (row.group, row.topic, row.partition, row.offset) == ("g", "t", 0, 4)
    assert (row.leaderEpoch, row.metadata, row.expireTimestamp) == (0, "note", None)
    assert row.commitTimestamp.timestamp() * 1000 == pytest.approx(committed.commit_timestamp)
    assert (row.lag, row.logEndOffset) == (6, 10)
    every = read(path, view="group-offsets")
    assert {(row.group, row.topic, row.lag) for row in every.collect()} == {
        ("g", "t", 6),
        ("h", "t", 0),
        ("h", "gone", None),
    }
    assert read(path, view="group-offsets", assign='{"gone":[1]}').count() == 1
    (row,) = read(path, view="groups", kafka__group__id="h").collect()
    assert (row.group, row.state, row.members, row.coordinator) == ("h", "Empty", [], None)
    with pytest.raises(PySparkException, match="No such consumer group: 'missing'"):
        read(path, view="groups", kafka__group__id="missing, g").collect()


@pytest.mark.long
@pytest.mark.broker
def test_views_of_brokers(spark, broker):
    topic, group = f"views-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for n in range(5):
        producer.send(topic, b"%d" % n, timestamp_ms=1_600_000_000_000 + n)
    producer.close()
    groups = BrokerGroups(ConnectionOptions((broker.bootstrap,)))
    groups.commit(group, {TopicPartition(topic, 0): CommittedOffset(2, metadata="note")})

    def view(name, **options):
        reader = spark.read.format("kafkalog").option("view", name)
        named = {option.replace("__", "."): value for option, value in options.items()}
        return reader.option("kafka.bootstrap.servers", broker.bootstrap).options(**named).load()

    (row,) = view("topics", subscribe=topic).collect()
    assert (row.topic, row.partition, row.logStartOffset, row.highWatermark) == (topic, 0, 0, 5)
    assert (len(row.topicId), row.segments, row.storedBytes > 0) == (22, None, True)
    assert (row.latestTimestamp - row.earliestTimestamp) == datetime.timedelta(milliseconds=4)
    assert view("topics").where(f"topic = '{topic}'").count() == 1
    batches = view("batches", subscribe=topic, minPartitions=2).collect()
    assert sum(row.records for row in batches) == 5
    assert {(row.segment, row.valid, row.partition) for row in batches} == {(None, True, 0)}
    (row,) = view("groups", kafka__group__id=group).collect()
    assert (row.group, row.state, row.coordinator) == (group, "Empty", 1)
    (row,) = view("group-offsets", kafka__group__id=group).collect()
    assert (row.topic, row.offset, row.leaderEpoch, row.metadata, row.lag) == (topic, 2, 0, "note", 3)
    assert (row.commitTimestamp, row.expireTimestamp) == (None, None)
    assert view("group-offsets", subscribe=topic).select("lag", "group").collect() == [(3, group)]
