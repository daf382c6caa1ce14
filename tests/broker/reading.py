"""Read from brokers: by this package, as rows of a schema, and by kafka-python's consumer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, Place, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.splits import Split

ALL = OffsetRange(EARLIEST, LATEST)
SCHEMA = pa.schema(
    [pa.field(name, ROW_TYPES[name]) for name in ("offset", "timestamp", "key", "value", "headers")]
)

Row = tuple[Any, ...]
"""Offset, timestamp in ms, key, value, and headers as pairs."""


def place(bootstrap: str, connection: dict[str, Any] | None = None, **fetch: Any) -> Brokers:
    options = ConnectionOptions(tuple(bootstrap.split(",")), **(connection or {}))
    return Brokers(options, FetchOptions(**fetch))


def batches(
    brokers: Place,
    partition: TopicPartition,
    offsets: OffsetRange = ALL,
    *,
    read_committed: bool = False,
    fail_on_data_loss: bool = True,
    schema: pa.Schema = SCHEMA,
) -> Iterator[pa.RecordBatch]:
    limits = DecodeLimits()
    rules = ReadRules(
        schema, read_committed=read_committed, fail_on_data_loss=fail_on_data_loss, limits=limits
    )
    return RecordReader(brokers, rules).read(Split(partition, offsets))


def rows(brokers: Place, partition: TopicPartition, offsets: OffsetRange = ALL, **rules: Any) -> list[Row]:
    return [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"] or ()],
        )
        for batch in batches(brokers, partition, offsets, **rules)
        for row in batch.to_pylist()
    ]


def offsets_of(
    brokers: Place, partition: TopicPartition, offsets: OffsetRange = ALL, **rules: Any
) -> list[int]:
    schema = pa.schema([SCHEMA.field("offset")])
    found = batches(brokers, partition, offsets, schema=schema, **rules)
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def rows_of_kafka_python(bootstrap: str, partition: TopicPartition, *, read_committed: bool) -> list[Row]:
    """All that kafka-python's consumer returns up to the end that it sees."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed" if read_committed else "read_uncommitted",
    )
    kafka_partition = KafkaTopicPartition(*partition)
    try:
        consumer.assign([kafka_partition])
        consumer.seek_to_beginning(kafka_partition)
        end = consumer.end_offsets([kafka_partition])[kafka_partition]
        found: list[Row] = []
        while consumer.position(kafka_partition) < end:
            for record in consumer.poll(500).get(kafka_partition, []):
                found.append(
                    (record.offset, record.timestamp, record.key, record.value, list(record.headers))
                )
        return found
    finally:
        consumer.close()
