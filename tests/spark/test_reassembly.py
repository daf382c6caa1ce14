"""``reassemble`` in queries: what it takes and refuses, what stays in its state, what is dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_kafkalog import LagListener, reassemble
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition
from tests.extensions.large_messages.interleaved import interleaved, segment_values
from tests.kafka import Broker
from tests.log.writing import write
from tests.spark.conftest import in_order

T0 = TopicPartition("t", 0)
GAP = "message.assembler.expiration.offset.gap"
CAPACITY = "message.assembler.buffer.capacity"
WHOLE = b"abcdefghij" * 100
SEGMENTS = segment_values(7, WHOLE, 300)


def batch(spark: SparkSession, root: Path) -> DataFrame:
    return spark.read.format("kafkalog").load(str(root))


def stream(spark: SparkSession, root: Path, **options: object) -> DataFrame:
    reader = spark.readStream.format("kafkalog").option("startingOffsets", "earliest")
    return reader.options(**options).load(str(root))


def run(frame: DataFrame, checkpoint: Path, path: Path | None = None) -> StreamingQuery:
    """Until all is read, into the table ``out``, which no restart can go on with; or into files."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if path is None:
        query = writer.format("memory").queryName("out").start()
    else:
        query = writer.format("parquet").start(str(path))
    query.awaitTermination()
    return query


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in in_order(frame)]


def state_rows(query: StreamingQuery) -> int:
    return query.recentProgress[-1].stateOperators[0].numRowsTotal


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["topic", "partition", "offset"], "'value', which reassemble needs, is missing"),
        (["topic", "partition", "value", "cast(offset as int) offset"], "has type int, expected bigint"),
        (["*", "'x' headers"], "has type string, expected array"),
        (["*", "value"], "'value' exists twice"),
        (["*", "1 startingOffset"], "'startingOffset' exists already, but reassemble adds it"),
    ],
)
def test_columns_are_checked_first(
    spark: SparkSession, tmp_path: Path, columns: list[str], message: str
) -> None:
    write(tmp_path, {T0: [b"v"]})
    with pytest.raises(OptionError, match=message):
        reassemble(batch(spark, tmp_path).selectExpr(*columns), extra_columns=True)


def test_options_are_checked_first(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, {T0: [b"v"]})
    frame = batch(spark, tmp_path)
    with pytest.raises(OptionError, match=f"Did you mean {CAPACITY}"):
        reassemble(frame, {"message.assembler.buffer.capacty": 1})
    with pytest.raises(OptionError, match=GAP):
        reassemble(frame, {GAP: 0})


def test_other_columns_come_along_in_any_order_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    written = {number: interleaved(str(number), 200) for number in range(3)}
    write(
        tmp_path,
        {TopicPartition("t", n): content.records for n, content in written.items()},
        num_partitions=3,
    )
    frame = batch(spark, tmp_path).repartition(4, "offset").selectExpr("offset + 1 AS next", "*")
    whole = reassemble(frame)
    assert whole.schema == frame.schema
    rows = in_order(whole)
    assert all(row.next == row.offset + 1 for row in rows)
    for number, content in written.items():
        found = [(row.offset, bytes(row.value)) for row in rows if row.partition == number]
        assert found == content.messages


@pytest.mark.long
def test_without_message_segments_all_is_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "log", {T0: [b"%d" % n for n in range(50)], TopicPartition("t", 1): [b"x"]})
    query = run(
        reassemble(stream(spark, tmp_path / "log", maxOffsetsPerTrigger=20), extra_columns=True),
        tmp_path / "c",
    )
    plain = batch(spark, tmp_path / "log").selectExpr("*", "offset AS startingOffset", "1 AS segmentCount")
    assert in_order(spark.table("out")) == in_order(plain)
    assert state_rows(query) == 0


