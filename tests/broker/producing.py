"""Write rows to brokers, and check them by kafka-python's consumer and in the broker's files."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from pyspark_kafkalog.broker.cluster.cluster import Cluster, cluster_of
from pyspark_kafkalog.broker.produce.producer import Producer
from pyspark_kafkalog.broker.produce.state import PartitionResult
from pyspark_kafkalog.codec.walk import Batches, walk
from pyspark_kafkalog.model import EncodeSettings, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions, ProduceOptions
from pyspark_kafkalog.write.routing import Partitioner, Router
from pyspark_kafkalog.write.rows import write_rows


class Record(NamedTuple):
    """A record as kafka-python's consumer returns it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


def unused_topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def numbered(count: int, start: int = 0, size: int = 10) -> pa.RecordBatch:
    """Rows with only a value each, their number with leading zeros."""
    return rows(value=[b"%0*d" % (size, i) for i in range(start, start + count)])


def connected(bootstrap: str, **options: Any) -> Cluster:
    return cluster_of(ConnectionOptions(tuple(bootstrap.split(",")), **options))


def sink_of(
    cluster: Cluster, *, compression: str = "none", batch_size: int = 256 << 10, **options: Any
) -> Producer:
    encode = EncodeSettings(compression=compression, batch_size=batch_size)
    return Producer(cluster, ProduceOptions(**options), encode)


def router_to(
    sink: Producer, topic: str | None, partitioner: Partitioner | None = None, batch_size: int = 256 << 10
) -> Router:
    return Router(
        topic=topic,
        partition_count=sink.partition_count,
        has_partition=sink.has_partition,
        partitioner=partitioner,
        batch_size=batch_size,
    )


def produce(
    cluster: Cluster,
    topic: str | None,
    arrow_batches: Iterable[pa.RecordBatch],
    *,
    partitioner: Partitioner | None = None,
    **options: Any,
) -> dict[TopicPartition, PartitionResult]:
    """Write the rows as one task."""
    with sink_of(cluster, **options) as sink:
        router = router_to(sink, topic, partitioner, options.get("batch_size", 256 << 10))
        write_rows(arrow_batches, router, sink)
        return sink.finish()


def consume(bootstrap: str, topic: str) -> list[Record]:
    """All records of a topic, partition by partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    try:
        deadline = time.monotonic() + 30
        while not (numbers := consumer.partitions_for_topic(topic)):
            assert time.monotonic() < deadline, f"{topic} is not known"
        partitions = [KafkaTopicPartition(topic, number) for number in sorted(numbers)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        records: list[Record] = []
        while any(consumer.position(p) < ends[p] for p in partitions):
            for partition, fetched in consumer.poll(timeout_ms=1000).items():
                records += [
                    Record(partition.partition, r.offset, r.key, r.value, list(r.headers), r.timestamp)
                    for r in fetched
                ]
        return sorted(records, key=lambda record: record[:2])
    finally:
        consumer.close()


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in consume(bootstrap, topic)]


def stored(folder: Path) -> Batches:
    """The headers of the record batches in a partition's folder, as the broker stored them."""
    (segment,) = folder.glob("*.log")
    return walk(np.fromfile(segment, np.uint8))


def digits(count: int, size: int = 10) -> Sequence[bytes]:
    """The values of :func:`numbered`."""
    return [b"%0*d" % (size, i) for i in range(count)]
