"""A real broker takes over a log directory that we wrote, and we read on from what it appends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F  # noqa: N812

from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import TopicPartition
from tests.kafka import Broker, dump_log_segments, run_kafka_class

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC = "adopted"
PARTITIONS = 3
COUNT = 6000
START_MS = 1_700_000_000_000

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Partition, offset, timestamp in ms, key, value, headers."""


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory that four jobs wrote, one for each compression but gzip, in small segments."""
    folder = tmp_path_factory.mktemp("written") / "kafka-logs"
    for number, compression in enumerate(("none", "lz4", "zstd", "snappy")):
        _append(_rows(spark, number * COUNT // 4, COUNT // 4), folder, **{"compression.type": compression})
    return folder


def _rows(spark: SparkSession, start: int, count: int) -> DataFrame:
    """Rows with and without key, value and headers, their timestamps out of order within a hundred."""
    order = F.col("id").bitwiseXOR(F.lit(0b110101))
    header = "named_struct('key', 'id', 'value', {})"
    headers = f"array({header.format('binary(string(id))')}, {header.format('null')})"
    return spark.range(start, start + count, 1, 2).select(
        F.when(F.col("id") % 5 != 0, F.concat(F.lit("key-"), F.col("id") % 97)).alias("key"),
        F.when(F.col("id") % 7 != 0, F.sha2(F.col("id").cast("string"), 256)).alias("value"),
        F.when(F.col("id") % 3 == 0, F.expr(headers)).alias("headers"),
        F.timestamp_millis(F.lit(START_MS) + order * 10).alias("timestamp"),
    )


def _append(rows: DataFrame, folder: Path, **options: Any) -> None:
    defaults = {"topic": TOPIC, "numPartitions": PARTITIONS, "segment.bytes": 64 << 10}
    rows.write.format("kafkalog").options(**defaults, **options).mode("append").save(str(folder))


@pytest.fixture(scope="module")
def shared_broker(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker that has taken over the directory as its topic, for tests that change nothing."""
    broker = _adopt(Broker(tmp_path_factory.mktemp("adopted")), written)
    yield broker
    broker.stop()


@pytest.fixture
def own_broker(new_broker: Callable[[], Broker], written: Path) -> Broker:
    """The same, for the one test that asks."""
    return _adopt(new_broker(), written)


def _adopt(broker: Broker, log_directory: Path) -> Broker:
    broker.start()
    broker.create_topic(TOPIC, PARTITIONS)
    broker.stop()
    broker.plant(log_directory)
    broker.start()
    return broker


@pytest.mark.long
def test_it_serves_exactly_our_records(spark: SparkSession, shared_broker: Broker, written: Path) -> None:
    ours = _read(spark, written)
    assert _consume(shared_broker) == ours
    source = _rows(spark, 0, COUNT).withColumn("timestamp", F.unix_millis("timestamp")).collect()
    assert sorted(map(repr, map(_record, source))) == sorted(repr(row[2:]) for row in ours)


@pytest.mark.soak
def test_it_goes_on_and_we_read_on(
    spark: SparkSession, own_broker: Broker, written: Path, tmp_path: Path
) -> None:
    stream = _copier(spark, own_broker.log_dir, tmp_path)
    stream()
    ends = _ends(_read(spark, written))
    appended = _produce(own_broker, 50)
    assert [row[:2] for row in appended] == [
        (partition, ends[partition] + number) for partition in range(PARTITIONS) for number in range(50)
    ]
    starting = {TOPIC: {str(partition): end for partition, end in ends.items()}}
    assert _read(spark, own_broker.log_dir, startingOffsets=str(starting).replace("'", '"')) == appended
    copied = stream()
    assert copied.select("partition", "offset").distinct().count() == copied.count() == COUNT + len(appended)
    assert {tuple(row) for row in copied.where("batch > 0").select("partition", "offset").collect()} == {
        row[:2] for row in appended
    }


def test_kafkas_own_consumer_agrees(shared_broker: Broker, written: Path, spark: SparkSession) -> None:
    properties = ("print.partition", "print.offset", "print.timestamp", "print.key", "print.headers")
    printed = run_kafka_class(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", shared_broker.bootstrap, "--topic", TOPIC, "--from-beginning"),
        *("--max-messages", COUNT, "--timeout-ms", 60_000),
        *(word for name in properties for word in ("--formatter-property", f"{name}=true")),
    ).stdout
    assert sorted(printed.splitlines()) == sorted(map(_as_printed, _read(spark, written)))


def _as_printed(row: Row) -> str:
    partition, offset, timestamp, key, value, headers = row
    shown = ",".join(f"{name}:{_text(content)}" for name, content in headers) or "NO_HEADERS"
    columns = (f"CreateTime:{timestamp}", f"Partition:{partition}", f"Offset:{offset}", shown)
    return "\t".join((*columns, _text(key), _text(value)))


