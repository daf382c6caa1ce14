"""df.write and df.writeStream to a broker, read back by kafka-python's consumer."""

from __future__ import annotations

import datetime
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_kafkalog.broker.produce.state import PartitionResult
from pyspark_kafkalog.model import QueryBatch, TopicPartition
from pyspark_kafkalog.spark.writer import Written, batch_writer, stream_writer
from pyspark_kafkalog.write.completing import TaskNews
from tests.broker.producing import consume, unused_topic, values_of
from tests.codec.strategies import COMPRESSIONS
from tests.kafka import Broker

pytestmark = pytest.mark.broker

VALUES = StructType([StructField("value", StringType())])


@pytest.fixture
def topic(broker: Broker) -> str:
    name = unused_topic()
    broker.create_topic(name, 3)
    return name


@pytest.fixture
def write(broker: Broker) -> Callable[..., None]:
    """Append a DataFrame to the broker, dots in the names of options as double underscores."""

    def write(frame: DataFrame, **options: object) -> None:
        named = {name.replace("__", "."): value for name, value in options.items()}
        writer = frame.write.format("kafkalog").option("kafka.bootstrap.servers", broker.bootstrap)
        writer.options(**named).mode("append").save()

    return write


@pytest.mark.long
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_all_columns(
    spark: SparkSession, broker: Broker, write: Callable[..., None], topic: str, compression: str
) -> None:
    at = datetime.datetime(2020, 2, 29, 12, tzinfo=datetime.timezone.utc)
    schema = (
        "key binary, value string, partition int, timestamp timestamp,"
        " headers array<struct<key:string,value:binary>>, more string"
    )
    rows = [
        (b"k", "v0", 0, at, [("h", b"x"), ("h", None)], "left out"),
        (None, None, 1, at, None, None),
        (b"", "", 2, at, [], None),
    ]
    write(spark.createDataFrame(rows, schema), topic=topic, kafka__compression__type=compression)
    at_ms = int(at.timestamp() * 1000)
    assert consume(broker.bootstrap, topic) == [
        (0, 0, b"k", b"v0", [("h", b"x"), ("h", None)], at_ms),
        (1, 0, None, None, [], at_ms),
        (2, 0, b"", b"", [], at_ms),
    ]


def test_rows_without_a_timestamp_have_that_of_the_write(
    spark: SparkSession, broker: Broker, write: Callable[..., None], topic: str
) -> None:
    before = time.time() * 1000
    write(spark.createDataFrame([("v",)], "value string"), topic=topic)
    (record,) = consume(broker.bootstrap, topic)
    assert before - 1 <= record.timestamp <= time.time() * 1000


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.acks": "0"},
        {"kafka.acks": "1", "kafka.linger.ms": 5},
        {"kafka.enable.idempotence": "false", "kafka.batch.size": 1000},
        {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
        {"partitioner": "tests.spark.test_broker_write.always_one"},
    ],
    ids=str,
)
def test_settings_of_the_producer(
    spark: SparkSession, broker: Broker, write: Callable[..., None], topic: str, options: dict[str, Any]
) -> None:
    frame = spark.range(0, 900, 1, 3).selectExpr("'same' AS key", "CAST(id AS STRING) AS value")
    write(frame, topic=topic, **options)
    records = consume(broker.bootstrap, topic)
    assert sorted(int(record.value or b"") for record in records) == list(range(900))
    partitions = [sum(record.partition == number for record in records) for number in range(3)]
    if "kafka.partitioner.class" in options:
        assert partitions == [300] * 3
    elif "partitioner" in options:
        assert partitions == [0, 900, 0]
    else:
        assert sorted(partitions) == [0, 0, 900]


def always_one(key: bytes | None, every: list[int], available: list[int]) -> int:
    return 1


def test_topics_from_a_column(spark: SparkSession, broker: Broker, write: Callable[..., None]) -> None:
    topics = [unused_topic(), unused_topic()]
    for topic in topics:
        broker.create_topic(topic)
    write(spark.createDataFrame([(topics[i % 2], str(i)) for i in range(10)], "topic string, value string"))
    assert sorted(values_of(broker.bootstrap, topics[0])) == [b"0", b"2", b"4", b"6", b"8"]
    assert sorted(values_of(broker.bootstrap, topics[1])) == [b"1", b"3", b"5", b"7", b"9"]


@pytest.mark.long
def test_sparks_own_source_reads_what_was_written(
    spark: SparkSession, broker: Broker, write: Callable[..., None], topic: str
) -> None:
    rows = [("k", "v", [("h", b"x")]), (None, None, None)]
    schema = "key string, value string, headers array<struct<key:string,value:binary>>"
    write(spark.createDataFrame(rows, schema), topic=topic, kafka__compression__type="zstd")
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    read = reader.option("includeHeaders", "true").option("subscribe", topic).load()
    found = {(r.key, r.value, r.headers and tuple(map(tuple, r.headers))) for r in read.collect()}
    assert found == {(b"k", b"v", (("h", b"x"),)), (None, None, None)}


