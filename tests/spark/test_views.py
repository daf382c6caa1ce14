"""option("view", ...): the partitions, the groups and their offsets as DataFrames."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pyspark_kafkalog.options.views import VIEWS
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
    assert row.sizeBytes > 61
    assert row.earliestTimestamp <= row.latestTimestamp
    write(numbered(1), topic="orders")
    assert frame.first().highWatermark == 4, "a plan that is run again looks again"
    assert read(path, view="topics").count() == 3
    assert read(path, view="topics").where("partition = 1").select("topic", "highWatermark").count() == 1


def test_a_schema_may_name_some_columns(spark, write):
    path = write(numbered(3))
    named = (
        spark.read.format("kafkalog").option("view", "topics").schema("highWatermark bigint, topic string")
    )
    assert [tuple(row) for row in named.load(path).collect()] == [(3, "t")]
    with pytest.raises(PySparkException, match="Unknown column 'value'"):
        spark.read.format("kafkalog").option("view", "topics").schema("value binary").load(path).collect()


def test_what_is_refused(spark, write, read):
    path = write(numbered(1))
    with pytest.raises(PySparkException, match="'endingOffsets' makes no sense with view=topics"):
        read(path, view="topics", endingOffsets="latest").collect()
    stream = spark.readStream.format("kafkalog").option("view", "topics")
    with pytest.raises(PySparkException, match="'view' is not valid in streaming queries"):
        stream.load(path).writeStream.format("noop").start().processAllAvailable()
