"""df.write.format("kafkalog"): columns, partitions, refusals, and nothing left behind by a failed job."""

import datetime
import os
import time
from pathlib import Path

import pytest
from kafka.partitioner.default import murmur2
from pyspark.errors import PySparkException

from pyspark_kafkalog import NewTopic, connect
from pyspark_kafkalog.log.sink import _known_topics
from pyspark_kafkalog.model import TopicPartition
from tests.spark.conftest import in_order, numbered


def test_the_tasks_of_a_stage_see_the_same_partitions(tmp_path):
    def known(root, stage):
        partitions, configs = _known_topics(str(root), "job", stage)
        return partitions("t"), configs

    (tmp_path / "t-0").mkdir()
    assert known(tmp_path, 1) == ((0,), {})
    (tmp_path / "t-1").mkdir()
    assert known(tmp_path, 1) == ((0,), {})
    assert known(tmp_path, 2) == ((0, 1), {})
    assert known(tmp_path / "none", 2) == ((), {})


def staged(path):
    return [file.name for file in Path(path).glob(".kafkalog-staged-*")]


def test_sql_inserts_into_a_view_of_a_path(spark, write, read):
    path = write([("a",)])
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW logs USING kafkalog OPTIONS (path '{path}')")
    spark.sql("INSERT INTO logs (topic, value) VALUES ('t', CAST('b' AS binary))")
    assert [row.value.decode() for row in in_order(read(path))] == ["a", "b"]


def test_keys_are_placed_by_kafkas_hash(write, read):
    keys = [f"key-{i}" for i in range(50)]
    path = write([(key, "v") for key in keys], "key string, value string", numPartitions=4)
    for row in read(path).collect():
        assert row.partition == (murmur2(bytes(row.key)) & 0x7FFFFFFF) % 4


def test_a_partition_column_beats_the_key(write, read):
    path = write(
        [("k", "a", 2), ("k", "b", 0), ("k", "c", 2)],
        "key string, value string, partition int",
        numPartitions=3,
    )
    assert [(row.partition, row.value.decode()) for row in in_order(read(path))] == [
        (0, "b"),
        (2, "a"),
        (2, "c"),
    ]
    assert sorted(name for name in os.listdir(path) if name.startswith("t-")) == ["t-0", "t-1", "t-2"]


def test_a_partition_that_does_not_exist_is_refused(write, tmp_path):
    with pytest.raises(PySparkException, match="partition 5"):
        write([("a", 5)], "value string, partition int", numPartitions=3)
    assert staged(tmp_path / "log") == []


def test_null_keys_use_all_partitions(write, read):
    path = write([("x" * 1000,)] * 300, numPartitions=3)
    assert {row.partition for row in read(path).collect()} == {0, 1, 2}


def test_a_partitioner_of_the_users(write, read):
    path = write(
        [("b", "1"), ("a", "2"), (None, "3")],
        "key string, value string",
        numPartitions=3,
        partitioner="tests.spark.test_write:by_first_letter",
    )
    assert {row.value.decode(): row.partition for row in read(path).collect()} == {"1": 1, "2": 0, "3": 2}


def by_first_letter(key, all_partitions, available):
    return all_partitions[-1] if key is None else all_partitions[key[0] - ord("a")]


def test_topics_come_from_the_column_where_no_option_is_given(write, read):
    path = write([("a", "1"), ("b", "2"), ("a", "3")], "topic string, value string", topic=None)
    assert [(row.topic, row.offset, row.value.decode()) for row in in_order(read(path))] == [
        ("a", 0, "1"),
        ("a", 1, "3"),
        ("b", 0, "2"),
    ]
    with pytest.raises(PySparkException, match="KAFKA_NULL_TOPIC_IN_DATA"):
        write([(None, "1")], "topic string, value string", topic=None)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_is_copied_faithfully(spark, write, read, tmp_path, compression):
    time = datetime.datetime(2020, 2, 29, 12)
    rows = [
        ("k1", "v1", time, [("h", b"x"), ("", None)]),
        (None, "v2", time + datetime.timedelta(milliseconds=7), None),
        ("", None, time, [("h", b"")]),
    ]
    schema = "key string, value string, timestamp timestamp, headers array<struct<key:string,value:binary>>"
    source = write(rows, schema, numPartitions=2)
    original = read(source, includeHeaders="true")
    copy = str(tmp_path / "copy")
    original.write.format("kafkalog").mode("append").options(
        **{"compression.type": compression, "numPartitions": "2"}
    ).save(copy)
    assert in_order(read(copy, includeHeaders="true")) == in_order(original)


