"""Rows to and from brokers with nothing but the user's options, and without Spark."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.splits import Split
from tests.broker.producing import produce
from tests.security.logins import Options

RULES = ReadRules(
    schema=pa.schema([pa.field("value", pa.binary())]),
    read_committed=True,
    fail_on_data_loss=True,
    limits=DecodeLimits(),
)


def write(options: Options, topic: str, rows: Iterable[pa.RecordBatch]) -> None:
    """Write rows as one task, over a connection of their own."""
    connection = place_options(options).brokers
    assert connection is not None
    produce(cluster_of(connection), topic, rows)


def read(options: Options, topic: str) -> list[bytes]:
    """The values of all records of a topic."""
    place = open_place(place_options(options))
    return [
        value
        for number in place.topics()[topic]
        for arrow_batch in RecordReader(place, RULES).read(
            Split(TopicPartition(topic, number), OffsetRange(EARLIEST, LATEST))
        )
        for value in arrow_batch.column("value").to_pylist()
    ]
