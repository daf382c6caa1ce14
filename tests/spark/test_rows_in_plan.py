"""The rows of small micro-batches come with the plan, as PySpark takes them, as tasks would read them."""

from __future__ import annotations

import io
import json
import logging
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import CPickleSerializer, read_int
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_kafkalog.spark.features import ReadAllAvailable, simple_reader
from pyspark_kafkalog.spark.reader import LogInputPartition
from pyspark_kafkalog.spark.source import KafkaLogDataSource
from pyspark_kafkalog.spark.stream_reader import LogStreamReader
from tests.kafka import Broker

runner = pytest.importorskip("pyspark.sql.streaming.python_streaming_source_runner")

SCHEMA = StructType(
    [
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
    ]
)
pytestmark = pytest.mark.skipif(
    simple_reader(SCHEMA) is None, reason="this PySpark takes no rows with a plan"
)

QUERY = "6b8f53e2-1d0d-4f8e-8f4e-000000000000"
NOT_FOUND, ROWS, NO_ROWS = 0, 1, 2
"""Of PySpark's protocol: how rows come with a plan."""


def planned(
    reader: LogStreamReader, start: dict[str, Any], end: dict[str, Any], schema: StructType = SCHEMA
) -> tuple[list[LogInputPartition], int, list[dict[str, Any]]]:
    """What PySpark's planner sends to the JVM: partitions, how rows come, and the rows."""
    asked, sent = io.BytesIO(), io.BytesIO()
    for offsets in start, end:
        text = json.dumps(offsets).encode()
        asked.write(struct.pack("!i", len(text)) + text)
    asked.seek(0)
    runner.partitions_func(reader, KafkaLogDataSource({}), schema, 10_000, asked, sent)
    sent.seek(0)
    count = read_int(sent)
    partitions = [CPickleSerializer()._read_with_length(sent) for _ in range(count)]
    status = read_int(sent)
    rows: list[dict[str, Any]] = []
    if status == ROWS:
        read_int(sent)
        rows = pa.ipc.open_stream(sent).read_all().to_pylist()
    return partitions, status, rows


def reader(path: str, schema: StructType = SCHEMA, **options: str) -> LogStreamReader:
    given = {"path": path, "subscribe": "t", "startingOffsets": "earliest", **options}
    return LogStreamReader(given, schema)