def test_log_append_time(write, read):
    old = datetime.datetime(2001, 1, 1)
    options = {"message.timestamp.type": "LogAppendTime"}
    (row,) = read(write([("v", old)], "value string, timestamp timestamp", **options)).collect()
    assert row.timestampType == 1
    assert row.timestamp.year > 2020


@pytest.mark.parametrize(
    ("rows", "schema", "topic", "message"),
    [
        ([("a",)], "key string", "t", "'value' not found"),
        ([(1,)], "value int", "t", "'value' has type int, expected binary or string"),
        ([("a", "1")], "value string, partition string", "t", "'partition' has type string"),
        ([("a",)], "value string", None, "'topic' is required"),
        (
            [("k", "v")],
            "KEY string, value string",
            "t",
            r"'KEY' is not 'key'.*withColumnRenamed\('KEY', 'key'\)",
        ),
        ([("a",)], "value string", "no/such", "Illegal topic name"),
        ([("a",)], "value string", "..", "Illegal topic name"),
    ],
)
def test_bad_input_is_refused_before_any_work(write, tmp_path, rows, schema, topic, message):
    with pytest.raises(PySparkException, match=message):
        write(rows, schema, topic)
    assert not (tmp_path / "log").exists() or os.listdir(tmp_path / "log") == []


def test_modes_other_than_append_are_refused(spark, tmp_path):
    writer = spark.range(1).selectExpr("'a' AS value").write.format("kafkalog").option("topic", "t")
    for mode in ("overwrite", "error", "ignore"):
        with pytest.raises(PySparkException):
            writer.mode(mode).save(str(tmp_path / "log"))
    assert not (tmp_path / "log" / "t-0").exists()


@pytest.mark.long
def test_a_failed_job_leaves_nothing(spark, write, read, tmp_path):
    """The other tasks are over by then: Spark kills a worker that is slow, and its files go later."""
    path = write(numbered(2))
    pause = "coalesce(reflect('java.lang.Thread', 'sleep', bigint(3000)), '')"
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        f"CASE WHEN id = 900 THEN raise_error(concat({pause}, 'planted')) ELSE string(id) END AS value"
    )
    with pytest.raises(PySparkException, match="planted"):
        frame.write.format("kafkalog").mode("append").option("topic", "t").save(path)
    assert read(path).count() == 2
    # Another task may still be running when the driver aborts, and removes its own.
    deadline = time.monotonic() + 20
    while staged(path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert staged(path) == []


def test_a_record_too_large_is_refused(write, read):
    path = write(numbered(1))
    with pytest.raises(PySparkException, match=r"max\.message\.bytes"):
        write([("x" * 2_000,)], **{"max.message.bytes": 1_000})
    assert read(path).count() == 1


def test_a_topics_own_configurations_are_obeyed(spark, tmp_path):
    root = tmp_path / "log"
    root.mkdir()
    configs = {
        "segment.bytes": "200",
        "max.message.bytes": "300",
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "gzip",
    }
    with connect(str(root)) as kafka:
        compacted = NewTopic("compacted", configs={"cleanup.policy": "compact"})
        kafka.topics.create([NewTopic("t", configs=configs), compacted])

    def save(query, topic):
        rows = spark.sql(query)
        rows.write.format("kafkalog").option("topic", topic).mode("append").save(str(root))

    save("SELECT repeat(id, 50) AS value, timestamp'2020-01-01' AS timestamp FROM range(10)", "t")
    assert len(list((root / "t-0").glob("*.log"))) > 1
    with connect(str(root)) as kafka:
        found = kafka.read("t").read_all().to_pylist()
        assert {row["timestampType"] for row in found} == {1}
        assert {batch.compression for batch in kafka.records.dump(TopicPartition("t", 0))} == {"gzip"}
    with pytest.raises(PySparkException, match=r"exceeds segment\.bytes = 200"):
        save("SELECT concat(sha2('a', 512), sha2('b', 512), sha2('c', 512)) AS value", "t")
    with pytest.raises(PySparkException, match=r"A row has no key, but cleanup\.policy is compact"):
        save("SELECT 'a' AS value", "compacted")
    save("SELECT 'k' AS key, 'a' AS value", "compacted")
