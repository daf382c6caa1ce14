"""Large values written through Spark are read back by an independent reader of message segments."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka.partitioner.default import murmur2
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.broker.producing import consume, unused_topic
from tests.extensions.large_messages.logs import stored
from tests.extensions.large_messages.records import Record, messages, segment
from tests.kafka import Broker

WITH_HEADERS = "key binary, value binary, headers array<struct<key:string,value:binary>>"
ON = {"large.message.enabled": "true", "max.message.segment.bytes": 1000}


def value(number: int, size: int) -> bytes:
    return random.Random(number).randbytes(size)


def large_and_small(count: int) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]] | None]]:
    """Rows of all kinds: keys and values that are null, empty, small or large, with headers and without."""
    sizes = [None, 0, 10, 1000, 1001, 5000, 33]
    rows = []
    for number in range(count):
        size = sizes[number % len(sizes)]
        rows.append(
            (
                [None, b"", b"k%d" % number][number % 3],
                None if size is None else value(number, size),
                [("n", b"%d" % number)] if number % 2 else None,
            )
        )
    return rows


def in_log(log: str | Path, topic: str = "t") -> dict[int, list[Record]]:
    """The records of each partition of a topic."""
    folders = sorted(Path(log).glob(f"{topic}-*"), key=lambda folder: int(folder.name.rpartition("-")[2]))
    return {number: stored(folder) for number, folder in enumerate(folders)}


def fields(records: list[Record]) -> list[tuple[Any, ...]]:
    """Key, value and headers, without the header with the time."""
    return [
        (r.key, r.value, [header for header in r.headers if header[0] != "_t"]) for r in messages(records)
    ]


@pytest.mark.parametrize("header_only", ["false", "true"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_every_message_comes_back_from_a_directory_in_order(
    write: Callable[..., str], header_only: str, compression: str
) -> None:
    rows = large_and_small(100)
    options = {**ON, "li.record.header.enable": header_only, "compression.type": compression}
    path = write(rows, WITH_HEADERS, numPartitions=3, **options)
    found = in_log(path)
    assert len(found) == 3
    assert all(found.values())
    back = [message for records in found.values() for message in fields(records)]
    assert sorted(back, key=repr) == sorted(((k, v, h or []) for k, v, h in rows), key=repr)
    order = {(k, v): number for number, (k, v, _) in enumerate(rows) if v}
    for records in found.values():
        assert all(dict(r.headers)["_t"] == r.timestamp.to_bytes(8, "big") for r in records)
        keyed = [order[k, v] for k, v, _ in fields(records) if v]
        assert keyed == sorted(keyed)
        ids = [found.id if found else None for found in map(segment, records)]
        assert len(set(ids) - {None}) == sum(
            1 for i, found in enumerate(ids) if found is not None and ids[i - 1 : i] != [found]
        ), "the message segments of each stand together"


def test_keys_are_generated_where_there_are_none_and_place_the_message(write: Callable[..., str]) -> None:
    path = write(
        [(None, value(i, 2500)) for i in range(40)], "key binary, value binary", numPartitions=4, **ON
    )
    found = in_log(path)
    assert all(found.values())
    for number, records in found.items():
        for record in records:
            found = segment(record)
            assert found is not None
            assert record.key == found.id
            assert found.id[6] >> 4 == 4, "a random UUID"
            assert (murmur2(record.key) & 0x7FFFFFFF) % 4 == number


def test_partitions_that_are_asked_for_get_all_message_segments(write: Callable[..., str]) -> None:
    path = write(
        [(None, value(i, 2500), i % 2) for i in range(10)],
        "key binary, value binary, partition int",
        numPartitions=3,
        **ON,
    )
    assert [len(messages(records)) for records in in_log(path).values()] == [5, 5, 0]


def null_keys_last(key: bytes | None, every: list[int], _: list[int]) -> int:
    """A partitioner that sees the keys that users gave."""
    return every[-1] if key is None else every[0]


def test_a_partitioner_is_asked_with_the_key_that_the_user_gave(write: Callable[..., str]) -> None:
    path = write(
        [(None, value(1, 2500)), (b"k", value(2, 2500)), (None, b"small")],
        "key binary, value binary",
        numPartitions=3,
        partitioner="tests.spark.test_large_write:null_keys_last",
        **ON,
    )
    found = in_log(path)
    assert [[len(m.value or b"") for m in messages(records)] for records in found.values()] == [
        [2500],
        [],
        [2500, 5],
    ]


def test_without_the_option_a_record_that_is_too_large_is_refused_and_the_option_is_named(
    write: Callable[..., str],
) -> None:
    with pytest.raises(PySparkException, match=r"RecordTooLarge.*large\.message\.enabled=true"):
        write([(value(1, 2_000_000),)], "value binary")


def test_headers_that_leave_too_little_room_are_refused_and_the_limit_is_named(
    write: Callable[..., str],
) -> None:
    rows = [(None, value(1, 100_000), [("big", bytes(1000))])]
    options = {**ON, "max.message.segment.bytes": 49_000, "max.message.bytes": 50_000}
    with pytest.raises(PySparkException, match=r"RecordTooLarge.*Lower max\.message\.segment\.bytes"):
        write(rows, WITH_HEADERS, **options)


def test_a_stream_writes_every_message_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = large_and_small(30)
    source, log = tmp_path / "source", tmp_path / "log"
    for part in range(3):
        spark.createDataFrame(rows[part * 10 :][:10], WITH_HEADERS).coalesce(1).write.mode("append").parquet(
            str(source)
        )
    for _ in range(2):
        query = (
            spark.readStream.schema(WITH_HEADERS)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(source))
            .writeStream.format("kafkalog")
            .options(topic="t", numPartitions=2, checkpointLocation=str(tmp_path / "checkpoint"), **ON)
            .trigger(availableNow=True)
            .start(str(log))
        )
        query.awaitTermination()
    back = [message for records in in_log(log).values() for message in fields(records)]
    assert sorted(back, key=repr) == sorted(((k, v, h or []) for k, v, h in rows), key=repr)


@pytest.mark.broker
@pytest.mark.parametrize("header_only", ["false", "true"])
def test_every_message_comes_back_from_a_broker(
    spark: SparkSession, broker: Broker, header_only: str
) -> None:
    topic = unused_topic()
    broker.create_topic(topic, 3)
    rows = [*large_and_small(40), (b"huge", value(99, 3_000_000), None)]
    frame = spark.createDataFrame(rows, WITH_HEADERS).coalesce(2)
    frame.write.format("kafkalog").options(
        **{**ON, "li.record.header.enable": header_only, "max.message.segment.bytes": 10_000, "topic": topic}
    ).option("kafka.bootstrap.servers", broker.bootstrap).mode("append").save()
    records = [
        Record(r.key, r.value, r.headers, r.timestamp, r.partition) for r in consume(broker.bootstrap, topic)
    ]
    assert len(records) == 340
    assert sorted(fields(records), key=repr) == sorted(((k, v, h or []) for k, v, h in rows), key=repr)


@pytest.mark.broker
def test_message_segments_above_a_topics_limit_are_refused_and_what_to_set_is_told(
    spark: SparkSession, broker: Broker
) -> None:
    topic = unused_topic()
    broker.create_topic(topic, configs={"max.message.bytes": 50_000})
    frame = spark.createDataFrame([(value(1, 200_000),)], "value binary")
    writer = frame.write.format("kafkalog").mode("append").option("topic", topic)
    writer.options(**{"kafka.bootstrap.servers": broker.bootstrap, "large.message.enabled": "true"})
    with pytest.raises(PySparkException, match=r"topic's max\.message\.bytes = 50000.*large\.message"):
        writer.option("large.message.enabled", "false").save()
    writer.option("large.message.enabled", "true").option("max.message.segment.bytes", 60_000)
    with pytest.raises(PySparkException, match=r"max\.message\.bytes = 50000.*max\.message\.segment\.bytes"):
        writer.save()
    writer.option("max.message.segment.bytes", 40_000).save()
    assert len(consume(broker.bootstrap, topic)) == 5


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_no_message_is_split_into_a_compacted_topic_of_brokers(
    spark: SparkSession, broker: Broker, guarantee: str
) -> None:
    """Its message segments share a key, of which the cleaner keeps the last."""
    topic = unused_topic()
    broker.create_topic(topic, configs={"cleanup.policy": "compact,delete"})
    places = {"kafka.bootstrap.servers": broker.bootstrap, "delivery.guarantee": guarantee, "topic": topic}

    def write(key: bytes | None, **options: object) -> None:
        frame = spark.createDataFrame([(key, value(1, 2500))], "key binary, value binary")
        frame.write.format("kafkalog").mode("append").options(**{**places, **ON, **options}).save()

    for key in (b"k", None):
        with pytest.raises(PySparkException, match=rf"3 message segments.*policy is compact.*{topic}-0"):
            write(key)
        assert consume(broker.bootstrap, topic) == []
    write(b"k", **{"max.message.segment.bytes": 3000})
    assert [record.value for record in consume(broker.bootstrap, topic)] == [value(1, 2500)]