@pytest.mark.parametrize("mode", ["append", "complete"])
def test_streams(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, mode: str) -> None:
    source = tmp_path / "in"
    source.mkdir()
    rows = spark.readStream.schema("name string").json(str(source))
    if mode == "complete":
        frame = rows.groupBy("name").count().selectExpr("name AS key", "CAST(count AS STRING) AS value")
    else:
        frame = rows.selectExpr("name AS key", "'1' AS value")
    query = (
        frame.coalesce(1)
        .writeStream.format("kafkalog")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("topic", topic)
        .outputMode(mode)
        .start()
    )
    try:
        for number in range(3):
            (source / f"{number}.json").write_text('{"name": "a"}\n')
            query.processAllAvailable()
    finally:
        query.stop()
    written = [(record.key, record.value) for record in consume(broker.bootstrap, topic)]
    assert written == [(b"a", b"%d" % (i if mode == "complete" else 1)) for i in (1, 2, 3)]


def test_a_record_too_large(
    spark: SparkSession, broker: Broker, write: Callable[..., None], topic: str
) -> None:
    frame = spark.createDataFrame([("x" * 5000,)], "value string")
    with pytest.raises(PySparkException, match=rf"exceeds kafka\.max\.request\.size = 4000.*{topic}-"):
        write(frame, topic=topic, **{"kafka.max.request.size": 4000})
    assert values_of(broker.bootstrap, topic) == []


def test_a_topic_that_does_not_exist(spark: SparkSession, write: Callable[..., None]) -> None:
    frame = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(PySparkException, match=r"UnknownTopicOrPartitionError.*'missing'"):
        write(frame, topic="missing", **{"kafka.request.timeout.ms": 1000})


@pytest.mark.long
def test_a_partition_that_does_not_exist(spark: SparkSession, write: Callable[..., None], topic: str) -> None:
    frame = spark.createDataFrame([("v", 3)], "value string, partition int")
    with pytest.raises(PySparkException, match=f"partition 3, but topic '{topic}' has 3"):
        write(frame, topic=topic)


@pytest.mark.soak
@pytest.mark.slow
def test_a_write_ends_where_a_broker_hangs(spark: SparkSession, stoppable_broker: Broker) -> None:
    """While Spark has far more rows than the tasks can take."""
    broker, topic = stoppable_broker, unused_topic()
    (folder,) = broker.create_topic(topic)
    frame = spark.range(0, 1_000_000, 1, 4).selectExpr("lpad(CAST(id AS STRING), 100, '-') AS value")
    writer = frame.write.format("kafkalog").option("kafka.bootstrap.servers", broker.bootstrap)
    writer = writer.option("topic", topic).option("kafka.buffer.memory", 1 << 20)
    writer = writer.option("kafka.request.timeout.ms", 1000).option("kafka.delivery.timeout.ms", 3000)
    hung: list[float] = []

    def hang() -> None:
        broker.wait_until(lambda: any(log.stat().st_size for log in folder.glob("*.log")), "No row came")
        os.kill(broker.pid, signal.SIGSTOP)
        hung.append(time.monotonic())

    hanging = threading.Thread(target=hang)
    hanging.start()
    try:
        # The second is what a task says that the broker did not even tell of the topic.
        ends = r"delivery\.timeout\.ms = 3000|did not answer within \d+ ms"
        with pytest.raises(PySparkException, match=ends):
            writer.mode("append").save()
        assert time.monotonic() - hung[0] < 30
    finally:
        hanging.join()
        os.kill(broker.pid, signal.SIGCONT)


def test_modes_other_than_append_are_refused(spark: SparkSession, broker: Broker, topic: str) -> None:
    frame = spark.createDataFrame([("v",)], "value string")
    writer = frame.write.format("kafkalog").option("kafka.bootstrap.servers", broker.bootstrap)
    for mode in ("overwrite", "error", "ignore"):
        with pytest.raises(PySparkException):
            writer.option("topic", topic).mode(mode).save()
    assert values_of(broker.bootstrap, topic) == []


def test_writers_open_nothing_and_can_be_sent_to_tasks() -> None:
    options = {
        "kafka.bootstrap.servers": "192.0.2.1:9092",
        "topic": "t",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="u" password="planted";',
    }
    batch = cloudpickle.loads(cloudpickle.dumps(batch_writer(options, VALUES, overwrite=False)))
    stream = cloudpickle.loads(cloudpickle.dumps(stream_writer(options, VALUES)))
    batch.abort([])
    stream.abort([], 0)
    assert "planted" not in repr(vars(batch)) + repr(vars(stream))


def test_the_commit_tells_what_was_written(caplog: pytest.LogCaptureFixture) -> None:
    writer = stream_writer({"kafka.bootstrap.servers": "192.0.2.1:9092", "topic": "t"}, VALUES)
    with caplog.at_level(logging.INFO, "pyspark_kafkalog"):
        a, b = TopicPartition("a", 0), TopicPartition("b", 0)
        finished = [
            {a: PartitionResult(10, 2, 0, 9), b: PartitionResult(1, 1, -1, -1)},
            {a: PartitionResult(5, 1, 10, 14), TopicPartition("a", 1): PartitionResult(5, 1, 0, 4)},
            {},
        ]
        messages = [Written(QueryBatch("query", 7), TaskNews(results)) for results in finished]
        writer.commit([*messages, None], 7)
    assert [record.message for record in caplog.records] == [
        "Micro-batch 7 wrote 20 records in 4 record batches to 2 partitions of topic a",
        "Micro-batch 7 wrote 1 records in 1 record batches to 1 partitions of topic b",
    ]