def log(checkpoint: Path, plans: dict[int, Any], complete: Sequence[int] = ()) -> None:
    """Write what Spark has planned, and which micro-batches are complete."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(exist_ok=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    for number, end in plans.items():
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
    for number in complete:
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")


def ends(partitions: int, end: int) -> dict[str, dict[str, int]]:
    return {"t": {str(number): end for number in range(partitions)}}


@pytest.fixture
def path(write: Any) -> str:
    """Three partitions of ten records."""
    rows = [(str(i), i % 3) for i in range(30)]
    return write(rows, "value string, partition int", numPartitions=3)


def test_rows_come_with_the_plan_and_the_one_task_could_read_them(path: str) -> None:
    stream = reader(path)
    for start, end in ((0, 5), (5, 10)):
        (task,), status, rows = planned(stream, ends(3, start), ends(3, end))
        assert status == ROWS
        assert [(row["partition"], row["offset"]) for row in rows] == [
            (number, offset) for number in range(3) for offset in range(start, end)
        ]
        again = [row for rows in stream.read(task) for row in rows.to_pylist()]
        assert again == rows


def test_a_reader_is_a_simple_one_only_while_it_has_rows(path: str) -> None:
    stream = reader(path)
    kind = simple_reader(SCHEMA)
    assert kind is not None
    assert not isinstance(stream, kind)
    stream.partitions(ends(3, 0), ends(3, 5))
    assert isinstance(stream, kind)
    assert isinstance(stream, LogStreamReader)
    list(stream.getCache({}, {}))
    assert not isinstance(stream, kind)


def test_a_pyspark_that_does_not_ask_is_offered_no_more(path: str) -> None:
    stream = reader(path)
    stream.partitions(ends(3, 0), ends(3, 5))
    kind = simple_reader(SCHEMA)
    assert kind is not None
    for _ in range(3):
        assert len(stream.partitions(ends(3, 5), ends(3, 10))) == 1
        assert not isinstance(stream, kind)


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({"maxBytesInPlan": "0"}, 1),
        ({"maxBytesInPlan": "500"}, 1),
        ({"maxBytesInPlan": "900"}, 1),
        ({"minPartitions": "1"}, 3),
        ({"maxRecordsPerPartition": "100"}, 3),
        ({"auditor.class": "counting"}, 1),  # without a checkpoint only a task knows the query
    ],
)
def test_tasks_read_what_is_too_much_or_the_user_wants_them_to(
    path: str, options: dict[str, str], tasks: int
) -> None:
    partitions, status, _ = planned(reader(path, **options), ends(3, 0), ends(3, 10))
    assert (len(partitions), status) == (tasks, NOT_FOUND)
    stream = reader(path, **{name: value for name, value in options.items() if "auditor" not in name})
    assert sum(rows.num_rows for task in partitions for rows in stream.read(task)) == 30


def test_tasks_read_too_many_topic_partitions(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    for most in (3, 2):
        monkeypatch.setattr("pyspark_kafkalog.spark.rows_in_plan._MOST_PARTITIONS", most)
        outcomes.append(planned(reader(path), ends(3, 0), ends(3, 10))[1])
    assert outcomes == [ROWS, NOT_FOUND]


def test_a_schema_that_the_jvm_would_not_find_in_arrow(path: str) -> None:
    """The JVM compares it with all that Spark knows of a column, as a comment, and fails the query."""
    commented = StructType([StructField("value", BinaryType(), metadata={"comment": "bytes"})])
    partitions, status, _ = planned(reader(path, commented), ends(3, 0), ends(3, 10), commented)
    assert (len(partitions), status) == (1, NOT_FOUND)


def test_what_fails_here_is_left_to_tasks(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Their errors and rules hold as ever. After each failure more micro-batches are left to them."""
    for file in Path(path).glob("t-1/*.log"):
        data = bytearray(file.read_bytes())
        data[70] ^= 1
        file.write_bytes(data)
    stream = reader(path)
    with caplog.at_level(logging.INFO, "pyspark_kafkalog"):
        outcomes = [planned(stream, ends(3, 0), ends(3, 10))[1] for _ in range(11)]
    assert outcomes == [NOT_FOUND] * 11
    assert caplog.text.count("Leaving a micro-batch to tasks") == 4, "at 0, 2, 5 and 10"
    ((task,), _, _) = planned(reader(path, failOnDataLoss="false"), ends(3, 0), ends(3, 10))
    assert len(task.splits) == 3