def _text(content: bytes | None) -> str:
    return "null" if content is None else content.decode()


def test_it_looks_up_timestamps_as_we_do(shared_broker: Broker, written: Path) -> None:
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    ours = LogDirectory.open(str(written))
    consumer = KafkaConsumer(bootstrap_servers=shared_broker.bootstrap)
    try:
        for timestamp in [0, *range(START_MS - 10, START_MS + COUNT * 10 + 700, 1777), 2 * START_MS]:
            times = {KafkaTopicPartition(*partition): timestamp for partition in partitions}
            found = consumer.offsets_for_times(times)
            theirs = {TopicPartition(*key): place and place.offset for key, place in found.items()}
            assert ours.offsets_for_times(dict.fromkeys(partitions, timestamp)) == theirs, timestamp
    finally:
        consumer.close()


@pytest.mark.long
def test_a_running_broker_keeps_us_from_writing(
    spark: SparkSession, shared_broker: Broker, written: Path
) -> None:
    with pytest.raises(Exception, match="LogDirectoryLockedError"):
        _append(_rows(spark, 0, 10), shared_broker.log_dir)
    assert _read(spark, shared_broker.log_dir) == _read(spark, written)


@pytest.mark.long
@pytest.mark.parametrize(
    "kill", [pytest.param(False, id="stopped", marks=pytest.mark.soak), pytest.param(True, id="killed")]
)
def test_it_adopts_what_we_append_while_it_is_away(
    spark: SparkSession, own_broker: Broker, written: Path, kill: bool
) -> None:
    appended = _produce(own_broker, 20)
    own_broker.stop(kill=kill)
    _append(_rows(spark, COUNT, 500), own_broker.log_dir)
    ours = _read(spark, own_broker.log_dir)
    assert len(ours) == COUNT + len(appended) + 500
    own_broker.start()
    assert _consume(own_broker) == ours
    ends = _ends(ours)
    assert [row[:2] for row in _produce(own_broker, 1)] == list(ends.items())


def test_kafkas_tools_find_no_fault_in_our_files(written: Path) -> None:
    files = [file for suffix in (".log", ".index", ".timeindex") for file in written.glob(f"*/*{suffix}")]
    assert len(files) > 3 * PARTITIONS, "The directory should have several segments"
    dump_log_segments(*files)
    dump_log_segments(*(file for file in files if file.suffix != ".log"), sanity=True)


def _read(spark: SparkSession, log_directory: Path, **options: Any) -> list[Row]:
    source = spark.read.format("kafkalog").options(subscribe=TOPIC, includeHeaders=True, **options)
    rows = source.load(str(log_directory)).withColumn("timestamp", F.unix_millis("timestamp"))
    return [
        (row.partition, row.offset, *_record(row)) for row in rows.orderBy("partition", "offset").collect()
    ]


def _record(row: SparkRow) -> Any:
    headers = tuple((header.key, _bytes(header.value)) for header in row.headers or ())
    return row.timestamp, _bytes(row.key), _bytes(row.value), headers


def _bytes(content: str | bytes | bytearray | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content and bytes(content)


def _ends(rows: list[Row]) -> dict[int, int]:
    return {partition: offset + 1 for partition, offset, *_ in rows}


def _consume(broker: Broker) -> list[Row]:
    """All records of the topic, as kafka-python reads them from the broker."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    try:
        partitions = [KafkaTopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        rows: list[Row] = []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for records in consumer.poll(timeout_ms=1000).values():
                rows += (
                    (r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records
                )
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: row[:2])


def _produce(broker: Broker, count: int) -> list[Row]:
    """Let the broker append ``count`` records to each partition."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    try:
        sent = [
            producer.send(TOPIC, b"v%d" % number, b"k", partition=partition, timestamp_ms=START_MS + number)
            for partition in range(PARTITIONS)
            for number in range(count)
        ]
        places = [future.get(30) for future in sent]
    finally:
        producer.close()
    return [
        (place.partition, place.offset, START_MS + number % count, b"k", b"v%d" % (number % count), ())
        for number, place in enumerate(places)
    ]


def _copier(spark: SparkSession, log_directory: Path, scratch: Path) -> Callable[[], DataFrame]:
    """Runs one and the same stream again; its rows so far, with the number of the micro-batch."""

    def save(rows: DataFrame, batch: int) -> None:
        rows.withColumn("batch", F.lit(batch)).write.mode("append").parquet(str(scratch / "copied"))

    def run() -> DataFrame:
        source = spark.readStream.format("kafkalog").options(subscribe=TOPIC, startingOffsets="earliest")
        query = (
            source.load(str(log_directory))
            .writeStream.foreachBatch(save)
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return spark.read.parquet(str(scratch / "copied"))

    return run