@pytest.fixture(params=["HDFSBacked", pytest.param("RocksDB", marks=pytest.mark.long)])
def store(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Each of Spark's state stores."""
    name, package = "spark.sql.streaming.stateStore.providerClass", "org.apache.spark.sql.execution.streaming"
    before = spark.conf.get(name)
    spark.conf.set(name, f"{package}.state.{request.param}StateStoreProvider")
    yield request.param
    spark.conf.set(name, str(before))


def test_open_messages_survive_a_restart_and_leave_no_state(
    spark: SparkSession, tmp_path: Path, store: str
) -> None:
    root = tmp_path / "log"
    write(root, {T0: [b"a", *SEGMENTS[:2]]})
    checkpoint, out = tmp_path / "c", tmp_path / "out"
    first = run(reassemble(stream(spark, root), extra_columns=True), checkpoint, out)
    assert state_rows(first) == 1
    assert values(spark.read.parquet(str(out))) == [b"a"]
    write(root, {T0: [b"b", *SEGMENTS[2:], b"c", *SEGMENTS]})
    second = run(reassemble(stream(spark, root), extra_columns=True), checkpoint, out)
    rows = in_order(spark.read.parquet(str(out)))
    assert [bytes(row.value) for row in rows] == [b"a", b"b", WHOLE, b"c", WHOLE]
    assert [(row.offset, row.startingOffset, row.segmentCount) for row in rows] == [
        (0, 0, 1),
        (3, 3, 1),
        (5, 1, 4),
        (6, 6, 1),
        (10, 7, 4),
    ]
    assert state_rows(second) == 0


@pytest.mark.long
def test_dropped_messages_are_counted_and_kept_on_request(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "log"
    write(root, {T0: [SEGMENTS[1], *[b"%d" % n for n in range(6)], *SEGMENTS]})
    listener = LagListener()
    spark.streams.addListener(listener)
    options: dict[str, object] = {GAP: 3, "large.message.dead.letters": True}
    try:
        query = run(reassemble(stream(spark, root), options), tmp_path / "c")
        deadline = time.monotonic() + 30
        while not listener.history(query.id):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    (metrics,) = query.recentProgress[0].observedMetrics.values()
    assert {name: count for name, count in metrics.asDict().items() if count} == {"expired_by_offset": 1}
    assert listener.history(query.id)[0].dropped == {"expired_by_offset": 1}
    assert "dropped large messages: 1 expired_by_offset" in str(listener.history(query.id)[0])
    out = spark.table("out")
    assert values(out.where("dropped IS NULL")) == [*[b"%d" % n for n in range(6)], WHOLE]
    (dead,) = in_order(out.where("dropped IS NOT NULL"))
    assert (dead.topic, dead.partition, dead.value) == (*T0, None)
    assert (dead.dropped.reason, dead.dropped.startingOffset, dead.dropped.segmentCount) == (
        "expired_by_offset",
        0,
        4,
    )
    ((offset, number, value),) = dead.dropped.segments
    assert (offset, number, bytes(value)) == (0, 1, SEGMENTS[1][33:])
    plain = reassemble(batch(spark, root), {GAP: 3})
    assert "dropped" not in plain.columns
    assert values(plain) == values(out.where("dropped IS NULL"))
    both = in_order(reassemble(batch(spark, root), options))
    assert both == in_order(out)


@pytest.mark.long
def test_an_eviction_can_fail_the_query(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "log"
    write(root, {T0: [b"a", *SEGMENTS[:3]]})
    options: dict[str, object] = {CAPACITY: 800, "exception.on.message.dropped": "true"}
    with pytest.raises(PySparkException, match=r"LargeMessageDroppedError.*t-0.*offset"):
        reassemble(batch(spark, root), options).collect()
    with pytest.raises(StreamingQueryException, match=r"LargeMessageDroppedError.*t-0.*offset"):
        run(reassemble(stream(spark, root), options), tmp_path / "c")
    assert values(reassemble(batch(spark, root), {CAPACITY: 800})) == [b"a"]


@pytest.mark.slow
@pytest.mark.soak
def test_messages_expire_by_time_on_a_quiet_topic(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "log"
    write(root, {T0: [b"a", *SEGMENTS[:3]], TopicPartition("t", 1): SEGMENTS})
    options: dict[str, object] = {"message.assembler.expiration.ms": 1500, "large.message.dead.letters": True}
    writer = reassemble(stream(spark, root), options).writeStream.format("memory").queryName("out")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        deadline = time.monotonic() + 60
        while not spark.table("out").where("dropped IS NOT NULL").count():
            assert time.monotonic() < deadline, query.exception()
            time.sleep(0.1)
        (dead,) = spark.table("out").where("dropped IS NOT NULL").collect()
        assert (dead.dropped.reason, len(dead.dropped.segments)) == ("expired_by_time", 3)
        while state_rows(query):
            assert time.monotonic() < deadline, query.lastProgress
            time.sleep(0.1)
        write(root, {T0: SEGMENTS[3:]})
        write(root, {T0: SEGMENTS})
        # There is always another micro-batch, so processAllAvailable would wait for ever.
        while len(found := values(spark.table("out").where("dropped IS NULL"))) < 3:
            assert time.monotonic() < deadline, query.lastProgress
            time.sleep(0.1)
    finally:
        query.stop()
    assert found == [b"a", WHOLE, WHOLE]


@pytest.mark.long
@pytest.mark.slow
def test_what_is_available_now_ends_where_messages_expire_by_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, checkpoint, out = tmp_path / "log", tmp_path / "c", tmp_path / "out"
    options: dict[str, object] = {"message.assembler.expiration.ms": 1, "large.message.dead.letters": True}

    def run_timed() -> StreamingQuery:
        writer = reassemble(stream(spark, root), options).writeStream
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.format("parquet").start(str(out))
        try:
            assert query.awaitTermination(120), "there is always another micro-batch"
        finally:
            query.stop()
        return query

    write(root, {T0: SEGMENTS[:3], TopicPartition("t", 1): [b"a", *SEGMENTS]})
    run_timed()
    write(root, {TopicPartition("t", 1): [b"b"]})
    assert state_rows(run_timed()) == 0
    found = spark.read.parquet(str(out))
    (dead,) = found.where("dropped IS NOT NULL").collect()
    assert (dead.dropped.reason, dead.partition) == ("expired_by_time", 0)
    assert values(found.where("dropped IS NULL")) == [b"a", WHOLE, b"b"]
    assert spark.conf.get("spark.sql.streaming.noDataMicroBatches.enabled") == "true"


def test_hostile_claims_take_no_memory(spark: SparkSession, tmp_path: Path) -> None:
    def claim(number: int, count: int, length: int) -> bytes:
        return SEGMENTS[0][:21] + b"".join(n.to_bytes(4, "big") for n in (number, count, length)) + b"x"

    most = 2**31 - 1
    root = tmp_path / "log"
    write(root, {T0: [claim(most - 1, most, most), claim(0, most, most), claim(1, 2, most), b"end"]})
    whole = reassemble(batch(spark, root), {"large.message.dead.letters": True})
    assert values(whole.where("dropped IS NULL")) == [b"end"]
    (dead,) = whole.where("dropped IS NOT NULL").collect()
    assert dead.dropped.reason == "conflicting_id"


@pytest.mark.long
@pytest.mark.broker
def test_sparks_own_source(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    from kafka import KafkaProducer

    topic = "large-of-spark"
    broker.create_topic(topic, 1)
    written = interleaved("k", 60)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for record in written.records:
        producer.send(topic, record, headers=[("h", b"x")], partition=0)
    producer.flush()
    producer.close()
    options: dict[str, Any] = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    theirs = spark.read.format("kafka").options(**options).load()
    whole = reassemble(theirs)
    assert whole.schema == theirs.schema
    assert [(row.offset, bytes(row.value)) for row in in_order(whole)] == written.messages
    frame = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=25).load()
    run(reassemble(frame), tmp_path / "c")
    assert in_order(spark.table("out")) == in_order(whole)