def test_after_a_long_read_more_is_left_to_tasks(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has read is not thrown away, unless more is to come."""
    monkeypatch.setattr("pyspark_kafkalog.spark.rows_in_plan._MOST_SECONDS", -1.0)
    stream = reader(path)
    outcomes = [planned(stream, ends(3, 0), ends(3, 10))[1] for _ in range(6)]
    assert outcomes == [ROWS, NOT_FOUND, ROWS, NOT_FOUND, NOT_FOUND, ROWS]
    monkeypatch.setattr("pyspark_kafkalog.reading.together._JOINED_ROWS", 10)
    assert planned(reader(path), ends(3, 0), ends(3, 10))[1] == NOT_FOUND


def test_nested_columns_are_left_to_tasks(path: str) -> None:
    """The JVM serializes what comes with a plan. With spark.kryo.registrationRequired it can do no arrays."""
    nested = StructType.fromDDL("value binary, headers array<struct<key:string,value:binary>>")
    stream = reader(path, nested, includeHeaders="true")
    assert planned(stream, ends(3, 0), ends(3, 10), nested)[1] == NOT_FOUND


def test_a_query_of_a_named_checkpoint_is_told_by_a_task_first(path: str, tmp_path: Path) -> None:
    """Only a task knows which query it belongs to."""
    log(tmp_path, {0: ends(3, 2)})
    stream = reader(path, checkpointLocation=str(tmp_path))
    assert planned(stream, ends(3, 0), ends(3, 2))[1] == NOT_FOUND
    assert planned(stream, ends(3, 0), ends(3, 2))[1] == NOT_FOUND, "it may be repeated"
    stream.latestOffset(ends(3, 2), None)
    log(tmp_path, {1: ends(3, 4)}, complete=[0])
    assert planned(stream, ends(3, 2), ends(3, 4))[1] == ROWS


def test_an_audit_counts_them_for_the_query(path: str, tmp_path: Path) -> None:
    checkpoint, counts = tmp_path / "checkpoint", tmp_path / "audit"
    checkpoint.mkdir()
    log(checkpoint, {0: ends(3, 2)})
    stream = reader(path, checkpointLocation=str(checkpoint), auditLocation=str(counts))
    assert planned(stream, ends(3, 0), ends(3, 2))[1] == NOT_FOUND
    stream.latestOffset(ends(3, 2), None)
    log(checkpoint, {1: ends(3, 4)}, complete=[0])
    assert planned(stream, ends(3, 2), ends(3, 4))[1] == ROWS
    rows = [json.loads(line) for file in counts.rglob("*.jsonl") for line in file.read_text().splitlines()]
    assert {(row["query"], row["batch"]) for row in rows} == {(QUERY, 1)}
    assert [row["messages"] for row in rows] == [2, 2, 2]
    assert planned(stream, ends(3, 4), ends(3, 6))[1] == NOT_FOUND, "no plan says which micro-batch it is"


@pytest.mark.parametrize("start", [{}, ends(3, 0)], ids=["of nothing", "of empty partitions"])
def test_a_micro_batch_without_tasks_tells_of_no_query(
    path: str, tmp_path: Path, start: dict[str, Any]
) -> None:
    log(tmp_path, {0: ends(3, 2)})
    stream = reader(path, checkpointLocation=str(tmp_path))
    if start:
        assert planned(stream, {}, start)[1] == NOT_FOUND
    stream.latestOffset(start, None)
    assert planned(stream, start, ends(3, 2))[1] == NOT_FOUND


@pytest.mark.parametrize(
    "plans",
    [{0: ends(3, 2)}, {0: ends(3, 4)}, {0: ends(3, 4), 1: ends(3, 2)}],
    ids=["older", "complete", "other"],
)
def test_in_the_checkpoint_of_another_query_nothing_is_written(
    path: str, tmp_path: Path, plans: dict[int, Any]
) -> None:
    """Its own files say which topics it has read, and up to where."""
    log(tmp_path, plans, complete=[0])
    before = sorted(tmp_path.rglob("*"))
    stream = reader(path, checkpointLocation=str(tmp_path), failOnDataLoss="false")
    stream.initialOffset()
    for start, end in ((0, 4), (4, 8)):
        stream.latestOffset(ends(3, start), None)
        assert planned(stream, ends(3, start), ends(3, end))[1] == NOT_FOUND
    assert sorted(tmp_path.rglob("*")) == before
    log(tmp_path, {2: ends(3, 10)})
    planned(stream, ends(3, 8), ends(3, 10))
    assert (tmp_path / "kafkalog-topic-ids").exists()


def test_a_micro_batch_of_markers_alone_has_no_rows(broker: Broker) -> None:
    from confluent_kafka import Producer

    broker.create_topic("markers-alone", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "markers-alone"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("markers-alone", b"x")
    producer.flush(30)
    producer.abort_transaction(30)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": "markers-alone",
        "kafka.isolation.level": "read_committed",
    }
    stream = LogStreamReader(options, SCHEMA)
    start, end = {"markers-alone": {"0": 0}}, {"markers-alone": {"0": 2}}
    broker.wait_until(lambda: stream.latestOffset(start, ReadAllAvailable()) == end, "the marker is written")
    assert planned(stream, start, end)[1] == NO_ROWS


@pytest.mark.parametrize("place", ["directory", "brokers"])
@pytest.mark.parametrize("columns", [pytest.param("value, partition, offset", marks=pytest.mark.soak), "*"])
def test_rows_are_the_same_with_and_without(
    spark: SparkSession, broker: Broker, path: str, tmp_path: Path, place: str, columns: str
) -> None:
    source, topic = {"path": path}, "t"
    if place == "brokers":
        source, topic = {"kafka.bootstrap.servers": broker.bootstrap}, f"same-{len(columns)}"
        broker.create_topic(topic, 3)
        frame = spark.createDataFrame([(f"{i}", i % 3) for i in range(30)], "value string, partition int")
        frame.write.format("kafkalog").options(**source, topic=topic).mode("append").save()
    found = []
    for number, most in enumerate(("1m", "0")):
        seen: list[Any] = []
        stream = (
            spark.readStream.format("kafkalog")
            .options(
                **source,
                subscribe=topic,
                includeHeaders="true",
                maxBytesInPlan=most,
                startingOffsets="earliest",
            )
            .option("maxOffsetsPerTrigger", "12")
            .load()
            .selectExpr(*columns.split(", "))
        )
        query = (
            stream.writeStream.foreachBatch(lambda frame, batch, to=seen: to.extend(frame.collect()))
            .option("checkpointLocation", str(tmp_path / str(number)))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        found.append((seen, [progress["numInputRows"] for progress in query.recentProgress]))
    assert found[0] == found[1]
    assert len(found[0][0]) == 30
